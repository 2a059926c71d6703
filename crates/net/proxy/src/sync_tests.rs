#![allow(clippy::unwrap_used, clippy::print_stdout)]
use base_task::{CancellationToken, Tasks};
use base_telemetry::Metrics;
use base_telemetry::prometheus_client::metrics::counter::Counter;
use serde_json::json;

use super::*;
use crate::local::PodMatch;
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
    let backend = Backend::open(&settings);
    Proxy {
        desired: backend.desired_rules(),
        backend,
        families: net_nft::supported_families(),
        family_retry: Retry::default(),
        removal_retry: Retry::default(),
        synced: None,
        figures: ProxyMetrics::new(&Metrics::new(), &settings.mode),
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
        checks: Checks::new(Tasks::new(CancellationToken::new()), health.clone()),
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
            Some(PodMatch::Prefix("veth".into())),
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
            (found.join(" ").as_str(), read.pod_interface),
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
    // A repair waits for 20 times the duration of the last one, at most 300 s.
    let limit = Duration::from_secs(330);
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
                whole.contains("10.96.0.7 . tcp . 80 : goto pick-cluster-1"),
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

/// Changes that are written by netlink give the same rules as an installation by nft.
#[test]
fn changed_rules_are_those_of_an_installation() {
    in_namespace(|| async {
        let mut proxy = proxy(&["--cluster-cidr=10.244.0.0/16,fd00:244::/64"]);
        if proxy.families.len() < 2 {
            return println!("skipped: no IPv6");
        }
        let ports = json!([{ "port": 80, "nodePort": 30080 },
            { "name": "u", "port": 53, "nodePort": 30053, "protocol": "UDP" },
            { "name": "s", "port": 54, "protocol": "SCTP" }]);
        let service = fixtures::service(json!({
            "type": "NodePort", "clusterIPs": ["10.96.0.7", "fd00:96::7"], "ports": ports,
            "externalIPs": ["192.0.2.9", "2001:db8::9"]
        }));
        proxy.services = Store::from_objects(vec![service], Vec::new());
        let slices = |hosts: &[u16]| {
            let slice = |(kind, prefix): (&str, &str)| -> EndpointSlice {
                let entry = |host: &u16| json!({ "addresses": [format!("{prefix}{host}")], "nodeName": "n1" });
                let endpoints: Vec<_> = hosts.iter().map(entry).collect();
                let ports = json!([{ "name": "", "port": 8080 },
                    { "name": "u", "port": 8053, "protocol": "UDP" },
                    { "name": "s", "port": 8054, "protocol": "SCTP" }]);
                let tree = json!({ "metadata": { "name": kind, "namespace": "ns" },
                    "addressType": kind, "ports": ports, "endpoints": endpoints });
                serde_json::from_value(tree).unwrap()
            };
            let both = [("IPv4", "10.244.0."), ("IPv6", "fd00:244::")].map(slice);
            let index = vec![(
                "service",
                Box::new(|_: &EndpointSlice| vec!["ns/web".to_owned()]) as _,
            )];
            Store::from_objects(both.into(), index)
        };
        proxy.slices = slices(&[]);
        proxy.node = proxy.read_node();
        proxy.install_all().await.unwrap();
        for hosts in [
            &[1, 2, 3][..],
            &[1, 2],
            &[1],
            &[],
            &[5],
            &[5, 6],
            &[6, 7, 8],
        ] {
            proxy.slices = slices(hosts);
            let rules = proxy.compute_rules("ns/web");
            let changes = [proxy.desired.set_rules("ns/web", rules)];
            assert!(
                crate::nftables::encode_changes(&changes).is_some(),
                "{hosts:?}"
            );
            proxy.backend.change(&changes).await.unwrap();
            for family in ["ip", "ip6"] {
                let mut listings = Vec::new();
                for reinstall in [false, true] {
                    if reinstall {
                        let options = proxy.base_options();
                        let families = proxy.families.clone();
                        let installed = proxy.backend.install(&proxy.desired, &families, &options);
                        installed.await.unwrap();
                    }
                    let words = ["-j", "list", "table", family, "kube-proxy"];
                    let listed = net_nft::list_objects(&words).await.unwrap();
                    listings.push(sort_listing(&listed.stdout));
                }
                assert_eq!(listings[0], listings[1], "{family} {hosts:?}");
            }
        }
    });
}

/// Returns the objects of a listing in JSON, without handles, in a fixed order of elements.
fn sort_listing(listing: &[u8]) -> Vec<String> {
    let listing: serde_json::Value = serde_json::from_slice(listing).unwrap();
    let mut objects = Vec::new();
    for mut object in listing["nftables"].as_array().unwrap().clone() {
        for content in object.as_object_mut().unwrap().values_mut() {
            let content = content.as_object_mut().unwrap();
            content.remove("handle");
            if let Some(elements) = content.get_mut("elem").and_then(|e| e.as_array_mut()) {
                elements.sort_by_key(ToString::to_string);
            }
        }
        objects.push(object.to_string());
    }
    objects.sort();
    objects
}

async fn list_iptables() -> String {
    crate::iptables::save(Family::V4).await.unwrap()
}

/// Returns the rules of a listing, without counters and dates.
fn sort_rules(listing: &str) -> Vec<String> {
    let rules = listing.lines().filter(|line| !line.starts_with(['#', ':']));
    let mut rules: Vec<String> = rules.map(str::to_owned).collect();
    rules.sort();
    rules
}

/// Runs a program of iptables.
async fn iptables(words: &str) {
    let mut command = tokio::process::Command::new("iptables");
    let status = command.args(words.split(' ')).status().await.unwrap();
    assert!(status.success(), "{words}");
}

/// Flushed tables lack the canary, and a chain of the kernel its jump.
#[test]
fn rules_of_iptables_that_another_program_removes_are_installed_again() {
    in_namespace(|| async {
        if let Err(error) = crate::iptables::usable_families(&[Family::V4]).await {
            return println!("skipped: {error}");
        }
        // The tables of the other mode are removed once the rules are installed.
        net_nft::apply_commands("add table ip kube-proxy\n")
            .await
            .unwrap();
        let mut proxy = proxy(&IPTABLES);
        let (syncs, dirty) = (
            proxy.figures.syncs.clone(),
            DirtyServices::new(ChangeMetrics::default()),
        );
        let script = async {
            wait_for_syncs(&syncs, 1, "first").await;
            let listing = list_iptables().await;
            assert!(
                listing.contains("-A KUBE-SERVICES -d 10.96.0.7/32"),
                "{listing}"
            );
            let whole = sort_rules(&listing);
            for (repairs, words) in (1..).zip([
                "-t nat -F PREROUTING",
                "-t filter -F",
                "-t mangle -X",
                "-t filter -D OUTPUT 1",
            ]) {
                iptables(words).await;
                wait_for_syncs(&syncs, 1 + repairs, words).await;
                assert_eq!(sort_rules(&list_iptables().await), whole, "{words}");
            }
            let tables = net_nft::list_objects(&["list", "tables"]).await.unwrap();
            let tables = String::from_utf8(tables.stdout).unwrap();
            assert!(!tables.contains("kube-proxy"), "{tables}");
            // Rules of other programs are no reason for another repair.
            iptables("-t filter -A INPUT -j ACCEPT").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(syncs.get(), 5);
        };
        tokio::select! {
            () = proxy.follow_changes(&dirty) => {}
            () = script => {}
        }
        crate::backend::remove_rules().await.unwrap();
        let left = list_iptables().await;
        assert!(
            !left.contains("KUBE-SERVICES") && left.contains("-A INPUT -j ACCEPT"),
            "{left}"
        );
    });
}

const IPTABLES: [&str; 3] = [
    "--proxy-mode=iptables",
    "--iptables-sync-period=100ms",
    "--iptables-min-sync-period=10ms",
];

/// Waits until a listing of iptables in a family fulfils a condition.
async fn wait_for_rules(family: Family, why: &str, holds: impl Fn(&str) -> bool) {
    let done = async {
        while !crate::iptables::save(family)
            .await
            .is_ok_and(|listing| holds(&listing))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_secs(30);
    assert!(tokio::time::timeout(limit, done).await.is_ok(), "{why}");
}

/// A check takes longer than the time between two changes.
#[test]
fn rules_of_iptables_are_checked_while_services_change_all_the_time() {
    in_namespace(|| async {
        if let Err(error) = crate::iptables::usable_families(&[Family::V4]).await {
            return println!("skipped: {error}");
        }
        let mut proxy = proxy(&IPTABLES);
        let syncs = proxy.figures.syncs.clone();
        let dirty = DirtyServices::new(ChangeMetrics::default());
        let changes = async {
            loop {
                dirty.mark_service("ns/other".to_owned());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let script = async {
            wait_for_syncs(&syncs, 1, "first").await;
            iptables("-t nat -F PREROUTING").await;
            let jump = |listing: &str| listing.contains("-A PREROUTING");
            wait_for_rules(Family::V4, "repair", jump).await;
        };
        tokio::select! {
            () = proxy.follow_changes(&dirty) => {}
            () = changes => {}
            () = script => {}
        }
    });
}

/// A rule of another program refers to a chain, so that it can't be deleted: it translates nothing,
/// and is deleted once the rule is.
#[test]
fn rules_of_iptables_are_removed_after_a_change_of_the_mode() {
    in_namespace(|| async {
        if let Err(error) = crate::iptables::usable_families(&[Family::V4]).await {
            return println!("skipped: {error}");
        }
        let mut former = proxy(&IPTABLES);
        former.node = former.read_node();
        former.install_all().await.unwrap();
        iptables("-t nat -A PREROUTING -d 198.51.100.1 -j KUBE-SERVICES").await;

        let mut proxy = proxy(&[]);
        proxy.settings.sync_period = Duration::from_millis(100);
        let syncs = proxy.figures.syncs.clone();
        let dirty = DirtyServices::new(ChangeMetrics::default());
        let script = async {
            wait_for_syncs(&syncs, 1, "first").await;
            wait_for_rules(Family::V4, "emptied", |listing| {
                !listing.contains("10.96.0.7") && !listing.contains("service portals")
            })
            .await;
            assert!(list_iptables().await.contains(":KUBE-SERVICES "));
            iptables("-t nat -F PREROUTING").await;
            wait_for_rules(Family::V4, "removed", |listing| {
                !listing.contains(":KUBE-SERVICES ")
            })
            .await;
            assert!(list_table().await.contains("10.96.0.7"));
        };
        tokio::select! {
            () = proxy.follow_changes(&dirty) => {}
            () = script => {}
        }
    });
}

/// IPv4 is served while the rules of IPv6 can't be installed, and the proxy is not healthy.
#[test]
fn family_that_fails_is_installed_again_without_the_other_one() {
    in_namespace(|| async {
        let usable = crate::iptables::usable_families(&[Family::V4, Family::V6]).await;
        if !usable.is_ok_and(|usable| usable.len() == 2) {
            return println!("skipped: iptables can't be used for both families");
        }
        // The nft variant refuses a table with such a chain.
        net_nft::apply_commands(
            "add table ip6 nat\nadd chain ip6 nat other { type filter hook input priority 7; }\n",
        )
        .await
        .unwrap();
        if crate::iptables::save(Family::V6)
            .await
            .is_ok_and(|listing| listing.contains("*nat"))
        {
            return println!("skipped: the legacy variant of iptables");
        }
        let mut proxy = proxy(&IPTABLES);
        let (syncs, health) = (proxy.figures.syncs.clone(), proxy.health.clone());
        let dirty = DirtyServices::new(ChangeMetrics::default());
        let script = async {
            wait_for_syncs(&syncs, 1, "first").await;
            assert!(list_iptables().await.contains("10.96.0.7"));
            assert!(!health.is_healthy());
            // A change of the family that works is applied, and causes no installation.
            dirty.mark_service("ns/web".to_owned());
            wait_for_syncs(&syncs, 2, "change").await;
            assert!(!health.is_healthy());
            net_nft::apply_commands("delete table ip6 nat\n")
                .await
                .unwrap();
            let has_rules = |listing: &str| listing.contains(":KUBE-SERVICES ");
            wait_for_rules(Family::V6, "retry", has_rules).await;
            wait_for_syncs(&syncs, 3, "retry").await;
            assert!(health.is_healthy());
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
        let failed = proxy.apply_changes(&keys).await;
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
