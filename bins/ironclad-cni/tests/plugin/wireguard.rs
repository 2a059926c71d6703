//! Encrypted packets between pods of several nodes: the nodes of `nodes.rs`, with WireGuard.
//!
//! The tests need a kernel with WireGuard and are skipped with the reason printed elsewhere. The
//! area `vm` runs them in a virtual machine.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use net_link::PublicKey;
use net_node::{Backend, KEY_ANNOTATION, KernelError, SyncError};

use crate::agent::{Agent, DEADLINE, Server};
use crate::nodes::{Cluster, NODES, target};
use crate::world::{World, address};

/// Counts packets on the links: those of tunnels, and those with addresses of pods.
const COUNTERS: &str = "table netdev seen {
    counter encrypted { }
    counter plain { }
    chain c {
        type filter hook ingress device DEVICE priority 0;
        udp dport 51820 counter name encrypted
        ip saddr 10.244.0.0/16 counter name plain
        ip daddr 10.244.0.0/16 counter name plain
        ip6 saddr fd00::/48 counter name plain
        ip6 daddr fd00::/48 counter name plain
    }
}";

/// Returns whether a namespace's kernel has WireGuard.
fn has_wireguard(world: &World) -> bool {
    let found = world
        .exec("router", "ip link add probe type wireguard")
        .is_ok();
    if found {
        world.exec("router", "ip link del probe").unwrap();
    }
    found
}

/// Makes nodes; returns None, with the reason printed, if they can't encrypt.
fn start_cluster() -> Option<Cluster> {
    let cluster = Cluster::start(Backend::Wireguard)?;
    if !has_wireguard(&cluster.world) {
        println!("skipped: the kernel has no WireGuard");
        return None;
    }
    Some(cluster)
}

fn set_key(cluster: &mut Cluster, place: usize, key: &PublicKey) {
    let mut node = (*cluster.nodes[place]).clone();
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert(KEY_ANNOTATION.to_owned(), key.to_string());
    cluster.nodes[place] = Arc::new(node);
}

/// Syncs all nodes, and publishes their keys as their agents do.
fn publish_keys(cluster: &mut Cluster) {
    for (place, (name, _)) in NODES.iter().enumerate() {
        let (_, key) = cluster.sync_with_key(name, true).unwrap();
        if let Some(key) = key {
            set_key(cluster, place, &key);
        }
    }
    for (name, _) in NODES {
        assert_eq!(cluster.sync(name), BTreeSet::new(), "{name}");
    }
}

fn add_pods(cluster: &Cluster) -> [(String, serde_json::Value); 3] {
    NODES.map(|(name, _)| {
        let pod = name.replace('n', "p");
        let result = cluster.add_pod(name, &pod);
        cluster.world.serve(&pod, 8080);
        (pod, result)
    })
}

/// Connects all pods with each other, in both families.
#[track_caller]
fn check_pods(cluster: &Cluster, pods: &[(String, serde_json::Value)]) {
    for (from, own) in pods {
        for (to, other) in pods {
            for is_v4 in [true, false] {
                let seen = cluster
                    .world
                    .connect(from, &target(&address(other, is_v4)), true);
                assert_eq!(seen, Some(address(own, is_v4)), "{from} {to} {is_v4}");
            }
        }
    }
}

fn start_counters(cluster: &Cluster) {
    for (name, _) in NODES {
        let rules = COUNTERS.replace("DEVICE", name).replace("seen", name);
        let command = format!("nft '{rules}'");
        cluster.world.exec("router", &command).unwrap();
    }
}

/// Returns the packets of tunnels and those with addresses of pods that came from a node.
fn count_packets(cluster: &Cluster, node: &str) -> (u64, u64) {
    let count = |name: &str| {
        let command = format!("nft -j list counter netdev {node} {name}");
        let listed = cluster.world.exec("router", &command).unwrap();
        let tree: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let entries = tree["nftables"].as_array().unwrap();
        let found = entries
            .iter()
            .find_map(|entry| entry["counter"]["packets"].as_u64());
        found.unwrap()
    };
    (count("encrypted"), count("plain"))
}

