//! Computes a pod's status: a pure function of desired state, observed state and memory.

use super::lifecycle::TerminationCause;
use super::phase::{compute_phase, is_initialized};
use super::plan::{is_replaced, is_started, restart_time};
use super::resource_status::{report_resources, set_pod_resources};
use super::spec::{self, Role};
use super::status_conditions::compute_conditions;
use super::view::{CriContainer, CriState};
use crate::pod::facts::Facts;
use crate::pod::status_context::{StatusContext, to_api_time};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, PodIP, PodStatus, VolumeMountStatus,
};

/// Computes the status.
pub(crate) fn compute_status(facts: Facts<'_>, context: StatusContext<'_>) -> PodStatus {
    let pod = facts.pod;
    let phase = compute_phase(facts);
    let (reason, message) = explain_termination(facts);
    let pod_ips = choose_pod_ips(facts, context);
    let init: Vec<ContainerStatus> = spec::init_containers(pod)
        .map(|(role, c)| compute_container_status(facts, context, role, c))
        .collect();
    let apps: Vec<ContainerStatus> = spec::app_containers(pod)
        .map(|c| compute_container_status(facts, context, Role::App, c))
        .collect();
    let debug: Vec<ContainerStatus> = spec::ephemeral_containers(pod)
        .filter_map(|c| spec::find_container(pod, &c.name))
        .map(|(role, c)| compute_container_status(facts, context, role, &c))
        .collect();
    let conditions = compute_conditions(facts, context, phase, &init, &apps);
    let some = |list: Vec<ContainerStatus>| (!list.is_empty()).then_some(list);
    let mut status = PodStatus {
        conditions: Some(conditions),
        container_statuses: some(apps),
        init_container_statuses: some(init),
        ephemeral_container_statuses: some(debug),
        host_ip: context.node_ips.first().cloned(),
        host_ips: Some(
            context
                .node_ips
                .iter()
                .map(|ip| HostIP { ip: ip.clone() })
                .collect(),
        ),
        message,
        reason,
        observed_generation: pod.metadata.generation,
        phase: Some(phase.to_owned()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: (!pod_ips.is_empty())
            .then(|| pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        // The class never changes during the life of a pod, although a resize may change the
        // computed one.
        qos_class: Some(
            context
                .before
                .qos_class
                .clone()
                .unwrap_or_else(|| spec::compute_pod_qos(pod).to_owned()),
        ),
        start_time: context
            .before
            .start_time
            .clone()
            .or_else(|| to_api_time(context.first_seen)),
        ..PodStatus::default()
    };
    let applied = facts.memory.applied.pod.as_ref();
    set_pod_resources(&mut status, pod, phase == "Running", applied);
    status
}

/// Returns the reason and the message of the pod's termination, if it has them.
fn explain_termination(facts: Facts<'_>) -> (Option<String>, Option<String>) {
    match facts.memory.lifecycle.cause() {
        Some(TerminationCause::SetByClient {
            reason, message, ..
        }) => (reason.clone(), message.clone()),
        Some(TerminationCause::Failed { reason, message }) => {
            (Some(reason.clone()), Some(message.clone()))
        }
        _ => (None, None),
    }
}

fn choose_pod_ips(facts: Facts<'_>, context: StatusContext<'_>) -> Vec<String> {
    let before = || {
        context
            .before
            .pod_ips
            .iter()
            .flatten()
            .map(|ip| ip.ip.clone())
            .collect()
    };
    match facts.observed.sandbox() {
        Some(_) if spec::host_network(facts.pod) => context.node_ips.to_vec(),
        Some(sandbox) if !sandbox.ips.is_empty() => sandbox.ips.clone(),
        // A stopped sandbox has no addresses; the status keeps the last ones.
        _ => before(),
    }
}

fn compute_container_status(
    facts: Facts<'_>,
    context: StatusContext<'_>,
    role: Role,
    container: &Container,
) -> ContainerStatus {
    let name = &container.name;
    let latest = facts.observed.latest(name);
    let state = compute_container_state(facts, context, role, container);
    let last = find_last_exit(facts, name, state.waiting.is_some());
    let running = state.running.is_some();
    let memory = latest.and_then(|i| facts.memory.of_container(name, &i.id));
    let is_started = running && is_started(memory, container);
    let ready = match role {
        // Ready means completed for an init container.
        Role::Init => latest.is_some_and(|i| i.state == CriState::Exited && i.exit_code == 0),
        Role::Ephemeral => false,
        _ => {
            is_started
                && (container.readiness_probe.is_none()
                    || memory.and_then(|m| m.ready) == Some(true))
        }
    };
    ContainerStatus {
        name: name.clone(),
        state: Some(state),
        last_state: Some(
            last.map_or_else(ContainerState::default, |i| terminated_state(context, i)),
        ),
        ready,
        started: Some(is_started),
        restart_count: latest
            .and_then(|i| i32::try_from(i.attempt).ok())
            .unwrap_or_default(),
        image: latest
            .map(|i| i.image.clone())
            .filter(|i| !i.is_empty())
            .or_else(|| container.image.clone())
            .unwrap_or_default(),
        image_id: latest.map(|i| i.image_id.clone()).unwrap_or_default(),
        container_id: latest.map(|i| format_container_id(context, &i.id)),
        allocated_resources: container
            .resources
            .as_ref()
            .and_then(|r| r.requests.clone())
            .filter(|r| !r.is_empty()),
        resources: running
            .then(|| report_resources(container, facts.memory.applied.containers.get(name)))
            .flatten(),
        volume_mounts: report_volume_mounts(container, latest),
        ..ContainerStatus::default()
    }
}

/// Returns the exited container that the status reports as the last one.
fn find_last_exit<'a>(facts: Facts<'a>, name: &str, waits: bool) -> Option<&'a CriContainer> {
    let latest = facts.observed.latest(name)?;
    // While it waits for its restart, the exited container is the last one and not the current one.
    if waits && latest.state == CriState::Exited {
        return Some(latest);
    }
    let previous = facts.observed.previous(name);
    previous.filter(|i| i.state == CriState::Exited)
}

