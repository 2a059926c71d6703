//! Files of certificates and keys.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Mode of a file that its owner and its group read.
const GROUP_MODE: u32 = 0o640;

/// Replaces a file in one step. The new file has `mode` (limited by the umask) from its first
/// moment, so that no other user can open a key while it is written. The folder must exist.
///
/// # Errors
/// The file can't be written. The old one is then unchanged.
pub fn write_file_atomically(path: &Path, data: &[u8], mode: u32) -> io::Result<()> {
    replace_file(path, data, mode, |_| Ok(()))
}

/// Replaces a file in one step, as [`write_file_atomically`]. Only its owner and members of this
/// group can read the new file, whatever the umask is.
///
/// # Errors
/// The file can't be written, or the process may not give it to the group. The old file is then
/// unchanged.
pub fn write_file_for_group(path: &Path, data: &[u8], group: u32) -> io::Result<()> {
    replace_file(path, data, 0o600, |file| {
        fchown(file, None, Some(group))?;
        file.set_permissions(Permissions::from_mode(GROUP_MODE))
    })
}

fn replace_file(
    path: &Path,
    data: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    // In the same folder: a rename is atomic within one file system only.
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    // Left by a crash: create_new would fail, and reuse would keep the mode of that file.
    match fs::remove_file(fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        // A link that another user put there is not followed.
        .create_new(true)
        .mode(mode)
        .open(fresh)?;
    prepare(&file)?;
    file.write_all(data)?;
    file.sync_all()?;
    // After the sync: a crash leaves the old file or the whole new one.
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn read_mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn file_is_replaced_with_the_mode_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_file_atomically(&path, b"new", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(read_mode(&path), 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn file_for_a_group_is_read_by_its_owner_and_the_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        // The process's own group: others need root.
        let group = fs::metadata(folder.path()).unwrap().gid();
        write_file_for_group(&path, b"text", group).unwrap();
        assert_eq!(read_mode(&path), 0o640);
        assert_eq!(fs::metadata(&path).unwrap().gid(), group);
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }

    #[test]
    fn file_left_by_a_crash_is_neither_reused_nor_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let (left, target) = (
            folder.path().join("a.key.new"),
            folder.path().join("target"),
        );
        fs::write(&left, "a longer text than the new one").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        write_file_atomically(&path, b"new", 0o600).unwrap();
        assert_eq!(read_mode(&path), 0o600);
        fs::write(&target, "").unwrap();
        symlink(&target, &left).unwrap();
        write_file_atomically(&path, b"newer", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&target).unwrap(), b"");
    }
}
