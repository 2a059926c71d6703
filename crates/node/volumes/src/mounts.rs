//! Mounts and unmounts. A node that may not mount (simulated runtime, no root) uses plain
//! directories.

use crate::error::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs;
use std::path::{Path, PathBuf};

/// The way in which volumes are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounter {
    /// Mounts of the kernel.
    Kernel,
    /// Plain directories: nothing is mounted and size limits are not enforced.
    Plain,
}

impl Mounter {
    /// Mounts a tmpfs at `path` (created if missing), of at most `size` bytes if given. Returns
    /// false if it was already mounted.
    ///
    /// # Errors
    /// The mount fails.
    pub fn mount_tmpfs(self, path: &Path, size: Option<u64>) -> Result<bool> {
        fs::create_dir_all(path).at("create", path)?;
        // A second tmpfs would hide the files of the first.
        if self == Mounter::Plain || is_mount_point(path) {
            return Ok(false);
        }
        let options = size.map(|bytes| format!("size={bytes}"));
        mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            options.as_deref(),
        )
        .at("mount a tmpfs on", path)?;
        Ok(true)
    }

    /// Bind-mounts `source` at `target` (an existing file or directory).
    ///
    /// # Errors
    /// The mount fails.
    pub fn bind_mount(self, source: &Path, target: &Path) -> Result<()> {
        if self == Mounter::Plain {
            return Ok(());
        }
        mount(
            Some(source),
            target,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .at("bind to", target)
    }

    /// Unmounts everything at and beneath `root`, innermost first.
    ///
    /// # Errors
    /// A mount that can't be unmounted.
    pub fn unmount_beneath(self, root: &Path) -> Result<()> {
        if self == Mounter::Plain {
            return Ok(());
        }
        let mut points: Vec<PathBuf> = mount_points()
            .into_iter()
            .filter(|p| p.starts_with(root))
            .collect();
        // A path sorts before the paths within it, so the reverse order is innermost first.
        points.sort();
        for point in points.iter().rev() {
            if umount2(point, MntFlags::UMOUNT_NOFOLLOW).is_err() {
                // Still in use by a process that is about to exit: a lazy unmount goes away with
                // the process.
                umount2(point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
                    .at("unmount", point)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn is_mount_point(path: &Path) -> bool {
    mount_points().iter().any(|point| point == path)
}

fn mount_points() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape_path)
        .collect()
}

/// Decodes a path of `/proc/self/mountinfo`: the kernel escapes blanks, tabs, line ends and
/// backslashes as octal.
fn unescape_path(text: &str) -> PathBuf {
    let plain = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    PathBuf::from(plain.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_with_blanks_is_decoded() {
        for (escaped, path) in [
            ("/mnt/a\\040b", "/mnt/a b"),
            ("/mnt/tab\\011\\012", "/mnt/tab\t\n"),
            ("/mnt/back\\134slash", "/mnt/back\\slash"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(unescape_path(escaped), PathBuf::from(path), "{escaped}");
        }
    }
}
