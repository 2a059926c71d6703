//! The end of a pod, by its deletion or its own containers.

use super::*;

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
