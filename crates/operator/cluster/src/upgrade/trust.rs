//! Checks of the owners of programs that root runs, at once and at each later start.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bits of a mode that let the group, and others, write.
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Rejects programs, and directories above them, that another user than root can replace. The
/// sticky bit of a directory such as `/tmp` does not help: what is absent there can be added.
///
/// Without root nothing is checked: the programs run with the rights of the caller.
pub(super) fn reject_foreign_owners(paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    let found = match rustix::process::geteuid().is_root() {
        true => list_foreign_rights(paths, 0)?,
        false => Vec::new(),
    };
    match found.is_empty() {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "{}; so another user could replace programs that root runs: use `chown root` and `chmod go-w`, or copy the programs \
             into a directory of root such as /opt/ironclad-VERSION",
            found.join(", ")
        ))),
    }
}

fn list_foreign_rights(
    paths: impl IntoIterator<Item = PathBuf>,
    owner: u32,
) -> Result<Vec<String>> {
    let mut examined = BTreeSet::new();
    let mut found = Vec::new();
    for path in paths {
        // A missing file is reported by the check of programs.
        if !path.exists() {
            continue;
        }
        let mut pending = list_parts(&std::path::absolute(&path).map_err(Error::io(&path))?);
        while let Some(part) = pending.pop() {
            if !examined.insert(part.clone()) {
                continue;
            }
            found.extend(examine_owner(&part, owner)?);
            // The directory of a link, and each link on the way, count like the target.
            if let (Ok(target), Some(parent)) = (std::fs::read_link(&part), part.parent()) {
                pending.extend(list_parts(&parent.join(target)));
            }
        }
    }
    Ok(found)
}

/// Returns the path and the directories above it, from the root on.
fn list_parts(path: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
    parts.reverse();
    parts
}

fn examine_owner(path: &Path, owner: u32) -> Result<Option<String>> {
    let found = std::fs::symlink_metadata(path).map_err(Error::io(path))?;
    // Every link has all bits; its directory says who can replace it.
    let mode = match found.is_symlink() {
        true => 0,
        false => found.mode(),
    };
    let right = describe_foreign_right(found.uid(), mode, owner);
    Ok(right.map(|right| format!("{} {right}", path.display())))
}

/// Returns the right of another user than the owner and root to change a file; None if none has it.
fn describe_foreign_right(uid: u32, mode: u32, owner: u32) -> Option<String> {
    if uid != owner && uid != 0 {
        return Some(format!("belongs to user {uid}"));
    }
    let writers = match (mode & GROUP_WRITE != 0, mode & OTHERS_WRITE != 0) {
        (false, false) => return None,
        // Also a group without members, such as Debian's `staff`: programs start for years, and a
        // later member could replace them.
        (true, false) => "its group",
        (false, true) => "other users",
        (true, true) => "its group and other users",
    };
    let mode = mode & 0o7777;
    Some(format!("can be written by {writers} (mode {mode:o})"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn file_that_another_user_can_replace_is_named() {
        for (uid, mode, expected) in [
            (0, 0o100_755, None),
            (0, 0o40_711, None),
            (0, 0o40_775, Some("by its group (mode 775)")),
            // Debian's /usr/local/bin with /etc/staff-group-for-usr-local.
            (0, 0o42_775, Some("by its group (mode 2775)")),
            (
                0,
                0o41_777,
                Some("by its group and other users (mode 1777)"),
            ),
            (0, 0o100_757, Some("by other users (mode 757)")),
            (1000, 0o100_755, Some("belongs to user 1000")),
        ] {
            let found = describe_foreign_right(uid, mode, 0);
            match expected {
                None => assert_eq!(found, None),
                Some(text) => assert!(found.is_some_and(|f| f.contains(text)), "{uid} {mode:o}"),
            }
        }
    }

    /// A link, and a parent directory, are as good as the file.
    #[test]
    fn parents_and_targets_of_links_are_examined() {
        let own = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().unwrap();
        let (safe, open) = (dir.path().join("safe"), dir.path().join("open"));
        let set_mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for directory in [&safe, &open] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("kubelet"), "").unwrap();
            set_mode(directory, 0o755);
            set_mode(&directory.join("kubelet"), 0o755);
        }
        let link = safe.join("kube-proxy");
        std::os::unix::fs::symlink(open.join("kubelet"), &link).unwrap();
        // Without those of the system's directory for temporary files.
        let examine = |path: &Path| {
            let mut found = list_foreign_rights([path.to_owned()], own).unwrap();
            found.retain(|fault| fault.starts_with(&*dir.path().to_string_lossy()));
            (!found.is_empty()).then(|| found.join(", "))
        };
        let cases = [safe.join("kubelet"), safe.join("absent"), link.clone()];
        assert!(cases.iter().all(|path| examine(path).is_none()));
        set_mode(&open, 0o775);
        for path in [&open.join("kubelet"), &link] {
            assert!(examine(path).is_some_and(|error| error.contains("mode 775")));
        }
        assert_eq!(examine(&safe.join("kubelet")), None);
        // A link that another user can point elsewhere.
        let loose = open.join("kube-scheduler");
        std::os::unix::fs::symlink(safe.join("kubelet"), &loose).unwrap();
        assert!(examine(&loose).is_some_and(|error| error.contains("mode 775")));
        let chained = safe.join("kvstore");
        std::os::unix::fs::symlink(&loose, &chained).unwrap();
        assert!(examine(&chained).is_some_and(|error| error.contains("mode 775")));
        set_mode(&open, 0o755);
        set_mode(&open.join("kubelet"), 0o757);
        assert!(examine(&link).is_some_and(|error| error.contains("mode 757")));
        set_mode(dir.path(), 0o1777);
        assert!(examine(&safe.join("kubelet")).is_some_and(|error| error.contains("mode 1777")));
    }
}
