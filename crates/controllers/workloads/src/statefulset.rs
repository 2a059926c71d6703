//! StatefulSets: pods with stable names, created and replaced in order.
//!
//! A terminating pod is never replaced: its name is in use until it is deleted. With ordered
//! management one pod changes at a time, and each waits for the pods before it.

mod claims;
mod identity;
mod order;
mod status;
mod wiring;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use controllers_runtime::{Action, Meta, claim, pods};

use crate::history;
pub use wiring::add_stateful_set_controller;

/// Claims of a namespace by name.
pub type Claims = BTreeMap<String, Arc<PersistentVolumeClaim>>;

/// Inputs of one reconcile.
pub struct View<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// The pods of the set.
    pub pods: Vec<Arc<Pod>>,
    /// The revision before the running update.
    pub current: ControllerRevision,
    /// The revision of the current template.
    pub update: ControllerRevision,
    /// The namespace's claims.
    pub claims: &'a Claims,
    /// Current time.
    pub now: Timestamp,
}

impl View<'_> {
    /// Returns the first ordinal.
    pub fn first_ordinal(&self) -> i32 {
        self.set
            .spec
            .as_ref()
            .and_then(|s| s.ordinals.as_ref())
            .and_then(|o| o.start)
            .unwrap_or(0)
    }

    /// Returns the desired number of pods.
    pub fn replicas(&self) -> i32 {
        self.set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    /// Returns whether pods wait for the pods before them.
    pub fn is_ordered(&self) -> bool {
        let policy = self
            .set
            .spec
            .as_ref()
            .and_then(|s| s.pod_management_policy.as_deref());
        policy != Some("Parallel")
    }

    /// Returns `minReadySeconds`.
    pub fn min_ready(&self) -> i32 {
        self.set
            .spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or(0)
    }

    /// Returns whether the update strategy is RollingUpdate.
    pub fn is_rolling(&self) -> bool {
        let strategy = self
            .set
            .spec
            .as_ref()
            .and_then(|s| s.update_strategy.as_ref());
        strategy.and_then(|s| s.type_.as_deref()) != Some("OnDelete")
    }

    /// Returns the partition: ordinals below `start + partition` keep the current revision.
    pub fn update_partition(&self) -> i32 {
        let strategy = self
            .set
            .spec
            .as_ref()
            .and_then(|s| s.update_strategy.as_ref());
        strategy
            .and_then(|s| s.rolling_update.as_ref())
            .and_then(|r| r.partition)
            .unwrap_or(0)
    }

    /// Returns whether the pod is ready and not terminating.
    pub fn is_healthy(&self, pod: &Pod) -> bool {
        pods::phase(pod) == "Running" && pods::is_ready(pod) && !pod.is_deleting()
    }

    /// Returns whether the pod has been healthy for `minReadySeconds`.
    pub fn is_pod_available(&self, pod: &Pod) -> bool {
        self.is_healthy(pod) && pods::is_available(pod, self.min_ready(), self.now)
    }
}

/// Returns the actions for one StatefulSet. `candidates` are the namespace's pods that match or are
/// owned, `revisions` the owned ControllerRevisions.
pub fn reconcile_stateful_set(
    set: &StatefulSet,
    candidates: &[Arc<Pod>],
    revisions: &[Arc<ControllerRevision>],
    claims: &Claims,
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &set.spec else {
        return Vec::new();
    };
    let claim = claim::claim_objects(
        set,
        &spec.selector,
        candidates,
        // A pod with another name could never be replaced by one of the same name, so it is not
        // adopted.
        |p| identity::parse_ordinal(set, p).is_some(),
        &[],
    );
    let mut actions = claim.actions;
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    // The revision of the template is needed even while the set is deleted: the status reports it.
    let latest = history::find_current(set, &spec.template, collisions, revisions);
    let named = set
        .status
        .as_ref()
        .and_then(|s| s.current_revision.as_deref())
        .unwrap_or_default();
    let current = revisions
        .iter()
        .find(|r| r.name() == named)
        .map(|r| r.as_ref().clone());
    if !set.is_deleting() {
        actions.extend(latest.actions);
    }
    let view = View {
        set,
        pods: claim.owned,
        // A set without a recorded revision is new, so its first pods are of the latest one.
        current: current.unwrap_or_else(|| latest.revision.clone()),
        update: latest.revision,
        claims,
        now,
    };
    if !set.is_deleting() {
        order::plan_steps(&view, &mut actions);
        actions.extend(prune_revisions(
            &view,
            revisions,
            spec.revision_history_limit.unwrap_or(10),
        ));
    }
    actions.extend(status::update_status(&view));
    actions.extend(next_available(&view));
    actions
}

fn prune_revisions(
    view: &View<'_>,
    revisions: &[Arc<ControllerRevision>],
    limit: i32,
) -> Vec<Action> {
    // Only revisions without pods count against revisionHistoryLimit, as upstream.
    let in_use = |r: &ControllerRevision| {
        r.name() == view.current.name()
            || r.name() == view.update.name()
            || view
                .pods
                .iter()
                .any(|p| p.label(history::POD_LABEL) == Some(r.name()))
    };
    history::truncate_history(revisions, &in_use, limit)
}

fn next_available(view: &View<'_>) -> Option<Action> {
    let waits = view
        .pods
        .iter()
        .filter_map(|p| pods::available_in(p, view.min_ready(), view.now));
    // The end of minReadySeconds causes no event, so the key waits for it.
    let soonest = waits.filter(|s| *s > 0).min()?;
    Some(Action::Requeue(Duration::from_secs(soonest.unsigned_abs())))
}

#[cfg(test)]
mod tests;
