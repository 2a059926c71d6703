//! Computes the next actions of a pod: a pure function, called again after every change.
//!
//! Invariant: the plan never repeats work that is running (`memory.busy`), and returns the same
//! actions for the same input. A sandbox is created again only if none is ready and a container is
//! to run in it.

use super::memory::{ContainerMemory, Memory, Work};
use super::spec::{self, Role};
use super::view::{CriContainer, CriState, Sandbox};
use super::{Nanos, plan_end};
use crate::pod::action::PodAction;
use crate::pod::facts::Facts;
use k8s_openapi::api::core::v1::Container;

/// Returns the next actions.
pub(crate) fn compute_actions(facts: Facts<'_>) -> Vec<PodAction> {
    let mut actions = Vec::new();
    if facts.memory.lifecycle.is_terminated() {
        return actions;
    }
    match facts.memory.lifecycle.termination() {
        Some(termination) => plan_end::plan_termination(facts, termination, &mut actions),
        None => plan_running(facts, &mut actions),
    }
    actions
}

/// Progress of the init containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitProgress {
    Running,
    Done,
}

fn plan_running(facts: Facts<'_>, actions: &mut Vec<PodAction>) {
    // Before completion is checked: a container that is stopped for its probe still runs.
    push_kills(facts, actions);
    if is_complete(facts) {
        actions.push(PodAction::Terminate);
        return;
    }
    // Beside the sandbox: neither needs the other, and both take long.
    if !facts.memory.volumes_ready && !facts.memory.busy.contains(&Work::Volumes) {
        push_at(
            facts,
            facts.memory.volumes_retry.not_before(),
            PodAction::SetUpVolumes,
            actions,
        );
    }
    // Before the sandbox: the runtime may need the devices for it.
    if facts.holds_devices() && !facts.memory.devices_ready {
        if !facts.memory.busy.contains(&Work::Devices) {
            let not_before = facts.memory.devices_retry.not_before();
            push_at(facts, not_before, PodAction::PrepareDevices, actions);
        }
        return;
    }
    // Every container needs the namespaces of the sandbox.
    let Some(sandbox) = facts.observed.sandbox() else {
        return push_sandbox(facts, actions);
    };
    if !facts.memory.volumes_ready || facts.memory.busy.contains(&Work::Sandbox) {
        return;
    }
    if plan_init_containers(facts, sandbox, actions) == InitProgress::Done {
        for container in spec::app_containers(facts.pod) {
            ensure_running(facts, sandbox, Role::App, container, actions);
            if is_starting(facts, container, actions) {
                // Later containers rely on the postStart hook, such as a proxy that must run before
                // the application.
                break;
            }
        }
    }
    for container in spec::ephemeral_containers(facts.pod) {
        // Ephemeral containers start even while init containers run: they are there to debug those.
        if facts.observed.latest(&container.name).is_none() {
            push_start(facts, &container.name, actions);
        }
    }
}

/// Returns whether a container with a postStart hook is being started.
fn is_starting(facts: Facts<'_>, container: &Container, actions: &[PodAction]) -> bool {
    let hook = container
        .lifecycle
        .as_ref()
        .is_some_and(|l| l.post_start.is_some());
    let ordered =
        |c: &PodAction| matches!(c, PodAction::Start { name, .. } if *name == container.name);
    let killed = facts
        .memory
        .get(&container.name)
        .is_some_and(|m| m.kill.is_some());
    hook && !killed && (facts.memory.busy_with(&container.name) || actions.iter().any(ordered))
}

/// Adds `action` if its time has come, else a wake-up at that time.
fn push_at(facts: Facts<'_>, not_before: Nanos, action: PodAction, actions: &mut Vec<PodAction>) {
    actions.push(action.due_at(not_before, facts.now));
}

