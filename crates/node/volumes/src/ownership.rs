//! Sets the pod's group (fsGroup) on a volume's files.
//!
//! Containers may change the volume during the walk. Every directory is opened beneath the volume's
//! descriptor without following links, and owner and mode are changed through descriptors.
//!
//! Rejected: changes by path. Between the check and the `chmod` a container can replace its file by
//! a link to a file of the node.

use crate::error::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, chmodat, chownat, fchmod, fchown,
    fstat, open, openat, openat2, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Sets the group of everything at and beneath `path` to `gid`, with read (and unless `read_only`
/// write) permission; new files in directories inherit the group. With `on_root_mismatch`, does
/// nothing if the root is already right.
///
/// # Errors
/// A failed system call. Files that vanish or change their type during the walk are skipped.
pub fn set_group(path: &Path, gid: u32, read_only: bool, on_root_mismatch: bool) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let root = open(path, flags | OFlags::DIRECTORY, Mode::empty()).at("open", path)?;
    let stat = fstat(&root).at("look at", path)?;
    let required = group_bits(read_only, true);
    if on_root_mismatch && stat.st_gid == gid && stat.st_mode & required == required {
        return Ok(());
    }
    // Relative paths of the directories still to do. Only one descriptor is open at a time, so that
    // a deep tree exhausts neither the stack nor the descriptors.
    let mut left = vec![PathBuf::from(".")];
    while let Some(relative) = left.pop() {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = match openat2(&root, &relative, flags, Mode::empty(), resolve) {
            Ok(directory) => directory,
            Err(e) if changed_meanwhile(e) => continue,
            Err(e) => return Err(e).at("open", &path.join(relative)),
        };
        set_directory(&directory, gid, read_only).at("set group of", &path.join(&relative))?;
        let found =
            set_entries(&directory, gid, read_only).at("set group in", &path.join(&relative))?;
        // Names and not descriptors are kept; openat2 resolves them beneath the root again.
        left.extend(found.into_iter().map(|name| relative.join(name)));
    }
    Ok(())
}

fn group_bits(read_only: bool, directory: bool) -> u32 {
    let rights = if read_only { 0o440 } else { 0o660 };
    if directory {
        rights | 0o110 | 0o2000
    } else {
        rights
    }
}

/// Returns whether the directory changed while it was opened: `XDEV` means that it was moved out of
/// the volume, `AGAIN` that the kernel can't tell.
fn changed_meanwhile(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN
    )
}

fn set_directory(directory: &OwnedFd, gid: u32, read_only: bool) -> rustix::io::Result<()> {
    fchown(directory, None, Some(Gid::from_raw(gid)))?;
    let mode = fstat(directory)?.st_mode & 0o7777 | group_bits(read_only, true);
    fchmod(directory, Mode::from_raw_mode(mode))
}

/// Handles all entries except directories, whose names are returned.
fn set_entries(directory: &OwnedFd, gid: u32, read_only: bool) -> rustix::io::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match set_entry(directory, name, gid, read_only) {
            Ok(true) => directories.push(PathBuf::from(name)),
            Ok(false) => {}
            Err(e) if changed_meanwhile(e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(directories)
}

/// Handles one entry. Returns true for a directory, which it does not change.
fn set_entry(
    directory: &OwnedFd,
    name: &OsStr,
    gid: u32,
    read_only: bool,
) -> rustix::io::Result<bool> {
    let group = Some(Gid::from_raw(gid));
    match FileType::from_raw_mode(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
        FileType::Directory => return Ok(true),
        FileType::Symlink => {
            return chownat(directory, name, None, group, AtFlags::SYMLINK_NOFOLLOW)
                .map(|()| false);
        }
        _ => {}
    }
    // O_PATH: opening a device or a pipe must have no effect on it.
    let file = openat(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let stat = fstat(&file)?;
    if matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::Symlink | FileType::Directory
    ) {
        return Ok(false);
    }
    chownat(file.as_fd(), "", None, group, AtFlags::EMPTY_PATH)?;
    // chown clears set-user-ID, so the mode is set last. The kernel resolves this path to the
    // descriptor's file.
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | group_bits(read_only, false));
    chmodat(
        CWD,
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        mode,
        AtFlags::empty(),
    )?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn own_gid() -> u32 {
        rustix::process::getgid().as_raw()
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn group_gets_rights_to_all_files_but_none_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("a/b/file"), "").unwrap();
        fs::set_permissions(volume.join("a/b/file"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&outside, volume.join("a/link")).unwrap();
        symlink(dir.path(), volume.join("up")).unwrap();
        set_group(&volume, own_gid(), false, false).unwrap();
        assert_eq!(mode(&volume.join("a/b/file")), 0o660);
        assert_eq!(mode(&volume.join("a/b")) & 0o2070, 0o2070);
        assert_eq!(mode(&outside), 0o600, "a link was followed");
        assert_eq!(
            mode(dir.path()) & 0o2000,
            0,
            "a link to a directory was followed"
        );
    }

    #[test]
    fn directory_that_turns_into_a_link_during_the_walk_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("host");
        fs::create_dir(&host).unwrap();
        fs::write(host.join("secret"), "").unwrap();
        fs::set_permissions(host.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("d")).unwrap();
        fs::write(volume.join("d/secret"), "").unwrap();
        let stop = AtomicBool::new(false);
        let walks = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (at, aside, link) = (
                    volume.join("d"),
                    dir.path().join("aside"),
                    dir.path().join("link"),
                );
                while !stop.load(Ordering::Relaxed) {
                    let _ = symlink(&host, &link);
                    let _ = fs::rename(&at, &aside);
                    let _ = fs::rename(&link, &at);
                    let _ = fs::remove_file(&at);
                    let _ = fs::rename(&aside, &at);
                }
            });
            let walks: Vec<_> = (0..2000)
                .map(|_| set_group(&volume, own_gid(), false, false))
                .collect();
            stop.store(true, Ordering::Relaxed);
            walks
        });
        walks.into_iter().for_each(|walk| walk.unwrap());
        assert_eq!(mode(&host.join("secret")), 0o600);
    }

    #[test]
    fn on_root_mismatch_skips_the_walk_if_the_root_matches() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2770)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        set_group(dir.path(), own_gid(), false, true).unwrap();
        assert_eq!(mode(&file), 0o600);
    }
}