#[test]
fn packets_between_nodes_are_encrypted() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    start_counters(&cluster);
    publish_keys(&mut cluster);
    let pods = add_pods(&cluster);
    check_pods(&cluster, &pods);
    // Also from a node to a pod, with the node's address of its own range.
    for is_v4 in [true, false] {
        let to = target(&address(&pods[2].1, is_v4));
        let seen = cluster.world.connect("n1", &to, true);
        let gateway = if is_v4 { "10.244.1.1" } else { "fd00:0:0:1::1" };
        assert_eq!(seen.as_deref(), Some(gateway));
    }
    for (name, _) in NODES {
        let (encrypted, plain) = count_packets(&cluster, name);
        assert!(encrypted > 20, "{name}: {encrypted}");
        assert_eq!(plain, 0, "{name}");
    }
    let mtu = cluster.world.exec("p1", "cat /sys/class/net/eth0/mtu");
    assert_eq!(mtu.unwrap().trim(), "1440");
    // A second sync, as after a restart, changes nothing, and keeps the key.
    let key = cluster.settings("n1").data_dir.join("wireguard.key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = std::fs::read(&key).unwrap();
    let before = cluster.list_entries("n1");
    assert_eq!(
        cluster.sync_with_key("n1", true).unwrap(),
        (BTreeSet::new(), None)
    );
    assert_eq!(cluster.list_entries("n1"), before);
    assert_eq!(std::fs::read(&key).unwrap(), secret);
}

/// The counters of the other tests count what they are meant to count.
#[test]
fn packets_of_another_backend_are_not_encrypted() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    start_counters(&cluster);
    for (name, _) in NODES {
        cluster.sync(name);
    }
    let pods = add_pods(&cluster);
    check_pods(&cluster, &pods[..2]);
    let (encrypted, plain) = count_packets(&cluster, "n1");
    assert_eq!(encrypted, 0);
    assert!(plain > 10, "{plain}");
}

#[test]
fn changed_key_replaces_the_peer_and_deleted_node_is_no_peer() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    let pods = add_pods(&cluster);
    check_pods(&cluster, &pods);
    // The node has lost its key, and makes another one.
    let file = cluster.settings("n3").data_dir.join("wireguard.key");
    std::fs::remove_file(file).unwrap();
    let (_, key) = cluster.sync_with_key("n3", true).unwrap();
    let to = target(&address(&pods[2].1, true));
    assert_eq!(cluster.world.connect("p1", &to, false), None);
    set_key(&mut cluster, 2, &key.unwrap());
    for (name, _) in NODES {
        assert_eq!(cluster.sync(name), BTreeSet::new(), "{name}");
    }
    check_pods(&cluster, &pods);
    // Without the Node, its packets are dropped, and none are sent to it in another way.
    start_counters(&cluster);
    cluster.nodes.truncate(2);
    for (name, _) in &NODES[..2] {
        assert_eq!(cluster.sync(name), BTreeSet::new(), "{name}");
    }
    for (from, to, is_v4) in [(0, 2, true), (0, 2, false), (2, 0, true), (2, 0, false)] {
        let to_address = target(&address(&pods[to].1, is_v4));
        let seen = cluster.world.connect(&pods[from].0, &to_address, false);
        assert_eq!(seen, None, "{from} {to} {is_v4}");
    }
    check_pods(&cluster, &pods[..2]);
    for (name, _) in NODES {
        assert_eq!(count_packets(&cluster, name).1, 0, "{name}");
    }
}

