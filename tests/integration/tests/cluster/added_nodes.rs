//! Nodes that `ironclad up --nodes` adds to a cluster that other machines have joined.

use std::net::TcpListener;
use std::path::Path;

use operator_cluster::{CniBackend, CniPlugin, Ports, Runtime, Settings, UpOptions, start_cluster};
use serde_json::json;
use testkit_control_plane::ControlPlane;

const COMPONENTS: [&str; 7] = [
    "kubelet",
    "kube-proxy",
    "kvstore",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cluster-dns",
];

/// Returns free ports; all are held until the last is found, so that they differ.
fn pick_ports() -> Ports {
    let held: Vec<_> = (0..13)
        .map(|_| TcpListener::bind("0.0.0.0:0").unwrap())
        .collect();
    let mut ports = held
        .iter()
        .map(|listener| listener.local_addr().unwrap().port());
    let mut next = || ports.next().unwrap();
    Ports {
        api: next(),
        store: next(),
        store_peer: next(),
        kubelet: next(),
        kubelet_health: next(),
        controller_manager: next(),
        scheduler: next(),
        proxy_metrics: next(),
        proxy_health: next(),
        dns: next(),
        dns_health: next(),
        node_dns_health: next(),
        api_proxy: next(),
    }
}

/// Writes what an earlier `up` with one node leaves in its data directory.
fn store_cluster(plane: &ControlPlane, dir: &Path) -> Settings {
    let settings = Settings {
        layout: 1,
        data_dir: dir.to_owned(),
        bin_dir: dir.join("bin"),
        node_name: "n1".to_owned(),
        node_address: "192.0.2.2".parse().unwrap(),
        second_address: None,
        runtime: Runtime::Simulated,
        cni: CniPlugin::Bridge,
        cni_backend: CniBackend::default(),
        network_policies_enforced: false,
        pod_cidr: "10.244.0.0/16".parse().unwrap(),
        service_cidr: "10.96.0.0/16".parse().unwrap(),
        node_dns: None,
        load_balancer_pool: None,
        token_issuers: Vec::new(),
        replaced_issuers: None,
        domain: "cluster.local".to_owned(),
        ports: pick_ports(),
        verbosity: 0,
        node_count: 1,
        node_network: None,
        membership: None,
        control_plane: None,
    };
    std::fs::create_dir(&settings.bin_dir).unwrap();
    for name in COMPONENTS {
        std::fs::write(settings.bin_dir.join(name), "").unwrap();
    }
    settings.save().unwrap();
    let kubeconfig = plane.kubeconfig("admin");
    std::fs::copy(kubeconfig, dir.join("admin.kubeconfig")).unwrap();
    settings
}

/// The addresses of a joined machine's pods must not be given to a further node of this machine, not
/// even in the settings, from which later commands compute routes.
#[tokio::test]
async fn node_whose_range_a_joined_machine_has_is_not_added() {
    let (plane, dir) = (ControlPlane::start().await, tempfile::tempdir().unwrap());
    let settings = store_cluster(&plane, dir.path());
    for (name, range) in [("n1", "10.244.0.0/24"), ("w1", "10.244.1.0/24")] {
        let node =
            json!({"metadata": {"name": name}, "spec": {"podCIDR": range, "podCIDRs": [range]}});
        let created = plane.admin().post("/api/v1/nodes", &node).await;
        created.expect_status(201);
    }
    let options = UpOptions {
        data_dir: dir.path().to_owned(),
        bin_dir: Some(settings.bin_dir.clone()),
        simulated: true,
        nodes: Some(2),
        ..UpOptions::default()
    };
    let error = start_cluster(&options, &|_| {}).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("node w1 joined the cluster and has the addresses 10.244.1.0/24"),
        "{error}"
    );
    assert_eq!(Settings::load(dir.path()).unwrap(), Some(settings));
    assert!(!dir.path().join("plan.json").exists());
}
