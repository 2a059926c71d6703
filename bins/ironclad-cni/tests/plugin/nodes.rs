//! Pods of several nodes: `n1` and `n2` are on one link, `n3` is behind a router that
//! knows no address of a pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use net_link::{DeviceName, PublicKey};
use net_node::{Backend, NodeNetwork, NodeSettings, SyncError};
use serde_json::{Value, json};

use crate::world::{Call, World, address, run_script};

/// The problems of a sync, and the key to publish.
pub type Synced = (BTreeSet<String>, Option<PublicKey>);

/// Nodes with the networks of their links.
pub const NODES: [(&str, u8); 3] = [("n1", 1), ("n2", 1), ("n3", 2)];

pub struct Cluster {
    pub world: World,
    pub nodes: Vec<Arc<Node>>,
    backend: Backend,
}

fn addresses(name: &str, link: u8) -> [String; 2] {
    let host = &name[1..];
    [
        format!("192.0.{link}.{host}"),
        format!("2001:db8:{link}::{host}"),
    ]
}

impl Cluster {
    pub fn start(backend: Backend) -> Option<Self> {
        let world = World::create(&["router", "n1", "n2", "n3", "p1", "p2", "p3"])?;
        let router = world.name("router");
        for link in [1, 2] {
            run_script(&format!(
                "ip -n {router} link add br{link} type bridge
                 ip -n {router} addr add 192.0.{link}.254/24 dev br{link}
                 ip -n {router} addr add 2001:db8:{link}::254/64 dev br{link} nodad
                 ip -n {router} link set br{link} up"
            ))
            .unwrap();
        }
        world
            .exec("router", "sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'")
            .unwrap();
        for (name, link) in NODES {
            let node = world.name(name);
            let [v4, v6] = addresses(name, link);
            run_script(&format!(
                "ip -n {node} link add eth0 type veth peer name {name} netns {router}
                 ip -n {router} link set {name} master br{link} up
                 ip -n {node} addr add {v4}/24 dev eth0
                 ip -n {node} addr add {v6}/64 dev eth0 nodad
                 ip -n {node} link set eth0 up
                 ip -n {node} route add default via 192.0.{link}.254
                 ip -n {node} -6 route add default via 2001:db8:{link}::254"
            ))
            .unwrap();
        }
        let nodes = NODES.map(|(name, link)| read_node(name, link));
        Some(Self {
            world,
            nodes: nodes.to_vec(),
            backend,
        })
    }

    /// Makes later syncs use another backend, as agents that are started again.
    pub fn set_backend(&mut self, backend: Backend) {
        self.backend = backend;
    }

