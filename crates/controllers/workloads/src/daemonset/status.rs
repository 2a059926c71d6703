//! Status of a DaemonSet: counts nodes by the state of their pods.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};

use controllers_runtime::{Action, Meta, pods};

use super::view::View;

/// Returns a status update if the status differs.
pub fn update_status(view: &View<'_>) -> Option<Action> {
    let old = view.set.status.clone().unwrap_or_default();
    let status = compute_status(view, &old);
    if status == old {
        return None;
    }
    Some(Action::update_status(&DaemonSet {
        status: Some(status),
        ..view.set.clone()
    }))
}

fn compute_status(view: &View<'_>, old: &DaemonSetStatus) -> DaemonSetStatus {
    let (mut desired, mut current, mut misplaced, mut ready, mut updated, mut available) =
        (0, 0, 0, 0, 0, 0);
    for (node, fit) in &view.nodes {
        let here = view.pods_on(node.name());
        if !fit.run {
            misplaced += i32::from(!here.is_empty());
            continue;
        }
        desired += 1;
        // Only the first pod of a node counts, otherwise duplicates would raise the counts above
        // the nodes.
        let Some(pod) = here.first() else { continue };
        current += 1;
        ready += i32::from(pods::is_ready(pod));
        available += i32::from(pods::is_available(pod, view.min_ready(), view.now));
        updated += i32::from(view.is_updated(pod));
    }
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    DaemonSetStatus {
        collision_count: old.collision_count,
        conditions: old.conditions.clone(),
        current_number_scheduled: current,
        desired_number_scheduled: desired,
        number_available: some(available),
        number_misscheduled: misplaced,
        number_ready: ready,
        number_unavailable: some(desired - available),
        observed_generation: Some(view.set.generation()),
        updated_number_scheduled: some(updated),
    }
}
