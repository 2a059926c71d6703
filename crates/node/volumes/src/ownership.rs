//! fsGroup: a volume's files belong to the pod's group.

use crate::error::{Context, Result};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// Gives everything at and beneath `path` to `gid`, readable (and unless `read_only` writable) for it; directories hand
/// the group on to new files. With `on_root_mismatch`, nothing is done when the root is right already.
///
/// # Errors
/// The kernel refuses.
pub fn set_group(path: &Path, gid: u32, read_only: bool, on_root_mismatch: bool) -> Result<()> {
    if on_root_mismatch && is_right(path, gid, read_only) {
        return Ok(());
    }
    walk(path, gid, read_only)
}

fn group_bits(read_only: bool, directory: bool) -> u32 {
    let rights = if read_only { 0o440 } else { 0o660 };
    if directory { rights | 0o110 | 0o2000 } else { rights }
}

fn is_right(path: &Path, gid: u32, read_only: bool) -> bool {
    let bits = group_bits(read_only, true);
    fs::symlink_metadata(path).is_ok_and(|m| m.gid() == gid && m.permissions().mode() & bits == bits)
}

fn walk(path: &Path, gid: u32, read_only: bool) -> Result<()> {
    let meta = fs::symlink_metadata(path).at("look at", path)?;
    lchown(path, None, Some(gid)).at("set group of", path)?;
    if meta.file_type().is_symlink() {
        return Ok(());
    }
    let mode = meta.permissions().mode() & 0o7777 | group_bits(read_only, meta.is_dir());
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).at("set mode of", path)?;
    if meta.is_dir() {
        for entry in fs::read_dir(path).at("read", path)?.flatten() {
            walk(&entry.path(), gid, read_only)?;
        }
    }
    Ok(())
}
