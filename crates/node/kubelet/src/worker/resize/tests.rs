//! Tests of the allocation and application of resizes.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::pod::lifecycle::TerminationCause;
use crate::pod::view::{CriState, Sandbox};
use crate::testing;
use crate::worker::messages::JobResult;
use futures::FutureExt;
use node_runtime::v1;
use serde_json::json;
use std::sync::Arc;
use testkit_cri::FakeRuntime;

#[test]
fn resize_restarts_only_for_resources_with_that_policy() {
    let container: Container = serde_json::from_value(json!({"name": "c", "resizePolicy": [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]}))
    .unwrap();
    let of = |cpu: &str, memory: &str| -> ResourceRequirements {
        serde_json::from_value(json!({"limits": {"cpu": cpu, "memory": memory}})).unwrap()
    };
    assert!(!needs_restart(&container, &of("1", "1Gi"), &of("2", "1Gi")));
    assert!(needs_restart(&container, &of("1", "1Gi"), &of("1", "2Gi")));
}

/// Returns the pod with requests of its own.
fn pod_of(cpu: &str, more: &serde_json::Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 2},
        "spec": {"resources": {"requests": {"cpu": cpu}}, "containers": [{"name": "c"}]}});
    let more = more.as_object().unwrap().clone();
    pod.as_object_mut().unwrap().extend(more);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn cpu_of(pod: &Pod) -> String {
    let resources = pod.spec.as_ref().unwrap().resources.as_ref().unwrap();
    resources.requests.as_ref().unwrap()["cpu"].0.clone()
}

fn admitted(dir: &tempfile::TempDir, allows_resizes: bool) -> PodWorker {
    let kubelet = testing::context(testing::settings(dir.path()));
    if allows_resizes {
        kubelet.workers.allow_resizes();
    }
    let mut worker = PodWorker::new(&kubelet, pod_of("100m", &json!({})), false);
    worker.status.set_active(true);
    worker.record_allocation();
    worker
}

/// The allocation of the worker, as its snapshot shows it to other workers.
fn published(worker: &PodWorker) -> String {
    cpu_of(&worker.kubelet.workers.snapshot("u").unwrap().pod)
}

#[tokio::test]
async fn resize_is_allocated_and_completed_without_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    worker.update_pod(pod_of("200m", &json!({})));
    assert_eq!(cpu_of(&worker.state.pod), "200m");
    assert_eq!(published(&worker), "200m");
    assert_eq!(worker.state.memory.pending_resize, None);
    assert_eq!(worker.state.memory.resize_progress, None);
}

/// Lets the pod and its container run with what is allocated.
fn run_pod(worker: &mut PodWorker) {
    let state = &mut worker.state;
    state.observed.put_sandbox(Sandbox {
        id: "box".into(),
        ready: true,
        ..Sandbox::default()
    });
    state.observed.record(CriContainer {
        id: "c0".into(),
        name: "c".into(),
        state: CriState::Running,
        ..CriContainer::default()
    });
    state.memory.applied.pod = Some(AppliedPod::of_pod(&state.pod));
    let container = spec::app_containers(&state.pod).next().unwrap();
    let effective = compute_effective_resources(&state.pod, container);
    let applied = &mut state.memory.applied.containers;
    applied.insert("c".into(), effective);
}

#[tokio::test]
async fn resize_that_fails_is_reported_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    run_pod(&mut worker);
    worker.update_pod(pod_of("200m", &json!({})));
    assert!(worker.state.memory.busy.contains(&Work::Resize));
    let progress = worker.state.memory.resize_progress.clone().unwrap();
    assert_eq!((progress.generation, progress.error), (Some(2), None));
    // The runtime of the test does not respond.
    let end = worker.executor.next_end().await.unwrap();
    worker.handle_job_end(end);
    assert!(!worker.state.memory.busy.contains(&Work::Resize));
    let progress = worker.state.memory.resize_progress.clone().unwrap();
    assert!(progress.error.is_some());
    assert!(worker.resizes.again.is_some());
    assert_eq!(published(&worker), "200m", "it stays allocated");
    let applied = worker.state.memory.applied.pod.as_ref().unwrap();
    let requests = applied.amounts.requests.as_ref().unwrap();
    assert_eq!(requests["cpu"].0, "100m");
}

