//! Computes the next actions of a pod: a pure function, called again after every change.
//!
//! Invariant: the plan never repeats work that is running (`memory.busy`), and returns the same
//! commands for the same input. A sandbox is created again only if none is ready and a container is
//! to run in it.

use super::memory::{ContainerMemory, Memory, Work};
use super::spec::{self, Role};
use super::view::{CriContainer, CriState, Observed, Sandbox};
use super::{Nanos, plan_end};
use k8s_openapi::api::core::v1::{Container, Pod};

/// An action of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    PrepareVolumes,
    CreateSandbox {
        attempt: u32,
    },
    /// Stop a sandbox that is not ready or not needed, with its containers.
    StopSandbox {
        id: String,
    },
    Start {
        name: String,
        attempt: u32,
    },
    Kill {
        name: String,
        id: String,
        why: String,
        grace: i64,
    },
    /// Terminate the pod: its containers are done, or it failed.
    Finish,
    /// The pod has terminated.
    Ended,
    /// Plan again at this time.
    Wake(Nanos),
}

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a Observed,
    pub(crate) memory: &'a Memory,
    pub(crate) now: Nanos,
}

/// Returns the next commands.
pub(crate) fn plan(facts: Facts<'_>) -> Vec<Command> {
    let mut commands = Vec::new();
    if facts.memory.lifecycle.is_terminated() {
        return commands;
    }
    match facts.memory.lifecycle.termination() {
        Some(termination) => plan_end::plan(facts, termination, &mut commands),
        None => run(facts, &mut commands),
    }
    commands
}

/// Progress of the init containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    Going,
    Done,
}

fn run(facts: Facts<'_>, commands: &mut Vec<Command>) {
    kills(facts, commands);
    if finished(facts) {
        commands.push(Command::Finish);
        return;
    }
    if !facts.memory.volumes_ready && !facts.memory.busy.contains(&Work::Volumes) {
        at(
            facts,
            facts.memory.volumes_retry.not_before(),
            Command::PrepareVolumes,
            commands,
        );
    }
    let Some(sandbox) = facts.observed.sandbox() else {
        return make_sandbox(facts, commands);
    };
    if !facts.memory.volumes_ready || facts.memory.busy.contains(&Work::Sandbox) {
        return;
    }
    if init(facts, sandbox, commands) == Init::Done {
        for container in spec::app_containers(facts.pod) {
            keep(facts, sandbox, Role::App, container, commands);
            if is_starting(facts, container, commands) {
                // Later containers rely on the postStart hook, such as a proxy that must run before
                // the application.
                break;
            }
        }
    }
    for container in spec::ephemeral_containers(facts.pod) {
        if facts.observed.latest(&container.name).is_none() {
            start(facts, &container.name, commands);
        }
    }
}

/// Returns whether a container with a postStart hook is being started.
fn is_starting(facts: Facts<'_>, container: &Container, commands: &[Command]) -> bool {
    let hook = container
        .lifecycle
        .as_ref()
        .is_some_and(|l| l.post_start.is_some());
    let ordered = |c: &Command| matches!(c, Command::Start { name, .. } if *name == container.name);
    let killed = facts
        .memory
        .get(&container.name)
        .is_some_and(|m| m.kill.is_some());
    hook && !killed && (facts.memory.busy_with(&container.name) || commands.iter().any(ordered))
}

/// Adds `command` if its time has come, else a wake-up at that time.
fn at(facts: Facts<'_>, not_before: Nanos, command: Command, commands: &mut Vec<Command>) {
    commands.push(if not_before > facts.now {
        Command::Wake(not_before)
    } else {
        command
    });
}

fn make_sandbox(facts: Facts<'_>, commands: &mut Vec<Command>) {
    if facts.memory.busy.contains(&Work::Sandbox) {
        return;
    }
    let Some(old) = facts.observed.sandboxes.first() else {
        return at(
            facts,
            facts.memory.sandbox_retry.not_before(),
            Command::CreateSandbox { attempt: 0 },
            commands,
        );
    };
    let running = facts.observed.any_running();
    if running {
        return commands.push(Command::StopSandbox { id: old.id.clone() });
    }
    let command = Command::CreateSandbox {
        attempt: old.attempt + 1,
    };
    at(
        facts,
        facts.memory.sandbox_retry.not_before(),
        command,
        commands,
    );
}

fn kills(facts: Facts<'_>, commands: &mut Vec<Command>) {
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
            .is_some_and(CriContainer::running)
        {
            let grace = kill.grace.unwrap_or_else(|| spec::grace(facts.pod));
            commands.push(Command::Kill {
                name: name.clone(),
                id: kill.id.clone(),
                why: kill.why.clone(),
                grace,
            });
        }
    }
}

/// Returns the container in the present sandbox; containers of older sandboxes don't count.
fn current<'a>(facts: Facts<'a>, sandbox: &Sandbox, name: &str) -> Option<&'a CriContainer> {
    facts
        .observed
        .latest(name)
        .filter(|i| i.created_at >= sandbox.created_at)
}

