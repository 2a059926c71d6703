//! Init containers and sidecars before the app containers.

use super::*;

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