fn push_sandbox(facts: Facts<'_>, actions: &mut Vec<PodAction>) {
    if facts.memory.busy.contains(&Work::Sandbox) {
        return;
    }
    let Some(old) = facts.observed.sandboxes.first() else {
        return push_at(
            facts,
            facts.memory.sandbox_retry.not_before(),
            PodAction::CreateSandbox { attempt: 0 },
            actions,
        );
    };
    // Containers of a lost sandbox have no network; they are stopped before a new one takes over
    // their volumes.
    let running = facts.observed.any_running();
    if running {
        return actions.push(PodAction::StopSandbox { id: old.id.clone() });
    }
    let action = PodAction::CreateSandbox {
        attempt: old.attempt + 1,
    };
    push_at(
        facts,
        facts.memory.sandbox_retry.not_before(),
        action,
        actions,
    );
}

fn push_kills(facts: Facts<'_>, actions: &mut Vec<PodAction>) {
    for (name, memory) in &facts.memory.containers {
        let Some(kill) = memory
            .kill
            .as_ref()
            .filter(|_| !facts.memory.busy_with(name))
        else {
            continue;
        };
        if facts
            .observed
            .by_id(&kill.id)
            .is_some_and(CriContainer::is_running)
        {
            let grace = kill.grace.unwrap_or_else(|| spec::grace_seconds(facts.pod));
            actions.push(PodAction::Kill {
                name: name.clone(),
                id: kill.id.clone(),
                why: kill.why.clone(),
                grace,
            });
        }
    }
}

/// Returns the container in the present sandbox; containers of older sandboxes don't count.
fn current_container<'a>(
    facts: Facts<'a>,
    sandbox: &Sandbox,
    name: &str,
) -> Option<&'a CriContainer> {
    facts
        .observed
        .latest(name)
        .filter(|i| i.created_at >= sandbox.created_at)
}

/// Returns whether initialization is over: an app container was started in the present sandbox.
fn is_past_init(facts: Facts<'_>, sandbox: &Sandbox) -> bool {
    spec::app_containers(facts.pod).any(|c| {
        current_container(facts, sandbox, &c.name).is_some() || facts.memory.busy_with(&c.name)
    })
}

fn plan_init_containers(
    facts: Facts<'_>,
    sandbox: &Sandbox,
    actions: &mut Vec<PodAction>,
) -> InitProgress {
    let past = is_past_init(facts, sandbox);
    for (role, container) in spec::init_containers(facts.pod) {
        // A pod that was initialized does not run its init containers again in the same sandbox.
        if past {
            if role == Role::Sidecar {
                ensure_running(facts, sandbox, role, container, actions);
            }
            continue;
        }
        // A sidecar is done when it has started: it keeps running beside the next containers.
        let done = match (role, current_container(facts, sandbox, &container.name)) {
            (Role::Init, Some(latest)) => latest.state == CriState::Exited && latest.exit_code == 0,
            (Role::Sidecar, Some(latest)) => {
                latest.is_running()
                    && is_started(
                        facts.memory.of_container(&container.name, &latest.id),
                        container,
                    )
            }
            _ => false,
        };
        if !done || role == Role::Sidecar {
            ensure_running(facts, sandbox, role, container, actions);
        }
        if !done {
            return InitProgress::Running;
        }
    }
    InitProgress::Done
}

/// Returns whether the next containers need not wait for this one.
pub(crate) fn is_started(memory: Option<&ContainerMemory>, container: &Container) -> bool {
    let hook = container
        .lifecycle
        .as_ref()
        .is_some_and(|l| l.post_start.is_some());
    match memory {
        Some(m) => {
            (!hook || m.hooked) && (container.startup_probe.is_none() || m.started == Some(true))
        }
        None => !hook && container.startup_probe.is_none(),
    }
}