/// A route of another program, or the absence of the device, must not lead packets out.
#[test]
fn nothing_leaves_or_enters_unencrypted() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    let pods = add_pods(&cluster);
    start_counters(&cluster);
    let exec = |place: &str, command: &str| cluster.world.exec(place, command).unwrap();
    let to = |is_v4| target(&address(&pods[1].1, is_v4));
    exec("n1", "ip route add 10.244.2.0/24 via 192.0.1.2");
    exec("n1", "ip -6 route add fd00:0:0:2::/64 via 2001:db8:1::2");
    for is_v4 in [true, false] {
        assert_eq!(cluster.world.connect("p1", &to(is_v4), false), None);
        assert_eq!(cluster.world.connect("n1", &to(is_v4), false), None);
    }
    exec("n1", "ip route del 10.244.2.0/24 via 192.0.1.2");
    exec("n1", "ip -6 route del fd00:0:0:2::/64 via 2001:db8:1::2");
    exec("n1", "ip link del wireguard-pods");
    for is_v4 in [true, false] {
        assert_eq!(cluster.world.connect("p1", &to(is_v4), false), None);
    }
    assert_eq!(count_packets(&cluster, "n1").1, 0);
    // The next sync makes everything again.
    assert_eq!(cluster.sync("n1"), BTreeSet::new());
    check_pods(&cluster, &pods);
}

/// Sends a packet from an address of the router to a pod, past its node's tunnel.
fn send_plain(world: &World, source: &str, to: String) {
    let from = format!("{source}:0");
    let sent = world.run_inside("router", move || {
        let socket = std::net::UdpSocket::bind(from).unwrap();
        socket.send_to(b"x", to).unwrap();
    });
    sent.join().unwrap();
}

/// Waits until a counter of a node's table `seen` has counted packets, and not more of them.
#[track_caller]
fn wait_for_count(world: &World, node: &str, counter: &str, expect: u64) {
    let command = format!("nft -j list counter ip seen {counter}");
    wait_until(counter, || {
        let listed = world.exec(node, &command).unwrap();
        let tree: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let count = tree["nftables"][1]["counter"]["packets"].as_u64().unwrap();
        assert!(count <= expect, "{counter}: {count}");
        count == expect
    });
}

/// A machine of the link with a route to the pods of a node, with an address of a pod and without.
#[test]
fn machine_of_the_link_sends_nothing_to_pods() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    let pods = add_pods(&cluster);
    let world = &cluster.world;
    let exec = |place: &str, command: &str| world.exec(place, command).unwrap();
    exec(
        "n2",
        "nft 'table ip seen {
            counter arrived { }
            counter dropped { }
            counter passed { }
            chain arrival {
                type filter hook prerouting priority -350;
                iifname \"eth0\" udp dport 9000 counter name arrived
            }
            chain passage {
                type filter hook forward priority 0;
                oifname \"cni0\" udp dport 9000 counter name dropped
                oifname \"cni0\" udp dport 9001 counter name passed
            }
        }'",
    );
    let sources = ["10.244.3.99", "198.51.100.9"];
    exec("router", "ip route add 10.244.2.0/24 via 192.0.1.2");
    let pod = address(&pods[1].1, true);
    for source in sources {
        exec("router", &format!("ip addr add {source}/32 dev lo"));
        send_plain(world, source, format!("{pod}:9000"));
    }
    wait_for_count(world, "n2", "arrived", 2);
    // Without the rules they would have passed: it is the rules that drop them.
    exec("n2", "nft delete table ip pods-cni0");
    for source in sources {
        send_plain(world, source, format!("{pod}:9001"));
    }
    wait_for_count(world, "n2", "passed", 2);
    wait_for_count(world, "n2", "dropped", 0);
}

