use super::*;

#[test]
fn role_binding_lists_subjects_by_kind() {
    let subjects = json!([{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "ops"}, {"kind": "User", "name": "joe"},
        {"kind": "ServiceAccount", "namespace": "n", "name": "robot"}]);
    let object = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": subjects});
    let row = cells("rbac.authorization.k8s.io", "v1", "rolebindings", object);
    assert_eq!(
        Value::from(row),
        json!([
            "x",
            "ClusterRole/view",
            "100s",
            "jane, joe",
            "ops",
            "n/robot"
        ])
    );
}

#[test]
fn signing_request_condition_tells_approval_failure_and_issue() {
    let state = |kinds: &[&str], certificate: &str| {
        let conditions: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"type": kind, "status": "True"}))
            .collect();
        let object = json!({"spec": {"signerName": "s/x", "username": "jane", "expirationSeconds": 3600},
            "status": {"conditions": conditions, "certificate": certificate}});
        let row = cells(
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            object,
        );
        assert_eq!(row[2..5], ["s/x", "jane", "60m"].map(Value::from));
        row[5].clone()
    };
    assert_eq!(state(&[], ""), "Pending");
    assert_eq!(state(&["Approved"], ""), "Approved");
    assert_eq!(state(&["Approved"], "Y2VydA=="), "Approved,Issued");
    assert_eq!(state(&["Denied"], ""), "Denied");
    assert_eq!(state(&["Approved", "Failed"], ""), "Approved,Failed");
}

#[test]
fn api_service_shows_why_it_is_unavailable() {
    let row = |spec: Value, conditions: Value| {
        cells(
            "apiregistration.k8s.io",
            "v1",
            "apiservices",
            json!({"spec": spec, "status": {"conditions": conditions}}),
        )
    };
    let remote = json!({"service": {"namespace": "kube-system", "name": "metrics"}});
    let missing = json!([{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]);
    assert_eq!(
        row(remote, missing)[1..3],
        ["kube-system/metrics", "False (MissingEndpoints)"].map(Value::from)
    );
    assert_eq!(
        row(json!({}), json!([{"type": "Available", "status": "True"}]))[1..3],
        ["Local", "True"].map(Value::from)
    );
    assert_eq!(row(json!({}), json!([]))[2], "Unknown");
}

#[test]
fn priority_level_without_a_queue_shows_none() {
    let row = |spec: Value| {
        cells(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "prioritylevelconfigurations",
            json!({"spec": spec}),
        )
    };
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
    let limited = json!({"nominalConcurrencyShares": 30, "limitResponse": {"type": "Queue", "queuing": queuing}});
    assert_eq!(
        row(json!({"type": "Limited", "limited": limited}))[1..6],
        [json!("Limited"), json!(30), json!(64), json!(6), json!(50)]
    );
    let exempt = row(json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0}}));
    assert_eq!(
        exempt[1..6],
        [
            json!("Exempt"),
            json!(0),
            json!("<none>"),
            json!("<none>"),
            json!("<none>")
        ]
    );
}
