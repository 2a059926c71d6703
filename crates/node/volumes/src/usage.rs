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
    // Another file system is another volume, with a limit of its own.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hard_link_is_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("large"), vec![1u8; 1 << 20]).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), vec![1u8; 1 << 16]).unwrap();
        let before = disk_usage(dir.path());
        assert!((1 << 16..1 << 18).contains(&before), "{before}");
        std::fs::hard_link(dir.path().join("sub/file"), dir.path().join("second")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).unwrap();
        assert!(disk_usage(dir.path()) < before + (1 << 16));
        assert_eq!(disk_usage(&dir.path().join("missing")), 0);
    }
}