fn format_container_id(context: StatusContext<'_>, id: &str) -> String {
    format!("{}://{id}", context.runtime)
}

fn report_volume_mounts(
    container: &Container,
    latest: Option<&CriContainer>,
) -> Option<Vec<VolumeMountStatus>> {
    let recursive = |path: &str| latest.is_some_and(|i| i.recursive_read_only.contains(path));
    let mode = |path: &str| {
        if recursive(path) {
            "Enabled"
        } else {
            "Disabled"
        }
    };
    container
        .volume_mounts
        .as_ref()
        .filter(|m| !m.is_empty())
        .map(|mounts| {
            let status = |m: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
                name: m.name.clone(),
                mount_path: m.mount_path.clone(),
                read_only: m.read_only.filter(|r| *r),
                recursive_read_only: m
                    .read_only
                    .filter(|r| *r)
                    .map(|_| mode(&m.mount_path).to_owned()),
                ..VolumeMountStatus::default()
            };
            mounts.iter().map(status).collect()
        })
}

fn compute_container_state(
    facts: Facts<'_>,
    context: StatusContext<'_>,
    role: Role,
    container: &Container,
) -> ContainerState {
    let latest = facts.observed.latest(&container.name);
    let memory = facts.memory.get(&container.name);
    if let Some(i) = latest.filter(|i| i.is_running()) {
        let running = ContainerStateRunning {
            started_at: to_api_time(i.started_at),
        };
        return ContainerState {
            running: Some(running),
            ..ContainerState::default()
        };
    }
    // A container that will not be started again shows its exit and not the reason why a start
    // failed.
    let terminating = !facts.memory.lifecycle.is_running();
    if let Some(waiting) = memory
        .and_then(|m| m.waiting.as_ref())
        .filter(|_| !(terminating && latest.is_some()))
    {
        return waiting_state(&waiting.reason, &waiting.message);
    }
    match latest {
        Some(i) if i.state == CriState::Exited => {
            match crash_loop_message(facts, role, container, i) {
                Some(message) => waiting_state("CrashLoopBackOff", &message),
                // The API server rejects a container that runs again after it was shown as
                // terminated, if the restart policy does not restart it.
                None if is_replaced(facts, i) && facts.memory.lifecycle.is_running() => {
                    waiting_state("ContainerCreating", "")
                }
                None => terminated_state(context, i),
            }
        }
        _ if role == Role::App && !is_initialized(facts) => waiting_state("PodInitializing", ""),
        _ if matches!(role, Role::Init | Role::Sidecar)
            || has_init_containers(facts) && role == Role::App =>
        {
            waiting_state("PodInitializing", "")
        }
        _ => waiting_state("ContainerCreating", ""),
    }
}

fn has_init_containers(facts: Facts<'_>) -> bool {
    spec::init_containers(facts.pod).next().is_some()
}

/// Returns the CrashLoopBackOff message while an exited container waits for its restart.
fn crash_loop_message(
    facts: Facts<'_>,
    role: Role,
    container: &Container,
    ended: &CriContainer,
) -> Option<String> {
    // A start that is under way is no crash loop.
    let restarts = spec::should_restart(facts.pod, role, container, ended.exit_code);
    if !facts.memory.lifecycle.is_running() || !restarts || facts.memory.busy_with(&container.name)
    {
        return None;
    }
    let delay = facts
        .memory
        .get(&container.name)?
        .backoff
        .restart_delay_seconds();
    (restart_time(facts.memory, ended) > facts.now)
        .then(|| format_back_off(facts, &container.name, delay))
}

/// Returns `back-off 10s restarting failed container=c pod=a_ns(uid)`.
pub(crate) fn format_back_off(facts: Facts<'_>, name: &str, delay: i64) -> String {
    let delay = if delay >= 60 {
        format!("{}m{}s", delay / 60, delay % 60)
    } else {
        format!("{delay}s")
    };
    format!(
        "back-off {delay} restarting failed container={name} pod={}",
        spec::full_name(facts.pod)
    )
}

fn waiting_state(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()).filter(|m| !m.is_empty()),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

fn terminated_state(context: StatusContext<'_>, i: &CriContainer) -> ContainerState {
    let default = if i.exit_code == 0 {
        "Completed"
    } else {
        "Error"
    };
    let reason = if i.reason.is_empty() {
        default
    } else {
        i.reason.as_str()
    };
    // A container that never started has no start time; its creation time replaces it.
    let begun = if i.started_at > 0 {
        i.started_at
    } else {
        i.created_at
    };
    let terminated = ContainerStateTerminated {
        exit_code: i.exit_code,
        reason: Some(reason.to_owned()),
        message: Some(i.message.clone()).filter(|m| !m.is_empty()),
        started_at: to_api_time(begun),
        finished_at: to_api_time(i.finished_at),
        container_id: Some(format_container_id(context, &i.id)),
        signal: None,
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}
