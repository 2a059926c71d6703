#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

mod access;
mod config;
mod devices;
mod pods;
mod storage;
mod workloads;

fn cells(group: &str, version: &str, plural: &str, mut object: Value) -> Vec<Value> {
    let resource = api_kinds::find(group, version, plural).unwrap();
    object["metadata"]["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = json!("x");
    }
    row_cells(resource, &object, "2024-01-01T00:01:40Z".parse().unwrap())
}

fn pod(status: Value, deleted: bool) -> Vec<Value> {
    let mut object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}, "status": status});
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:01:00Z");
    }
    cells("", "v1", "pods", object)
}

#[test]
fn pod_row_summarizes_the_states_of_its_containers() {
    let check = |status: Value, want: [&str; 3]| {
        let got = pod(status.clone(), false);
        assert_eq!(got[1..4], want.map(Value::from), "{status}");
    };
    let running = |name: &str| json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {}}});
    check(json!({"phase": "Pending"}), ["0/2", "Pending", "0"]);
    check(
        json!({"phase": "Running", "containerStatuses": [running("a"), running("b")]}),
        ["2/2", "Running", "0"],
    );
    check(
        json!({"phase": "Running", "containerStatuses": [running("a"), {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2024-01-01T00:01:30Z"}}}]}),
        ["1/2", "CrashLoopBackOff", "3 (10s ago)"],
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
        ["0/2", "Init:0/1", "0"],
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]}),
        ["0/2", "Init:Error", "0"],
    );
    check(
        json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 7}}}]}),
        ["0/2", "ExitCode:7", "0"],
    );
    check(
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
        ["0/2", "SchedulingGated", "0"],
    );
    assert_eq!(pod(json!({"phase": "Running"}), true)[2], "Terminating");
    assert_eq!(pod(json!({"phase": "Succeeded"}), true)[2], "Succeeded");
}

#[test]
fn rows_equal_those_of_kubectl_get() {
    let check = |group: &str, version: &str, plural: &str, object: Value, want: Value| {
        assert_eq!(
            Value::Array(cells(group, version, plural, object)),
            want,
            "{plural}"
        );
    };
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    check(
        "apps",
        "v1",
        "deployments",
        json!({"spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]}}, "status": {"readyReplicas": 2}}),
        json!(["x", "2/3", 0, 0, "100s", "c", "i:1", "a in (x,y),b=c"]),
    );
    check(
        "",
        "v1",
        "services",
        json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}], "selector": {"app": "a"}}}),
        json!([
            "x",
            "NodePort",
            "10.0.0.1",
            "<none>",
            "80:30080/TCP",
            "100s",
            "app=a"
        ]),
    );
    check(
        "",
        "v1",
        "nodes",
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        json!([
            "x",
            "Ready,SchedulingDisabled",
            "control-plane",
            "100s",
            "",
            "<none>",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]),
    );
    check(
        "batch",
        "v1",
        "jobs",
        json!({"spec": {"completions": 1, "template": template, "selector": {"matchLabels": {"u": "1"}}}, "status": {"startTime": "2024-01-01T00:00:10Z", "completionTime": "2024-01-01T00:00:30Z", "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}}),
        json!(["x", "Complete", "1/1", "20s", "100s", "c", "i:1", "u=1"]),
    );
    check(
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}}),
        json!(["x", "Deployment/d", "cpu: <unknown>/80%", "1", 3, 0, "100s"]),
    );
    check(
        "events.k8s.io",
        "v1",
        "events",
        json!({"regarding": {"kind": "Pod", "name": "p"}, "note": "n", "type": "Normal", "reason": "Test", "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "kit", "reportingInstance": "kit-0"}),
        json!([
            "100s",
            "Normal",
            "Test",
            "pod/p",
            "",
            "kit, kit-0",
            "n",
            "100s",
            1,
            "x"
        ]),
    );
    check(
        "",
        "v1",
        "limitranges",
        json!({}),
        json!(["x", "2024-01-01T00:00:00Z"]),
    );
    check(
        "",
        "v1",
        "endpoints",
        json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}, {"ip": "1.1.1.3"}, {"ip": "1.1.1.4"}], "ports": [{"port": 80}]}]}),
        json!(["x", "1.1.1.1:80,1.1.1.2:80,1.1.1.3:80 + 1 more...", "100s"]),
    );
}

#[test]
fn every_kind_has_a_cell_for_each_column() {
    for resource in api_kinds::resources() {
        let cells = row_cells(
            resource,
            &json!({"metadata": {"name": "x"}}),
            Timestamp::UNIX_EPOCH,
        )
        .len();
        let columns = table_columns(resource).len();
        assert!(
            cells == columns || resource.kind == "IPAddress",
            "{}",
            &*resource.kind
        );
    }
}

#[test]
fn kernel_of_a_node_names_the_architecture() {
    let kernel =
        |info: Value| cells("", "v1", "nodes", json!({"status": {"nodeInfo": info}}))[8].clone();
    assert_eq!(
        kernel(json!({"kernelVersion": "6.18.44", "architecture": "amd64"})),
        "6.18.44 (amd64)"
    );
    assert_eq!(kernel(json!({"kernelVersion": "6.18.44"})), "6.18.44");
    assert_eq!(kernel(json!({})), "<unknown>");
}
