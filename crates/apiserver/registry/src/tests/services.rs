use super::{Cluster, find_resource, start_cluster, start_with, user_write};
use crate::services::Leaks;
use api_kinds::Resource;
use api_meta::{ApiError, Reason, meta::str_at};
use apiserver_request::{Admission, AdmissionRequest};
use futures::FutureExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit_etcd::FakeEtcd;
use tonic::Status;

fn services() -> &'static Arc<Resource> {
    find_resource("v1", "services")
}

fn service(name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "d"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}});
    if let (Some(all), Some(given)) = (object["spec"].as_object_mut(), spec.as_object()) {
        all.extend(given.clone());
    }
    object
}

fn ip_of(service: &Value) -> String {
    str_at(service, &["spec", "clusterIP"]).to_owned()
}

fn node_port(service: &Value) -> u64 {
    service["spec"]["ports"][0]["nodePort"]
        .as_u64()
        .unwrap_or(0)
}

async fn create(cluster: &Cluster, name: &str, spec: Value) -> Result<Value, ApiError> {
    cluster.create(services(), service(name, spec)).await
}

fn is_recorded(cluster: &Cluster, address: &str) -> bool {
    cluster
        .etcd
        .get(&format!("/registry/ipaddresses/{address}"))
        .is_some()
}

#[tokio::test]
async fn service_gets_an_address_of_the_range_and_its_object() {
    let cluster = start_cluster().await;
    let created = create(&cluster, "a", json!({})).await.unwrap();
    let address = ip_of(&created);
    assert!(address.starts_with("10.0.0."), "{address}");
    assert_eq!(created["spec"]["clusterIPs"], json!([address]));
    assert_eq!(created["spec"]["ipFamilies"], json!(["IPv4"]));
    let recorded = cluster
        .stored(
            find_resource("networking.k8s.io/v1", "ipaddresses"),
            &format!("ipaddresses/{address}"),
        )
        .unwrap();
    assert_eq!(recorded["spec"]["parentRef"]["name"], "a");
}

#[tokio::test]
async fn address_is_not_given_to_two_services() {
    let cluster = start_cluster().await;
    create(&cluster, "a", json!({"clusterIP": "10.0.0.9"}))
        .await
        .unwrap();
    let error = create(&cluster, "b", json!({"clusterIP": "10.0.0.9"}))
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::Invalid);
    assert!(error.message.contains("already allocated"), "{error}");
    let outside = create(&cluster, "b", json!({"clusterIP": "10.9.9.9"}))
        .await
        .unwrap_err();
    assert!(
        outside.message.contains("does not match the current range"),
        "{outside}"
    );
}

#[tokio::test]
async fn full_range_is_an_error_and_a_deleted_service_makes_room() {
    let cluster = start_cluster().await;
    // 10.0.0.0/28 without the network and the broadcast address.
    for number in 0..14 {
        create(&cluster, &format!("s{number}"), json!({}))
            .await
            .unwrap();
    }
    let error = create(&cluster, "more", json!({})).await.unwrap_err();
    assert!(error.message.contains("range is full"), "{error}");
    let deleted = cluster.delete(services(), "s3", json!({})).await.unwrap();
    cluster.catch_up().await;
    let created = create(&cluster, "more", json!({})).await.unwrap();
    assert_eq!(ip_of(&created), ip_of(&deleted.object));
}

#[tokio::test]
async fn allocations_of_a_failed_create_are_released() {
    let cluster = start_cluster().await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "ports": [{"port": 80, "nodePort": 30002}]});
    // An address of its own choice could be the one that the second create requests.
    create(&cluster, "a", json!({"clusterIP": "10.0.0.8"}))
        .await
        .unwrap();
    let error = create(&cluster, "a", spec.clone()).await.unwrap_err();
    assert_eq!(error.reason, Reason::AlreadyExists);
    assert!(!is_recorded(&cluster, "10.0.0.9"));
    let created = create(&cluster, "b", spec).await.unwrap();
    assert_eq!(
        (ip_of(&created), node_port(&created)),
        ("10.0.0.9".into(), 30002)
    );
}

#[tokio::test]
async fn address_is_released_if_the_ports_can_not_be_allocated() {
    let cluster = start_cluster().await;
    let ports = json!([{"port": 80, "nodePort": 40000}]);
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "ports": ports});
    let error = create(&cluster, "a", spec).await.unwrap_err();
    assert!(error.message.contains("not in the valid range"), "{error}");
    assert!(!is_recorded(&cluster, "10.0.0.9"));
}

