//! RollingUpdate of a DaemonSet, with maxUnavailable or with maxSurge.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use controllers_runtime::Meta;

use super::view::{Plan, View};
use crate::deployment::scale_value;

/// Adds the pods that may be replaced now.
pub fn plan_rollout(view: &View<'_>, plan: &mut Plan) {
    let strategy = view
        .set
        .spec
        .as_ref()
        .and_then(|s| s.update_strategy.as_ref());
    if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
        return;
    }
    let surge = max_surge(view);
    if surge > 0 {
        replace_with_surge(view, surge, plan)
    } else {
        replace_without_surge(view, plan)
    }
}

/// Returns the number of nodes that may have a second pod.
pub fn max_surge(view: &View<'_>) -> usize {
    resolve_limit(view, |r| r.max_surge.clone(), 0)
}

fn resolve_limit(
    view: &View<'_>,
    pick: impl Fn(&k8s_openapi::api::apps::v1::RollingUpdateDaemonSet) -> Option<IntOrString>,
    usual: usize,
) -> usize {
    let strategy = view
        .set
        .spec
        .as_ref()
        .and_then(|s| s.update_strategy.as_ref());
    let value = strategy
        .and_then(|s| s.rolling_update.as_ref())
        .and_then(pick);
    let total = i32::try_from(view.desired).unwrap_or(i32::MAX);
    value.map_or(usual, |v| {
        usize::try_from(scale_value(&v, total, true)).unwrap_or(0)
    })
}

/// Returns the pods of a node that are not being deleted: one of the current template, and an older
/// one.
fn split_pods<'a>(
    view: &View<'_>,
    here: &'a [Arc<Pod>],
) -> (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>) {
    let alive = || here.iter().filter(|p| !p.is_deleting());
    (
        alive().find(|p| view.is_updated(p)),
        alive().find(|p| !view.is_updated(p)),
    )
}

fn replace_without_surge(view: &View<'_>, plan: &mut Plan) {
    let mut down = 0;
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    for (node, _) in view.nodes.iter().filter(|(_, fit)| fit.run) {
        match split_pods(view, view.pods_on(node.name())) {
            (Some(new), _) => down += usize::from(!view.is_pod_available(new)),
            (None, Some(old)) if view.is_pod_available(old) => candidates.push(old.clone()),
            (None, Some(old)) => {
                down += 1;
                broken.push(old.clone());
            }
            (None, None) => down += 1,
        }
    }
    // Pods of the current template that are not available yet use up the budget.
    let room = resolve_limit(view, |r| r.max_unavailable.clone(), 1).saturating_sub(down);
    // Replacing an unavailable pod costs no availability, so it does not count against the limit.
    plan.delete.extend(broken);
    plan.delete.extend(candidates.into_iter().take(room));
}

fn replace_with_surge(view: &View<'_>, surge: usize, plan: &mut Plan) {
    let mut extra = 0;
    let (mut urgent, mut candidates) = (Vec::new(), Vec::new());
    for (node, _) in view.nodes.iter().filter(|(_, fit)| fit.run) {
        match split_pods(view, view.pods_on(node.name())) {
            (Some(new), Some(old)) if view.is_pod_available(new) => plan.delete.push(old.clone()),
            (Some(_), Some(_)) => extra += 1,
            (None, Some(old)) if view.is_pod_available(old) => {
                candidates.push(node.name().to_owned())
            }
            (None, Some(_)) => urgent.push(node.name().to_owned()),
            (_, None) => {}
        }
    }
    // The old pod does not serve, so its replacement is not bound by the surge.
    plan.create.extend(urgent);
    plan.create
        .extend(candidates.into_iter().take(surge.saturating_sub(extra)));
}
