#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::sync::Arc;

use controllers_runtime::{Action, describe_actions};
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
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
    crate::slicing::reconcile_service(service, pods, &|_| Some(node(json!({}))), existing, None)
}

fn node(labels: Value) -> Arc<Node> {
    Arc::new(
        serde_json::from_value(json!({"metadata": {"name": "node", "labels": labels}})).unwrap(),
    )
}

fn node_in_zone(_: &str) -> Option<Arc<Node>> {
    Some(node(json!({"topology.kubernetes.io/zone": "z"})))
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
        let subset = bodies(&crate::endpoints::reconcile_endpoints(
            &s, &pods, None, None,
        ))
        .remove(0);
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
        describe_actions(&none)
            .iter()
            .filter(|l| l.starts_with("delete"))
            .count(),
        1
    );
    assert!(
        describe_actions(&none)
            .iter()
            .any(|l| l.starts_with("update"))
    );
}

#[test]
fn no_selector_no_slices() {
    assert!(slices(&service(json!({"selector": null})), &[], &[]).is_empty());
    assert_eq!(
        describe_actions(&slices(&service(json!({})), &[], &[])),
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
    let got = bodies(&crate::endpoints::reconcile_endpoints(
        &service(json!({})),
        &pods,
        None,
        None,
    ));
    assert_eq!(got[0]["subsets"][0]["addresses"][0]["ip"], "10.1.0.1");
    assert_eq!(
        got[0]["subsets"][0]["notReadyAddresses"][0]["ip"],
        "10.1.0.2"
    );
    let old: Endpoints = serde_json::from_value(got[0].clone()).unwrap();
    assert!(
        crate::endpoints::reconcile_endpoints(&service(json!({})), &pods, Some(&old), None)
            .is_empty()
    );
}

#[test]
fn hand_written_endpoints_are_mirrored() {
    let s = service(json!({"selector": null}));
    let e: Endpoints = serde_json::from_value(
        json!({"metadata": {"name": "s", "namespace": "n", "uid": "e"},
        "subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"port": 8080}]}]}),
    )
    .unwrap();
    let first = crate::mirror::reconcile_mirror(Some(&s), Some(&e), &[]);
    assert_eq!(
        bodies(&first)[0]["endpoints"][0]["addresses"],
        json!(["192.0.2.9"])
    );
    let existing = applied(&first);
    assert!(crate::mirror::reconcile_mirror(Some(&s), Some(&e), &existing).is_empty());
    assert_eq!(
        describe_actions(&crate::mirror::reconcile_mirror(Some(&s), None, &existing)),
        ["delete EndpointSlice s-0"]
    );
    assert!(crate::mirror::reconcile_mirror(Some(&service(json!({}))), Some(&e), &[]).is_empty());
}

fn many_pods(count: usize) -> Vec<Arc<Pod>> {
    let one = |i: usize| {
        let ip = format!("10.1.{}.{}", i / 100, i % 100);
        pod(&format!("p{i:03}"), &ip, true, 80, false)
    };
    (0..count).map(one).collect()
}

fn sizes(actions: &[Action]) -> Vec<usize> {
    let size = |body: &Value| body["endpoints"].as_array().map_or(0, Vec::len);
    let mut sizes: Vec<_> = bodies(actions).iter().map(size).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn endpoints_are_packed_into_slices_of_at_most_a_hundred() {
    for (count, expect) in [(1, vec![1]), (100, vec![100]), (250, vec![50, 100, 100])] {
        let got = slices(&service(json!({})), &many_pods(count), &[]);
        assert_eq!(sizes(&got), expect, "{count}");
    }
}

#[test]
fn new_endpoints_fill_the_slice_that_has_room() {
    let s = service(json!({}));
    let existing = applied(&slices(&s, &many_pods(150), &[]));
    let got = slices(&s, &many_pods(160), &existing);
    assert_eq!(got.len(), 1, "one update and no new slice");
    assert_eq!(sizes(&got), [60]);
}

#[test]
fn service_without_pods_keeps_an_empty_slice_of_each_family() {
    let s = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let families: Vec<_> = bodies(&slices(&s, &[], &[]))
        .iter()
        .map(|b| b["addressType"].clone())
        .collect();
    assert_eq!(families, ["IPv4", "IPv6"]);
}

#[test]
fn headless_service_labels_its_slices() {
    let label = |ip: &str| {
        let got = bodies(&slices(&service(json!({"clusterIP": ip})), &[], &[]));
        got[0]["metadata"]["labels"]["service.kubernetes.io/headless"].clone()
    };
    assert_eq!(label("None"), "");
    assert!(label("10.0.0.1").is_null());
}

#[test]
fn slice_names_its_service_manager_and_owner() {
    let got = bodies(&slices(&service(json!({})), &[], &[]));
    let meta = &got[0]["metadata"];
    assert_eq!(meta["labels"]["kubernetes.io/service-name"], "s");
    assert_eq!(
        meta["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    assert_eq!(meta["ownerReferences"][0]["kind"], "Service");
    assert_eq!(meta["generateName"], "s-");
}

#[test]
fn service_in_deletion_gets_no_slices() {
    let mut s = service(json!({}));
    s.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
    assert!(slices(&s, &many_pods(1), &[]).is_empty());
}

#[test]
fn external_name_service_has_no_endpoints() {
    let s = service(json!({"type": "ExternalName"}));
    assert!(slices(&s, &many_pods(1), &[]).is_empty());
    assert!(crate::endpoints::reconcile_endpoints(&s, &many_pods(1), None, None).is_empty());
}

#[test]
fn hints_follow_the_traffic_distribution() {
    for (distribution, expect) in [
        (json!(null), json!(null)),
        (json!("PreferClose"), json!({"forZones": [{"name": "z"}]})),
        (
            json!("PreferSameZone"),
            json!({"forZones": [{"name": "z"}]}),
        ),
        (
            json!("PreferSameNode"),
            json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "node"}]}),
        ),
    ] {
        let s = service(json!({"trafficDistribution": distribution}));
        let got = bodies(&crate::slicing::reconcile_service(
            &s,
            &many_pods(1),
            &node_in_zone,
            &[],
            None,
        ));
        assert_eq!(got[0]["endpoints"][0]["hints"], expect, "{distribution}");
    }
}

#[test]
fn unready_endpoint_has_no_hints() {
    let s = service(json!({"trafficDistribution": "PreferClose"}));
    let pods = [pod("a", "10.1.0.1", false, 80, false)];
    let got = bodies(&crate::slicing::reconcile_service(
        &s,
        &pods,
        &node_in_zone,
        &[],
        None,
    ));
    assert!(got[0]["endpoints"][0]["hints"].is_null());
    assert_eq!(got[0]["endpoints"][0]["zone"], "z");
}

#[test]
fn endpoints_above_the_capacity_are_truncated_and_annotated() {
    let got = bodies(&crate::endpoints::reconcile_endpoints(
        &service(json!({})),
        &many_pods(1001),
        None,
        None,
    ));
    let addresses = got[0]["subsets"][0]["addresses"].as_array().unwrap();
    assert_eq!(addresses.len(), 1000);
    assert_eq!(
        got[0]["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"],
        "truncated"
    );
}

#[test]
fn endpoints_marked_to_be_skipped_are_not_mirrored() {
    let s = service(json!({"selector": null}));
    for (meta, expect) in [
        (json!({}), 1),
        (
            json!({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}),
            0,
        ),
        (
            json!({"labels": {"endpointslice.kubernetes.io/skip-mirror": "false"}}),
            1,
        ),
        (
            json!({"annotations": {"control-plane.alpha.kubernetes.io/leader": "x"}}),
            0,
        ),
        (json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), 0),
    ] {
        let mut tree = json!({"metadata": {"name": "s", "namespace": "n"},
            "subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"port": 8080}]}]});
        for (key, value) in meta.as_object().unwrap() {
            tree["metadata"][key] = value.clone();
        }
        let e: Endpoints = serde_json::from_value(tree).unwrap();
        let got = crate::mirror::reconcile_mirror(Some(&s), Some(&e), &[]);
        assert_eq!(got.len(), expect, "{meta}");
    }
}

#[test]
fn addresses_of_both_families_are_mirrored_into_slices_of_their_own() {
    let s = service(json!({"selector": null}));
    let e: Endpoints = serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n"},
        "subsets": [{"addresses": [{"ip": "192.0.2.9"}], "notReadyAddresses": [{"ip": "fd00::9"}],
            "ports": [{"port": 8080}]}]}))
    .unwrap();
    let got = bodies(&crate::mirror::reconcile_mirror(Some(&s), Some(&e), &[]));
    let found: Vec<_> = got
        .iter()
        .map(|b| (&b["addressType"], &b["endpoints"][0]["conditions"]["ready"]))
        .collect();
    assert_eq!(
        found,
        [
            (&json!("IPv4"), &json!(true)),
            (&json!("IPv6"), &json!(false))
        ]
    );
}

