//! Files that hold keys: written atomically, mode 0600, at no moment readable by others.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::{fs, io};

use crate::Error;

/// Writes `data` to `path` with mode 0600, atomically.
pub(crate) fn write_private(path: &Path, data: &[u8]) -> Result<(), Error> {
    write_file(path, data, 0o600)
}

pub(crate) fn write_public(path: &Path, data: &[u8]) -> Result<(), Error> {
    write_file(path, data, 0o644)
}

/// Writes `data` to `path`, atomically. Its owner and the group can read it.
pub(crate) fn write_for_group(path: &Path, data: &[u8], group: u32) -> Result<(), Error> {
    create_folder(path)
        .and_then(|()| open_folder(path))
        .and_then(|()| base_tls::write_file_for_group(path, data, group))
        .map_err(|cause| io_error(path, cause))
}

/// Lets other users open files of the folder, but not list them. The umask of the process that
/// created it may have excluded them.
fn open_folder(path: &Path) -> io::Result<()> {
    const SEARCH: u32 = 0o011;
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    let mode = fs::metadata(folder)?.mode() & 0o7777;
    if mode & SEARCH == SEARCH {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(mode | SEARCH))
}

/// Returns whether the file belongs to the group.
pub(crate) fn has_group(path: &Path, group: u32) -> bool {
    fs::metadata(path).is_ok_and(|found| found.gid() == group && found.mode() & 0o040 != 0)
}

fn write_file(path: &Path, data: &[u8], mode: u32) -> Result<(), Error> {
    create_folder(path)
        .and_then(|()| base_tls::write_file_atomically(path, data, mode))
        .map_err(|cause| io_error(path, cause))
}

fn create_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn io_error(path: &Path, cause: io::Error) -> Error {
    Error::Io {
        path: path.to_owned(),
        cause,
    }
}

/// Returns the text of a file; None if it does not exist.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Io {
            path: path.to_owned(),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn folder_of_a_file_for_a_group_can_be_searched_whatever_the_umask_was() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("config");
        fs::create_dir(&folder).unwrap();
        let group = fs::metadata(&folder).unwrap().gid();
        for (before, want) in [(0o700, 0o711), (0o750, 0o751), (0o755, 0o755)] {
            fs::set_permissions(&folder, Permissions::from_mode(before)).unwrap();
            write_for_group(&folder.join("kubeconfig"), b"text", group).unwrap();
            let mode = fs::metadata(&folder).unwrap().mode() & 0o7777;
            assert_eq!(mode, want, "{before:o}");
        }
    }
}
