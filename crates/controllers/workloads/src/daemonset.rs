//! DaemonSets: one pod on each matching node.
//!
//! Pods are bound by the scheduler, through an affinity to their node's name, so a pod counts for
//! its node before it is bound. A rolling update replaces unavailable pods first, because that
//! reduces no availability.

mod nodes;
mod pod;
mod rollout;
mod status;
mod view;
mod wiring;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};

use controllers_runtime::{Action, Meta, Write, claim, hash, labels, object_reference, pods};

use crate::history;
use view::{Plan, View};
pub use wiring::add_daemon_set_controller;

/// Maximum number of creations or deletions in one reconcile.
const BURST: usize = 250;
/// Minimum age of a failed pod in seconds before it is replaced.
const FAILED_FOR: i64 = 10;

/// Returns the actions for one DaemonSet.
pub fn reconcile_daemon_set(
    set: &DaemonSet,
    candidates: &[Arc<Pod>],
    all_nodes: &[Arc<Node>],
    revisions: &[Arc<ControllerRevision>],
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &set.spec else {
        return Vec::new();
    };
    if labels::is_empty(&spec.selector) {
        return vec![report_empty_selector(set)];
    }
    let claim = claim::claim_objects(set, &spec.selector, candidates, |_| true, &[]);
    let mut actions = claim.actions;
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    let latest = history::find_current(set, &spec.template, collisions, revisions);
    let digest = latest.revision.label(history::POD_LABEL).map(str::to_owned);
    let matcher = nodes::NodeMatcher::new(set);
    let nodes: Vec<_> = all_nodes
        .iter()
        .map(|n| (n.clone(), matcher.match_node(n)))
        .collect();
    let view = View {
        set,
        desired: nodes.iter().filter(|(_, fit)| fit.run).count(),
        nodes,
        pods: by_node(&claim.owned),
        hash: digest.unwrap_or_else(|| hash::hash_template(&spec.template, collisions)),
        now,
    };
    // The garbage collector deletes or orphans the pods of a set in deletion.
    if !set.is_deleting() {
        actions.extend(latest.actions);
        actions.extend(build_actions(&view, plan_pods(&view)));
        let in_use = |r: &ControllerRevision| {
            r.name() == latest.revision.name()
                || claim
                    .owned
                    .iter()
                    .any(|p| p.label(history::POD_LABEL) == r.label(history::POD_LABEL))
        };
        actions.extend(history::truncate_history(
            revisions,
            &in_use,
            spec.revision_history_limit.unwrap_or(10),
        ));
    }
    actions.extend(status::update_status(&view));
    actions.extend(next_available(&view));
    actions
}

fn report_empty_selector(set: &DaemonSet) -> Action {
    let text = "This daemon set is selecting all pods. A non-empty selector is required.";
    Action::warning(&object_reference(set), "SelectingAll", text)
}

/// Plans creations and deletions of pods. Their number is bounded by the burst; the events of the
/// pods start the next reconcile.
fn plan_pods(view: &View<'_>) -> Plan {
    let mut plan = manage_pods(view);
    // A rollout starts only once every node has its pod.
    if plan.create.is_empty() && plan.delete.is_empty() {
        rollout::plan_rollout(view, &mut plan);
    }
    plan
}

fn by_node(owned: &[Arc<Pod>]) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut map: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in owned {
        if let Some(node) = pod::target_node(pod) {
            map.entry(node).or_default().push(pod.clone());
        }
    }
    for list in map.values_mut() {
        // A running pod first, then the oldest: of duplicates the one that serves is kept.
        list.sort_by_key(|p| {
            (
                pods::phase(p) != "Running",
                p.created_at(),
                p.name().to_owned(),
            )
        });
    }
    map
}

