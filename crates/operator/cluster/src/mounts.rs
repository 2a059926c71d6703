//! Mount points below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::run_command;

/// Unmounts everything below a directory, innermost first.
pub fn unmount_below(folder: &Path) {
    for point in read_mount_points(folder) {
        if run_command("umount", &[&point.to_string_lossy()]).is_err() {
            let _ = run_command("umount", &["--lazy", &point.to_string_lossy()]);
        }
    }
}

/// Returns the mount points below a directory, innermost first.
pub fn read_mount_points(folder: &Path) -> Vec<PathBuf> {
    // The table has real paths: a link on the way would hide every mount.
    let folder = &fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    // Of this thread: it may have another mount namespace than the process.
    let table = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    list_mount_points(&table, folder)
}

/// Returns the mount points of a mount table below `folder`, innermost first. The kernel escapes
/// blanks and backslashes of paths as octal.
fn list_mount_points(table: &str, folder: &Path) -> Vec<PathBuf> {
    let unescape = |text: &str| {
        let plain = text.replace("\\040", " ").replace("\\011", "\t");
        PathBuf::from(plain.replace("\\012", "\n").replace("\\134", "\\"))
    };
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    // Not the directory itself: it may be a disk of its own.
    let points = points
        .map(unescape)
        .filter(|point| point.starts_with(folder) && point != folder);
    let mut points: Vec<PathBuf> = points.collect();
    // A later mount may cover an earlier one.
    points.reverse();
    points
}

/// Returns those of `points`, innermost first, that are below none of the others; in mounting
/// order.
pub fn list_outermost(points: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut outermost: Vec<PathBuf> = Vec::new();
    for point in points.into_iter().rev() {
        if !outermost.iter().any(|outer| point.starts_with(outer)) {
            outermost.push(point);
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount that is not found here stays, and its files would be removed with the directory.
    #[test]
    fn mount_points_below_a_directory_with_blanks_are_found() {
        let table = "tmpfs /run tmpfs rw 0 0\n\
                     /dev/sdb1 /srv/my\\040data ext4 rw 0 0\n\
                     /dev/sda1 /srv/my\\040data/pods/u/volume\\134x ext4 rw 0 0\n\
                     tmpfs /srv/my\\040data/pods/u/volume\\134x/inner tmpfs rw 0 0\n\
                     tmpfs /srv/my\\040database tmpfs rw 0 0\n";
        let found = list_mount_points(table, Path::new("/srv/my data"));
        let expected = [
            "/srv/my data/pods/u/volume\\x/inner",
            "/srv/my data/pods/u/volume\\x",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn outermost_mount_points_contain_the_others() {
        let points = [
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup",
            "/sys/kernel/security",
        ];
        let found = list_outermost(points.map(PathBuf::from).into());
        let expected = ["/sys/kernel/security", "/sys/fs/cgroup"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