    pub fn settings(&self, node: &str) -> NodeSettings {
        let data = self.world.data.path();
        NodeSettings {
            node_name: node.to_owned(),
            cluster_ranges: ["10.244.0.0/16", "fd00::/48"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            bridge: DeviceName::parse("cni0").unwrap(),
            backend: self.backend,
            vxlan_device: DeviceName::parse("vxlan-pods").unwrap(),
            vni: 1,
            vxlan_port: 8472,
            wireguard_device: DeviceName::parse("wireguard-pods").unwrap(),
            wireguard_port: 51_820,
            mtu: None,
            masquerade: true,
            api_server: Some("192.0.1.3".parse().unwrap()),
            conf_dir: data.join(node).join("net.d"),
            data_dir: data.join(node).join("data"),
        }
    }

    /// Makes the network of a node, as its agent does at its start. Returns the problems.
    pub fn sync(&self, node: &str) -> BTreeSet<String> {
        self.try_sync(node, true).unwrap()
    }

    /// As `sync`, with or without a working nft.
    pub fn try_sync(&self, node: &str, has_nft: bool) -> Result<BTreeSet<String>, SyncError> {
        self.sync_with_key(node, has_nft)
            .map(|(problems, _)| problems)
    }

    /// As `try_sync`. Returns the key that the agent would publish, too.
    pub fn sync_with_key(&self, node: &str, has_nft: bool) -> Result<Synced, SyncError> {
        let (settings, nodes) = (self.settings(node), self.nodes.clone());
        let synced = self.world.run_inside(node, move || {
            // Its processes are started by this thread, in its namespace.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut network = NodeNetwork::new(settings);
                network.remove_foreign_conflist().unwrap();
                let apply = |rules: String| async move {
                    match has_nft {
                        true => net_nft::apply_commands(&rules).await,
                        false => Err(net_nft::Error::Rejected("no module".into())),
                    }
                };
                // A failure is that of the sync, too.
                let _ = network.ensure_drops(apply).await;
                let problems = network.sync(&nodes, apply).await?;
                Ok((problems, network.unpublished_key()))
            })
        });
        synced.join().unwrap()
    }

    /// Adds a pod with the configuration that the agent wrote, as a runtime passes it.
    pub fn add_pod(&self, node: &str, pod: &str) -> Value {
        self.add_pod_with(node, pod, json!([]))
    }

    /// Adds a pod with host ports.
    pub fn add_pod_with(&self, node: &str, pod: &str, mappings: Value) -> Value {
        let file = self.settings(node).conf_dir.join("10-ironclad.conflist");
        let list: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let mut config = list["plugins"][0].clone();
        config["cniVersion"] = list["cniVersion"].clone();
        config["name"] = list["name"].clone();
        config["runtimeConfig"] = json!({ "portMappings": mappings });
        let call = Call {
            node,
            ..Call::new("ADD", pod)
        };
        self.world.call(&call, &config).unwrap()
    }

    /// Lists the kernel's entries that belong to the pod network.
    pub fn list_entries(&self, node: &str) -> String {
        let commands = [
            "ip -4 route show proto 120",
            "ip -6 route show proto 120",
            "ip -o link show vxlan-pods",
            "ip -o link show wireguard-pods",
            "ip neigh show dev vxlan-pods nud permanent",
            "bridge fdb show dev vxlan-pods",
            "nft list tables",
        ];
        let listed = commands.map(|command| self.world.exec(node, command).unwrap_or_default());
        // Discovery of IPv6 takes place on each device.
        listed
            .concat()
            .lines()
            .filter(|line| !line.contains("33:33:"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn read_node(name: &str, link: u8) -> Arc<Node> {
    let number = &name[1..];
    let addresses =
        addresses(name, link).map(|address| json!({ "type": "InternalIP", "address": address }));
    let tree = json!({
        "metadata": { "name": name, "creationTimestamp": "2024-01-01T00:00:00Z" },
        "spec": { "podCIDRs": [format!("10.244.{number}.0/24"), format!("fd00:0:0:{number}::/64")] },
        "status": { "addresses": addresses },
    });
    Arc::new(serde_json::from_value(tree).unwrap())
}

pub fn target(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]:8080"),
        false => format!("{address}:8080"),
    }
}

/// Syncs all nodes, adds a pod to each, and connects them with each other.
#[track_caller]
fn check_connections(cluster: &Cluster) {
    for (name, _) in NODES {
        assert_eq!(cluster.sync(name), BTreeSet::new(), "{name}");
    }
    let pods = NODES.map(|(name, _)| {
        let pod = name.replace('n', "p");
        let result = cluster.add_pod(name, &pod);
        cluster.world.serve(&pod, 8080);
        (pod, result)
    });
    for (from, own) in &pods {
        for (to, other) in &pods {
            for is_v4 in [true, false] {
                let to_address = target(&address(other, is_v4));
                let seen = cluster.world.connect(from, &to_address, true);
                assert_eq!(
                    seen,
                    Some(address(own, is_v4)),
                    "{from} {to}\n{}",
                    cluster.list_entries("n1")
                );
            }
        }
    }
    // A node reaches the pods of others, and they see its address of its own range.
    for is_v4 in [true, false] {
        let to_address = target(&address(&pods[2].1, is_v4));
        let seen = cluster.world.connect("n1", &to_address, true);
        let gateway = if is_v4 { "10.244.1.1" } else { "fd00:0:0:1::1" };
        assert_eq!(seen.as_deref(), Some(gateway));
    }
}

/// Makes Services on `n1` as kube-proxy does: an address of the cluster, and a port of the node
/// whose connections are masqueraded.
fn add_services(cluster: &Cluster, pod: &Value) {
    for (family, is_v4) in [("ip", true), ("ip6", false)] {
        let pod = target(&address(pod, is_v4));
        let service = if is_v4 { "10.96.0.1" } else { "fd10::1" };
        let rules = format!(
            "table {family} services {{
                chain translate {{
                    {family} daddr {service} tcp dport 80 dnat to {pod}
                    fib daddr type local tcp dport 30080 meta mark set meta mark or 0x4000 dnat to {pod}
                }}
                chain output {{ type nat hook output priority -100; jump translate; }}
                chain prerouting {{ type nat hook prerouting priority -100; jump translate; }}
                chain postrouting {{
                    type nat hook postrouting priority srcnat;
                    meta mark and 0x4000 == 0x4000 masquerade fully-random
                }}
            }}"
        );
        let command = format!("nft '{rules}'");
        cluster.world.exec("n1", &command).unwrap();
    }
}