#[tokio::test]
async fn resize_is_complete_only_after_a_start_with_former_resources() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    run_pod(&mut worker);
    let starting = Work::Container("d".into());
    worker.state.memory.busy.insert(starting.clone());
    let pod = |cpu: &str| {
        let spec = json!({"resources": {"limits": {"cpu": cpu}},
            "containers": [{"name": "c"}, {"name": "d"}]});
        pod_of("100m", &json!({"spec": spec}))
    };
    worker.state.set_desired(pod("2"));
    worker.state.pod = worker.state.desired.clone();
    run_pod(&mut worker);
    worker.update_pod(pod("1"));
    assert!(worker.resizes.is_waiting);
    assert!(worker.state.memory.resize_progress.is_some());
    let before = AppliedPod::of_pod(&pod("2"));
    assert_eq!(worker.state.memory.applied.pod, Some(before));
    worker.state.memory.busy.remove(&starting);
    worker.sync_pod();
    assert!(!worker.resizes.is_waiting);
    assert!(
        worker.state.memory.busy.contains(&Work::Resize),
        "the pod shrinks"
    );
}

#[tokio::test]
async fn pod_shrinks_only_after_a_container_that_restarts_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = testing::context(testing::settings(dir.path()));
    kubelet.workers.allow_resizes();
    let pod = |memory: &str| {
        testing::pod(json!({"resources": {"limits": {"memory": memory}},
            "containers": [{"name": "c", "resizePolicy": [
                {"resourceName": "memory", "restartPolicy": "RestartContainer"}]}]}))
    };
    let mut worker = PodWorker::new(&kubelet, pod("64Mi"), false);
    worker.status.set_active(true);
    run_pod(&mut worker);
    worker.update_pod(pod("32Mi"));
    let memory = &worker.state.memory;
    assert_eq!(memory.get("c").unwrap().replaced.as_deref(), Some("c0"));
    assert!(
        !memory.busy.contains(&Work::Resize),
        "the container needs its memory"
    );
    assert!(memory.resize_progress.is_some());
    worker.state.observed.record(CriContainer {
        id: "c0".into(),
        name: "c".into(),
        state: CriState::Exited,
        ..CriContainer::default()
    });
    worker.sync_resources();
    assert!(worker.state.memory.busy.contains(&Work::Resize));
}

#[tokio::test]
async fn resize_beyond_the_node_leaves_the_pod_as_it_is_until_it_is_reverted() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    worker.update_pod(pod_of("1000000", &json!({})));
    let pending = worker.state.memory.pending_resize.clone().unwrap();
    assert_eq!(pending.generation, Some(2));
    assert!(
        pending
            .message
            .starts_with("Node didn't have enough resource: cpu"),
        "{pending:?}"
    );
    assert_eq!(
        (cpu_of(&worker.state.pod), published(&worker)),
        ("100m".into(), "100m".into())
    );
    worker.update_pod(pod_of("100m", &json!({})));
    assert_eq!(worker.state.memory.pending_resize, None);
}

#[tokio::test]
async fn only_another_request_or_free_resources_cause_a_decision() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    let other = json!({"metadata": {"uid": "v"}, "spec": {"containers": [],
        "resources": {"requests": {"cpu": worker.kubelet.allocatable["cpu"].to_string()}}}});
    let other = Arc::new(serde_json::from_value(other).unwrap());
    let other = PodWorker::new(&worker.kubelet, other, false);
    other.status.set_active(true);
    worker.update_pod(pod_of("200m", &json!({})));
    assert!(worker.state.memory.pending_resize.is_some());
    // The notification has not come yet.
    other.status.set_active(false);
    let status = json!({"status": {"phase": "Running"}});
    worker.update_pod(pod_of("200m", &status));
    assert_eq!(published(&worker), "100m");
    worker.update_pod(pod_of("300m", &status));
    assert_eq!(published(&worker), "300m");
}

#[tokio::test]
async fn allocation_that_can_not_be_written_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = testing::context(testing::settings(dir.path()));
    let pods = dir.path().join("pods");
    std::fs::write(&pods, "no folder").unwrap();
    let mut worker = PodWorker::new(&kubelet, pod_of("100m", &json!({})), false);
    worker.record_allocation();
    assert!(worker.resizes.next_at().is_some());
    std::fs::remove_file(&pods).unwrap();
    worker.resizes.record_at = Some(0);
    worker.handle_deadlines();
    assert_eq!(worker.resizes.next_at(), None);
    let allocation = base_task::blocking(|| read_allocation(&kubelet, "u"));
    assert_eq!(allocation, Some(Allocation::of_pod(&worker.state.pod)));
}

#[tokio::test]
async fn termination_does_not_wait_for_a_resize() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    run_pod(&mut worker);
    let never = std::future::pending();
    worker.executor.begin_resize(&mut worker.state, never);
    worker.terminate(TerminationCause::Deleted, 30);
    let end = worker.executor.next_end().await.unwrap();
    worker.handle_job_end(end);
    assert!(worker.state.memory.busy.is_empty());
}

