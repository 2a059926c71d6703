//! The five standard conditions of a pod.

use super::lifecycle::TerminationCause;
use super::phase::incomplete;
use super::plan::Facts;
use super::spec::{self, Role};
use super::status::{Surroundings, time};
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};

/// Present only while a resize waits.
pub(crate) const RESIZE_PENDING: &str = "PodResizePending";

/// A condition without its times.
struct Verdict {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn new(kind: &'static str, problem: Option<(&'static str, Option<String>)>) -> Self {
        let holds = problem.is_none();
        let (reason, message) =
            problem.map_or((None, None), |(reason, message)| (Some(reason), message));
        Verdict {
            kind,
            holds,
            reason,
            message,
        }
    }
}

pub(crate) fn conditions(
    facts: Facts<'_>,
    around: Surroundings<'_>,
    phase: &str,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> Vec<PodCondition> {
    let containers = containers_ready(facts, phase, init, apps);
    let ready = ready(facts, phase, &containers);
    let sandbox = facts
        .observed
        .sandbox()
        .is_some_and(|s| spec::host_network(facts.pod) || !s.ips.is_empty());
    let network = if sandbox && !facts.memory.lifecycle.is_terminated() {
        None
    } else {
        Some(("", None))
    };
    let initialized = match (phase, incomplete(facts)) {
        ("Succeeded", _) => Verdict {
            reason: Some("PodCompleted"),
            ..Verdict::new("Initialized", None)
        },
        (_, left) if left.is_empty() => Verdict::new("Initialized", None),
        (_, left) => {
            let message = format!("containers with incomplete status: [{}]", left.join(" "));
            Verdict::new(
                "Initialized",
                Some(("ContainersNotInitialized", Some(message))),
            )
        }
    };
    let mut network = Verdict::new("PodReadyToStartContainers", network);
    network.reason = None;
    let mut all = vec![network, initialized, ready, containers];
    // Normally written by the scheduler; for static pods without a scheduler the kubelet adds it.
    all.push(Verdict::new("PodScheduled", None));
    all.extend(disruption(facts));
    all.extend(facts.memory.infeasible.as_ref().map(|why| Verdict {
        kind: RESIZE_PENDING,
        holds: true,
        reason: Some("Infeasible"),
        message: Some(why.clone()),
    }));
    all.into_iter().map(|v| dated(facts, around, v)).collect()
}

fn disruption(facts: Facts<'_>) -> Option<Verdict> {
    match facts.memory.lifecycle.cause() {
        Some(TerminationCause::Failed { reason, message }) if reason == "Evicted" => {
            Some(Verdict {
                kind: "DisruptionTarget",
                holds: true,
                reason: Some("TerminationByKubelet"),
                message: Some(message.clone()),
            })
        }
        _ => None,
    }
}

fn containers_ready(
    facts: Facts<'_>,
    phase: &str,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> Verdict {
    let kind = "ContainersReady";
    match phase {
        "Succeeded" => return Verdict::new(kind, Some(("PodCompleted", None))),
        "Failed" => return Verdict::new(kind, Some(("PodFailed", None))),
        _ => {}
    }
    let sidecars = init.iter().filter(|s| {
        spec::init_containers(facts.pod).any(|(role, c)| role == Role::Sidecar && c.name == s.name)
    });
    let unready: Vec<&str> = sidecars
        .chain(apps)
        .filter(|s| !s.ready)
        .map(|s| s.name.as_str())
        .collect();
    if unready.is_empty() {
        return Verdict::new(kind, None);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Verdict::new(kind, Some(("ContainersNotReady", Some(message))))
}

fn ready(facts: Facts<'_>, phase: &str, containers: &Verdict) -> Verdict {
    let kind = "Ready";
    if !containers.holds || matches!(phase, "Succeeded" | "Failed") {
        let reason = containers.reason.unwrap_or("ContainersNotReady");
        return Verdict::new(kind, Some((reason, containers.message.clone())));
    }
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
    let gates = spec::spec(facts.pod).readiness_gates.iter().flatten();
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
        return Verdict::new(kind, None);
    }
    Verdict::new(
        kind,
        Some(("ReadinessGatesNotReady", Some(problems.join(", ")))),
    )
}

fn dated(facts: Facts<'_>, around: Surroundings<'_>, verdict: Verdict) -> PodCondition {
    let status = if verdict.holds { "True" } else { "False" };
    let before = around
        .before
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == verdict.kind);
    let same = before
        .filter(|c| c.status == status)
        .and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: verdict.kind.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.filter(|r| !r.is_empty()).map(str::to_owned),
        message: verdict.message,
        last_transition_time: same.or_else(|| time(facts.now)),
        last_probe_time: None,
        observed_generation: facts.pod.metadata.generation,
    }
}
