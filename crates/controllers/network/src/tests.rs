#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::sync::Arc;

use controllers_runtime::{Action, describe};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

fn service(spec: Value) -> Service {
    let mut value = json!({"metadata": {"name": "s", "namespace": "n", "uid": "s"},
        "spec": {"selector": {"app": "a"}, "ports": [{"name": "web", "port": 80, "targetPort": "http"}], "clusterIP": "10.0.0.1"}});
    for (k, v) in spec.as_object().unwrap() {
        value["spec"][k] = v.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, ip: &str, ready: bool, port: i32, deleting: bool) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "a"},
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": port}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"}}]},
    })).unwrap())
}

fn bodies(actions: &[Action]) -> Vec<Value> {
    actions
        .iter()
        .filter_map(|a| a.as_write().map(|w| w.body.clone()))
        .collect()
}

fn slices(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>]) -> Vec<Action> {
    crate::slicing::reconcile(service, pods, &|_| None, existing)
}

fn applied(actions: &[Action]) -> Vec<Arc<EndpointSlice>> {
    bodies(actions)
        .into_iter()
        .enumerate()
        .map(|(i, mut v)| {
            v["metadata"]["name"] = json!(format!("s-{i}"));
            v["metadata"]["uid"] = json!(format!("u{i}"));
            Arc::new(serde_json::from_value(v).unwrap())
        })
        .collect()
}

#[test]
fn endpoints_and_their_conditions_follow_the_shared_table() {
    let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::ENDPOINTS).unwrap();
    for case in cases {
        let s = service(json!({"publishNotReadyAddresses": case["publishNotReady"],
            "ports": [{"port": 80}]}));
        let mut tree = case["pod"].clone();
        tree["metadata"]["labels"] = json!({"app": "a"});
        let ip = tree.pointer("/status/podIP").cloned().unwrap_or_default();
        if ip == "10.0.0.1" {
            tree["status"]["podIPs"] = json!([{"ip": ip}]);
        }
        let pods = [Arc::new(serde_json::from_value(tree).unwrap())];
        let slice = bodies(&slices(&s, &pods, &[])).remove(0);
        let found = slice.pointer("/endpoints/0/conditions").cloned();
        assert_eq!(found.unwrap_or_default(), case["slice"], "{case}");
        let subset = bodies(&crate::endpoints::reconcile(&s, &pods, None)).remove(0);
        let lists = ["addresses", "notReadyAddresses"];
        let list = lists.into_iter().find(|list| {
            let path = format!("/subsets/0/{list}/0/ip");
            subset.pointer(&path).is_some()
        });
        assert_eq!(json!(list), case["endpoints"], "{case}");
    }
}

#[test]
fn named_ports_differ_per_pod() {
    let pods = [
        pod("a", "10.1.0.1", true, 8080, false),
        pod("b", "10.1.0.2", true, 9090, false),
    ];
    assert_eq!(slices(&service(json!({})), &pods, &[]).len(), 2);
}

#[test]
fn only_what_changed_is_written() {
    let s = service(json!({}));
    let many: Vec<_> = (0..150)
        .map(|i| {
            pod(
                &format!("p{i:03}"),
                &format!("10.1.{}.{}", i / 100, i % 100),
                true,
                80,
                false,
            )
        })
        .collect();
    let first = slices(&s, &many, &[]);
    assert_eq!(first.len(), 2);
    let existing = applied(&first);
    assert!(slices(&s, &many, &existing).is_empty());
    let fewer: Vec<_> = many.iter().skip(1).cloned().collect();
    assert_eq!(slices(&s, &fewer, &existing).len(), 1);
    let none = slices(&s, &[], &existing);
    assert_eq!(
        describe(&none)
            .iter()
            .filter(|l| l.starts_with("delete"))
            .count(),
        1
    );
    assert!(describe(&none).iter().any(|l| l.starts_with("update")));
}

#[test]
fn no_selector_no_slices() {
    assert!(slices(&service(json!({"selector": null})), &[], &[]).is_empty());
    assert_eq!(
        describe(&slices(&service(json!({})), &[], &[])),
        ["create EndpointSlice s-"]
    );
}

#[test]
fn endpoints_split_ready_from_unready() {
    let pods = [
        pod("a", "10.1.0.1", true, 8080, false),
        pod("b", "10.1.0.2", false, 8080, false),
        pod("c", "10.1.0.3", true, 8080, true),
    ];
    let got = bodies(&crate::endpoints::reconcile(
        &service(json!({})),
        &pods,
        None,
    ));
    assert_eq!(got[0]["subsets"][0]["addresses"][0]["ip"], "10.1.0.1");
    assert_eq!(
        got[0]["subsets"][0]["notReadyAddresses"][0]["ip"],
        "10.1.0.2"
    );
    let old: Endpoints = serde_json::from_value(got[0].clone()).unwrap();
    assert!(crate::endpoints::reconcile(&service(json!({})), &pods, Some(&old)).is_empty());
}

#[test]
fn hand_written_endpoints_are_mirrored() {
    let s = service(json!({"selector": null}));
    let e: Endpoints = serde_json::from_value(
        json!({"metadata": {"name": "s", "namespace": "n", "uid": "e"},
        "subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"port": 8080}]}]}),
    )
    .unwrap();
    let first = crate::mirror::reconcile(Some(&s), Some(&e), &[]);
    assert_eq!(
        bodies(&first)[0]["endpoints"][0]["addresses"],
        json!(["192.0.2.9"])
    );
    let existing = applied(&first);
    assert!(crate::mirror::reconcile(Some(&s), Some(&e), &existing).is_empty());
    assert_eq!(
        describe(&crate::mirror::reconcile(Some(&s), None, &existing)),
        ["delete EndpointSlice s-0"]
    );
    assert!(crate::mirror::reconcile(Some(&service(json!({}))), Some(&e), &[]).is_empty());
}