#[tokio::test]
async fn container_of_a_resize_that_failed_is_set_again_after_a_revert() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    let pod = |memory: &str| {
        let spec = json!({"containers": [{"name": "c",
            "resources": {"limits": {"cpu": "1", "memory": memory}}}]});
        pod_of("100m", &json!({"spec": spec}))
    };
    worker.state.set_desired(pod("10Mi"));
    worker.state.pod = worker.state.desired.clone();
    run_pod(&mut worker);
    worker.update_pod(pod("20Mi"));
    let memory = |worker: &PodWorker| {
        let limits = worker.state.memory.applied.containers["c"].limits.clone();
        limits.unwrap()["memory"].0.clone()
    };
    let end = |applied: &Arc<Pod>, error: Option<&str>| {
        let container = spec::app_containers(applied).next().unwrap();
        JobResult::Resize(Some(ResizeOutcome {
            pod: compute_pod_resources(applied),
            containers: vec![ResizedContainer {
                name: "c".into(),
                id: "c0".into(),
                applied: container.resources.clone(),
                attempted_memory: error.map(|_| 20 << 20),
            }],
            error: error.map(str::to_owned),
        }))
    };
    // The memory was applied, and CPU not.
    worker.handle_job_end(Ok(end(&pod("20Mi"), Some("cpu"))));
    assert_eq!(memory(&worker), "20Mi");
    worker.update_pod(pod("10Mi"));
    assert!(worker.state.memory.busy.contains(&Work::Resize));
    assert!(worker.state.memory.resize_progress.is_some());
    // Nothing is known to be applied, and the runtime may have done it nevertheless.
    worker.handle_job_end(Ok(end(&pod("10Mi"), Some("timeout"))));
    worker.sync_resources();
    assert!(worker.state.memory.busy.contains(&Work::Resize));
    worker.handle_job_end(Ok(end(&pod("10Mi"), None)));
    assert!(worker.state.memory.applied.unsettled.is_empty());
}

#[tokio::test]
async fn revert_checks_the_use_of_memory_that_a_failed_attempt_may_have_added() {
    for (attempted, expect) in [
        (20 << 20, "unable to read memory usage"),
        (0, "can't resize container c"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = admitted(&dir, true);
        let pod = |memory: &str| {
            let spec = json!({"containers": [{"name": "c",
                "resources": {"limits": {"cpu": "1", "memory": memory}}}]});
            pod_of("100m", &json!({"spec": spec}))
        };
        worker.state.set_desired(pod("10Mi"));
        worker.state.pod = worker.state.desired.clone();
        run_pod(&mut worker);
        worker.update_pod(pod("20Mi"));
        // Replaced by the end of an attempt whose request to the runtime timed out.
        assert!(worker.executor.next_end().await.is_some());
        let applied = worker.state.memory.applied.containers["c"].clone();
        let end = ResizeOutcome {
            pod: compute_pod_resources(&pod("10Mi")),
            containers: vec![ResizedContainer {
                name: "c".into(),
                id: "c0".into(),
                applied: Some(applied),
                attempted_memory: Some(attempted),
            }],
            error: Some("timeout".into()),
        };
        worker.handle_job_end(Ok(JobResult::Resize(Some(end))));
        worker.update_pod(pod("10Mi"));
        // The runtime of the test does not respond: the error shows the first request.
        let end = worker.executor.next_end().await.unwrap();
        worker.handle_job_end(end);
        let error = worker.state.memory.resize_progress.clone().unwrap().error;
        assert!(
            error.as_ref().is_some_and(|error| error.contains(expect)),
            "{attempted}: {error:?}"
        );
    }
}

#[tokio::test]
async fn resize_that_failed_waits_for_its_delay_while_a_container_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    let pod = |cpu: &str| {
        let spec = json!({"resources": {"limits": {"cpu": cpu}},
            "containers": [{"name": "c"}, {"name": "d"}]});
        pod_of("100m", &json!({"spec": spec}))
    };
    worker.state.set_desired(pod("1"));
    worker.state.pod = worker.state.desired.clone();
    run_pod(&mut worker);
    worker.state.memory.busy.insert(Work::Container("d".into()));
    worker.update_pod(pod("2"));
    assert!(worker.resizes.is_waiting);
    let end = worker.executor.next_end().await.unwrap();
    worker.handle_job_end(end);
    let again = worker.resizes.again;
    assert!(again.is_some());
    worker.sync_pod();
    assert_eq!(worker.resizes.again, again);
    assert!(!worker.state.memory.busy.contains(&Work::Resize));
}