/// Each part of the change fails closed: the API server is down, and then `nft` is missing.
#[test]
fn change_to_encryption_drops_plain_packets_before_the_first_sync() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    for (name, _) in NODES {
        cluster.sync(name);
    }
    let pods = add_pods(&cluster);
    check_pods(&cluster, &pods[..2]);
    start_counters(&cluster);
    let arguments = ["--backend=wireguard"];
    let no_server = 1;
    let _agent = Agent::start_with(&cluster, "n1", no_server, &arguments);
    let has_drops = || {
        ["ip", "ip6"].iter().all(|family| {
            let command = format!("nft list chain {family} pods-cni0 unencrypted-exit");
            cluster.world.exec("n1", &command).is_ok()
        })
    };
    wait_until("the rules", has_drops);
    assert!(!has_configuration(&cluster, "n1"));
    for is_v4 in [true, false] {
        for (from, to) in [(0, 1), (1, 0)] {
            let to = target(&address(&pods[to].1, is_v4));
            let seen = cluster.world.connect(&pods[from].0, &to, false);
            assert_eq!(seen, None, "{from} {is_v4}");
        }
    }
    assert_eq!(count_packets(&cluster, "n1").1, 0);
    // The rest of the former rules stays.
    let rules = cluster.world.exec("n1", "nft list table ip pods-cni0");
    let rules = rules.unwrap();
    assert!(rules.contains("masquerade"), "{rules}");
    cluster.world.exec("n1", "nft flush ruleset").unwrap();
    wait_until("the rules again", has_drops);
}

#[test]
fn configuration_of_another_backend_is_removed_without_nft() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    cluster.sync("n1");
    assert!(has_configuration(&cluster, "n1"));
    let mut agent = Agent::start_without_nft(&cluster, "n1", &["--backend=wireguard"]);
    assert!(agent.wait_for_failure());
    assert!(!has_configuration(&cluster, "n1"));
}

/// Rules and tunnel stay, too: pods of a node that is not ready would leave all Services.
#[test]
fn configuration_stays_after_a_failure_unless_it_is_of_another_boot() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    assert!(cluster.try_sync("n1", false).is_err());
    assert!(has_configuration(&cluster, "n1"));
    let command = "ip addr del 192.0.1.1/24 dev eth0";
    cluster.world.exec("n1", command).unwrap();
    let failed = cluster.try_sync("n1", true).unwrap_err();
    let is_named = matches!(failed, SyncError::Kernel(KernelError::NoDevice(_)));
    assert!(is_named, "{failed}");
    assert!(has_configuration(&cluster, "n1"));
    let file = cluster.settings("n1").conf_dir.join("10-ironclad.conflist");
    let mut tree: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    tree["plugins"][0]["bootId"] = "another".into();
    std::fs::write(&file, tree.to_string()).unwrap();
    assert!(cluster.try_sync("n1", true).is_err());
    assert!(!file.exists());
}

#[test]
fn changed_address_moves_the_peer() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    let pods = add_pods(&cluster);
    check_pods(&cluster, &pods);
    let exec = |command: &str| cluster.world.exec("n3", command).unwrap();
    exec("ip addr del 192.0.2.3/24 dev eth0");
    exec("ip addr add 192.0.2.33/24 dev eth0");
    exec("ip route replace default via 192.0.2.254");
    let mut tree = serde_json::to_value(&cluster.nodes[2]).unwrap();
    tree["status"]["addresses"][0]["address"] = "192.0.2.33".into();
    cluster.nodes[2] = Arc::new(serde_json::from_value(tree).unwrap());
    assert_eq!(cluster.sync("n1"), BTreeSet::new());
    check_pods(&cluster, &[pods[0].clone(), pods[2].clone()]);
}

