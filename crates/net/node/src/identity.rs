//! The node's private key of WireGuard, in a file that only root reads.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use net_link::PrivateKey;
use ring::rand::{SecureRandom, SystemRandom};

/// Mode of the file.
const KEY_MODE: u32 = 0o600;
/// Bits of a mode with which others than the owner read or write.
const OTHERS: u32 = 0o077;

/// The reason why the node has no private key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file can't be read or written.
    #[error("the private key {0} can't be used: {1}")]
    File(PathBuf, #[source] io::Error),
    /// The content is no key.
    #[error("the private key {0} is damaged; delete the file, and the agent makes a new key")]
    Damaged(PathBuf),
    /// Others than the owner may have read the key.
    #[error(
        "the private key {0} is open to other users; delete the file, and the agent makes a new key"
    )]
    Open(PathBuf),
    /// The kernel gives no random bytes.
    #[error("the kernel gives no random bytes for a private key")]
    Random,
}

/// Returns the key of the file, which is made with a new one if it does not exist.
///
/// # Errors
/// The file is damaged or open to others, or can't be written. It is left as it is.
pub(crate) fn load_or_create(path: &Path) -> Result<PrivateKey, IdentityError> {
    let describe = |error| IdentityError::File(path.to_owned(), error);
    match fs::metadata(path) {
        Ok(data) if data.permissions().mode() & OTHERS != 0 => {
            return Err(IdentityError::Open(path.to_owned()));
        }
        Ok(_) => {
            let text = fs::read_to_string(path).map_err(describe)?;
            let key = PrivateKey::parse_secret(text.trim());
            return key.ok_or_else(|| IdentityError::Damaged(path.to_owned()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(describe(error)),
    }
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| IdentityError::Random)?;
    let key = PrivateKey::from_random(bytes);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(describe)?;
    }
    let text = format!("{}\n", key.format_secret());
    base_tls::write_file_atomically(path, text.as_bytes(), KEY_MODE).map_err(describe)?;
    Ok(key)
}

/// Removes the key, if it exists.
///
/// # Errors
/// The directory can't be written.
pub(crate) fn remove_identity(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn key_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data").join("key");
        let key = load_or_create(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, KEY_MODE);
        assert_eq!(load_or_create(&path).unwrap(), key);
        remove_identity(&path).unwrap();
        remove_identity(&path).unwrap();
        assert_ne!(load_or_create(&path).unwrap(), key);
    }

    /// Otherwise a key that others know would be used on, or one that peers know would be replaced.
    #[test]
    fn damaged_or_open_key_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        base_tls::write_file_atomically(&path, b"AAAA\n", KEY_MODE).unwrap();
        assert!(matches!(
            load_or_create(&path),
            Err(IdentityError::Damaged(_))
        ));
        assert_eq!(fs::read(&path).unwrap(), b"AAAA\n");
        fs::remove_file(&path).unwrap();
        load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(load_or_create(&path), Err(IdentityError::Open(_))));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(
            load_or_create(&path),
            Err(IdentityError::File(..))
        ));
    }
}