/// Runs a pod with these limits of memory and CPU on a runtime that rejects the first update of
/// CPU; returns the id of its container, too.
async fn run_on_runtime(
    dir: &tempfile::TempDir,
    runtime: &FakeRuntime,
    pod: Arc<Pod>,
) -> (PodWorker, String) {
    let kubelet = testing::context_on(testing::settings(dir.path()), runtime.endpoint());
    kubelet.workers.allow_resizes();
    let mut worker = PodWorker::new(&kubelet, pod, false);
    worker.status.set_active(true);
    let failures = ("simulated.ironclad/cpu-update-failures", "1");
    let config = v1::PodSandboxConfig {
        annotations: [failures].map(|(k, v)| (k.into(), v.into())).into(),
        ..Default::default()
    };
    let sandbox = kubelet.runtime.run_sandbox(config.clone(), String::new());
    let sandbox = sandbox.await.unwrap();
    let container =
        kubelet
            .runtime
            .create_container(&sandbox, v1::ContainerConfig::default(), config);
    let container = container.await.unwrap();
    kubelet.runtime.start_container(&container).await.unwrap();
    run_pod(&mut worker);
    let observed = &mut worker.state.observed;
    observed.sandboxes[0].id.clone_from(&sandbox);
    observed.containers.get_mut("c").unwrap()[0]
        .id
        .clone_from(&container);
    (worker, container)
}

#[tokio::test]
async fn reverted_resize_is_complete_only_when_the_runtime_has_the_former_limits() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::start(dir.path()).await.unwrap();
    let pod = |cpu: &str, memory: &str| {
        let limits = json!({"limits": {"cpu": cpu, "memory": memory}});
        let spec = json!({"containers": [{"name": "c", "resources": limits}]});
        pod_of("100m", &json!({"spec": spec}))
    };
    let (mut worker, id) = run_on_runtime(&dir, &runtime, pod("1", "10Mi")).await;
    for (cpu, memory, is_complete) in [("2", "20Mi", false), ("1", "10Mi", true)] {
        worker.update_pod(pod(cpu, memory));
        let end = worker.executor.next_end().await.unwrap();
        worker.handle_job_end(end);
        let case = format!("{cpu} {memory}");
        let progress = &worker.state.memory.resize_progress;
        assert_eq!(progress.is_none(), is_complete, "{case}: {progress:?}");
        let status = worker.kubelet.runtime.container_status(&id).await.unwrap();
        let limit = status.resources.unwrap().linux.unwrap();
        let expect = spec::parse_quantity(memory).unwrap().value();
        assert_eq!(limit.memory_limit_in_bytes, expect, "{case}");
        // The status shows what the container has.
        let applied = &worker.state.memory.applied.containers["c"];
        assert_eq!(
            applied.limits.as_ref().unwrap()["memory"].0,
            memory,
            "{case}"
        );
    }
}

#[tokio::test]
async fn resize_waits_until_the_pods_of_the_node_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, false);
    worker.update_pod(pod_of("200m", &json!({})));
    assert_eq!(published(&worker), "100m");
    worker.kubelet.workers.allow_resizes();
    assert!(worker.released.notified().now_or_never().is_some());
    worker.allocate_resources();
    assert_eq!(published(&worker), "200m");
}

#[tokio::test]
async fn restarted_kubelet_takes_over_the_allocation_and_not_the_spec() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = admitted(&dir, true);
    worker.update_pod(pod_of("200m", &json!({})));
    drop(worker);
    let kubelet = testing::context(testing::settings(dir.path()));
    let conditions = json!([
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "m", "observedGeneration": 3},
        {"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "e", "observedGeneration": 2}]);
    let status = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": conditions});
    let changed = pod_of("300m", &json!({"status": status}));
    let mut worker = PodWorker::new(&kubelet, changed, false);
    assert!(worker.recover_allocation());
    assert_eq!(
        (cpu_of(&worker.state.pod), published(&worker)),
        ("200m".into(), "200m".into())
    );
    assert!(worker.state.is_resized());
    let memory = &worker.state.memory;
    let pending = memory.pending_resize.as_ref().unwrap();
    assert_eq!(pending.generation, Some(3));
    let progress = memory.resize_progress.as_ref().unwrap();
    assert_eq!(
        (progress.error.as_deref(), progress.generation),
        (Some("e"), Some(2))
    );
    // A file that can't be read is like none.
    let file = dir.path().join("pods/u/allocated_resources.json");
    std::fs::write(file, "{").unwrap();
    assert!(!worker.recover_allocation());
}

#[test]
fn container_of_an_earlier_kubelet_is_resized_unless_the_runtime_reports_the_settings() {
    let desired = LinuxContainerResources {
        cpu_quota: 5,
        cpu_shares: 6,
        ..LinuxContainerResources::default()
    };
    let shown = |linux: Option<LinuxContainerResources>| CriContainer {
        resources: Some(node_runtime::v1::ContainerResources {
            linux,
            ..Default::default()
        }),
        ..CriContainer::default()
    };
    assert!(has_settings(&shown(Some(desired.clone())), &desired));
    assert!(!has_settings(
        &shown(Some(LinuxContainerResources::default())),
        &desired
    ));
    assert!(!has_settings(&shown(None), &desired));
    assert!(!has_settings(&CriContainer::default(), &desired));
}