#[tokio::test]
async fn node_port_is_allocated_once() {
    let cluster = start_cluster().await;
    let spec = |port: u64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    create(&cluster, "a", spec(30001)).await.unwrap();
    let error = create(&cluster, "b", spec(30001)).await.unwrap_err();
    assert!(error.message.contains("already allocated"), "{error}");
    let mut numbers = vec![30001];
    for name in ["b", "c", "d"] {
        numbers.push(node_port(
            &create(&cluster, name, json!({"type": "NodePort"}))
                .await
                .unwrap(),
        ));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [30000, 30001, 30002, 30003]);
    let full = create(&cluster, "e", json!({"type": "NodePort"}))
        .await
        .unwrap_err();
    assert!(full.message.contains("range is full"), "{full}");
}

#[tokio::test]
async fn protocols_of_a_service_share_a_node_port() {
    let cluster = start_cluster().await;
    let ports = json!([{"name": "t", "port": 53, "protocol": "TCP", "nodePort": 30001},
        {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30001}]);
    let created = create(&cluster, "dns", json!({"type": "NodePort", "ports": ports})).await;
    assert_eq!(node_port(&created.unwrap()), 30001);
}

#[tokio::test]
async fn update_keeps_the_node_port_that_the_client_omits() {
    let cluster = start_cluster().await;
    let created = create(&cluster, "a", json!({"type": "NodePort"}))
        .await
        .unwrap();
    let again = service(
        "a",
        json!({"type": "NodePort", "clusterIP": ip_of(&created)}),
    );
    let updated = cluster.replace(services(), again).await.unwrap();
    assert_eq!(node_port(&updated), node_port(&created));
}

#[tokio::test]
async fn service_that_becomes_a_cluster_ip_releases_its_node_port() {
    let cluster = start_cluster().await;
    let ports = json!([{"port": 80, "nodePort": 30002}]);
    let spec = json!({"type": "NodePort", "ports": ports});
    let mut object = create(&cluster, "a", spec.clone()).await.unwrap();
    object["spec"]["type"] = json!("ClusterIP");
    let updated = cluster.replace(services(), object).await.unwrap();
    assert_eq!(node_port(&updated), 0);
    assert_eq!(
        node_port(&create(&cluster, "b", spec).await.unwrap()),
        30002
    );
}

#[tokio::test]
async fn service_that_becomes_an_external_name_releases_its_address() {
    let cluster = start_cluster().await;
    let mut object = create(&cluster, "a", json!({})).await.unwrap();
    let address = ip_of(&object);
    object["spec"]["type"] = json!("ExternalName");
    object["spec"]["externalName"] = json!("example.com");
    let updated = cluster.replace(services(), object).await.unwrap();
    assert_eq!(ip_of(&updated), "");
    for field in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
        assert_eq!(updated["spec"].get(field), None, "{field}");
    }
    assert!(!is_recorded(&cluster, &address));
}

#[tokio::test]
async fn fields_that_the_type_does_not_use_are_rejected() {
    let cluster = start_cluster().await;
    let unused = [
        json!({"ports": [{"port": 80, "nodePort": 30002}]}),
        json!({"allocateLoadBalancerNodePorts": true}),
        json!({"externalTrafficPolicy": "Local"}),
        json!({"healthCheckNodePort": 30003}),
        json!({"type": "ExternalName", "externalName": "a.b", "ipFamilyPolicy": "SingleStack"}),
    ];
    for (number, spec) in unused.into_iter().enumerate() {
        let error = create(&cluster, &format!("c{number}"), spec.clone())
            .await
            .unwrap_err();
        assert_eq!(error.reason, Reason::Invalid, "{spec}: {error}");
        let name = format!("u{number}");
        let mut object = create(&cluster, &name, json!({})).await.unwrap();
        if let (Some(all), Some(given)) = (object["spec"].as_object_mut(), spec.as_object()) {
            all.extend(given.clone());
        }
        // The family policy is dropped unless the update changes it.
        if spec.get("ipFamilyPolicy").is_some() {
            object["spec"]["ipFamilyPolicy"] = json!("PreferDualStack");
        }
        let error = cluster.replace(services(), object).await.unwrap_err();
        assert_eq!(error.reason, Reason::Invalid, "{spec}: {error}");
    }
    // The rejected updates have released what they allocated.
    let ports = json!([{"port": 80, "nodePort": 30002}]);
    let spec = json!({"type": "NodePort", "ports": ports});
    create(&cluster, "b", spec).await.unwrap();
}

#[tokio::test]
async fn headless_service_has_no_address() {
    let cluster = start_cluster().await;
    let created = create(&cluster, "a", json!({"clusterIP": "None"}))
        .await
        .unwrap();
    assert_eq!(created["spec"]["clusterIPs"], json!(["None"]));
    assert!(!is_recorded(&cluster, "None"));
}

