//! Table tests: a pod, its observed state, and the expected actions and status.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod conditions;
mod containers;
mod devices;
mod initialization;
mod status;
mod termination;

use super::backoff::{SANDBOX, VOLUMES};
use super::lifecycle::{Deletion, PodLifecycle, Termination, TerminationCause};
use super::memory::{Memory, StopRequest, WaitingReason, Work};
use super::plan::compute_actions;
use super::resize::{PendingResize, ResizeProgress};
use super::status::compute_status;
use super::view::{CriContainer, CriState, Observed, Sandbox};
use super::{Nanos, SECOND};
use crate::pod::action::PodAction;
use crate::pod::facts::Facts;
use crate::pod::status_context::StatusContext;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use serde_json::{Value, json};

const NOW: Nanos = 1_000_000 * SECOND;

fn pod(spec: Value) -> Pod {
    let meta = json!({"name": "a", "namespace": "ns", "uid": "u", "generation": 1});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

fn simple(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}))
}

fn with_init(policy: &str) -> Pod {
    pod(
        json!({"restartPolicy": policy, "containers": [{"name": "c"}],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]}),
    )
}

fn sandbox() -> Sandbox {
    Sandbox {
        id: "box".into(),
        attempt: 0,
        ready: true,
        created_at: NOW - 100 * SECOND,
        ips: vec!["10.0.0.1".into()],
    }
}

fn container(name: &str, attempt: u32, state: CriState, exit_code: i32) -> CriContainer {
    CriContainer {
        id: format!("{name}{attempt}"),
        name: name.into(),
        attempt,
        state,
        exit_code,
        created_at: NOW - 50 * SECOND,
        started_at: NOW - 50 * SECOND,
        finished_at: if state == CriState::Exited {
            NOW - SECOND
        } else {
            0
        },
        ..CriContainer::default()
    }
}

fn memory() -> Memory {
    Memory {
        volumes_ready: true,
        ..Memory::default()
    }
}

fn deleted(deadline: Nanos) -> PodLifecycle {
    PodLifecycle::Terminating(Termination {
        cause: TerminationCause::Deleted,
        deadline,
        deletion: Deletion::Requested,
    })
}

fn next(pod: &Pod, observed: &Observed, memory: &Memory) -> Vec<PodAction> {
    compute_actions(Facts {
        pod,
        observed,
        memory,
        now: NOW,
    })
}

fn start(name: &str, attempt: u32) -> PodAction {
    PodAction::Start {
        name: name.into(),
        attempt,
    }
}

fn kill(name: &str, id: &str, grace: i64) -> PodAction {
    PodAction::Kill {
        name: name.into(),
        id: id.into(),
        why: String::new(),
        grace,
    }
}

fn compute(pod: &Pod, observed: &Observed, memory: &Memory) -> PodStatus {
    let before = PodStatus::default();
    let node_ips = ["192.0.2.1".to_owned()];
    let context = StatusContext {
        node_ips: &node_ips,
        runtime: "containerd",
        before: &before,
        first_seen: NOW,
    };
    compute_status(
        Facts {
            pod,
            observed,
            memory,
            now: NOW,
        },
        context,
    )
}

fn status_of<'a>(computed: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let lists = [
        &computed.container_statuses,
        &computed.init_container_statuses,
    ];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|status| status.name == name).unwrap()
}

fn condition(computed: &PodStatus, kind: &str) -> PodCondition {
    let mut all = computed.conditions.iter().flatten();
    all.find(|c| c.type_ == kind).unwrap().clone()
}

fn waiting_reason(status: &ContainerStatus) -> Option<String> {
    status.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

fn running(containers: Vec<CriContainer>) -> Observed {
    Observed::new(vec![sandbox()], containers)
}

/// Computes the status that follows `before`.
fn compute_after(before: &PodStatus, pod: &Pod, observed: &Observed, memory: &Memory) -> PodStatus {
    let node_ips = ["192.0.2.1".to_owned()];
    let context = StatusContext {
        node_ips: &node_ips,
        runtime: "containerd",
        before,
        first_seen: NOW,
    };
    let facts = Facts {
        pod,
        observed,
        memory,
        now: NOW,
    };
    compute_status(facts, context)
}
