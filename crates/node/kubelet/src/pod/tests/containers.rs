//! Creation, start and replacement of sandboxes and app containers.

use super::*;

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
