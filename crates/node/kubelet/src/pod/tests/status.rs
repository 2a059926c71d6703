//! Phase, addresses and container statuses.

use super::*;

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
fn replaced_container_waits_for_its_successor_whatever_the_restart_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut memory = memory();
        memory.request_replacement("c", "c0".into(), "image changed".into());
        let observed = running(vec![container("c", 0, CriState::Exited, 143)]);
        let computed = compute(&simple(policy), &observed, &memory);
        assert_eq!(computed.phase.as_deref(), Some("Running"), "{policy}");
        let c = status_of(&computed, "c");
        assert_eq!(
            waiting_reason(c).as_deref(),
            Some("ContainerCreating"),
            "{policy}"
        );
        let last = c.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(last.exit_code, 143, "{policy}");
    }
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