#[tokio::test]
async fn dual_stack_needs_two_families() {
    let cluster = start_cluster().await;
    let error = create(&cluster, "a", json!({"ipFamilyPolicy": "RequireDualStack"})).await;
    assert!(
        error
            .unwrap_err()
            .message
            .contains("not configured for dual-stack")
    );
    let error = create(&cluster, "a", json!({"ipFamilies": ["IPv6"]})).await;
    assert!(
        error
            .unwrap_err()
            .message
            .contains("not configured on this cluster")
    );
    let preferred = create(&cluster, "a", json!({"ipFamilyPolicy": "PreferDualStack"})).await;
    assert_eq!(preferred.unwrap()["spec"]["ipFamilies"], json!(["IPv4"]));
}

#[tokio::test]
async fn dry_run_allocates_nothing() {
    let cluster = start_cluster().await;
    let mut write = user_write(services(), "");
    write.dry_run = true;
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.9"});
    cluster
        .registry
        .create(&mut write, service("a", spec))
        .await
        .unwrap();
    assert!(!is_recorded(&cluster, "10.0.0.9"));
    assert_eq!(cluster.etcd.get("/registry/ranges/servicenodeports"), None);
}

#[tokio::test]
async fn node_port_that_another_server_allocates_first_is_not_allocated_twice() {
    let cluster = start_cluster().await;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]});
    create(&cluster, "a", spec).await.unwrap();
    let theirs = cluster
        .etcd
        .get("/registry/ranges/servicenodeports")
        .unwrap()
        .0;
    cluster.delete(services(), "a", json!({})).await.unwrap();
    // The first transaction records the address, the second one the port.
    let mut transaction = 0;
    cluster.etcd.before_txns(2, move |writes| {
        transaction += 1;
        if transaction == 2 {
            writes.put("/registry/ranges/servicenodeports", &theirs);
        }
    });
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]});
    let error = create(&cluster, "b", spec).await.unwrap_err();
    assert!(error.message.contains("already allocated"), "{error}");
}

#[tokio::test]
async fn repair_allocates_what_existing_services_use() {
    let cluster = start_cluster().await;
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30001}]);
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ports": ports});
    let stored = apiserver_convert::encode_stored(services(), &service("a", spec));
    cluster.etcd.put("/registry/services/specs/d/a", &stored);
    cluster.catch_up().await;
    cluster.registry.repair_allocations().await.unwrap();
    assert!(is_recorded(&cluster, "10.0.0.9"));
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]});
    let error = create(&cluster, "b", spec).await.unwrap_err();
    assert!(error.message.contains("already allocated"), "{error}");
}

/// Returns `Service reason` of all events.
async fn list_events(cluster: &Cluster) -> Vec<String> {
    cluster.catch_up().await;
    let cache = cluster.registry.caches.find_cache("", "events").unwrap();
    let snapshot = cache.snapshot(0);
    let events = snapshot.range_entries("", "").map(|entry| {
        let event = entry.decode_tree().unwrap();
        format!(
            "{} {}",
            str_at(&event, &["involvedObject", "name"]),
            str_at(&event, &["reason"])
        )
    });
    let mut events: Vec<_> = events.collect();
    events.sort_unstable();
    events
}

/// Never answers about Events, as a webhook without a backend.
struct SilentPlugin;

