//! Table tests: a pod, its observed state, and the expected actions and status.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::backoff::{SANDBOX, VOLUMES};
use super::lifecycle::{Deletion, PodLifecycle, Termination, TerminationCause};
use super::memory::{Memory, StopRequest, WaitingReason, Work};
use super::plan::compute_actions;
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

#[test]
fn new_pod_gets_volumes_and_a_sandbox_at_once() {
    let none = Observed::default();
    let pod = simple("Always");
    let want = [
        PodAction::SetUpVolumes,
        PodAction::CreateSandbox { attempt: 0 },
    ];
    assert_eq!(next(&pod, &none, &Memory::default()), want);
    let mut busy = Memory::default();
    busy.busy.extend([Work::Volumes, Work::Sandbox]);
    assert_eq!(next(&pod, &none, &busy), []);
}

#[test]
fn restart_policy_decides_after_an_exit() {
    let ended = |code| {
        Observed::new(
            vec![sandbox()],
            vec![container("c", 0, CriState::Exited, code)],
        )
    };
    for (policy, code, want) in [
        ("Always", 0, vec![start("c", 1)]),
        ("Always", 1, vec![start("c", 1)]),
        ("OnFailure", 0, vec![PodAction::Terminate]),
        ("OnFailure", 1, vec![start("c", 1)]),
        ("Never", 1, vec![PodAction::Terminate]),
    ] {
        assert_eq!(
            next(&simple(policy), &ended(code), &memory()),
            want,
            "{policy} after {code}"
        );
    }
}

