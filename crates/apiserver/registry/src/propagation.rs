//! Propagation policies as finalizers.

use crate::delete_options::{DeleteOptions, Propagation};
use api_kinds::Resource;
use api_meta::Meta;
use serde_json::Value;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Returns the finalizers that the object must have for this deletion; `None` if it has them
/// already.
pub(crate) fn propagation_finalizers(
    resource: &Resource,
    object: &Value,
    requested: Option<Propagation>,
) -> Option<Vec<String>> {
    // The garbage collector ignores events and would never remove the finalizer.
    if (resource.group.is_empty() || resource.group == "events.k8s.io")
        && resource.plural == "events"
    {
        return None;
    }
    let present = object.finalizers();
    let policy = requested
        .or_else(|| from_present(&present))
        .unwrap_or_else(|| default_propagation(resource));
    let wanted = match policy {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    let mut all: Vec<String> = present
        .iter()
        .filter(|f| **f != ORPHAN && **f != FOREGROUND)
        .map(|f| (*f).to_owned())
        .collect();
    all.extend(wanted.map(str::to_owned));
    (all != present).then_some(all)
}

/// Returns the policy of an earlier delete, which holds if this delete has none.
fn from_present(present: &[&str]) -> Option<Propagation> {
    if present.contains(&ORPHAN) {
        return Some(Propagation::Orphan);
    }
    present
        .contains(&FOREGROUND)
        .then_some(Propagation::Foreground)
}

/// Returns a kind's default. Jobs and replication controllers orphan dependents, for compatibility
/// with old clients.
fn default_propagation(resource: &Resource) -> Propagation {
    match (&*resource.group, &*resource.plural) {
        // Upstream's batch/v1 and core/v1 strategies keep this for API compatibility.
        ("", "replicationcontrollers") | ("batch", "jobs") => Propagation::Orphan,
        _ => Propagation::Background,
    }
}

/// Returns the warning about pods that remain, if a client deletes Jobs without a policy.
pub fn warn_about_orphans(resource: &Resource, options: &DeleteOptions) -> Option<&'static str> {
    // As upstream, replication controllers have the same default and no warning.
    let is_job = &*resource.group == "batch" && &*resource.plural == "jobs";
    (is_job && options.propagation.is_none()).then_some(
        "child pods are preserved by default when jobs are deleted; set \
         propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
         this warning",
    )
}

/// Sets the object's finalizers.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        object.metadata_mut().remove("finalizers");
    } else {
        object
            .metadata_mut()
            .insert("finalizers".into(), finalizers.into());
    }
}
