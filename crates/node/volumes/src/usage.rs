//! Disk usage of a directory.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the bytes of blocks used at and beneath `path`, on its own file system, each inode once.
/// Unreadable entries count as 0, because files vanish during the walk.
pub fn disk_usage(path: &Path) -> u64 {
    let Ok(root) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    let mut seen = HashSet::new();
    sum_blocks(path, root.dev(), &mut seen)
}

fn sum_blocks(path: &Path, device: u64, seen: &mut HashSet<u64>) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    if meta.dev() != device || (meta.nlink() > 1 && !meta.is_dir() && !seen.insert(meta.ino())) {
        return 0;
    }
    let own = meta.blocks() * 512;
    if !meta.is_dir() {
        return own;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    own + entries
        .map(|entry| sum_blocks(&entry.path(), device, seen))
        .sum::<u64>()
}
