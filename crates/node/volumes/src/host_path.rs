//! hostPath volumes: checks a path's type, and creates it for the types `...OrCreate`.

use crate::error::{Context, Result, VolumeError};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

/// Checks `path` against a hostPath type (`""` checks nothing) and creates it for `...OrCreate`.
///
/// # Errors
/// The path is of another type, or can't be created.
pub fn check_host_path(path: &Path, kind: &str) -> Result<()> {
    let exists = fs::metadata(path);
    match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" if exists.is_err() => return make_directory(path),
        "FileOrCreate" if exists.is_err() => return make_file(path),
        // An existing path is only checked: its mode belongs to the administrator of the node.
        _ => {}
    }
    let found = exists.as_ref().ok().map(fs::Metadata::file_type);
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
    let (fits, expected) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(FileTypeExt::is_socket), "socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "block device"),
        other => {
            return Err(VolumeError::Refused(format!(
                "unknown hostPath type {other:?}"
            )));
        }
    };
    if fits {
        return Ok(());
    }
    Err(VolumeError::Refused(format!(
        "hostPath type check failed: {} is not a {expected}",
        path.display()
    )))
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).at("create", path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).at("set mode of", path)
}

fn make_file(path: &Path) -> Result<()> {
    let made = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .at("create", path)?;
    made.set_permissions(fs::Permissions::from_mode(0o644))
        .at("set mode of", path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn host_path_type_is_checked_or_created() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "").unwrap();
        let cases = [
            ("f", "File", true),
            ("f", "Directory", false),
            ("none", "Directory", false),
            ("none", "", true),
            ("d/e", "DirectoryOrCreate", true),
            ("d/e", "DirectoryOrCreate", true),
            ("d/f", "FileOrCreate", true),
            ("f", "Socket", false),
            ("f", "Nonsense", false),
        ];
        for (name, kind, want) in cases {
            assert_eq!(
                check_host_path(&at(name), kind).is_ok(),
                want,
                "{name} as {kind:?}"
            );
        }
    }
}
