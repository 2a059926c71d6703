#![allow(clippy::unwrap_used, clippy::print_stdout)]
use base_task::{CancellationToken, Tasks};
use base_telemetry::Metrics;
use base_telemetry::prometheus_client::metrics::counter::Counter;
use serde_json::json;

use super::*;
use crate::base_chains::TABLE;
use crate::metrics::ChangeMetrics;
use crate::service_rules::tests as fixtures;

#[test]
fn node_that_is_removed_takes_no_connections_of_load_balancers() {
    for (node, expect) in [
        (json!({ "metadata": {} }), true),
        (
            json!({ "metadata": {}, "spec": { "taints": [{ "key": "other", "effect": "NoSchedule" }] } }),
            true,
        ),
        (
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
            false,
        ),
        (
            json!({ "metadata": {}, "spec": { "taints": [
                { "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] } }),
            false,
        ),
    ] {
        assert_eq!(
            is_eligible(&serde_json::from_value(node.clone()).unwrap()),
            expect,
            "{node}"
        );
    }
}

/// Runs a test in a network namespace; its programs inherit that of the thread.
fn in_namespace<F: Future<Output = ()> + 'static>(test: fn() -> F) {
    let thread = std::thread::spawn(move || {
        if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            return println!("skipped: no network namespace: {error}");
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            match net_nft::check_nft().await {
                Ok(()) => test().await,
                Err(error) => println!("skipped: {error}"),
            }
        });
    });
    thread.join().unwrap();
}

/// Returns a proxy of one Service with one endpoint.
fn proxy(more: &[&str]) -> Proxy {
    let service = fixtures::service(json!({
        "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 80 }]
    }));
    let slice = fixtures::slice(json!([
        { "addresses": ["10.244.0.5"], "nodeName": "n1", "conditions": { "ready": true } }
    ]));
    let settings =
        crate::args::tests::settings(&[&["--hostname-override=n1"], more].concat()).unwrap();
    let health = Arc::new(Health::default());
    Proxy {
        watch: TableWatch::open(TABLE, settings.sync_period),
        synced: None,
        settings,
        services: Store::from_objects(vec![service], Vec::new()),
        slices: Store::from_objects(
            vec![EndpointSlice::clone(&slice)],
            vec![("service", Box::new(|_| vec!["ns/web".to_owned()]))],
        ),
        nodes: Store::from_objects(Vec::new(), Vec::new()),
        service_ranges: Store::from_objects(Vec::new(), Vec::new()),
        node: LocalNode::default(),
        node_object: None,
        desired: DesiredRules::default(),
        checks: Checks::new(Tasks::new(CancellationToken::new()), health.clone()),
        figures: ProxyMetrics::new(&Metrics::new()),
        health,
    }
}

#[tokio::test]
async fn ranges_of_services_are_those_of_all_objects() {
    let objects = [
        &["10.97.0.0/16"][..],
        &["10.96.0.0/16", "fd00::/108"],
        &["10.97.0.0/16"],
    ];
    let objects = objects.map(|cidrs| {
        serde_json::from_value(
            json!({ "metadata": { "name": cidrs.concat() }, "spec": { "cidrs": cidrs } }),
        )
    });
    let mut proxy = proxy(&[]);
    proxy.service_ranges = Store::from_objects(objects.map(Result::unwrap).into(), Vec::new());
    let read = proxy.read_node().service_ranges;
    let read: Vec<String> = read.iter().map(ToString::to_string).collect();
    assert_eq!(read, ["10.96.0.0/16", "10.97.0.0/16", "fd00::/108"]);
}

#[tokio::test]
async fn pods_are_detected_by_the_settings_or_the_node() {
    let node = json!({ "metadata": { "name": "n1" }, "spec": { "podCIDRs": ["10.9.0.0/24", "fd00::/64"] } });
    for (flags, ranges, interface) in [
        (&["--cluster-cidr=10.0.0.0/8"][..], "10.0.0.0/8", None),
        (
            &["--detect-local-mode=NodeCIDR"],
            "10.9.0.0/24 fd00::/64",
            None,
        ),
        (
            &[
                "--detect-local-mode=InterfaceNamePrefix",
                "--pod-interface-name-prefix=veth",
            ],
            "",
            Some("veth*"),
        ),
    ] {
        let mut proxy = proxy(flags);
        let node = serde_json::from_value(node.clone()).unwrap();
        proxy.nodes = Store::from_objects(vec![node], Vec::new());
        let read = proxy.read_node();
        // A deleted Node keeps its last state.
        proxy.nodes = Store::from_objects(Vec::new(), Vec::new());
        assert_eq!(proxy.read_node(), read);
        let found: Vec<String> = read.pod_ranges.iter().map(ToString::to_string).collect();
        assert_eq!(
            (found.join(" ").as_str(), read.pod_interface.as_deref()),
            (ranges, interface)
        );
    }
}

async fn list_table() -> String {
    let words = ["list", "table", "ip", "kube-proxy"];
    let listed = net_nft::list_objects(&words).await.unwrap();
    String::from_utf8(listed.stdout).unwrap()
}

/// Waits for the end of a sync.
async fn wait_for_syncs(syncs: &Counter, count: u64, why: &str) {
    let done = async {
        while syncs.get() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_secs(30);
    assert!(tokio::time::timeout(limit, done).await.is_ok(), "{why}");
}

#[test]
fn rules_that_another_program_changes_are_installed_again() {
    in_namespace(|| async {
        let mut proxy = proxy(&[]);
        let (syncs, dirty) = (
            proxy.figures.syncs.clone(),
            DirtyServices::new(ChangeMetrics::default()),
        );
        let script = async {
            wait_for_syncs(&syncs, 1, "first").await;
            let whole = list_table().await;
            assert!(
                whole.contains("10.96.0.7 . tcp . 80 : goto service-"),
                "{whole}"
            );
            let changes = [
                "flush ruleset\n",
                "delete element ip kube-proxy service-ips { 10.96.0.7 . tcp . 80 }\n",
            ];
            for (repairs, change) in (1..).zip(changes) {
                net_nft::apply_commands(change).await.unwrap();
                wait_for_syncs(&syncs, 1 + repairs, change).await;
                assert_eq!(list_table().await, whole, "{change}");
            }
            // A change of another table, and the repairs themselves, are no reason for another one.
            net_nft::apply_commands("add table ip other\n")
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(syncs.get(), 3);
        };
        tokio::select! {
            () = proxy.follow_changes(&dirty) => {}
            () = script => {}
        }
    });
}

/// A failed transaction must not leave the port of a Service that it removed.
#[test]
fn health_check_port_of_a_service_is_closed_after_a_failed_transaction() {
    in_namespace(|| async {
        let ip = |words: &'static str| {
            let mut command = tokio::process::Command::new("ip");
            command.args(words.split(' ')).status()
        };
        assert!(ip("link set lo up").await.unwrap().success());
        assert!(ip("addr add 192.0.2.2/32 dev lo").await.unwrap().success());
        let mut proxy = proxy(&[]);
        let balancer = fixtures::service(json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 80 }]
        }));
        let node = json!({ "metadata": { "name": "n1" }, "status": { "addresses": [
            { "type": "InternalIP", "address": "192.0.2.2" }] } });
        let node = serde_json::from_value(node).unwrap();
        proxy.nodes = Store::from_objects(vec![node], Vec::new());
        proxy.services = Store::from_objects(vec![balancer], Vec::new());
        proxy.node = proxy.read_node();
        proxy.install_all().await.unwrap();
        let connect = || tokio::net::TcpStream::connect("192.0.2.2:31000");
        assert!(connect().await.is_ok());

        net_nft::apply_commands("flush ruleset\n").await.unwrap();
        proxy.services = Store::from_objects(Vec::new(), Vec::new());
        let keys = BTreeSet::from(["ns/web".to_owned()]);
        let failed = proxy.apply_changes(&keys, &mut String::new()).await;
        assert!(failed.is_err());
        proxy.install_all().await.unwrap();
        let closed = async {
            while connect().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), closed)
            .await
            .unwrap();
    });
}