#[test]
fn pod_of_an_unknown_node_gets_an_endpoint_only_if_the_service_publishes_every_address() {
    for (publish, expect) in [(json!(null), 0), (json!(false), 0), (json!(true), 1)] {
        let s = service(json!({"publishNotReadyAddresses": publish}));
        let got = crate::slicing::reconcile_service(&s, &many_pods(1), &|_| None, &[], None);
        assert_eq!(sizes(&got), [expect], "{publish}");
    }
}

#[test]
fn pod_without_the_named_ports_is_in_a_slice_without_ports() {
    let s = service(json!({"ports": [{"name": "web", "port": 80, "targetPort": "absent"}]}));
    let pods = many_pods(1);
    // The slice of a Service without endpoints has no ports either, and takes the pod.
    let empty = applied(&slices(&s, &[], &[]));
    let got = slices(&s, &pods, &empty);
    assert_eq!(describe_actions(&got), ["update EndpointSlice s-0"]);
    let body = bodies(&got).remove(0);
    assert_eq!(body["ports"], json!([]));
    assert_eq!(body["endpoints"][0]["addresses"], json!(["10.1.0.0"]));
    assert!(slices(&s, &pods, &applied(&got)).is_empty());
}

/// The time of the change is in the objects that it changes, and causes no write itself.
#[test]
fn written_objects_have_the_time_of_the_change() {
    let (s, pods, more) = (service(json!({})), many_pods(1), many_pods(2));
    let find_node = |_: &str| Some(node(json!({})));
    let reconcile = |pods: &[Arc<Pod>],
                     old: &[Arc<EndpointSlice>],
                     ends: Option<&Endpoints>,
                     time: Option<&str>| {
        let time = time.map(|time| time.parse().unwrap());
        let slices = crate::slicing::reconcile_service(&s, pods, &find_node, old, time);
        let endpoints = crate::endpoints::reconcile_endpoints(&s, pods, ends, time);
        (slices, endpoints)
    };
    let (first, later) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00.5Z");
    let (slices, endpoints) = reconcile(&pods, &[], None, Some(first));
    let trigger = |actions: &[Action]| {
        bodies(actions)[0]["metadata"]["annotations"][crate::trigger_time::TRIGGER_TIME].clone()
    };
    assert_eq!([trigger(&slices), trigger(&endpoints)], [first, first]);
    let old = applied(&slices);
    let ends: Endpoints = serde_json::from_value(bodies(&endpoints)[0].clone()).unwrap();
    let (same_slices, same_ends) = reconcile(&pods, &old, Some(&ends), Some(later));
    assert!(same_slices.is_empty() && same_ends.is_empty());
    for (time, expect) in [(Some(later), json!(later)), (None, json!(null))] {
        let (slices, endpoints) = reconcile(&more, &old, Some(&ends), time);
        assert_eq!(trigger(&slices), expect, "slices at {time:?}");
        assert_eq!(trigger(&endpoints), expect, "endpoints at {time:?}");
    }
}
