use super::*;

/// Returns ready, status and restarts of a pod with `init` init containers and `containers`.
fn summary(init: usize, containers: usize, status: Value) -> [String; 3] {
    let named = |n: usize| {
        (0..n)
            .map(|i| json!({"name": format!("c{i}")}))
            .collect::<Vec<_>>()
    };
    let pod = json!({"spec": {"initContainers": named(init), "containers": named(containers)}, "status": status});
    summary_of(pod)
}

fn summary_of(pod: Value) -> [String; 3] {
    let row = cells("", "v1", "pods", pod);
    [1, 2, 3].map(|i| row[i].as_str().unwrap().to_owned())
}

fn ready(restarts: i64) -> Value {
    json!({"ready": true, "restartCount": restarts, "state": {"running": {}}})
}

fn finished(at: &str) -> Value {
    json!({"terminated": {"finishedAt": at}})
}

#[test]
fn reason_of_the_first_failing_container_replaces_the_phase() {
    let waiting = json!({"restartCount": 3, "state": {"waiting": {"reason": "ImagePullBackOff"}}});
    let terminated = json!({"restartCount": 3, "state": {"terminated": {"reason": "Error"}}});
    for (statuses, expect) in [
        (
            json!([ready(3), {"restartCount": 3}]),
            ["1/2", "Running", "6"],
        ),
        (json!([ready(3), waiting]), ["1/2", "ImagePullBackOff", "6"]),
        (
            json!([waiting, terminated]),
            ["0/2", "ImagePullBackOff", "6"],
        ),
        (json!([terminated, waiting]), ["0/2", "Error", "6"]),
        (
            json!([ready(3), {"ready": true, "restartCount": 3}]),
            ["1/2", "Running", "6"],
        ),
    ] {
        let status = json!({"phase": "Running", "containerStatuses": statuses});
        assert_eq!(summary(0, 2, status), expect, "{statuses}");
    }
}

#[test]
fn status_reason_replaces_the_phase() {
    let status = json!({"phase": "Failed", "reason": "Evicted"});
    assert_eq!(summary(0, 1, status), ["0/1", "Evicted", "0"]);
}

#[test]
fn completed_container_beside_a_running_one_shows_the_ready_condition() {
    let completed =
        json!({"restartCount": 3, "state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
    let mut status = json!({"phase": "Running", "containerStatuses": [completed, ready(3)]});
    assert_eq!(summary(0, 2, status.clone()), ["1/2", "NotReady", "6"]);
    status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    assert_eq!(summary(0, 2, status), ["1/2", "Running", "6"]);
}

#[test]
fn init_containers_show_progress_until_all_have_completed() {
    let done = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 0}}});
    let running = json!({"restartCount": 0, "state": {"running": {}}});
    let waiting =
        |reason: &str| json!({"restartCount": 0, "state": {"waiting": {"reason": reason}}});
    let failed = |state: Value| json!({"restartCount": 0, "state": {"terminated": state}});
    for (statuses, expect) in [
        (json!([running]), "Init:0/2"),
        (json!([done, running]), "Init:1/2"),
        (json!([waiting("PodInitializing")]), "Init:0/2"),
        (json!([waiting("ErrImagePull")]), "Init:ErrImagePull"),
        (
            json!([waiting("CrashLoopBackOff")]),
            "Init:CrashLoopBackOff",
        ),
        (
            json!([failed(json!({"exitCode": 1, "reason": "Error"}))]),
            "Init:Error",
        ),
        (json!([failed(json!({"exitCode": 3}))]), "Init:ExitCode:3"),
        (
            json!([failed(json!({"exitCode": 137, "signal": 9}))]),
            "Init:Signal:9",
        ),
        (json!([done, done]), "Pending"),
    ] {
        let status = json!({"phase": "Pending", "initContainerStatuses": statuses});
        assert_eq!(summary(2, 1, status)[1], expect, "{statuses}");
    }
}

