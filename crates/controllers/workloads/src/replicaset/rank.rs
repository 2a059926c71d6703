//! Ranks surplus pods for deletion.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods};

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` pods of `active` to delete.
pub fn select_victims(active: &[Arc<Pod>], siblings: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    let mut crowd: HashMap<&str, usize> = HashMap::new();
    for pod in siblings {
        *crowd.entry(pods::node_name(pod)).or_default() += 1;
    }
    let mut ordered = active.to_vec();
    // If all pods are deleted, their order does not matter; sorting thousands would cost more than
    // the deletion.
    if count < ordered.len() {
        ordered.sort_by(|a, b| compare_for_deletion(a, b, &crowd));
    }
    ordered.truncate(count);
    ordered
}

fn compare_for_deletion(a: &Pod, b: &Pod, crowd: &HashMap<&str, usize>) -> Ordering {
    let rank = |p: &Pod| crowd.get(pods::node_name(p)).copied().unwrap_or(0);
    let assigned = |p: &Pod| !pods::node_name(p).is_empty();
    // Upstream's ActivePodsWithRanks: pods that serve least are deleted first.
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| pods::is_ready(a).cmp(&pods::is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| rank(b).cmp(&rank(a)))
        .then_with(|| newer_ready(a, b))
        .then_with(|| pods::count_restarts(b).cmp(&pods::count_restarts(a)))
        .then_with(|| b.created_at().cmp(&a.created_at()))
        .then_with(|| a.name().cmp(b.name()))
}

fn phase_rank(pod: &Pod) -> u8 {
    match pods::phase(pod) {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn newer_ready(a: &Pod, b: &Pod) -> Ordering {
    match (pods::ready_since(a), pods::ready_since(b)) {
        (Some(x), Some(y)) => y.cmp(&x),
        _ => Ordering::Equal,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    pod.annotation(COST)
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}