#[async_trait::async_trait]
impl Admission for SilentPlugin {
    fn name(&self) -> &'static str {
        "Silent"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        match request.resource {
            "events" => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn repair_does_not_wait_for_the_admission_of_events() {
    let cluster = start_with(FakeEtcd::start().await, vec![Arc::new(SilentPlugin)]).await;
    let spec = json!({"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]});
    let stored = apiserver_convert::encode_stored(services(), &service("a", spec));
    cluster.etcd.put("/registry/services/specs/d/a", &stored);
    cluster.catch_up().await;
    let mut leaks = Leaks::new();
    let repair = cluster.registry.release_leaks(&mut leaks);
    let done = tokio::time::timeout(Duration::from_secs(60), repair).await;
    done.unwrap().unwrap();
    assert!(is_recorded(&cluster, "10.0.0.9"));
}

#[tokio::test]
async fn wrong_allocations_have_one_event_each() {
    let cluster = start_cluster().await;
    let spec = |address: &str, port: u16| {
        json!({"type": "NodePort", "clusterIP": address, "clusterIPs": [address],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": port}]})
    };
    for (name, spec) in [
        ("a", spec("10.0.0.9", 30001)),
        ("b", spec("10.0.0.9", 30001)),
        ("c", spec("10.7.0.9", 2)),
    ] {
        let mut object = service(name, spec);
        object["metadata"]["uid"] = json!(name);
        let stored = apiserver_convert::encode_stored(services(), &object);
        let key = format!("/registry/services/specs/d/{name}");
        cluster.etcd.put(&key, &stored);
    }
    cluster.catch_up().await;
    let mut leaks = Leaks::new();
    for _ in 0..2 {
        cluster.registry.release_leaks(&mut leaks).await.unwrap();
        while let Some(Some(findings)) = cluster.registry.findings.receive().now_or_never() {
            cluster.registry.create_events(&findings).await;
        }
        let expect = [
            "a ClusterIPAlreadyAllocated",
            "a PortNotAllocated",
            "b ClusterIPNotAllocated",
            "b PortAlreadyAllocated",
            "b PortNotAllocated",
            "c ClusterIPNotAllocated",
            "c ClusterIPOutOfRange",
            "c PortOutOfRange",
        ];
        assert_eq!(list_events(&cluster).await, expect);
    }
}

const ADDRESS_KEY: &str = "/registry/ipaddresses/10.0.0.9";
const BITMAP_KEY: &str = "/registry/ranges/servicenodeports";

/// Allocates 10.0.0.9 and node port 30001 without a Service, as a server that ends in the middle of
/// a create.
async fn leak_allocations(cluster: &Cluster) {
    let ports = json!([{"port": 80, "nodePort": 30001}]);
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "ports": ports});
    create(cluster, "a", spec).await.unwrap();
    let stored = [ADDRESS_KEY, BITMAP_KEY].map(|key| cluster.etcd.get(key).unwrap().0);
    cluster.delete(services(), "a", json!({})).await.unwrap();
    cluster.etcd.put(ADDRESS_KEY, &stored[0]);
    cluster.etcd.put(BITMAP_KEY, &stored[1]);
    cluster.catch_up().await;
}

async fn allocates_port(cluster: &Cluster, name: &str) -> bool {
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]});
    create(cluster, name, spec).await.is_ok()
}

#[tokio::test]
async fn leaked_allocations_are_released_in_the_third_round() {
    let cluster = start_cluster().await;
    leak_allocations(&cluster).await;
    let mut leaks = Leaks::new();
    for _ in 0..2 {
        cluster.registry.release_leaks(&mut leaks).await.unwrap();
        assert!(is_recorded(&cluster, "10.0.0.9"));
        assert!(!allocates_port(&cluster, "b").await);
    }
    cluster.registry.release_leaks(&mut leaks).await.unwrap();
    assert!(!is_recorded(&cluster, "10.0.0.9"));
    assert!(allocates_port(&cluster, "b").await);
}

#[tokio::test]
async fn address_that_another_server_allocates_again_is_not_released_as_leaked() {
    let cluster = start_cluster().await;
    leak_allocations(&cluster).await;
    let mut leaks = Leaks::new();
    for _ in 0..2 {
        cluster.registry.release_leaks(&mut leaks).await.unwrap();
    }
    // Another server releases the address and allocates it for a Service that is not written yet.
    let stored = cluster.etcd.get(ADDRESS_KEY).unwrap().0;
    cluster.etcd.put(ADDRESS_KEY, &stored);
    cluster.catch_up().await;
    cluster.registry.release_leaks(&mut leaks).await.unwrap();
    assert!(is_recorded(&cluster, "10.0.0.9"));
}

#[tokio::test]
async fn leaked_port_is_released_only_if_no_server_has_changed_the_bitmap() {
    let cluster = start_cluster().await;
    leak_allocations(&cluster).await;
    let mut leaks = Leaks::new();
    for _ in 0..2 {
        cluster.registry.release_leaks(&mut leaks).await.unwrap();
    }
    let bitmap = cluster.etcd.get(BITMAP_KEY).unwrap().0;
    cluster
        .etcd
        .before_txns(1, move |writes| writes.put(BITMAP_KEY, &bitmap));
    cluster.registry.release_leaks(&mut leaks).await.unwrap();
    assert!(!allocates_port(&cluster, "b").await);
    cluster.registry.release_leaks(&mut leaks).await.unwrap();
    assert!(allocates_port(&cluster, "b").await);
}

#[tokio::test]
async fn deleted_service_does_not_release_an_address_that_another_service_has() {
    let cluster = start_cluster().await;
    let spec = json!({"clusterIP": "10.0.0.9"});
    create(&cluster, "b", spec.clone()).await.unwrap();
    let theirs = cluster.etcd.get(ADDRESS_KEY).unwrap().0;
    cluster.delete(services(), "b", json!({})).await.unwrap();
    create(&cluster, "a", spec).await.unwrap();
    // Repair of another server released the address, and Service `b` has it now.
    cluster.etcd.put(ADDRESS_KEY, &theirs);
    cluster.delete(services(), "a", json!({})).await.unwrap();
    assert!(is_recorded(&cluster, "10.0.0.9"));
}

#[tokio::test]
async fn store_failure_during_allocation_fails_the_create() {
    let cluster = start_cluster().await;
    cluster.etcd.fail_next(Status::unavailable("no leader"));
    let error = create(&cluster, "a", json!({})).await.unwrap_err();
    assert_eq!(error.code(), 500);
    assert_eq!(cluster.etcd.get("/registry/services/specs/d/a"), None);
}
