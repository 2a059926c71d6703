//! Changes of the certificate that the kubelet of a joined machine renews.

use std::path::{Path, PathBuf};

use crate::layout::Layout;
use crate::upgrade_state::is_unfinished;

/// The certificate that the kubelet of a joined machine renews, and kube-proxy and the routes use.
pub(super) struct IdentityWatch {
    path: PathBuf,
    digest: Option<String>,
    /// One that waits for the end of an upgrade, which was logged.
    deferred: Option<String>,
}

impl IdentityWatch {
    pub(super) fn new(layout: &Layout) -> Self {
        let path = layout.kubelet_identity();
        let digest = digest_file(&path);
        Self {
            path,
            digest,
            deferred: None,
        }
    }

    /// Returns the digest of a certificate that differs from the accepted one. The first
    /// certificate is accepted: `join` starts what uses it. A missing file is no change, because
    /// nothing could use it.
    fn find_change(&mut self) -> Option<String> {
        let found = digest_file(&self.path)?;
        let accepted = self.digest.get_or_insert_with(|| found.clone());
        (*accepted != found).then_some(found)
    }

    /// Returns the digest of a change to handle: one that waits for the end of an upgrade is
    /// handled and logged once until then.
    pub(super) fn find_due_change(&mut self, layout: &Layout) -> Option<String> {
        let found = self.find_change()?;
        let is_known = self.deferred.as_ref() == Some(&found);
        if is_known && is_unfinished(layout) {
            return None;
        }
        self.deferred = is_unfinished(layout).then(|| found.clone());
        Some(found)
    }

    /// Accepts a certificate: what uses it was restarted.
    pub(super) fn accept(&mut self, digest: String) {
        self.digest = Some(digest);
    }
}

fn digest_file(path: &Path) -> Option<String> {
    let content = std::fs::read(path).ok()?;
    Some(crate::files::digest_hex(&content))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn renewed_certificate_of_the_kubelet_is_noticed_until_it_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let mut identity = IdentityWatch::new(&layout);
        assert_eq!(identity.find_change(), None, "there is none yet");
        // The kubelet replaces a symbolic link.
        for (content, has_changed) in [("1", false), ("1", false), ("2", true)] {
            let target = dir.path().join(content);
            std::fs::write(&target, content).unwrap();
            std::fs::create_dir_all(layout.pki()).unwrap();
            let _ = std::fs::remove_file(layout.kubelet_identity());
            std::os::unix::fs::symlink(&target, layout.kubelet_identity()).unwrap();
            assert_eq!(identity.find_change().is_some(), has_changed, "{content}");
        }
        // The plan could not be written.
        let change = identity.find_change().unwrap();
        std::fs::remove_file(dir.path().join("2")).unwrap();
        assert_eq!(identity.find_change(), None, "the file is missing");
        std::fs::write(dir.path().join("2"), "2").unwrap();
        assert_eq!(identity.find_change(), Some(change.clone()));
        identity.accept(change);
        assert_eq!(identity.find_change(), None);
    }

    /// The command that continues the upgrade may be run days later.
    #[test]
    fn change_during_an_unfinished_upgrade_is_handled_once_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let path = layout.kubelet_identity();
        crate::files::write_file(&path, b"first").unwrap();
        let mut identity = IdentityWatch::new(&layout);
        crate::files::write_file(&layout.upgrade(), b"{}").unwrap();
        crate::files::write_file(&path, b"second").unwrap();
        assert!(identity.find_due_change(&layout).is_some());
        assert_eq!(identity.find_due_change(&layout), None);
        crate::files::write_file(&path, b"third").unwrap();
        assert!(identity.find_due_change(&layout).is_some());
        assert_eq!(identity.find_due_change(&layout), None);
        crate::upgrade_state::end_upgrade(&layout).unwrap();
        assert!(identity.find_due_change(&layout).is_some());
    }
}