/// Starts a container, or restarts it if its policy says so.
fn ensure_running(
    facts: Facts<'_>,
    sandbox: &Sandbox,
    role: Role,
    container: &Container,
    actions: &mut Vec<PodAction>,
) {
    let name = &container.name;
    match current_container(facts, sandbox, name) {
        None => {
            // A container that exited in an older sandbox is restarted only if its policy says so.
            let stays_exited = facts.observed.latest(name).is_some_and(|i| {
                i.state == CriState::Exited
                    && role == Role::App
                    && !should_restart(facts, role, container, i)
            });
            if !stays_exited {
                push_start(facts, name, actions);
            }
        }
        Some(i) if i.state == CriState::Exited && should_restart(facts, role, container, i) => {
            push_restart(facts, i, actions);
        }
        Some(i) if matches!(i.state, CriState::Created | CriState::Unknown) => {
            push_restart(facts, i, actions)
        }
        Some(_) => {}
    }
}

/// Returns whether the kubelet stopped this container to start another from the current spec.
pub(crate) fn is_replaced(facts: Facts<'_>, ended: &CriContainer) -> bool {
    let memory = facts.memory.get(&ended.name);
    memory.and_then(|m| m.replaced.as_ref()) == Some(&ended.id)
}

/// Returns whether an exited container is restarted.
fn should_restart(
    facts: Facts<'_>,
    role: Role,
    container: &Container,
    ended: &CriContainer,
) -> bool {
    is_replaced(facts, ended) || spec::should_restart(facts.pod, role, container, ended.exit_code)
}

fn push_start(facts: Facts<'_>, name: &str, actions: &mut Vec<PodAction>) {
    if facts.memory.busy_with(name) {
        return;
    }
    let attempt = facts.observed.latest(name).map_or(0, |i| i.attempt + 1);
    let not_before = facts
        .memory
        .get(name)
        .map_or(0, |m| m.backoff.first_start());
    push_at(
        facts,
        not_before,
        PodAction::Start {
            name: name.to_owned(),
            attempt,
        },
        actions,
    );
}

fn push_restart(facts: Facts<'_>, ended: &CriContainer, actions: &mut Vec<PodAction>) {
    if facts.memory.busy_with(&ended.name) {
        return;
    }
    let not_before = restart_time(facts.memory, ended);
    push_at(
        facts,
        not_before,
        PodAction::Start {
            name: ended.name.clone(),
            attempt: ended.attempt + 1,
        },
        actions,
    );
}

/// Returns the earliest time of the restart of an exited container.
pub(crate) fn restart_time(memory: &Memory, ended: &CriContainer) -> Nanos {
    let Some(m) = memory.get(&ended.name) else {
        return 0;
    };
    // A container that never started has no end; its creation stands for it.
    let since = if ended.finished_at > 0 {
        ended.finished_at
    } else {
        ended.created_at
    };
    m.backoff.restart_after(since)
}

/// Returns whether the pod has completed.
fn is_complete(facts: Facts<'_>) -> bool {
    // A start or stop that is under way may change the result.
    if !facts.memory.busy.iter().all(|w| matches!(w, Work::Volumes)) {
        return false;
    }
    has_init_failed(facts) || is_all_terminated(facts)
}

fn final_result(facts: Facts<'_>, role: Role, container: &Container) -> Option<bool> {
    let last = facts.observed.latest(&container.name)?;
    let ended = last.state == CriState::Exited && !should_restart(facts, role, container, last);
    ended.then_some(last.exit_code == 0)
}

pub(crate) fn has_init_failed(facts: Facts<'_>) -> bool {
    let none = spec::app_containers(facts.pod).all(|c| facts.observed.latest(&c.name).is_none());
    none && spec::init_containers(facts.pod)
        .any(|(role, c)| role == Role::Init && final_result(facts, role, c) == Some(false))
}

pub(crate) fn is_all_terminated(facts: Facts<'_>) -> bool {
    let mut apps = spec::app_containers(facts.pod).peekable();
    apps.peek().is_some() && apps.all(|c| final_result(facts, Role::App, c).is_some())
}
