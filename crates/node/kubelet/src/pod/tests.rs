//! Table tests: a pod, its observed state, and the expected actions and status.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::lifecycle::{Deletion, PodLifecycle, Termination, TerminationCause};
use super::memory::{Memory, Work};
use super::plan::{Facts, PodAction, compute_actions};
use super::status::{StatusContext, compute_status};
use super::view::{CriContainer, CriState, Observed, Sandbox};
use super::{Nanos, SECOND};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
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
