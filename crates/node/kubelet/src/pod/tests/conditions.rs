//! Conditions of a pod.

use super::*;

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

#[test]
fn resize_has_conditions_of_its_generation_while_the_pod_runs() {
    let mut memory = memory();
    memory.pending_resize = Some(PendingResize {
        message: "Node didn't have enough resource: cpu".into(),
        generation: Some(7),
        since: NOW,
    });
    memory.resize_progress = Some(ResizeProgress {
        generation: Some(6),
        error: Some("the cgroup can't be changed".into()),
    });
    let observed = running(vec![container("c", 0, CriState::Running, 0)]);
    let computed = compute(&simple("Always"), &observed, &memory);
    for (kind, reason, message, generation) in [
        (
            "PodResizePending",
            "Deferred",
            "Node didn't have enough resource: cpu",
            7,
        ),
        (
            "PodResizeInProgress",
            "Error",
            "the cgroup can't be changed",
            6,
        ),
    ] {
        let condition = condition(&computed, kind);
        assert_eq!(condition.status, "True", "{kind}");
        assert_eq!(condition.reason.as_deref(), Some(reason), "{kind}");
        assert_eq!(condition.message.as_deref(), Some(message), "{kind}");
        assert_eq!(condition.observed_generation, Some(generation), "{kind}");
    }
    let cause = TerminationCause::SetByClient {
        phase: "Failed",
        reason: None,
        message: None,
    };
    memory.lifecycle.terminate(cause, 0, NOW);
    let failed = compute(&simple("Always"), &observed, &memory);
    let mut kinds = failed.conditions.iter().flatten().map(|c| c.type_.as_str());
    assert!(!kinds.any(|kind| kind.starts_with("PodResize")));
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
