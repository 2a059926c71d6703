use super::*;

#[test]
fn config_map_counts_text_and_binary_entries() {
    let object = json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AA=="}});
    assert_eq!(cells("", "v1", "configmaps", object)[1], 3);
}

#[test]
fn quota_separates_requests_from_limits() {
    let status = json!({"hard": {"limits.cpu": "4", "pods": "10", "requests.cpu": "2"}, "used": {"pods": "3", "requests.cpu": "500m"}});
    let row = cells("", "v1", "resourcequotas", json!({"status": status}));
    assert_eq!(
        row[1..3],
        ["pods: 3/10, requests.cpu: 500m/2", "limits.cpu: 0/4"].map(Value::from)
    );
}

#[test]
fn event_series_shows_its_count_and_last_observation() {
    let series = json!({"count": 12, "lastObservedTime": "2024-01-01T00:01:30.000000Z"});
    let object = json!({"involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"}, "message": " text ",
        "type": "Warning", "reason": "BackOff", "eventTime": "2024-01-01T00:00:40.000000Z", "series": series,
        "source": {"component": "kubelet", "host": "n1"}});
    assert_eq!(
        Value::from(cells("", "v1", "events", object)),
        json!([
            "10s",
            "Warning",
            "BackOff",
            "pod/p",
            "spec.containers{c}",
            "kubelet, n1",
            "text",
            "60s",
            12,
            "x"
        ])
    );
}

#[test]
fn event_of_the_old_form_uses_its_timestamps_and_count() {
    let object = json!({"involvedObject": {"kind": "Node", "name": "n"}, "message": "m", "type": "Normal", "reason": "R",
        "firstTimestamp": "2024-01-01T00:00:10Z", "lastTimestamp": "2024-01-01T00:01:35Z", "count": 7});
    let row = cells("", "v1", "events", object);
    assert_eq!(
        (&row[0], &row[7], &row[8]),
        (&json!("5s"), &json!("90s"), &json!(7))
    );
}

#[test]
fn service_external_address_depends_on_its_type() {
    let ingress =
        json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "lb.example.com"}]}});
    for (spec, status, expect) in [
        (json!({"type": "ClusterIP"}), json!({}), "<none>"),
        (
            json!({"type": "NodePort", "externalIPs": ["9.9.9.9", "8.8.8.8"]}),
            json!({}),
            "9.9.9.9,8.8.8.8",
        ),
        (json!({"type": "LoadBalancer"}), json!({}), "<pending>"),
        (
            json!({"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]}),
            ingress,
            "1.2.3.4,lb.example.com,9.9.9.9",
        ),
        (
            json!({"type": "ExternalName", "externalName": "db.example.com"}),
            json!({}),
            "db.example.com",
        ),
    ] {
        let row = cells(
            "",
            "v1",
            "services",
            json!({"spec": spec, "status": status}),
        );
        assert_eq!(row[3], expect, "{spec}");
    }
}

#[test]
fn ingress_row_shows_class_hosts_and_ports() {
    let rules = json!([{"host": "a.example"}, {}, {"host": "b.example"}]);
    let object = json!({"spec": {"ingressClassName": "nginx", "rules": rules, "tls": [{}]}});
    assert_eq!(
        cells("networking.k8s.io", "v1", "ingresses", object)[1..5],
        ["nginx", "a.example,b.example", "", "80, 443"].map(Value::from)
    );
    let metadata = json!({"annotations": {"kubernetes.io/ingress.class": "old"}});
    let row = cells(
        "networking.k8s.io",
        "v1",
        "ingresses",
        json!({"metadata": metadata}),
    );
    assert_eq!(row[1..5], ["old", "*", "", "80"].map(Value::from));
}

#[test]
fn node_without_a_ready_condition_is_unknown() {
    let status = |conditions: Value| {
        cells(
            "",
            "v1",
            "nodes",
            json!({"status": {"conditions": conditions}}),
        )[1]
        .clone()
    };
    assert_eq!(status(json!([])), "Unknown");
    assert_eq!(
        status(json!([{"type": "Ready", "status": "False"}])),
        "NotReady"
    );
    assert_eq!(
        status(json!([{"type": "Ready", "status": "Unknown"}])),
        "NotReady"
    );
}

#[test]
fn node_roles_are_sorted_and_distinct() {
    let labels = json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/etcd": "", "kubernetes.io/role": "worker", "node-role.kubernetes.io/": ""});
    let roles = |labels: Value| {
        cells("", "v1", "nodes", json!({"metadata": {"labels": labels}}))[2].clone()
    };
    assert_eq!(roles(labels), "etcd,worker");
    assert_eq!(roles(json!({})), "<none>");
}
