//! Devices of claims: prepared before the sandbox, released before the pod has terminated.

use super::*;

fn with_claim() -> Pod {
    pod(
        json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}]}),
    )
}

fn prepared() -> Memory {
    Memory {
        devices_ready: true,
        ..memory()
    }
}

#[test]
fn devices_are_prepared_before_the_sandbox_is_created() {
    let none = Observed::default();
    let pod = with_claim();
    assert_eq!(next(&pod, &none, &memory()), [PodAction::PrepareDevices]);
    let mut busy = memory();
    busy.busy.insert(Work::Devices);
    assert_eq!(next(&pod, &none, &busy), []);
    let mut failed = memory();
    let again = failed.devices_retry.record_failure(VOLUMES, NOW);
    assert_eq!(next(&pod, &none, &failed), [PodAction::WakeAt(again)]);
    let create = [PodAction::CreateSandbox { attempt: 0 }];
    assert_eq!(next(&pod, &none, &prepared()), create);
    assert_eq!(next(&simple("Never"), &none, &memory()), create);
}

#[test]
fn devices_are_released_before_the_pod_has_terminated() {
    let pod = with_claim();
    let mut stopped = sandbox();
    stopped.ready = false;
    let exited = container("c", 0, CriState::Exited, 0);
    let observed = Observed::new(vec![stopped], vec![exited]);
    let mut memory = prepared();
    memory.lifecycle = deleted(NOW);
    assert_eq!(next(&pod, &observed, &memory), [PodAction::ReleaseDevices]);
    let again = memory.release_retry.record_failure(VOLUMES, NOW);
    assert_eq!(next(&pod, &observed, &memory), [PodAction::WakeAt(again)]);
    memory.devices_released = true;
    assert_eq!(
        next(&pod, &observed, &memory),
        [PodAction::CompleteTermination]
    );
}

#[test]
fn phase_becomes_final_after_the_devices_are_released() {
    let pod = with_claim();
    for (exit_code, phase) in [(0, "Succeeded"), (1, "Failed")] {
        let exited = container("c", 0, CriState::Exited, exit_code);
        let observed = running(vec![exited]);
        let mut memory = prepared();
        memory.lifecycle = PodLifecycle::Terminating(Termination {
            cause: TerminationCause::Finished,
            deadline: 0,
            deletion: Deletion::NotRequested,
        });
        let computed = compute(&pod, &observed, &memory);
        assert_eq!(computed.phase.as_deref(), Some("Running"), "{exit_code}");
        memory.devices_released = true;
        let computed = compute(&pod, &observed, &memory);
        assert_eq!(computed.phase.as_deref(), Some(phase));
    }
}