#[test]
fn restart_rules_of_the_container_come_first() {
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let pod = pod(json!({"restartPolicy": "Never",
        "containers": [{"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules}]}));
    for (code, want) in [(42, start("c", 1)), (41, PodAction::Terminate)] {
        let observed = Observed::new(
            vec![sandbox()],
            vec![container("c", 0, CriState::Exited, code)],
        );
        assert_eq!(next(&pod, &observed, &memory()), [want], "after {code}");
    }
}

#[test]
fn crash_loop_waits_and_is_reported() {
    let pod = simple("Always");
    let observed = Observed::new(
        vec![sandbox()],
        vec![container("c", 1, CriState::Exited, 5)],
    );
    let mut memory = memory();
    memory.entry("c").backoff.begin_start(1, NOW - 20 * SECOND);
    let wake = NOW + 9 * SECOND;
    assert_eq!(next(&pod, &observed, &memory), [PodAction::WakeAt(wake)]);
    let computed = compute(&pod, &observed, &memory);
    let c = &computed.container_statuses.as_ref().unwrap()[0];
    let waiting = c.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(
        waiting.message.as_deref(),
        Some("back-off 10s restarting failed container=c pod=a_ns(u)")
    );
    assert_eq!(
        c.last_state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        5
    );
    assert_eq!(computed.phase.as_deref(), Some("Running"));
}

#[test]
fn init_containers_start_in_order() {
    use CriState::{Exited, Running};
    let cases = [
        (vec![], vec![start("s", 0)]),
        (vec![container("s", 0, Running, 0)], vec![start("i", 0)]),
        (
            vec![container("s", 0, Running, 0), container("i", 0, Running, 0)],
            vec![],
        ),
        (
            vec![container("s", 0, Running, 0), container("i", 0, Exited, 1)],
            vec![start("i", 1)],
        ),
        (
            vec![container("s", 0, Running, 0), container("i", 0, Exited, 0)],
            vec![start("c", 0)],
        ),
        (
            vec![
                container("s", 0, Exited, 0),
                container("i", 0, Exited, 0),
                container("c", 0, Running, 0),
            ],
            vec![start("s", 1)],
        ),
    ];
    for (containers, want) in cases {
        let observed = Observed::new(vec![sandbox()], containers.clone());
        assert_eq!(
            next(&with_init("Always"), &observed, &memory()),
            want,
            "{containers:?}"
        );
    }
}

#[test]
fn failed_init_container_terminates_the_pod() {
    let pod = with_init("Never");
    let containers = vec![
        container("s", 0, CriState::Running, 0),
        container("i", 0, CriState::Exited, 6),
    ];
    let observed = Observed::new(vec![sandbox()], containers);
    assert_eq!(next(&pod, &observed, &memory()), [PodAction::Terminate]);
    assert_eq!(
        compute(&pod, &observed, &memory()).phase.as_deref(),
        Some("Failed")
    );
}

#[test]
fn termination_stops_sidecars_last() {
    let pod = with_init("Always");
    let mut memory = memory();
    memory.lifecycle = deleted(NOW + 10 * SECOND);
    let side = || container("s", 0, CriState::Running, 0);
    let cases = [
        (
            vec![side(), container("c", 0, CriState::Running, 0)],
            kill("c", "c0", 10),
        ),
        (
            vec![side(), container("c", 0, CriState::Exited, 0)],
            kill("s", "s0", 10),
        ),
        (
            vec![container("s", 0, CriState::Exited, 0)],
            PodAction::StopSandbox { id: "box".into() },
        ),
    ];
    for (containers, want) in cases {
        assert_eq!(
            next(&pod, &Observed::new(vec![sandbox()], containers), &memory),
            [want]
        );
    }
    let stopped = Sandbox {
        ready: false,
        ..sandbox()
    };
    assert_eq!(
        next(&pod, &Observed::new(vec![stopped], vec![]), &memory),
        [PodAction::CompleteTermination]
    );
}

#[test]
fn grace_period_is_never_cut_short() {
    let mut memory = memory();
    let observed = Observed::new(
        vec![sandbox()],
        vec![container("c", 0, CriState::Running, 0)],
    );
    for (left, want) in [
        (4 * SECOND, 4),
        (4 * SECOND - 1, 4),
        (3 * SECOND, 3),
        (1, 2),
        (-SECOND, 2),
    ] {
        memory.lifecycle = deleted(NOW + left);
        assert_eq!(
            next(&simple("Always"), &observed, &memory),
            [kill("c", "c0", want)],
            "{left} ns are left"
        );
    }
}

#[test]
fn lost_sandbox_is_created_again_for_containers_that_restart() {
    let lost = Sandbox {
        ready: false,
        ..sandbox()
    };
    let observed = Observed::new(vec![lost], vec![container("c", 0, CriState::Exited, 137)]);
    assert_eq!(
        next(&simple("Always"), &observed, &memory()),
        [PodAction::CreateSandbox { attempt: 1 }]
    );
    assert_eq!(
        next(&simple("Never"), &observed, &memory()),
        [PodAction::Terminate]
    );
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

#[test]
fn phase_and_ready_condition_follow_the_containers() {
    let run = |code| {
        Observed::new(
            vec![sandbox()],
            vec![container("c", 0, CriState::Exited, code)],
        )
    };
    let live = Observed::new(
        vec![sandbox()],
        vec![container("c", 0, CriState::Running, 0)],
    );
    let none = Observed::new(vec![sandbox()], vec![]);
    for (policy, observed, phase, ready, reason) in [
        (
            "Always",
            &none,
            "Pending",
            "False",
            Some("ContainersNotReady"),
        ),
        ("Always", &live, "Running", "True", None),
        (
            "Always",
            &run(0),
            "Running",
            "False",
            Some("ContainersNotReady"),
        ),
        ("Never", &run(0), "Succeeded", "False", Some("PodCompleted")),
        ("Never", &run(37), "Failed", "False", Some("PodFailed")),
        (
            "OnFailure",
            &run(37),
            "Running",
            "False",
            Some("ContainersNotReady"),
        ),
    ] {
        let computed = compute(&simple(policy), observed, &memory());
        assert_eq!(computed.phase.as_deref(), Some(phase), "{policy}");
        let condition = computed
            .conditions
            .unwrap()
            .into_iter()
            .find(|c| c.type_ == "Ready")
            .unwrap();
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_deref()),
            (ready, reason),
            "{policy} {phase}"
        );
    }
}

#[test]
fn termination_waits_for_the_volumes() {
    let pod = simple("Always");
    let stopped = Observed::new(
        vec![Sandbox {
            ready: false,
            ..sandbox()
        }],
        Vec::new(),
    );
    let mut memory = Memory {
        lifecycle: deleted(0),
        ..memory()
    };
    memory.busy.insert(Work::Volumes);
    assert_eq!(
        next(&pod, &stopped, &memory),
        [],
        "a mount would be made after the cleaning"
    );
    memory.busy.clear();
    assert_eq!(
        next(&pod, &stopped, &memory),
        [PodAction::CompleteTermination]
    );
}

#[test]
fn replaced_container_is_created_again_whatever_the_policy() {
    let pod = simple("Never");
    let ended = Observed::new(
        vec![sandbox()],
        vec![container("c", 0, CriState::Exited, 0)],
    );
    let mut memory = memory();
    assert_eq!(next(&pod, &ended, &memory), [PodAction::Terminate]);
    memory.entry("c").replaced = Some("c0".into());
    assert_eq!(next(&pod, &ended, &memory), [start("c", 1)]);
    memory.entry("c").replaced = Some("older".into());
    assert_eq!(next(&pod, &ended, &memory), [PodAction::Terminate]);
}

#[test]
fn app_containers_wait_for_the_post_start_hook_of_those_before() {
    let hook = json!({"postStart": {"exec": {"command": ["wait"]}}});
    let pod = pod(
        json!({"containers": [{"name": "proxy", "lifecycle": hook}, {"name": "app"}, {"name": "more"}]}),
    );
    let none = Observed::new(vec![sandbox()], Vec::new());
    let mut memory = memory();
    assert_eq!(next(&pod, &none, &memory), [start("proxy", 0)]);
    memory.busy.insert(Work::Container("proxy".into()));
    assert_eq!(next(&pod, &none, &memory), [], "the hook runs");
    memory.busy.clear();
    let proxy = Observed::new(
        vec![sandbox()],
        vec![container("proxy", 0, CriState::Running, 0)],
    );
    assert_eq!(
        next(&pod, &proxy, &memory),
        [start("app", 0), start("more", 0)],
        "without hooks, both at once"
    );
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

#[test]
fn restart_count_is_the_attempt_and_last_state_the_container_before() {
    let observed = running(vec![
        container("c", 3, CriState::Running, 0),
        container("c", 2, CriState::Exited, 7),
    ]);
    let computed = compute(&simple("Always"), &observed, &memory());
    let c = status_of(&computed, "c");
    assert_eq!(c.restart_count, 3);
    let last = c.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (7, Some("Error")));
    assert_eq!(c.container_id.as_deref(), Some("containerd://c3"));
    assert_eq!(last.container_id.as_deref(), Some("containerd://c2"));
}

#[test]
fn reason_of_an_exit_is_that_of_the_runtime_or_of_the_exit_code() {
    for (code, reported, expected) in [
        (0, "", "Completed"),
        (1, "", "Error"),
        (137, "OOMKilled", "OOMKilled"),
    ] {
        let exited = CriContainer {
            reason: reported.into(),
            ..container("c", 0, CriState::Exited, code)
        };
        let computed = compute(&simple("Never"), &running(vec![exited]), &memory());
        let state = status_of(&computed, "c").state.as_ref().unwrap();
        let terminated = state.terminated.as_ref().unwrap();
        assert_eq!(
            terminated.reason.as_deref(),
            Some(expected),
            "{code} {reported}"
        );
    }
}

#[test]
fn container_that_was_not_created_waits_for_its_creation_or_for_init_containers() {
    let none = running(Vec::new());
    let computed = compute(&simple("Always"), &none, &memory());
    let reason = waiting_reason(status_of(&computed, "c"));
    assert_eq!(reason.as_deref(), Some("ContainerCreating"));
    let computed = compute(&with_init("Always"), &none, &memory());
    for name in ["c", "s", "i"] {
        let reason = waiting_reason(status_of(&computed, name));
        assert_eq!(reason.as_deref(), Some("PodInitializing"), "{name}");
    }
}

#[test]
fn failed_start_is_reported_until_the_pod_terminates() {
    let pod = simple("Always");
    let exited = running(vec![container("c", 0, CriState::Exited, 1)]);
    let mut memory = memory();
    memory.entry("c").waiting = Some(WaitingReason {
        reason: "ImagePullBackOff".into(),
        message: "Back-off pulling image".into(),
    });
    let reason = |memory: &Memory| waiting_reason(status_of(&compute(&pod, &exited, memory), "c"));
    assert_eq!(reason(&memory).as_deref(), Some("ImagePullBackOff"));
    memory.lifecycle = deleted(NOW);
    assert_eq!(reason(&memory), None, "the exit is final");
}

#[test]
fn readiness_waits_for_the_startup_probe_and_then_for_the_readiness_probe() {
    let probe = json!({"exec": {"command": ["true"]}});
    let both =
        pod(json!({"containers": [{"name": "c", "startupProbe": probe, "readinessProbe": probe}]}));
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    for (started, ready, expected) in [
        (None, None, (false, false)),
        (Some(false), Some(true), (false, false)),
        (Some(true), None, (true, false)),
        (Some(true), Some(false), (true, false)),
        (Some(true), Some(true), (true, true)),
    ] {
        let mut memory = memory();
        let c = memory.entry("c");
        (c.container_id, c.started, c.ready) = ("c0".into(), started, ready);
        let computed = compute(&both, &observed, &memory);
        let c = status_of(&computed, "c");
        assert_eq!(
            (c.started.unwrap(), c.ready),
            expected,
            "{started:?} {ready:?}"
        );
        let status = condition(&computed, "Ready").status;
        assert_eq!(status == "True", expected.1, "{started:?} {ready:?}");
    }
}

/// Results of the probes of a container that exited say nothing about its successor.
#[test]
fn probe_results_of_an_earlier_container_do_not_count() {
    let probe = json!({"exec": {"command": ["true"]}});
    let pod = pod(json!({"containers": [{"name": "c", "readinessProbe": probe}]}));
    let mut memory = memory();
    let c = memory.entry("c");
    (c.container_id, c.ready) = ("c0".into(), Some(true));
    let observed = running(vec![container("c", 1, CriState::Running, 0)]);
    assert!(!status_of(&compute(&pod, &observed, &memory), "c").ready);
}

#[test]
fn initialized_condition_names_the_incomplete_init_containers() {
    let pod = with_init("Always");
    let observed = running(vec![container("s", 0, CriState::Running, 0)]);
    let initialized = condition(&compute(&pod, &observed, &memory()), "Initialized");
    assert_eq!(
        (initialized.status.as_str(), initialized.reason.as_deref()),
        ("False", Some("ContainersNotInitialized"))
    );
    let message = initialized.message.unwrap();
    assert_eq!(message, "containers with incomplete status: [i]");
    let done = running(vec![
        container("s", 0, CriState::Running, 0),
        container("i", 0, CriState::Exited, 0),
    ]);
    let initialized = condition(&compute(&pod, &done, &memory()), "Initialized");
    assert_eq!(initialized.status, "True");
}

#[test]
fn readiness_gate_needs_a_true_condition_of_another_controller() {
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    for (conditions, status, reason) in [
        (json!([]), "False", Some("ReadinessGatesNotReady")),
        (
            json!([{"type": "x.io/g", "status": "False"}]),
            "False",
            Some("ReadinessGatesNotReady"),
        ),
        (json!([{"type": "x.io/g", "status": "True"}]), "True", None),
    ] {
        let mut pod = pod(json!({"containers": [{"name": "c"}],
            "readinessGates": [{"conditionType": "x.io/g"}]}));
        pod.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
        let computed = compute(&pod, &observed, &memory());
        let ready = condition(&computed, "Ready");
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_deref()),
            (status, reason),
            "{conditions}"
        );
        assert_eq!(
            condition(&computed, "ContainersReady").status,
            "True",
            "{conditions}"
        );
    }
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

#[test]
fn transition_time_changes_only_with_the_status_of_a_condition() {
    let pod = simple("Always");
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    let earlier = "2020-01-01T00:00:00Z";
    for (status, kept) in [("True", true), ("False", false)] {
        let before = json!({"conditions": [{"type": "Ready", "status": status,
            "lastTransitionTime": earlier}]});
        let before = serde_json::from_value(before).unwrap();
        let ready = condition(&compute_after(&before, &pod, &observed, &memory()), "Ready");
        let time = ready.last_transition_time.unwrap().0.to_string();
        assert_eq!(time == earlier, kept, "was {status}, is {}", ready.status);
    }
}

#[test]
fn status_keeps_addresses_start_time_and_qos_class() {
    let before: PodStatus = serde_json::from_value(json!({"qosClass": "Guaranteed",
        "startTime": "2020-01-01T00:00:00Z", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}))
    .unwrap();
    let stopped = Observed::default();
    let computed = compute_after(&before, &simple("Always"), &stopped, &memory());
    assert_eq!(computed.pod_ip.as_deref(), Some("10.0.0.9"));
    assert_eq!(computed.qos_class.as_deref(), Some("Guaranteed"));
    assert_eq!(computed.start_time, before.start_time);
}

#[test]
fn pod_of_the_host_network_has_the_addresses_of_the_node() {
    let pod = pod(json!({"hostNetwork": true, "containers": [{"name": "c"}]}));
    let computed = compute(&pod, &running(Vec::new()), &memory());
    assert_eq!(computed.pod_ip.as_deref(), Some("192.0.2.1"));
    let network = condition(&computed, "PodReadyToStartContainers");
    assert_eq!(network.status, "True");
}

#[test]
fn evicted_pod_failed_and_is_a_disruption_target() {
    let mut memory = memory();
    memory.lifecycle.terminate(
        TerminationCause::Failed {
            reason: "Evicted".into(),
            message: "over its limit".into(),
        },
        0,
        NOW,
    );
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    let computed = compute(&simple("Always"), &observed, &memory);
    assert_eq!(
        (
            computed.phase.as_deref(),
            computed.reason.as_deref(),
            computed.message.as_deref()
        ),
        (Some("Failed"), Some("Evicted"), Some("over its limit"))
    );
    let target = condition(&computed, "DisruptionTarget");
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
}

/// Nothing may leave a final phase, so the kubelet repeats the one that a client wrote.
#[test]
fn final_phase_of_another_client_stays() {
    let mut memory = memory();
    memory.lifecycle.terminate(
        TerminationCause::SetByClient {
            phase: "Failed",
            reason: Some("NodeLost".into()),
            message: None,
        },
        30,
        NOW,
    );
    let exited = running(vec![container("c", 0, CriState::Exited, 0)]);
    let computed = compute(&simple("Always"), &exited, &memory);
    assert_eq!(computed.phase.as_deref(), Some("Failed"));
    assert_eq!(computed.reason.as_deref(), Some("NodeLost"));
}

#[test]
fn infeasible_resize_is_a_condition() {
    let mut memory = memory();
    memory.infeasible = Some("Node didn't have enough capacity: cpu".into());
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    let pending = condition(
        &compute(&simple("Always"), &observed, &memory),
        "PodResizePending",
    );
    assert_eq!(
        (pending.status.as_str(), pending.reason.as_deref()),
        ("True", Some("Infeasible"))
    );
}

#[test]
fn network_condition_follows_the_sandbox() {
    let without_address = Sandbox {
        ips: Vec::new(),
        ..sandbox()
    };
    let not_ready = Sandbox {
        ready: false,
        ..sandbox()
    };
    for (sandboxes, expected) in [
        (vec![], "False"),
        (vec![without_address], "False"),
        (vec![not_ready], "False"),
        (vec![sandbox()], "True"),
    ] {
        let observed = Observed::new(sandboxes.clone(), Vec::new());
        let computed = compute(&simple("Always"), &observed, &memory());
        let network = condition(&computed, "PodReadyToStartContainers");
        assert_eq!(
            (network.status.as_str(), network.reason),
            (expected, None),
            "{sandboxes:?}"
        );
    }
}

#[test]
fn pod_is_pending_until_all_app_containers_have_started() {
    let pod = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    use CriState::{Created, Exited, Running};
    for (containers, phase) in [
        (vec![], "Pending"),
        (vec![container("a", 0, Running, 0)], "Pending"),
        (
            vec![container("a", 0, Running, 0), container("b", 0, Created, 0)],
            "Pending",
        ),
        (
            vec![container("a", 0, Running, 0), container("b", 0, Running, 0)],
            "Running",
        ),
        (
            vec![container("a", 0, Running, 0), container("b", 0, Exited, 1)],
            "Running",
        ),
    ] {
        let observed = running(containers.clone());
        let computed = compute(&pod, &observed, &memory());
        assert_eq!(computed.phase.as_deref(), Some(phase), "{containers:?}");
    }
}

#[test]
fn pod_succeeds_only_if_every_app_container_did() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}]}));
    for (a, b, phase) in [(0, 0, "Succeeded"), (0, 3, "Failed"), (3, 3, "Failed")] {
        let exited = |name, code| container(name, 0, CriState::Exited, code);
        let observed = running(vec![exited("a", a), exited("b", b)]);
        let computed = compute(&pod, &observed, &memory());
        assert_eq!(computed.phase.as_deref(), Some(phase), "{a} {b}");
    }
}