#[test]
fn services_lead_through_the_tunnel() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    for (name, _) in NODES {
        cluster.sync(name);
    }
    let own = cluster.add_pod("n1", "p1");
    let other = cluster.add_pod("n3", "p3");
    cluster.world.serve("p3", 8080);
    add_services(&cluster, &other);
    for (from, to, is_v4) in [
        ("n1", "10.96.0.1:80", true),
        ("n1", "[fd10::1]:80", false),
        ("n1", "192.0.1.1:30080", true),
        ("n1", "[2001:db8:1::1]:30080", false),
        ("router", "192.0.1.1:30080", true),
        ("router", "[2001:db8:1::1]:30080", false),
        ("p1", "192.0.1.1:30080", true),
        ("p1", "[2001:db8:1::1]:30080", false),
    ] {
        let seen = cluster.world.connect(from, to, true);
        let gateway = if is_v4 { "10.244.1.1" } else { "fd00:0:0:1::1" };
        assert_eq!(seen.as_deref(), Some(gateway), "{from} {to}");
    }
    // A pod's address is kept without masquerading.
    for (to, is_v4) in [("10.96.0.1:80", true), ("[fd10::1]:80", false)] {
        let seen = cluster.world.connect("p1", to, true);
        assert_eq!(seen, Some(address(&own, is_v4)), "{to}");
    }
}

/// A Node that is registered again gets another range; another node may get the former one.
#[test]
fn former_range_and_packet_size_do_not_remain() {
    let Some(mut cluster) = Cluster::start(Backend::Vxlan) else {
        return;
    };
    let exec = |cluster: &Cluster, command: &str| cluster.world.exec("n1", command).unwrap();
    cluster.sync("n1");
    let change = |node: &Arc<Node>, number: u8| {
        let mut node = (**node).clone();
        let ranges = vec![
            format!("10.244.{number}.0/24"),
            format!("fd00:0:0:{number}::/64"),
        ];
        node.spec.as_mut().unwrap().pod_cidrs = Some(ranges);
        Arc::new(node)
    };
    cluster.nodes[0] = change(&cluster.nodes[0], 9);
    cluster.nodes[2] = change(&cluster.nodes[2], 1);
    exec(&cluster, "ip link set eth0 mtu 1400");
    assert_eq!(cluster.sync("n1"), BTreeSet::new());
    let addresses = exec(&cluster, "ip -o addr show");
    for former in ["10.244.1.1", "fd00:0:0:1::1"] {
        assert!(!addresses.contains(former), "{addresses}");
    }
    let routes = exec(&cluster, "ip route show");
    assert!(
        routes.contains("10.244.1.0/24 via 10.244.1.1 dev vxlan-pods"),
        "{routes}"
    );
    let mtu = exec(&cluster, "cat /sys/class/net/cni0/mtu");
    assert_eq!(mtu.trim(), "1350");
}

