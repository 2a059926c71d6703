//! Several API servers on one store.

use integration_tests::{wait_for, wait_for_value};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit_control_plane::{Caller, ControlPlane, Options};
use tokio::task::JoinSet;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                      ?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";

async fn start(address: &str, flags: &[&str]) -> ControlPlane {
    let mut api_server = vec![format!("--advertise-address={address}")];
    api_server.extend(flags.iter().map(|&flag| flag.to_owned()));
    ControlPlane::start_with(Options {
        api_server,
        ..Options::default()
    })
    .await
}

/// Returns the addresses in the endpoints of the Service `kubernetes`.
async fn server_addresses(admin: &Caller) -> Vec<String> {
    let path = "/api/v1/namespaces/default/endpoints/kubernetes";
    let endpoints = admin.get(path).await.json();
    let addresses = endpoints.pointer("/subsets/0/addresses");
    let each = addresses.and_then(Value::as_array).into_iter().flatten();
    each.filter_map(|address| address["ip"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn servers_never_allocate_the_same_address_or_port() {
    // As many addresses and ports as Services, besides the address of the Service `kubernetes`.
    let flags = [
        "--service-cluster-ip-range=10.96.0.0/26",
        "--service-node-port-range=30000-30059",
    ];
    let plane = start("192.0.2.1", &flags).await;
    let second = plane
        .start_api_server(
            "second",
            &[&flags[..], &["--advertise-address=192.0.2.2"]].concat(),
        )
        .await;
    let servers = [plane.admin(), plane.admin().at(second.address())];
    let mut creates = JoinSet::new();
    for number in 0..60 {
        let admin = servers[number % 2].clone();
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("s{number}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        creates.spawn(async move {
            let created = admin
                .post("/api/v1/namespaces/default/services", &service)
                .await;
            assert_eq!(created.status, 201, "{}", created.text());
            let spec = created.json()["spec"].clone();
            (
                spec["clusterIP"].to_string(),
                spec["ports"][0]["nodePort"].to_string(),
            )
        });
    }
    let created = creates.join_all().await;
    let addresses: BTreeSet<&String> = created.iter().map(|(address, _)| address).collect();
    let ports: BTreeSet<&String> = created.iter().map(|(_, port)| port).collect();
    assert_eq!((addresses.len(), ports.len()), (60, 60));
}

#[tokio::test]
async fn stopping_server_is_removed_from_the_endpoints_while_it_still_serves() {
    let plane = start("192.0.2.1", &[]).await;
    let flags = [
        "--advertise-address=192.0.2.2",
        "--shutdown-delay-duration=10m",
    ];
    let second = plane.start_api_server("second", &flags).await;
    let admin = plane.admin();
    wait_for("both servers are endpoints", async || {
        server_addresses(&admin).await == ["192.0.2.1", "192.0.2.2"]
    })
    .await;
    second.stop();
    wait_for("the stopping server is no endpoint", async || {
        server_addresses(&admin).await == ["192.0.2.1"]
    })
    .await;
    let there = plane.admin().at(second.address());
    assert_eq!(there.get("/readyz").await.status, 500);
    assert_eq!(there.get("/livez").await.status, 200);
    assert_eq!(there.get("/api/v1/namespaces/default").await.status, 200);
}

#[tokio::test]
async fn identity_lease_survives_the_stop_of_another_server_on_the_host() {
    let plane = start("192.0.2.1", &[]).await;
    let admin = plane.admin();
    let leases = async || admin.get(LEASES).await.json()["items"].clone();
    let first = leases().await[0].clone();
    let name = first["metadata"]["name"].as_str().unwrap();
    let holder = first["spec"]["holderIdentity"].as_str().unwrap();
    assert!(
        name.starts_with("apiserver-") && holder.starts_with(name),
        "{first}"
    );
    assert_eq!(first["spec"]["leaseDurationSeconds"], 3600);
    let second = plane.start_api_server("second", &[]).await;
    assert_eq!(leases().await.as_array().unwrap().len(), 1);
    second.stop();
    let renewed = wait_for_value("a renewal by the first server", async || {
        let lease = leases().await[0].clone();
        let is_newer = lease["spec"]["renewTime"].as_str() > first["spec"]["renewTime"].as_str();
        (is_newer && lease["spec"]["holderIdentity"] == holder).then_some(lease)
    })
    .await;
    assert_eq!(renewed["metadata"]["name"], name);
    assert_eq!(
        renewed["metadata"]["labels"], first["metadata"]["labels"],
        "{renewed}"
    );
}

#[tokio::test]
async fn expired_identity_lease_is_deleted_at_the_start_of_a_server() {
    let plane = start("192.0.2.1", &[]).await;
    let admin = plane.admin();
    let lease = |name: &str, renewed: &str, labels: Value| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": labels},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed}})
    };
    let (ours, past) = (
        json!({"apiserver.kubernetes.io/identity": "kube-apiserver"}),
        "2020-01-01T00:00:00.000000Z",
    );
    for object in [
        lease("crashed", past, ours.clone()),
        lease("running", "2999-01-01T00:00:00.000000Z", ours),
        lease("of-a-controller", past, json!({})),
    ] {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        let created = admin.post(path, &object).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let _second = plane.start_api_server("second", &[]).await;
    let status = async |name: &str| {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
        admin.get(&path).await.status
    };
    wait_for("the lease of the crashed server is deleted", async || {
        status("crashed").await == 404
    })
    .await;
    assert_eq!(status("running").await, 200);
    assert_eq!(status("of-a-controller").await, 200);
}

#[tokio::test]
async fn readiness_shows_the_hooks_of_a_stock_server() {
    let plane = start("192.0.2.1", &[]).await;
    let report = plane.admin().get("/readyz?verbose").await.text().to_owned();
    for hook in [
        "start-kube-apiserver-identity-lease-controller",
        "start-kube-apiserver-identity-lease-garbage-collector",
        "start-cluster-authentication-info-controller",
        "start-kubernetes-service-cidr-controller",
        "kube-apiserver-autoregistration",
        "start-apiextensions-controllers",
        "generic-apiserver-start-informers",
        "storage-readiness",
        "start-apiserver-admission-initializer",
        "priority-and-fairness-filter",
        "aggregator-reload-proxy-client-cert",
        "apiservice-registration-controller",
        "apiservice-wait-for-first-sync",
        "apiservice-status-local-available-controller",
        "apiservice-status-remote-available-controller",
        "apiservice-discovery-controller",
        "apiservice-openapi-controller",
        "apiservice-openapiv3-controller",
    ] {
        assert!(
            report.contains(&format!("[+]poststarthook/{hook} ok\n")),
            "{report}"
        );
    }
    assert!(
        report.contains("[+]autoregister-completion ok\n"),
        "{report}"
    );
}
