//! Statuses of workloads: counts are not negative and agree with each other.

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::tree::{get, int};
use serde_json::Value;

/// Fields of a kind's status.
pub(crate) struct StatusFields {
    /// Numbers that are not negative.
    pub counts: &'static [&'static str],
    /// Counts of the pods that `replicas` counts.
    pub parts: &'static [&'static str],
    /// Name of `readyReplicas` in the message about `availableReplicas`.
    pub ready: &'static str,
    /// True if `collisionCount` may not become smaller.
    pub has_collisions: bool,
}

pub(crate) const DEPLOYMENT: StatusFields = StatusFields {
    counts: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    parts: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
    has_collisions: true,
};
pub(crate) const REPLICA_SET: StatusFields = StatusFields {
    counts: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
    has_collisions: false,
};
pub(crate) const STATEFUL_SET: StatusFields = StatusFields {
    counts: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    parts: &[
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ],
    ready: "status.readyReplicas",
    has_collisions: true,
};
pub(crate) const DAEMON_SET: StatusFields = StatusFields {
    counts: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    parts: &[],
    ready: "",
    has_collisions: true,
};

/// Validates a write to `status` of a workload.
pub(crate) fn validate_workload_status(
    fields: &StatusFields,
    new: &Value,
    old: &Value,
    errors: &mut Errors,
) {
    let path = Path::ROOT.child("status");
    let status = get(new, "status");
    for field in fields.counts {
        rules::validate_non_negative(status, field, &path, errors);
    }
    // Rollout tools compare these counts: contradictory ones would end a wait too early.
    let count = |field| int(status, field).unwrap_or(0);
    for field in fields.parts {
        if count(field) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.invalid(&path.child(field), count(field), detail);
        }
    }
    if !fields.parts.is_empty() && count("availableReplicas") > count("readyReplicas") {
        let detail = format!("cannot be greater than {}", fields.ready);
        errors.invalid(
            &path.child("availableReplicas"),
            count("availableReplicas"),
            detail,
        );
    }
    let collisions = |object| int(get(object, "status"), "collisionCount");
    // The count is a part of the hash in names: an earlier value would make a name that exists.
    if fields.has_collisions
        && let Some(before) = collisions(old)
        && collisions(new).is_none_or(|after| after < before)
    {
        let shown = collisions(new).unwrap_or(0);
        errors.invalid(
            &path.child("collisionCount"),
            shown,
            "cannot be decremented",
        );
    }
}
