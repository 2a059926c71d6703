//! The five standard conditions of a pod.

use super::lifecycle::TerminationCause;
use super::memory::Memory;
use super::phase::find_incomplete_init_containers;
use super::resize::DEFERRED;
use super::spec::{self, Role};
use crate::pod::facts::Facts;
use crate::pod::status_context::{StatusContext, to_api_time};
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};

const RESIZE_PENDING: &str = "PodResizePending";
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
/// Conditions that a pod has only during a resize.
pub(crate) const RESIZE_CONDITIONS: [&str; 2] = [RESIZE_PENDING, RESIZE_IN_PROGRESS];

/// A condition without its times.
struct ConditionValue {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
    /// Generation that it is about, if that is not the present one.
    generation: Option<i64>,
}

impl ConditionValue {
    fn new(kind: &'static str, problem: Option<(&'static str, Option<String>)>) -> Self {
        let holds = problem.is_none();
        let (reason, message) =
            problem.map_or((None, None), |(reason, message)| (Some(reason), message));
        ConditionValue {
            kind,
            holds,
            reason,
            message,
            generation: None,
        }
    }
}

pub(crate) fn compute_conditions(
    facts: Facts<'_>,
    context: StatusContext<'_>,
    phase: &str,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> Vec<PodCondition> {
    let containers = compute_containers_ready(facts, phase, init, apps);
    let ready = compute_ready(facts, phase, &containers);
    let sandbox = facts
        .observed
        .sandbox()
        .is_some_and(|s| spec::host_network(facts.pod) || !s.ips.is_empty());
    let network = if sandbox && !facts.memory.lifecycle.is_terminated() {
        None
    } else {
        Some(("", None))
    };
    let initialized = match (phase, find_incomplete_init_containers(facts)) {
        // A completed pod stays initialized, although its containers may have been removed.
        ("Succeeded", _) => ConditionValue {
            reason: Some("PodCompleted"),
            ..ConditionValue::new("Initialized", None)
        },
        (_, left) if left.is_empty() => ConditionValue::new("Initialized", None),
        (_, left) => {
            let message = format!("containers with incomplete status: [{}]", left.join(" "));
            ConditionValue::new(
                "Initialized",
                Some(("ContainersNotInitialized", Some(message))),
            )
        }
    };
    let mut network = ConditionValue::new("PodReadyToStartContainers", network);
    // Upstream's condition has no reason.
    network.reason = None;
    let mut all = vec![network, initialized, ready, containers];
    // Normally written by the scheduler; for static pods without a scheduler the kubelet adds it.
    all.push(ConditionValue::new("PodScheduled", None));
    all.extend(compute_disruption(facts));
    if !api_semantics::pods::is_terminal_phase(phase) {
        all.extend(compute_resize(facts.memory));
    }
    all.into_iter()
        .map(|v| add_times(facts, context, v))
        .collect()
}

fn compute_resize(memory: &Memory) -> impl Iterator<Item = ConditionValue> {
    let pending = memory.pending_resize.as_ref();
    let pending = pending.map(|resize| ConditionValue {
        kind: RESIZE_PENDING,
        holds: true,
        reason: Some(DEFERRED),
        message: Some(resize.message.clone()),
        generation: resize.generation,
    });
    let progress = memory.resize_progress.as_ref();
    let progress = progress.map(|resize| ConditionValue {
        kind: RESIZE_IN_PROGRESS,
        holds: true,
        reason: resize.error.as_ref().map(|_| "Error"),
        message: resize.error.clone(),
        generation: resize.generation,
    });
    pending.into_iter().chain(progress)
}

fn compute_disruption(facts: Facts<'_>) -> Option<ConditionValue> {
    match facts.memory.lifecycle.cause() {
        // A Job's podFailurePolicy can ignore failures with this condition, since the pod did not
        // cause them.
        Some(TerminationCause::Failed { reason, message }) if reason == "Evicted" => {
            Some(ConditionValue {
                kind: "DisruptionTarget",
                holds: true,
                reason: Some("TerminationByKubelet"),
                message: Some(message.clone()),
                generation: None,
            })
        }
        _ => None,
    }
}

fn compute_containers_ready(
    facts: Facts<'_>,
    phase: &str,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> ConditionValue {
    let kind = "ContainersReady";
    match phase {
        "Succeeded" => return ConditionValue::new(kind, Some(("PodCompleted", None))),
        "Failed" => return ConditionValue::new(kind, Some(("PodFailed", None))),
        _ => {}
    }
    // Sidecars serve requests too; other init containers have completed by then.
    let sidecars = init.iter().filter(|s| {
        spec::init_containers(facts.pod).any(|(role, c)| role == Role::Sidecar && c.name == s.name)
    });
    let unready: Vec<&str> = sidecars
        .chain(apps)
        .filter(|s| !s.ready)
        .map(|s| s.name.as_str())
        .collect();
    if unready.is_empty() {
        return ConditionValue::new(kind, None);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    ConditionValue::new(kind, Some(("ContainersNotReady", Some(message))))
}

fn compute_ready(facts: Facts<'_>, phase: &str, containers: &ConditionValue) -> ConditionValue {
    let kind = "Ready";
    if !containers.holds || api_semantics::pods::is_terminal_phase(phase) {
        let reason = containers.reason.unwrap_or("ContainersNotReady");
        return ConditionValue::new(kind, Some((reason, containers.message.clone())));
    }
    // Conditions of the API object, not of the computed status: other controllers write the gates.
    let held = |gate: &str| {
        let conditions = facts
            .pod
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|c| c.type_ == gate && c.status == "True")
    };
    let gates = spec::read_spec(facts.pod).readiness_gates.iter().flatten();
    let problems: Vec<String> = gates
        .filter(|g| !held(&g.condition_type))
        .map(|g| {
            format!(
                "the status of pod readiness gate {:?} is not \"True\", but False",
                g.condition_type
            )
        })
        .collect();
    if problems.is_empty() {
        return ConditionValue::new(kind, None);
    }
    ConditionValue::new(
        kind,
        Some(("ReadinessGatesNotReady", Some(problems.join(", ")))),
    )
}

fn add_times(
    facts: Facts<'_>,
    context: StatusContext<'_>,
    verdict: ConditionValue,
) -> PodCondition {
    let status = if verdict.holds { "True" } else { "False" };
    let before = context
        .before
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == verdict.kind);
    // An unchanged condition keeps its time: a new one would be a write for each sync.
    let same = before
        .filter(|c| c.status == status)
        .and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: verdict.kind.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.filter(|r| !r.is_empty()).map(str::to_owned),
        message: verdict.message,
        last_transition_time: same.or_else(|| to_api_time(facts.now)),
        last_probe_time: None,
        observed_generation: verdict.generation.or(facts.pod.metadata.generation),
    }
}
