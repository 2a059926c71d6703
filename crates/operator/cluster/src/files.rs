//! Helpers for files: atomic replacement, digests, removal of what may be absent.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Mode of a file that all users can read.
const PUBLIC_MODE: u32 = 0o644;

/// Writes a file atomically, creating its directory; returns whether the content changed.
pub fn write_if_changed(path: &Path, data: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|present| present == data) {
        return Ok(false);
    }
    write_file(path, data)?;
    Ok(true)
}

/// Writes a file atomically, creating its directory. A link in place of the file is not followed.
pub fn write_file(path: &Path, data: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        create_dir(folder, 0o755)?;
    }
    base_tls::write_file_atomically(path, data, PUBLIC_MODE).map_err(Error::io(path))
}

/// Writes a file as [`write_if_changed`]. An existing one keeps its mode, but for rights that a new
/// one does not have: an administrator may have made it private.
pub fn update_file(path: &Path, data: &[u8]) -> Result<bool> {
    let mode = match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => found.permissions().mode() & PUBLIC_MODE,
        _ => PUBLIC_MODE,
    };
    if fs::read(path).is_ok_and(|present| present == data) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        create_dir(folder, 0o755)?;
    }
    base_tls::write_file_atomically(path, data, mode).map_err(Error::io(path))?;
    Ok(true)
}

/// Writes a file atomically that only its owner can read, creating its directory. At no moment can
/// others read it.
pub fn write_private(path: &Path, data: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        create_dir(folder, 0o755)?;
    }
    base_tls::write_file_atomically(path, data, 0o600).map_err(Error::io(path))
}

/// Returns the last line of a log that is not blank, from its last 4 KiB.
#[must_use]
pub fn read_last_line(log: &Path) -> Option<String> {
    // A log may have 20 MiB and more (`supervisor/rotate.rs`).
    const END: u64 = 4096;
    let mut file = fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))
        .ok()?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.map(str::to_owned)
}

/// Removes a file if it exists.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}

/// Creates a directory and its parents; a new one gets the given mode.
pub fn create_dir(path: &Path, mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(Error::io(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::io(path))
}

/// Creates a directory that other users can't read, or restricts an existing one.
pub fn create_private_dir(path: &Path) -> Result<()> {
    const MODE: u32 = 0o750;
    fs::create_dir_all(path).map_err(Error::io(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(Error::io(path))
}

/// Returns the SHA-256 digest in hexadecimal.
#[must_use]
pub fn digest_hex(data: &[u8]) -> String {
    to_hex(&Sha256::digest(data))
}

/// Formats bytes in hexadecimal.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a file for a lock. Only its owner can open it, because a lock needs no right to write:
/// any user who can read the file could block the commands.
pub fn open_lock_file(path: &Path) -> Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(Error::io(path))?;
    // An earlier release made it readable.
    let owner_only = fs::Permissions::from_mode(0o600);
    file.set_permissions(owner_only).map_err(Error::io(path))?;
    Ok(file)
}

/// Removes a directory with its content if it exists.
pub fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A lock needs the right to read only.
    #[test]
    fn lock_file_can_be_opened_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).unwrap();
        for path in [&new, &old] {
            open_lock_file(path).unwrap();
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{path:?}");
        }
    }

    #[test]
    fn private_folder_of_an_earlier_release_is_tightened() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("logs");
        create_dir(&logs, 0o755).unwrap();
        create_private_dir(&logs).unwrap();
        assert_eq!(
            fs::metadata(&logs).unwrap().permissions().mode() & 0o777,
            0o750
        );
    }

    #[test]
    fn file_is_replaced_only_if_its_content_differs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/file");
        assert!(write_if_changed(&path, b"1").unwrap());
        assert!(!write_if_changed(&path, b"1").unwrap());
        assert!(write_if_changed(&path, b"2").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"2");
        let names = fs::read_dir(dir.path().join("sub")).unwrap();
        assert_eq!(names.count(), 1, "no temporary file is left");
    }

    #[test]
    fn updated_file_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/file");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert!(update_file(&path, b"0").unwrap());
        assert_eq!(mode(), 0o644, "a new one");
        for (before, after) in [(0o600, 0o600), (0o644, 0o644), (0o777, 0o644)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            assert!(update_file(&path, format!("{before}").as_bytes()).unwrap());
            assert_eq!(mode(), after, "{before:o}");
            assert!(!update_file(&path, format!("{before}").as_bytes()).unwrap());
        }
    }

    #[test]
    fn private_file_is_never_readable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/token");
        // Left by an interrupted run.
        write_file(&dir.path().join("sub/token.new"), b"old").unwrap();
        for text in ["1", "2"] {
            write_private(&path, text.as_bytes()).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(
                (fs::read_to_string(&path).unwrap().as_str(), mode),
                (text, 0o600)
            );
        }
        remove_file(&path).unwrap();
        remove_file(&path).unwrap();
    }

    #[test]
    fn removal_of_a_missing_directory_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub");
        create_dir(&path, 0o700).unwrap();
        remove_dir(&path).unwrap();
        remove_dir(&path).unwrap();
    }
    #[test]
    fn last_line_of_a_log_is_found_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("x.log");
        assert_eq!(read_last_line(&log), None);
        for (text, expected) in [
            (String::new(), None),
            ("\n\n".to_owned(), None),
            ("first\nlast\n \n".to_owned(), Some("last")),
            (format!("{}\nlast", "x".repeat(10_000)), Some("last")),
        ] {
            std::fs::write(&log, &text).unwrap();
            assert_eq!(read_last_line(&log).as_deref(), expected);
        }
    }
}