#[test]
fn init_container_is_restarted_unless_the_policy_is_never() {
    let observed = running(vec![
        container("s", 0, CriState::Running, 0),
        container("i", 0, CriState::Exited, 1),
    ]);
    for (policy, expected) in [
        ("Always", start("i", 1)),
        ("OnFailure", start("i", 1)),
        ("Never", PodAction::Terminate),
    ] {
        assert_eq!(
            next(&with_init(policy), &observed, &memory()),
            [expected],
            "{policy}"
        );
    }
}

#[test]
fn sidecar_must_pass_its_startup_probe_before_the_next_container_starts() {
    let probe = json!({"exec": {"command": ["true"]}});
    let pod = pod(json!({"containers": [{"name": "c"}],
        "initContainers": [{"name": "s", "restartPolicy": "Always", "startupProbe": probe}]}));
    let observed = running(vec![container("s", 0, CriState::Running, 0)]);
    let mut memory = memory();
    let s = memory.entry("s");
    (s.container_id, s.hooked) = ("s0".into(), true);
    assert_eq!(next(&pod, &observed, &memory), []);
    memory.entry("s").started = Some(true);
    assert_eq!(next(&pod, &observed, &memory), [start("c", 0)]);
}

/// A pod of a Job ends although its sidecar would run forever.
#[test]
fn running_sidecar_does_not_keep_a_pod_from_completing() {
    let pod = with_init("Never");
    let observed = running(vec![
        container("s", 0, CriState::Running, 0),
        container("i", 0, CriState::Exited, 0),
        container("c", 0, CriState::Exited, 0),
    ]);
    assert_eq!(next(&pod, &observed, &memory()), [PodAction::Terminate]);
    let phase = compute(&pod, &observed, &memory()).phase;
    assert_eq!(phase.as_deref(), Some("Succeeded"));
}

