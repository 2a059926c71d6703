//! The order in which pods of a StatefulSet are created, deleted and updated.

use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use controllers_runtime::{Action, Meta, Write, object_reference, pods};

use super::view::View;
use super::{claims, identity};
use crate::deployment::scale_value;

/// Adds the next steps: create missing pods, then delete surplus ones, then replace those of an old
/// revision.
pub fn plan_steps(view: &View<'_>, actions: &mut Vec<Action>) {
    let (present, condemned) = sort_pods(view);
    // Upstream's order in updateStatefulSet: no pod is deleted or replaced while a lower ordinal is
    // missing or not available.
    let _ = create_missing(view, &present, actions)
        .is_continue()
        .then(|| delete_condemned(view, &present, &condemned, actions))
        .filter(ControlFlow::is_continue)
        .map(|_| replace_outdated(view, &present, actions));
}

/// Returns pods by ordinal in range, and those out of range from the highest down.
fn sort_pods(view: &View<'_>) -> (Vec<Option<Arc<Pod>>>, Vec<Arc<Pod>>) {
    let count = usize::try_from(view.replicas()).unwrap_or(0);
    let mut present = vec![None; count];
    let mut condemned = Vec::new();
    for pod in &view.pods {
        let Some(ordinal) = identity::parse_ordinal(view.set, pod) else {
            continue;
        };
        let slot = usize::try_from(i64::from(ordinal) - i64::from(view.first_ordinal())).ok();
        match slot.and_then(|s| present.get_mut(s)) {
            Some(slot) => *slot = Some(pod.clone()),
            None => condemned.push((ordinal, pod.clone())),
        }
    }
    condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    (present, condemned.into_iter().map(|(_, p)| p).collect())
}

fn create_missing(
    view: &View<'_>,
    present: &[Option<Arc<Pod>>],
    actions: &mut Vec<Action>,
) -> ControlFlow<()> {
    let ordered = view.is_ordered();
    for (ordinal, slot) in (view.first_ordinal()..).zip(present) {
        match slot {
            None => {
                if claims::ensure_claims(view, ordinal, actions) {
                    actions.push(create_pod(view, ordinal));
                }
                if ordered {
                    return ControlFlow::Break(());
                }
            }
            // The name is in use until the object is deleted, so the pod can't be created in the
            // same reconcile.
            Some(pod) if pods::is_terminal(pod) => {
                if !pod.is_deleting() {
                    actions.push(recreate_pod(view, pod));
                }
                if ordered {
                    return ControlFlow::Break(());
                }
            }
            Some(pod) => {
                claims::update_owners(view, pod, false, actions);
                // The claim may have been deleted before the pod was scheduled, and the pod would
                // wait for it forever.
                if pods::phase(pod) == "Pending" {
                    claims::ensure_claims(view, ordinal, actions);
                }
                if ordered && !view.is_pod_available(pod) {
                    return ControlFlow::Break(());
                }
            }
        }
    }
    ControlFlow::Continue(())
}

fn delete_condemned(
    view: &View<'_>,
    present: &[Option<Arc<Pod>>],
    condemned: &[Arc<Pod>],
    actions: &mut Vec<Action>,
) -> ControlFlow<()> {
    // The first unhealthy pod: scaling down must not take a second member from a group that has
    // lost one.
    let sick = present
        .iter()
        .flatten()
        .chain(condemned.iter().rev())
        .find(|p| !view.is_healthy(p));
    for pod in condemned {
        claims::update_owners(view, pod, true, actions);
    }
    for pod in condemned {
        let blocked = pod.is_deleting()
            || (!view.is_pod_available(pod) && sick.is_some_and(|s| s.uid() != pod.uid()));
        if view.is_ordered() && blocked {
            return ControlFlow::Break(());
        }
        if !pod.is_deleting() {
            actions.push(delete_pod(view, pod));
            if view.is_ordered() {
                return ControlFlow::Break(());
            }
        }
    }
    ControlFlow::Continue(())
}