/// A node that was taken over names the addresses of a default gateway and of the API server.
#[test]
fn named_gateway_and_api_server_keep_their_way_to_pods() {
    let Some(mut cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    for (number, address) in [(7, "192.0.1.254"), (8, "192.0.1.3"), (9, "192.0.1.77")] {
        let tree = json!({
            "metadata": { "name": format!("x{number}"), "creationTimestamp": "2024-02-01T00:00:00Z" },
            "spec": { "podCIDRs": [format!("10.244.{number}.0/24")] },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
        });
        let node = serde_json::from_value(tree).unwrap();
        cluster.nodes.push(Arc::new(node));
    }
    assert_eq!(cluster.sync("n1"), BTreeSet::new());
    let command = "nft list set ip pods-cni0 nodes";
    let nodes = cluster.world.exec("n1", command).unwrap();
    assert!(nodes.contains("192.0.1.77"), "{nodes}");
    assert!(
        !nodes.contains("192.0.1.254") && !nodes.contains("192.0.1.3"),
        "{nodes}"
    );
    cluster.add_pod("n1", "p1");
    cluster.world.serve("router", 8080);
    let seen = cluster.world.connect("p1", "192.0.1.254:8080", true);
    assert_eq!(seen.as_deref(), Some("192.0.1.1"));
}

/// Without its rules, the tunnel would be open to all.
#[test]
fn tunnel_is_not_made_without_rules() {
    let Some(cluster) = Cluster::start(Backend::Vxlan) else {
        return;
    };
    let before = cluster.list_entries("n1");
    assert!(cluster.try_sync("n1", false).is_err());
    assert_eq!(cluster.list_entries("n1"), before);
    assert!(!cluster.settings("n1").conf_dir.exists());
    cluster.sync("n1");
    assert!(cluster.list_entries("n1").contains("vxlan-pods"));
}

#[test]
fn pods_of_a_link_have_routes_and_those_elsewhere_a_tunnel() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    check_connections(&cluster);
    let entries = cluster.list_entries("n1");
    assert!(
        entries.contains("10.244.2.0/24 via 192.0.1.2 dev eth0"),
        "{entries}"
    );
    assert!(
        entries.contains("10.244.3.0/24 via 10.244.3.1 dev vxlan-pods"),
        "{entries}"
    );
    // A second sync, as after a restart, changes nothing.
    assert_eq!(cluster.sync("n1"), BTreeSet::new());
    assert_eq!(cluster.list_entries("n1"), entries);
    // The outside sees the node's address; a node of the link, the pod's own.
    cluster.world.serve("router", 8080);
    cluster.world.serve("n2", 8080);
    let connect = |to| cluster.world.connect("p1", to, true);
    assert_eq!(connect("192.0.2.254:8080").as_deref(), Some("192.0.1.1"));
    assert_eq!(
        connect("[2001:db8:2::254]:8080").as_deref(),
        Some("2001:db8:1::1")
    );
    let own = cluster.world.exec("p1", "ip -4 -o addr show eth0").unwrap();
    let seen = connect("192.0.1.2:8080").unwrap();
    assert!(own.contains(&seen), "{seen}: {own}");
}

#[test]
fn tunnels_alone_connect_all_pods() {
    let Some(cluster) = Cluster::start(Backend::Vxlan) else {
        return;
    };
    check_connections(&cluster);
    let mtu = cluster
        .world
        .exec("p1", "cat /sys/class/net/eth0/mtu")
        .unwrap();
    assert_eq!(mtu.trim(), "1450");
}

#[test]
fn entries_of_deleted_nodes_are_removed_and_cleanup_removes_all() {
    let Some(mut cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    let before = cluster.list_entries("n1");
    cluster.sync("n1");
    cluster.nodes.truncate(1);
    cluster.sync("n1");
    let entries = cluster.list_entries("n1");
    assert!(
        !entries.contains("via") && !entries.contains("dst"),
        "{entries}"
    );
    assert!(!entries.contains("PERMANENT"), "{entries}");
    let data = cluster.world.data.path().join("n1");
    let program = env!("CARGO_BIN_EXE_ironclad-cni");
    let command = format!(
        "{program} --cleanup --cluster-cidr=10.244.0.0/16 --cni-conf-dir={}",
        data.join("net.d").display()
    );
    cluster.world.exec("n1", &command).unwrap();
    assert_eq!(cluster.list_entries("n1"), before);
    assert!(cluster.world.exec("n1", "ip link show cni0").is_err());
    assert_eq!(std::fs::read_dir(data.join("net.d")).unwrap().count(), 0);
}

/// VXLAN has no authentication: packets of others, and of pods, must not reach it.
#[test]
fn tunnel_accepts_packets_of_nodes_only() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    for (name, _) in NODES {
        cluster.sync(name);
    }
    cluster.add_pod("n1", "p1");
    let dropped = || {
        let tables = ["ip", "ip6"].map(|family| {
            cluster
                .world
                .exec("n1", &format!("nft list table {family} pods-cni0"))
                .unwrap()
        });
        tables.concat()
    };
    // An inner packet for the pod, sent by the router, and by a pod of the node.
    cluster
        .world
        .exec(
            "n1",
            "nft add chain ip pods-cni0 seen '{ type filter hook input priority 0; }'",
        )
        .unwrap();
    cluster
        .world
        .exec(
            "n1",
            "nft add rule ip pods-cni0 seen udp dport 8472 counter",
        )
        .unwrap();
    for (from, to) in [
        ("router", "192.0.1.1"),
        ("p1", "192.0.1.1"),
        ("p1", "10.244.1.1"),
    ] {
        let to = format!("{to}:8472");
        let sent = cluster.world.run_inside(from, move || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(&[8, 0, 0, 0, 0, 0, 1, 0], to).unwrap();
        });
        sent.join().unwrap();
    }
    let rules = dropped();
    assert!(rules.contains("counter packets 0 bytes 0"), "{rules}");
    let sent = cluster.world.run_inside("n3", || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        socket
            .send_to(&[8, 0, 0, 0, 0, 0, 1, 0], "192.0.1.1:8472")
            .unwrap();
    });
    sent.join().unwrap();
    let rules = dropped();
    assert!(rules.contains("counter packets 1 "), "{rules}");
}

