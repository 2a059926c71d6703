//! The order in which pods of a StatefulSet are created, deleted and updated.

use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use controllers_runtime::{Action, Meta, Write, pods, reference};

use super::{View, claims, identity};
use crate::deployment::scaled;

/// Adds the next steps: create missing pods, then delete surplus ones, then replace those of an old
/// revision.
pub fn steps(view: &View<'_>, actions: &mut Vec<Action>) {
    let (present, condemned) = sort(view);
    let _ = make(view, &present, actions)
        .is_continue()
        .then(|| remove(view, &present, &condemned, actions))
        .filter(ControlFlow::is_continue)
        .map(|_| renew(view, &present, actions));
}

/// Returns pods by ordinal in range, and those out of range from the highest down.
fn sort(view: &View<'_>) -> (Vec<Option<Arc<Pod>>>, Vec<Arc<Pod>>) {
    let count = usize::try_from(view.replicas()).unwrap_or(0);
    let mut present = vec![None; count];
    let mut condemned = Vec::new();
    for pod in &view.pods {
        let Some(ordinal) = identity::ordinal(view.set, pod) else {
            continue;
        };
        let slot = usize::try_from(i64::from(ordinal) - i64::from(view.start())).ok();
        match slot.and_then(|s| present.get_mut(s)) {
            Some(slot) => *slot = Some(pod.clone()),
            None => condemned.push((ordinal, pod.clone())),
        }
    }
    condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    (present, condemned.into_iter().map(|(_, p)| p).collect())
}

fn make(
    view: &View<'_>,
    present: &[Option<Arc<Pod>>],
    actions: &mut Vec<Action>,
) -> ControlFlow<()> {
    let ordered = view.ordered();
    for (ordinal, slot) in (view.start()..).zip(present) {
        match slot {
            None => {
                if claims::ensure(view, ordinal, actions) {
                    actions.push(create(view, ordinal));
                }
                if ordered {
                    return ControlFlow::Break(());
                }
            }
            Some(pod) if pods::is_terminal(pod) => {
                if !pod.deleting() {
                    actions.push(recreate(view, pod));
                }
                if ordered {
                    return ControlFlow::Break(());
                }
            }
            Some(pod) => {
                claims::own(view, pod, false, actions);
                if pods::phase(pod) == "Pending" {
                    claims::ensure(view, ordinal, actions);
                }
                if ordered && !view.available(pod) {
                    return ControlFlow::Break(());
                }
            }
        }
    }
    ControlFlow::Continue(())
}

fn remove(
    view: &View<'_>,
    present: &[Option<Arc<Pod>>],
    condemned: &[Arc<Pod>],
    actions: &mut Vec<Action>,
) -> ControlFlow<()> {
    let sick = present
        .iter()
        .flatten()
        .chain(condemned.iter().rev())
        .find(|p| !view.healthy(p));
    for pod in condemned {
        claims::own(view, pod, true, actions);
    }
    for pod in condemned {
        let blocked =
            pod.deleting() || (!view.available(pod) && sick.is_some_and(|s| s.uid() != pod.uid()));
        if view.ordered() && blocked {
            return ControlFlow::Break(());
        }
        if !pod.deleting() {
            actions.push(delete(view, pod));
            if view.ordered() {
                return ControlFlow::Break(());
            }
        }
    }
    ControlFlow::Continue(())
}

/// Replaces pods of an old revision from the highest ordinal down, within maxUnavailable. Replacing
/// an unavailable pod costs no availability, but counts as one of the steps of this reconcile.
fn renew(view: &View<'_>, present: &[Option<Arc<Pod>>], actions: &mut Vec<Action>) {
    if !view.rolls() {
        return;
    }
    let limit = max_unavailable(view);
    let down = present
        .iter()
        .filter(|p| p.as_ref().is_none_or(|p| !view.available(p)))
        .count();
    let mut budget = limit.saturating_sub(down);
    let mut steps = limit;
    let floor = usize::try_from(view.partition()).unwrap_or(0);
    for pod in present.iter().skip(floor).rev().flatten() {
        let old = identity::revision(pod) != view.update.name() && !pod.deleting();
        let cost = usize::from(view.available(pod));
        if !old && cost == 0 && budget == 0 || old && (steps == 0 || cost > budget) {
            return;
        }
        if old {
            actions.push(delete(view, pod));
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
    usize::try_from(scaled(value, view.replicas(), false))
        .unwrap_or(1)
        .max(1)
}

fn create(view: &View<'_>, ordinal: i32) -> Action {
    let early = view.rolls() && ordinal < view.start() + view.partition();
    let revision = if early { &view.current } else { &view.update };
    let pod = identity::pod(view.set, revision, ordinal);
    noted(view, Write::create(&pod), "create", pod.name(), "Create")
}

fn delete(view: &View<'_>, pod: &Pod) -> Action {
    noted(view, Write::delete(pod), "delete", pod.name(), "Delete")
}

/// Deletes a finished pod; the next reconcile creates it again under its name.
fn recreate(view: &View<'_>, pod: &Pod) -> Action {
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
    let about = reference(view.set);
    let mut write = Write::delete(pod);
    let note = if failed {
        controllers_runtime::Note::warning(&about, reason, &text)
    } else {
        controllers_runtime::Note::normal(&about, reason, &text)
    };
    write.notes.success = Some(note);
    write.into()
}

fn noted(view: &View<'_>, write: Write, verb: &str, pod: &str, word: &str) -> Action {
    let set = view.set.name();
    let success = format!("{verb} Pod {pod} in StatefulSet {set} successful");
    let failure = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {{error}}");
    let reasons = (format!("Successful{word}"), format!("Failed{word}"));
    write
        .notes(
            &reference(view.set),
            (&reasons.0, &success),
            (&reasons.1, &failure),
        )
        .into()
}