#[test]
fn ephemeral_container_starts_once() {
    let pod = pod(json!({"containers": [{"name": "c"}],
        "ephemeralContainers": [{"name": "debug"}]}));
    let c = || container("c", 0, CriState::Running, 0);
    assert_eq!(
        next(&pod, &running(vec![c()]), &memory()),
        [start("debug", 0)]
    );
    let exited = running(vec![c(), container("debug", 0, CriState::Exited, 1)]);
    assert_eq!(next(&pod, &exited, &memory()), []);
}

#[test]
fn container_that_failed_its_probe_is_stopped_within_the_grace_period_of_the_probe() {
    let mut pod = simple("Always");
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(60);
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    for (of_probe, grace) in [(None, 60), (Some(5), 5)] {
        let mut memory = memory();
        memory.entry("c").kill = Some(StopRequest {
            id: "c0".into(),
            why: String::new(),
            grace: of_probe,
        });
        assert_eq!(
            next(&pod, &observed, &memory),
            [kill("c", "c0", grace)],
            "{of_probe:?}"
        );
        memory.busy.insert(Work::Container("c".into()));
        assert_eq!(next(&pod, &observed, &memory), [], "it is being stopped");
    }
}

/// The kubelet stopped between the creation and the start of the container.
#[test]
fn container_that_was_created_but_not_started_is_replaced() {
    for state in [CriState::Created, CriState::Unknown] {
        let observed = running(vec![container("c", 0, state, 0)]);
        assert_eq!(
            next(&simple("Never"), &observed, &memory()),
            [start("c", 1)],
            "{state:?}"
        );
    }
}