/// Plans one pod on each node that should have one, and none where it may not run.
fn manage_pods(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    for (node, fit) in &view.nodes {
        let here = view.pods_on(node.name());
        if !fit.stay {
            plan.delete
                .extend(here.iter().filter(|p| !p.is_deleting()).cloned());
        } else if here.is_empty() {
            if fit.run {
                plan.create.push(node.name().to_owned());
            }
        } else {
            thin_out(view, here, &mut plan);
        }
    }
    let known: HashSet<&str> = view.nodes.iter().map(|(node, _)| node.name()).collect();
    for (_, left) in view
        .pods
        .iter()
        .filter(|(name, _)| !known.contains(name.as_str()))
    {
        // The node was deleted: a pod that was never bound would wait for it forever.
        plan.delete.extend(
            left.iter()
                .filter(|p| !p.is_deleting() && pods::node_name(p).is_empty())
                .cloned(),
        );
    }
    plan
}

/// Deletes terminated pods and duplicates on one node.
fn thin_out(view: &View<'_>, here: &[Arc<Pod>], plan: &mut Plan) {
    let mut alive: Vec<&Arc<Pod>> = Vec::new();
    for pod in here.iter().filter(|p| !p.is_deleting()) {
        if !pods::is_terminal(pod) {
            alive.push(pod);
            continue;
        }
        let age = view.now.as_second() - pod.created_at();
        // A pod that fails at once on its node would otherwise be created and deleted in a tight
        // loop. Upstream backs off too.
        if pods::phase(pod) == "Failed" && age < FAILED_FOR {
            let wait = Duration::from_secs((FAILED_FOR - age).unsigned_abs());
            plan.requeue = Some(plan.requeue.map_or(wait, |w| w.min(wait)));
            continue;
        }
        plan.events.push(report_terminated_pod(view, pod));
        plan.delete.push(pod.clone());
    }
    // Without surge a second pod on a node is always a duplicate.
    if rollout::max_surge(view) == 0 {
        plan.delete.extend(alive.into_iter().skip(1).cloned());
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) = alive.into_iter().partition(|p| view.is_updated(p));
    // With surge the old pod stays until the new one is available.
    let replaced = new.iter().any(|p| view.is_pod_available(p));
    plan.delete.extend(new.into_iter().skip(1).cloned());
    plan.delete
        .extend(old.into_iter().skip(usize::from(!replaced)).cloned());
}

fn report_terminated_pod(view: &View<'_>, pod: &Pod) -> Action {
    let about = object_reference(view.set);
    let node = pods::node_name(pod);
    if pods::phase(pod) == "Failed" {
        let text = format!(
            "Found failed daemon pod {} on node {node}, will try to kill it",
            pod.key()
        );
        return Action::warning(&about, "FailedDaemonPod", text);
    }
    let text = format!(
        "Found succeeded daemon pod {} on node {node}, will try to delete it",
        pod.key()
    );
    Action::event(&about, "SucceededDaemonPod", text)
}

fn build_actions(view: &View<'_>, plan: Plan) -> Vec<Action> {
    let about = object_reference(view.set);
    let mut actions = plan.events;
    let create = plan.create.iter().take(BURST).map(|node| {
        Write::create(&pod::build_pod(view.set, node, &view.hash)).notes(
            &about,
            ("SuccessfulCreate", "Created pod: {name}"),
            ("FailedCreate", "Error creating: {error}"),
        )
    });
    let create: Vec<_> = create.collect();
    let delete = plan.delete.iter().take(BURST).map(|pod| {
        Write::delete(pod.as_ref()).notes(
            &about,
            ("SuccessfulDelete", "Deleted pod: {name}"),
            ("FailedDelete", "Error deleting: {error}"),
        )
    });
    let delete: Vec<_> = delete.collect();
    actions.extend(
        // Deletions first: a new pod may need the host port or the resources of the one that it
        // replaces.
        [delete, create]
            .into_iter()
            .filter(|b| !b.is_empty())
            .map(Action::Batch),
    );
    actions.extend(plan.requeue.map(Action::Requeue));
    actions
}

fn next_available(view: &View<'_>) -> Option<Action> {
    let all = view.pods.values().flatten();
    let waits = all.filter_map(|p| pods::available_in(p, view.min_ready(), view.now));
    let soonest = waits.filter(|s| *s > 0).min()?;
    Some(Action::Requeue(Duration::from_secs(soonest.unsigned_abs())))
}

#[cfg(test)]
mod tests;
