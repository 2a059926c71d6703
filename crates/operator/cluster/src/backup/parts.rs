//! The parts of the data directory that a backup has.

use std::path::PathBuf;

use crate::settings::Settings;

/// Returns the paths of the parts, besides the settings and the store.
pub(super) fn list_parts(settings: &Settings) -> Vec<PathBuf> {
    let further = (2..=settings.node_count).map(|number| format!("nodes/{number}/manifests"));
    // The markers say that rights were granted: without them `up` would grant what an administrator
    // may have taken away.
    let parts = [
        "pki",
        "manifests",
        "config/bootstrap-rights-granted",
        "config/join-rights-granted",
    ];
    let parts = parts.map(str::to_owned).into_iter().chain(further);
    parts.map(PathBuf::from).collect()
}