#[test]
fn sandbox_that_is_not_ready_is_stopped_before_its_successor_is_created() {
    let lost = Sandbox {
        ready: false,
        ..sandbox()
    };
    let observed = Observed::new(vec![lost], vec![container("c", 0, CriState::Running, 0)]);
    let stop = PodAction::StopSandbox { id: "box".into() };
    assert_eq!(next(&simple("Always"), &observed, &memory()), [stop]);
}

/// The network of a new sandbox is another one, so initialization starts over.
#[test]
fn init_containers_run_again_in_a_new_sandbox() {
    let fresh = Sandbox {
        id: "box1".into(),
        attempt: 1,
        created_at: NOW - SECOND,
        ..sandbox()
    };
    let containers = vec![
        container("s", 0, CriState::Exited, 0),
        container("i", 0, CriState::Exited, 0),
        container("c", 0, CriState::Exited, 1),
    ];
    let observed = Observed::new(vec![fresh], containers);
    assert_eq!(
        next(&with_init("Always"), &observed, &memory()),
        [start("s", 1)]
    );
}

#[test]
fn sidecars_stop_from_the_last_to_the_first() {
    let side = |name: &str| json!({"name": name, "restartPolicy": "Always"});
    let pod =
        pod(json!({"containers": [{"name": "c"}], "initContainers": [side("s1"), side("s2")]}));
    let mut memory = memory();
    memory.lifecycle = deleted(NOW + 10 * SECOND);
    let s = |name| container(name, 0, CriState::Running, 0);
    let both = running(vec![s("s1"), s("s2")]);
    assert_eq!(next(&pod, &both, &memory), [kill("s2", "s20", 10)]);
    assert_eq!(
        next(&pod, &running(vec![s("s1")]), &memory),
        [kill("s1", "s10", 10)]
    );
}

#[test]
fn terminated_pod_needs_no_action() {
    let mut memory = memory();
    memory.lifecycle = deleted(0);
    memory.lifecycle.complete_termination();
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    assert_eq!(next(&simple("Always"), &observed, &memory), []);
}

#[test]
fn failed_volumes_and_sandbox_are_retried_after_their_delay() {
    let mut memory = Memory::default();
    let volumes = memory.volumes_retry.record_failure(VOLUMES, NOW);
    let sandbox = memory.sandbox_retry.record_failure(SANDBOX, NOW);
    let expected = [PodAction::WakeAt(volumes), PodAction::WakeAt(sandbox)];
    assert_eq!(
        next(&simple("Always"), &Observed::default(), &memory),
        expected
    );
}