/// Returns whether initialization is over: an app container was started in the present sandbox.
fn past_init(facts: Facts<'_>, sandbox: &Sandbox) -> bool {
    spec::app_containers(facts.pod)
        .any(|c| current(facts, sandbox, &c.name).is_some() || facts.memory.busy_with(&c.name))
}

fn init(facts: Facts<'_>, sandbox: &Sandbox, commands: &mut Vec<Command>) -> Init {
    let past = past_init(facts, sandbox);
    for (role, container) in spec::init_containers(facts.pod) {
        if past {
            if role == Role::Sidecar {
                keep(facts, sandbox, role, container, commands);
            }
            continue;
        }
        let done = match (role, current(facts, sandbox, &container.name)) {
            (Role::Init, Some(latest)) => latest.state == CriState::Exited && latest.exit_code == 0,
            (Role::Sidecar, Some(latest)) => {
                latest.running()
                    && started(
                        facts.memory.of_container(&container.name, &latest.id),
                        container,
                    )
            }
            _ => false,
        };
        if !done || role == Role::Sidecar {
            keep(facts, sandbox, role, container, commands);
        }
        if !done {
            return Init::Going;
        }
    }
    Init::Done
}

/// Returns whether the next containers need not wait for this one.
pub(crate) fn started(memory: Option<&ContainerMemory>, container: &Container) -> bool {
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
fn keep(
    facts: Facts<'_>,
    sandbox: &Sandbox,
    role: Role,
    container: &Container,
    commands: &mut Vec<Command>,
) {
    let name = &container.name;
    match current(facts, sandbox, name) {
        None => {
            // A container that exited in an older sandbox is restarted only if its policy says so.
            let over = facts.observed.latest(name).is_some_and(|i| {
                i.state == CriState::Exited
                    && role == Role::App
                    && !restarts(facts, role, container, i)
            });
            if !over {
                start(facts, name, commands);
            }
        }
        Some(i) if i.state == CriState::Exited && restarts(facts, role, container, i) => {
            restart(facts, i, commands);
        }
        Some(i) if matches!(i.state, CriState::Created | CriState::Unknown) => {
            restart(facts, i, commands)
        }
        Some(_) => {}
    }
}

/// Returns whether an exited container is restarted.
fn restarts(facts: Facts<'_>, role: Role, container: &Container, ended: &CriContainer) -> bool {
    let replaced = facts
        .memory
        .get(&ended.name)
        .and_then(|m| m.replaced.as_ref());
    replaced == Some(&ended.id) || spec::restarts(facts.pod, role, container, ended.exit_code)
}

fn start(facts: Facts<'_>, name: &str, commands: &mut Vec<Command>) {
    if facts.memory.busy_with(name) {
        return;
    }
    let attempt = facts.observed.latest(name).map_or(0, |i| i.attempt + 1);
    let not_before = facts
        .memory
        .get(name)
        .map_or(0, |m| m.backoff.first_start());
    at(
        facts,
        not_before,
        Command::Start {
            name: name.to_owned(),
            attempt,
        },
        commands,
    );
}

fn restart(facts: Facts<'_>, ended: &CriContainer, commands: &mut Vec<Command>) {
    if facts.memory.busy_with(&ended.name) {
        return;
    }
    let not_before = ready_at(facts.memory, ended);
    at(
        facts,
        not_before,
        Command::Start {
            name: ended.name.clone(),
            attempt: ended.attempt + 1,
        },
        commands,
    );
}

/// Returns the earliest time of the restart of an exited container.
pub(crate) fn ready_at(memory: &Memory, ended: &CriContainer) -> Nanos {
    let Some(m) = memory.get(&ended.name) else {
        return 0;
    };
    let since = if ended.finished_at > 0 {
        ended.finished_at
    } else {
        ended.created_at
    };
    m.backoff.restart_after(since)
}

/// Returns whether the pod has completed.
fn finished(facts: Facts<'_>) -> bool {
    if !facts.memory.busy.iter().all(|w| matches!(w, Work::Volumes)) {
        return false;
    }
    init_failed(facts) || all_over(facts)
}

fn over(facts: Facts<'_>, role: Role, container: &Container) -> Option<bool> {
    let last = facts.observed.latest(&container.name)?;
    let ended = last.state == CriState::Exited && !restarts(facts, role, container, last);
    ended.then_some(last.exit_code == 0)
}

pub(crate) fn init_failed(facts: Facts<'_>) -> bool {
    let none = spec::app_containers(facts.pod).all(|c| facts.observed.latest(&c.name).is_none());
    none && spec::init_containers(facts.pod)
        .any(|(role, c)| role == Role::Init && over(facts, role, c) == Some(false))
}

pub(crate) fn all_over(facts: Facts<'_>) -> bool {
    let mut apps = spec::app_containers(facts.pod).peekable();
    apps.peek().is_some() && apps.all(|c| over(facts, Role::App, c).is_some())
}
