//! Changes of the states of containers.

use super::restart::{may_restart_all, restarts_after};
use crate::field::{Errors, Path};
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;

/// Lists of statuses and the containers that they belong to. Ephemeral containers never restart.
const LISTS: [(&str, Option<&str>); 3] = [
    ("containerStatuses", Some("containers")),
    ("initContainerStatuses", Some("initContainers")),
    ("ephemeralContainerStatuses", None),
];

/// Checks that no container leaves the state `terminated` unless its restart policy allows it: the
/// kubelet would otherwise run a container that others have seen as done.
pub fn validate_state_transitions(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let spec = get(old, "spec");
    let restarts_all = may_restart_all(spec);
    for (field, containers) in LISTS {
        if restarts_all && containers.is_some() {
            continue;
        }
        let at = path.child(field);
        let after = list(get(new, "status"), field);
        for (i, before) in list(get(old, "status"), field).iter().enumerate() {
            if leaves_end(after, before) && !may_restart(spec, containers, before) {
                let detail = "may not be transitioned to non-terminated state";
                errors.forbidden(&at.index(i).child("state"), detail);
            }
        }
    }
}

fn is_terminated(status: &Value) -> bool {
    has(get(status, "state"), "terminated")
}

fn leaves_end(after: &[Value], before: &Value) -> bool {
    let is_same = |status: &&Value| text(status, "name") == text(before, "name");
    is_terminated(before) && after.iter().filter(is_same).any(|s| !is_terminated(s))
}

fn may_restart(spec: &Value, containers: Option<&str>, before: &Value) -> bool {
    let end = get(get(before, "state"), "terminated");
    let code = int(end, "exitCode").unwrap_or(0);
    let mut all = containers
        .map(|field| list(spec, field))
        .unwrap_or_default()
        .iter();
    all.find(|container| text(container, "name") == text(before, "name"))
        .is_some_and(|container| restarts_after(container, text(spec, "restartPolicy"), code))
}
