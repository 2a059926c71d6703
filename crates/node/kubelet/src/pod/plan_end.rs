//! Termination of a pod: containers first, then sidecars from the last to the first, then the
//! sandbox.

use super::lifecycle::Termination;
use super::spec::{self, Role};
use super::view::CriContainer;
use super::{Nanos, SECOND};
use crate::pod::action::PodAction;
use crate::pod::facts::Facts;

/// Minimum grace of each step after the deadline; without a grace period the executor adds it.
const MINIMUM_GRACE: Nanos = 2 * SECOND;

pub(crate) fn plan_termination(
    facts: Facts<'_>,
    termination: &Termination,
    actions: &mut Vec<PodAction>,
) {
    let sidecars: Vec<&str> = spec::init_containers(facts.pod)
        .filter(|(role, _)| *role == Role::Sidecar)
        .map(|(_, c)| c.name.as_str())
        .collect();
    let running: Vec<&CriContainer> = facts
        .observed
        .iter_containers()
        .filter(|i| i.is_running())
        .collect();
    // KEP-753: sidecars outlive the containers that use them, such as a proxy or a log shipper.
    let (last, first): (Vec<&CriContainer>, Vec<&CriContainer>) = running
        .into_iter()
        .partition(|i| sidecars.contains(&i.name.as_str()));
    if !first.is_empty() {
        first
            .into_iter()
            .for_each(|i| push_kill(facts, termination, i, actions));
        return;
    }
    let order = |i: &CriContainer| sidecars.iter().position(|name| *name == i.name);
    if let Some(next) = last.into_iter().max_by_key(|i| order(i)) {
        return push_kill(facts, termination, next, actions);
    }
    // Waits for volumes too: a mount made after the pod's files were removed would stay.
    if !facts.memory.busy.is_empty() {
        return;
    }
    match facts.observed.sandboxes.iter().find(|s| s.ready) {
        Some(ready) => actions.push(PodAction::StopSandbox {
            id: ready.id.clone(),
        }),
        // Before the pod counts as terminated: then its devices are given to other pods.
        None if facts.holds_devices() => {
            let not_before = facts.memory.release_retry.not_before();
            actions.push(PodAction::ReleaseDevices.due_at(not_before, facts.now));
        }
        None => actions.push(PodAction::CompleteTermination),
    }
}

fn push_kill(
    facts: Facts<'_>,
    termination: &Termination,
    container: &CriContainer,
    actions: &mut Vec<PodAction>,
) {
    if facts.memory.busy_with(&container.name) {
        return;
    }
    let left = termination.deadline - facts.now;
    // Rounds up, so that a container never gets less than its grace period.
    let grace = if termination.deadline == 0 {
        0
    } else {
        (left.max(MINIMUM_GRACE) + SECOND - 1) / SECOND
    };
    actions.push(PodAction::Kill {
        name: container.name.clone(),
        id: container.id.clone(),
        why: String::new(),
        grace,
    });
}
