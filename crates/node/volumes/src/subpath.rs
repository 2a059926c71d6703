//! Mounts a directory or file inside a volume (subPath).
//!
//! The pod's containers may change the volume meanwhile. So the path is opened beneath the volume's
//! file descriptor with `openat2` (no symbolic link may lead outside), and that descriptor, not its
//! name, is bind-mounted at a place that only the kubelet can write.
//!
//! Rejected: checking a path and then resolving it by name. CVE-2017-1002101 and CVE-2021-25741 are
//! races between the two.

use crate::error::{Context, Result, VolumeError};
use crate::mounts::{Mounter, is_mount_point};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Mounts `subpath` of the volume at `volume` on `target`; creates missing directories with the
/// volume's mode. Returns the path for the runtime.
///
/// # Errors
/// A path outside the volume, or a failed operation.
pub fn prepare_subpath(
    mounter: Mounter,
    volume: &Path,
    subpath: &str,
    target: &Path,
) -> Result<PathBuf> {
    let relative = Path::new(subpath);
    if !relative
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(VolumeError::Refused(format!(
            "subPath {subpath:?} must be relative and must not contain '..'"
        )));
    }
    let root = fs::canonicalize(volume).at("resolve", volume)?;
    let opened = open_beneath(&root, relative)?;
    if mounter == Mounter::Plain {
        return Ok(root.join(relative));
    }
    // Of an earlier attempt of this container: the volume may have changed since.
    if is_mount_point(target) {
        mounter.unmount_beneath(target)?;
    }
    make_target(&opened, target)?;
    // The kernel resolves this link to the opened file itself, whatever its path names by now.
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    mounter.bind_mount(&by_descriptor, target)?;
    Ok(target.to_owned())
}

/// Unmounts and removes all sub-paths of a pod, whose targets are beneath `root`.
///
/// # Errors
/// A mount that can't be unmounted.
pub fn clean_subpaths(mounter: Mounter, root: &Path) -> Result<()> {
    mounter.unmount_beneath(root)?;
    match fs::remove_dir_all(root) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at("remove", root),
        _ => Ok(()),
    }
}

fn open_beneath(root: &Path, relative: &Path) -> Result<OwnedFd> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = open(root, directory, Mode::empty()).at("open", root)?;
    if let Ok(all) = openat2(
        &at,
        or_dot(relative),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        beneath_flags(),
    ) {
        return Ok(all);
    }
    // A component is missing (or leads outside, which the next calls detect): create the missing
    // directories one by one.
    for component in relative.components() {
        let name = component.as_os_str();
        at = match openat2(&at, name, directory, Mode::empty(), beneath_flags()) {
            Ok(next) => next,
            Err(Errno::NOENT) => make_directory(&at, name).at("create", &root.join(relative))?,
            Err(e) => return Err(e).at("open", &root.join(relative)),
        };
    }
    Ok(at)
}

fn beneath_flags() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS
}

fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn make_directory(at: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let parent = rustix::fs::fstat(at)?;
    mkdirat(at, name, Mode::from_raw_mode(0o750))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat2(at, name, flags, Mode::empty(), beneath_flags())?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(parent.st_mode & 0o7777))?;
    let owner = (
        rustix::fs::Uid::from_raw(parent.st_uid),
        rustix::fs::Gid::from_raw(parent.st_gid),
    );
    rustix::fs::fchown(&made, Some(owner.0), Some(owner.1))?;
    Ok(made)
}

fn make_target(opened: &OwnedFd, target: &Path) -> Result<()> {
    let parent = target.parent().unwrap_or(target);
    fs::create_dir_all(parent).at("create", parent)?;
    let stat = rustix::fs::fstat(opened).at("look at", target)?;
    let directory =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
    if directory {
        fs::create_dir_all(target).at("create", target)
    } else {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(target)
            .map(drop)
            .at("create", target)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn subpath_through_a_link_out_of_the_volume_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("real")).unwrap();
        symlink("/etc", volume.join("out")).unwrap();
        symlink("../../..", volume.join("up")).unwrap();
        symlink("real", volume.join("in")).unwrap();
        let target = dir.path().join("t");
        for (subpath, want) in [
            ("real", true),
            ("in", true),
            ("made/deep", true),
            ("out", false),
            ("out/passwd", false),
            ("up/x", false),
            ("../x", false),
            ("/abs", false),
        ] {
            let got = prepare_subpath(Mounter::Plain, &volume, subpath, &target);
            assert_eq!(got.is_ok(), want, "{subpath}: {got:?}");
        }
        assert!(volume.join("made/deep").is_dir());
    }

    #[test]
    fn missing_subpath_is_created_with_the_mode_of_the_volume() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2770)).unwrap();
        prepare_subpath(Mounter::Plain, &volume, "a/b", &dir.path().join("t")).unwrap();
        for made in ["a", "a/b"] {
            let mode = fs::metadata(volume.join(made))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o2770, "{made}");
        }
    }

    #[test]
    fn subpath_may_be_a_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let path = prepare_subpath(Mounter::Plain, dir.path(), "file", &dir.path().join("t"));
        assert!(path.unwrap().ends_with("file"));
        clean_subpaths(Mounter::Plain, &dir.path().join("never-mounted")).unwrap();
    }
}