/// Replaces pods of an old revision from the highest ordinal down, within maxUnavailable. Replacing
/// an unavailable pod costs no availability, but counts as one of the steps of this reconcile.
fn replace_outdated(view: &View<'_>, present: &[Option<Arc<Pod>>], actions: &mut Vec<Action>) {
    if !view.is_rolling() {
        return;
    }
    let limit = max_unavailable(view);
    let down = present
        .iter()
        .filter(|p| p.as_ref().is_none_or(|p| !view.is_pod_available(p)))
        .count();
    // Missing and terminating pods are unavailable as well, so they use up the budget.
    let mut budget = limit.saturating_sub(down);
    let mut steps = limit;
    // Ordinals below the partition are never replaced; that is how a canary is held.
    let floor = usize::try_from(view.update_partition()).unwrap_or(0);
    for pod in present.iter().skip(floor).rev().flatten() {
        let old = identity::pod_revision(pod) != view.update.name() && !pod.is_deleting();
        let cost = usize::from(view.is_pod_available(pod));
        if !old && cost == 0 && budget == 0 || old && (steps == 0 || cost > budget) {
            return;
        }
        if old {
            actions.push(delete_pod(view, pod));
            budget -= cost;
            steps -= 1;
        }
    }
}

fn max_unavailable(view: &View<'_>) -> usize {
    let strategy = view
        .set
        .spec
        .as_ref()
        .and_then(|s| s.update_strategy.as_ref());
    let one = IntOrString::Int(1);
    let value = strategy
        .and_then(|s| s.rolling_update.as_ref())
        .and_then(|r| r.max_unavailable.as_ref())
        .unwrap_or(&one);
    // At least one: a percentage of a small set rounds down to zero, and the update would never
    // move.
    usize::try_from(scale_value(value, view.replicas(), false))
        .unwrap_or(1)
        .max(1)
}

fn create_pod(view: &View<'_>, ordinal: i32) -> Action {
    // A pod below the partition is created from the revision before the update, so that a crash
    // does not update it.
    let early = view.is_rolling() && ordinal < view.first_ordinal() + view.update_partition();
    let revision = if early { &view.current } else { &view.update };
    let pod = identity::build_pod(view.set, revision, ordinal);
    with_events(view, Write::create(&pod), "create", pod.name(), "Create")
}

fn delete_pod(view: &View<'_>, pod: &Pod) -> Action {
    with_events(view, Write::delete(pod), "delete", pod.name(), "Delete")
}

/// Deletes a finished pod; the next reconcile creates it again under its name.
fn recreate_pod(view: &View<'_>, pod: &Pod) -> Action {
    let (set, ns) = (view.set.name(), view.set.namespace());
    let failed = pods::phase(pod) == "Failed";
    let (word, reason) = if failed {
        ("failed", "RecreatingFailedPod")
    } else {
        ("terminated", "RecreatingTerminatedPod")
    };
    let text = format!(
        "StatefulSet {ns}/{set} is recreating {word} Pod {}",
        pod.name()
    );
    let about = object_reference(view.set);
    let mut write = Write::delete(pod);
    let note = if failed {
        controllers_runtime::Note::warning(&about, reason, &text)
    } else {
        controllers_runtime::Note::normal(&about, reason, &text)
    };
    write.notes.success = Some(note);
    write.into()
}

fn with_events(view: &View<'_>, write: Write, verb: &str, pod: &str, word: &str) -> Action {
    let set = view.set.name();
    let success = format!("{verb} Pod {pod} in StatefulSet {set} successful");
    let failure = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {{error}}");
    let reasons = (format!("Successful{word}"), format!("Failed{word}"));
    write
        .notes(
            &object_reference(view.set),
            (&reasons.0, &success),
            (&reasons.1, &failure),
        )
        .into()
}