#[test]
fn restarts_of_init_containers_count_only_while_initializing() {
    let init = |state: Value, restarts: i64, at: &str| json!({"restartCount": restarts, "state": state, "lastState": finished(at)});
    let done = json!({"terminated": {"exitCode": 0}});
    let first = init(done, 2, "2024-01-01T00:00:10Z");
    let second = init(json!({"running": {}}), 3, "2024-01-01T00:01:30Z");
    let initializing = json!({"phase": "Pending", "initContainerStatuses": [first, second]});
    assert_eq!(
        summary(2, 1, initializing),
        ["0/1", "Init:1/2", "5 (10s ago)"]
    );
    let mut container = ready(4);
    container["lastState"] = finished("2024-01-01T00:01:20Z");
    let running = json!({"phase": "Running", "initContainerStatuses": [first], "containerStatuses": [container]});
    assert_eq!(summary(1, 1, running), ["1/1", "Running", "4 (20s ago)"]);
}

#[test]
fn last_restart_is_the_latest_of_all_containers() {
    let container = |restarts: i64, at: &str| json!({"ready": true, "restartCount": restarts, "state": {"running": {}}, "lastState": finished(at)});
    let statuses = json!([
        container(6, "2023-12-27T00:01:40Z"),
        container(3, "2023-12-12T00:01:40Z")
    ]);
    let status = json!({"phase": "Running", "containerStatuses": statuses});
    assert_eq!(summary(0, 2, status), ["2/2", "Running", "9 (5d ago)"]);
}

#[test]
fn started_sidecar_counts_as_container_and_keeps_its_restarts() {
    let sidecar = json!({"name": "s", "ready": true, "started": true, "restartCount": 2, "state": {"running": {}}});
    let mut app = ready(1);
    app["name"] = "c".into();
    let pod = json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "initContainerStatuses": [sidecar], "containerStatuses": [app]}});
    assert_eq!(summary_of(pod), ["2/2", "Running", "3"]);
}

#[test]
fn sidecar_that_has_not_started_keeps_the_pod_initializing() {
    let sidecar = json!({"name": "s", "ready": false, "started": false, "restartCount": 0, "state": {"running": {}}});
    let pod = json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]},
        "status": {"phase": "Pending", "initContainerStatuses": [sidecar]}});
    assert_eq!(summary_of(pod), ["0/2", "Init:0/1", "0"]);
}

#[test]
fn completed_pod_stays_completed_while_it_is_deleted() {
    let row = |phase: &str, state: Value| {
        pod(
            json!({"phase": phase, "containerStatuses": [{"restartCount": 0, "state": state}]}),
            true,
        )[2]
        .clone()
    };
    let terminated = |reason: &str| json!({"terminated": {"reason": reason, "exitCode": 0}});
    assert_eq!(row("Succeeded", terminated("Completed")), "Completed");
    assert_eq!(row("Failed", terminated("Error")), "Error");
    assert_eq!(row("Running", json!({"running": {}})), "Terminating");
    assert_eq!(row("Pending", json!({})), "Terminating");
}

#[test]
fn deleted_pod_of_a_lost_node_is_unknown() {
    assert_eq!(
        pod(json!({"phase": "Running", "reason": "NodeLost"}), true)[2],
        "Unknown"
    );
}

#[test]
fn wide_columns_show_address_node_and_readiness_gates() {
    let status = json!({"phase": "Running", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}], "podIP": "10.1.0.7",
        "nominatedNodeName": "n2", "conditions": [{"type": "lb", "status": "True"}, {"type": "dns", "status": "False"}]});
    let gates = json!([{"conditionType": "lb"}, {"conditionType": "dns"}]);
    let object = json!({"spec": {"nodeName": "n1", "readinessGates": gates, "containers": []}, "status": status});
    assert_eq!(
        cells("", "v1", "pods", object)[5..],
        ["10.1.0.7", "n1", "n2", "1/2"].map(Value::from)
    );
    let absent = cells("", "v1", "pods", json!({"status": {"phase": "Pending"}}));
    assert_eq!(absent[5..], ["<none>"; 4].map(Value::from));
}