/// A node that was taken over sends with addresses of its own range only.
#[test]
fn inner_source_is_that_of_the_peer() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    let pods = add_pods(&cluster);
    let world = &cluster.world;
    world.exec("n3", "nft flush ruleset").unwrap();
    let counter = "nft 'table ip seen { chain c { type filter hook prerouting priority -350; \
                   iifname \"wireguard-pods\" udp dport 9000 counter; }; }'";
    world.exec("n1", counter).unwrap();
    let to = format!("{}:9000", address(&pods[0].1, true));
    let send = |source: &str| {
        let command = format!("ip addr replace {source}/32 dev lo");
        world.exec("n3", &command).unwrap();
        let (from, to) = (format!("{source}:0"), to.clone());
        let sent = world.run_inside("n3", move || {
            let socket = std::net::UdpSocket::bind(from).unwrap();
            socket.send_to(b"x", to).unwrap();
        });
        sent.join().unwrap();
    };
    for source in ["10.244.2.99", "198.51.100.9"] {
        send(source);
    }
    // Packets of one peer keep their order: the first two have been dropped when this one arrives.
    send("10.244.3.99");
    let began = std::time::Instant::now();
    loop {
        let rules = world.exec("n1", "nft list table ip seen").unwrap();
        if rules.contains("counter packets 1 ") {
            break;
        }
        assert!(rules.contains("counter packets 0 "), "{rules}");
        assert!(began.elapsed().as_secs() < 20, "{rules}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[track_caller]
fn wait_until(subject: &str, mut expect: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !expect() {
        assert!(began.elapsed() < DEADLINE, "{subject}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn agent_publishes_its_key_and_follows_those_of_others() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    let (_, other) = cluster.sync_with_key("n2", true).unwrap();
    set_key(&mut cluster, 1, &other.unwrap());
    let server = Server::default();
    for node in &cluster.nodes {
        server.change("ADDED", serde_json::to_value(node).unwrap());
    }
    let port = server.start(&cluster, "n1");
    let arguments = ["--backend=wireguard"];
    let agent = Agent::start_with(&cluster, "n1", port, &arguments);
    let published = || server.patches.lock().unwrap().clone();
    wait_until("the key is published", || !published().is_empty());
    let (path, annotations) = published()[0].clone();
    assert_eq!(path, "/api/v1/nodes/n1");
    let key = annotations[KEY_ANNOTATION].as_str().unwrap().to_owned();
    assert!(key.parse::<PublicKey>().is_ok(), "{key}");
    set_key(&mut cluster, 0, &key.parse().unwrap());
    cluster.sync("n2");
    let pods = [("n1", "p1"), ("n2", "p2")].map(|(node, pod)| {
        wait_until("the plugin's configuration", || {
            has_configuration(&cluster, node)
        });
        let result = cluster.add_pod(node, pod);
        cluster.world.serve(pod, 8080);
        (pod.to_owned(), result)
    });
    check_pods(&cluster, &pods);
    // A killed agent leaves everything; the next one has the same key, and writes nothing.
    drop(agent);
    check_pods(&cluster, &pods);
    let route = "10.244.0.0/16 dev wireguard-pods";
    let delete_route = || {
        let command = format!("ip route del {route}");
        cluster.world.exec("n1", &command).unwrap();
    };
    delete_route();
    let _agent = Agent::start_with(&cluster, "n1", port, &arguments);
    // The second repair follows a whole sync.
    wait_until("a sync", || cluster.list_entries("n1").contains(route));
    delete_route();
    wait_until("a repair", || cluster.list_entries("n1").contains(route));
    check_pods(&cluster, &pods);
    assert_eq!(published().len(), 1);
    // Another program has changed the annotation, and removed the device.
    let mut node = serde_json::to_value(&cluster.nodes[0]).unwrap();
    node["metadata"]["annotations"] = serde_json::json!({});
    server.change("MODIFIED", node);
    wait_until("the key is published again", || published().len() > 1);
    assert_eq!(published()[1], published()[0]);
    let command = "ip link del wireguard-pods";
    cluster.world.exec("n1", command).unwrap();
    wait_until("the device is made again", || {
        cluster.list_entries("n1").contains(route)
    });
    check_pods(&cluster, &pods);
}

/// Without its key, no other node reaches its pods.
#[test]
fn node_is_ready_after_its_key_is_published_and_repaired_meanwhile() {
    let Some(cluster) = start_cluster() else {
        return;
    };
    let server = Server::default();
    server.holds_patches.store(true, Ordering::SeqCst);
    for node in &cluster.nodes {
        server.change("ADDED", serde_json::to_value(node).unwrap());
    }
    let port = server.start(&cluster, "n1");
    let _agent = Agent::start_with(&cluster, "n1", port, &["--backend=wireguard"]);
    let route = "10.244.0.0/16 dev wireguard-pods";
    wait_until("a sync", || cluster.list_entries("n1").contains(route));
    let command = format!("ip route del {route}");
    cluster.world.exec("n1", &command).unwrap();
    wait_until("a repair", || cluster.list_entries("n1").contains(route));
    assert!(server.patches.lock().unwrap().is_empty());
    assert!(!has_configuration(&cluster, "n1"));
    server.holds_patches.store(false, Ordering::SeqCst);
    wait_until("the plugin's configuration", || {
        has_configuration(&cluster, "n1")
    });
    assert_eq!(server.patches.lock().unwrap().len(), 1);
}

/// The device of the other backend does not remain, in both directions.
#[test]
fn change_of_the_backend_replaces_the_device() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    publish_keys(&mut cluster);
    cluster.set_backend(Backend::Vxlan);
    cluster.sync("n1");
    let entries = cluster.list_entries("n1");
    assert!(entries.contains("vxlan-pods"), "{entries}");
    assert!(!entries.contains("wireguard-pods"), "{entries}");
    cluster.set_backend(Backend::Wireguard);
    assert_eq!(cluster.sync("n1"), BTreeSet::new());
    let entries = cluster.list_entries("n1");
    assert!(!entries.contains("vxlan-pods"), "{entries}");
    assert!(entries.contains("wireguard-pods"), "{entries}");
}

#[test]
fn device_of_another_kind_is_not_used() {
    let Some(cluster) = start_cluster() else {
        return;
    };
    let exec = |command: &str| cluster.world.exec("n1", command).unwrap();
    exec("ip link add wireguard-pods type dummy");
    let failed = cluster.try_sync("n1", true).unwrap_err();
    let is_named = matches!(failed, SyncError::Kernel(KernelError::NotWireguard(_)));
    assert!(is_named, "{failed}");
    assert!(exec("ip -d link show wireguard-pods").contains("dummy"));
    assert!(!has_configuration(&cluster, "n1"));
}

#[test]
fn cleanup_removes_the_device_and_the_key() {
    let Some(cluster) = start_cluster() else {
        return;
    };
    let before = cluster.list_entries("n1");
    cluster.sync("n1");
    let settings = cluster.settings("n1");
    let command = format!(
        "{} --cleanup --cluster-cidr=10.244.0.0/16,fd00::/48 --cni-conf-dir={} --data-dir={}",
        env!("CARGO_BIN_EXE_ironclad-cni"),
        settings.conf_dir.display(),
        settings.data_dir.display()
    );
    cluster.world.exec("n1", &command).unwrap();
    assert_eq!(cluster.list_entries("n1"), before);
    assert!(!settings.data_dir.join("wireguard.key").exists());
}

fn has_configuration(cluster: &Cluster, node: &str) -> bool {
    let dir = cluster.settings(node).conf_dir;
    dir.join("10-ironclad.conflist").exists()
}

/// A kernel without WireGuard: the node is not ready, and nothing is sent unencrypted.
#[test]
fn kernel_without_wireguard_has_no_network() {
    let Some(mut cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    if has_wireguard(&cluster.world) {
        println!("skipped: the kernel has WireGuard");
        return;
    }
    for (name, _) in NODES {
        cluster.sync(name);
    }
    let pods = add_pods(&cluster);
    check_pods(&cluster, &pods);
    assert!(has_configuration(&cluster, "n1"));
    cluster.set_backend(Backend::Wireguard);
    let failed = cluster.try_sync("n1", true).unwrap_err();
    let is_named = matches!(failed, SyncError::Kernel(KernelError::NoWireguard));
    assert!(
        is_named && failed.to_string().contains("modprobe wireguard"),
        "{failed}"
    );
    assert!(!has_configuration(&cluster, "n1"));
    start_counters(&cluster);
    for is_v4 in [true, false] {
        let to = target(&address(&pods[1].1, is_v4));
        assert_eq!(cluster.world.connect("p1", &to, false), None);
    }
    assert_eq!(count_packets(&cluster, "n1").1, 0);
}