/// Pods have CAP_NET_RAW by default.
#[test]
fn pod_does_not_send_with_the_address_of_another() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    for (name, _) in NODES {
        cluster.sync(name);
    }
    cluster.add_pod("n1", "p1");
    let world = &cluster.world;
    world
        .exec("p1", "ip addr add 10.244.3.77/32 dev eth0")
        .unwrap();
    let counter = "nft 'table ip seen { chain c { type filter hook prerouting priority -350; \
                   ip saddr 10.244.3.77 counter; }; }'";
    world.exec("n2", counter).unwrap();
    let count = || {
        let sent = world.run_inside("p1", || {
            let socket = std::net::UdpSocket::bind("10.244.3.77:0").unwrap();
            socket.send_to(b"x", "192.0.1.2:9000").unwrap();
        });
        sent.join().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        world.exec("n2", "nft list table ip seen").unwrap()
    };
    let rules = count();
    assert!(rules.contains("counter packets 0 "), "{rules}");
    // Without the rules the packet arrives: it is they that drop it.
    world.exec("n1", "nft delete table ip pods-cni0").unwrap();
    let rules = count();
    assert!(rules.contains("counter packets 1 "), "{rules}");
}

/// A node that was taken over must not send with addresses of the receiver's pods or of the
/// outside, nor to other destinations.
#[test]
fn inner_addresses_of_the_tunnel_are_checked() {
    let Some(cluster) = Cluster::start(Backend::Auto) else {
        return;
    };
    for (name, _) in NODES {
        cluster.sync(name);
    }
    let pod = address(&cluster.add_pod("n1", "p1"), true);
    let world = &cluster.world;
    world.exec("n3", "nft flush ruleset").unwrap();
    let counter = "nft 'table ip seen { chain c { type filter hook prerouting priority -290; \
                   iifname \"vxlan-pods\" counter; }; }'";
    world.exec("n1", counter).unwrap();
    world
        .exec(
            "n3",
            "ip route add 203.0.113.0/24 via 10.244.1.1 dev vxlan-pods onlink",
        )
        .unwrap();
    let send = |source: &str, to: String| {
        world
            .exec("n3", &format!("ip addr replace {source}/32 dev lo"))
            .unwrap();
        let from = format!("{source}:0");
        let sent = world.run_inside("n3", move || {
            let socket = std::net::UdpSocket::bind(from).unwrap();
            socket.send_to(b"x", to).unwrap();
        });
        sent.join().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        world.exec("n1", "nft list table ip seen").unwrap()
    };
    for (source, to) in [
        ("198.51.100.9", format!("{pod}:9000")),
        ("10.244.1.99", format!("{pod}:9000")),
        ("10.244.3.99", "203.0.113.1:9000".to_owned()),
    ] {
        let rules = send(source, to);
        assert!(rules.contains("counter packets 0 "), "{source}: {rules}");
    }
    let rules = send("10.244.3.99", format!("{pod}:9000"));
    assert!(rules.contains("counter packets 1 "), "{rules}");
}
