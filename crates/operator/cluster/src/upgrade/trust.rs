//! Checks of the owners of programs that root runs, at once and at each later start.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bits of a mode that let the group or others write.
const SHARED_WRITE: u32 = 0o022;

/// Rejects programs, and directories above them, that another user than root can replace. The
/// sticky bit of a directory such as `/tmp` does not help: what is absent there can be added.
///
/// Without root nothing is checked: the programs run with the rights of the caller.
pub(super) fn reject_foreign_owners(paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => examine_owners(paths, 0),
        false => Ok(()),
    }
}

fn examine_owners(paths: impl IntoIterator<Item = PathBuf>, owner: u32) -> Result<()> {
    let mut examined = BTreeSet::new();
    for path in paths {
        // A missing file is reported by the check of programs.
        let Ok(real) = path.canonicalize() else {
            continue;
        };
        for part in real.ancestors() {
            if examined.insert(part.to_owned()) {
                examine_owner(part, owner)?;
            }
        }
    }
    Ok(())
}

fn examine_owner(path: &Path, owner: u32) -> Result<()> {
    let found = std::fs::symlink_metadata(path).map_err(Error::io(path))?;
    match describe_foreign_right(found.uid(), found.mode(), owner) {
        None => Ok(()),
        Some(right) => Err(Error::Refused(format!(
            "{0} {right}, so another user could replace programs that root runs; `chown root {0}` and `chmod go-w {0}`, or \
             copy the programs into a directory of root such as /opt/ironclad-VERSION",
            path.display()
        ))),
    }
}

/// Returns the right of another user than the owner and root to change a file; None if none has it.
fn describe_foreign_right(uid: u32, mode: u32, owner: u32) -> Option<String> {
    if uid != owner && uid != 0 {
        return Some(format!("belongs to user {uid}"));
    }
    let is_shared = mode & SHARED_WRITE != 0;
    is_shared.then(|| {
        format!(
            "can be written by its group or others (mode {:o})",
            mode & 0o7777
        )
    })
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
            (0, 0o40_775, Some("mode 775")),
            (0, 0o41_777, Some("mode 1777")),
            (0, 0o100_757, Some("mode 757")),
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
        // The nearest fault is named; that of the system's directory for temporary files is last.
        let examine = |path: &Path| match examine_owners([path.to_owned()], own) {
            Err(error)
                if error
                    .to_string()
                    .starts_with(&*dir.path().to_string_lossy()) =>
            {
                Some(error.to_string())
            }
            _ => None,
        };
        let cases = [safe.join("kubelet"), safe.join("absent"), link.clone()];
        assert!(cases.iter().all(|path| examine(path).is_none()));
        set_mode(&open, 0o775);
        for path in [&open.join("kubelet"), &link] {
            assert!(examine(path).is_some_and(|error| error.contains("mode 775")));
        }
        assert_eq!(examine(&safe.join("kubelet")), None);
        set_mode(&open, 0o755);
        set_mode(&open.join("kubelet"), 0o757);
        assert!(examine(&link).is_some_and(|error| error.contains("mode 757")));
        set_mode(dir.path(), 0o1777);
        assert!(examine(&safe.join("kubelet")).is_some_and(|error| error.contains("mode 1777")));
    }
}
