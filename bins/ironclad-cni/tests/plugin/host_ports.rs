//! Ports of the node that lead to pods.

use serde_json::{Value, json};

use crate::world::{Call, World, address};

fn with_ports(world: &World, mappings: Value) -> Value {
    let mut config = world.config();
    config["capabilities"] = json!({ "portMappings": true });
    config["runtimeConfig"]["portMappings"] = mappings;
    config
}

#[test]
fn host_port_leads_to_the_pod_from_everywhere() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let config = with_ports(
        &world,
        json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]),
    );
    let a = world.call(&Call::new("ADD", "a"), &config).unwrap();
    let b = world.add("b");
    world.serve("a", 80);
    let connect = |from, to| world.connect(from, to, true);
    // The source is kept, except where the answer would not come back.
    assert_eq!(
        connect("outside", "192.0.2.1:8080").as_deref(),
        Some("192.0.2.2")
    );
    assert_eq!(
        connect("outside", "[2001:db8::1]:8080").as_deref(),
        Some("2001:db8::2")
    );
    for to in [
        "192.0.2.1:8080",
        "[2001:db8::1]:8080",
        "127.0.0.1:8080",
        "10.244.0.1:8080",
    ] {
        assert!(connect("node", to).is_some(), "{to}");
    }
    for from in ["a", "b"] {
        for to in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
            assert!(connect(from, to).is_some(), "{from} {to}");
        }
    }
    // Connections to the pod's own port are not translated.
    let seen = connect("b", &format!("{}:80", address(&a, true)));
    assert_eq!(seen, Some(address(&b, true)));
}

#[test]
fn host_port_of_an_address_or_family_leads_there_only() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    world
        .exec("node", "ip addr add 192.0.2.9/24 dev up0")
        .unwrap();
    let config = with_ports(
        &world,
        json!([
            { "hostPort": 8080, "containerPort": 80, "hostIP": "192.0.2.9" },
            { "hostPort": 8081, "containerPort": 80, "hostIP": "::" },
            { "hostPort": 8082, "containerPort": 80, "hostIP": "127.0.0.1" },
        ]),
    );
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    world.serve("a", 80);
    for (from, to, expect) in [
        ("outside", "192.0.2.9:8080", true),
        ("outside", "192.0.2.1:8080", false),
        ("outside", "[2001:db8::1]:8081", true),
        ("outside", "192.0.2.1:8081", false),
        ("node", "127.0.0.1:8082", true),
        ("outside", "192.0.2.1:8082", false),
    ] {
        let found = world.connect(from, to, expect).is_some();
        assert_eq!(found, expect, "{from} {to}");
    }
}

#[test]
fn host_port_of_another_pod_is_refused_and_the_others_stay() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let config = with_ports(&world, json!([{ "hostPort": 8080, "containerPort": 80 }]));
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    let error = world.call(&Call::new("ADD", "b"), &config).unwrap_err();
    assert_eq!(error["code"], 102, "{error}");
    let other = with_ports(&world, json!([{ "hostPort": 8081, "containerPort": 80 }]));
    world.call(&Call::new("ADD", "b"), &other).unwrap();
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    world.serve("b", 80);
    assert!(world.connect("outside", "192.0.2.1:8081", true).is_some());
    assert!(world.connect("outside", "192.0.2.1:8080", false).is_none());
}

#[test]
fn networks_with_one_bridge_keep_each_others_host_ports() {
    let Some(world) = World::start(&["a", "b", "c"]) else {
        return;
    };
    let network = |name: &str, subnet: &str, port: u16| {
        let mut config = with_ports(&world, json!([{ "hostPort": port, "containerPort": 80 }]));
        config["name"] = json!(name);
        config["ipam"]["ranges"] = json!([[{ "subnet": subnet }]]);
        config
    };
    let one = network("one", "10.244.0.0/24", 8081);
    world.call(&Call::new("ADD", "a"), &one).unwrap();
    let taken = network("two", "10.245.0.0/24", 8081);
    let error = world.call(&Call::new("ADD", "b"), &taken).unwrap_err();
    assert_eq!(error["code"], 102, "{error}");
    let two = network("two", "10.245.0.0/24", 8082);
    world.call(&Call::new("ADD", "b"), &two).unwrap();
    world.serve("a", 80);
    world.serve("b", 80);
    for to in ["192.0.2.1:8081", "192.0.2.1:8082", "127.0.0.1:8081"] {
        assert!(world.connect("node", to, true).is_some(), "{to}");
    }
    // A deletion with another bridge in the configuration closes the port nevertheless.
    let mut other = two.clone();
    other["bridge"] = json!("cni1");
    world.call(&Call::new("DEL", "b"), &other).unwrap();
    let rules = world.exec("node", "nft list ruleset").unwrap();
    assert!(rules.contains("8081") && !rules.contains("8082"), "{rules}");
    assert!(world.connect("node", "127.0.0.1:8081", true).is_some());
}

/// The kernel sends packets of a tracked connection where it sent the first one.
#[test]
fn connections_of_udp_host_ports_end_with_the_pod() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let config = with_ports(
        &world,
        json!([{ "hostPort": 5000, "containerPort": 80, "protocol": "UDP" }]),
    );
    let send = |from: &str, to: &str| {
        let to = to.to_owned();
        let sent = world.run_inside(from, move || {
            let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
            let to: std::net::SocketAddr = to.parse().unwrap();
            let to = match to.ip() {
                std::net::IpAddr::V4(ip) => (ip.to_ipv6_mapped(), to.port()).into(),
                std::net::IpAddr::V6(_) => to,
            };
            socket.send_to(b"x", to).unwrap();
        });
        sent.join().unwrap();
    };
    let list = |family: &str| {
        let command = format!("conntrack -L -f {family} -p udp");
        world.exec("node", &command).unwrap()
    };
    let families = ["ipv4", "ipv6"];
    world.add("b");
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    for to in ["192.0.2.1:5000", "[2001:db8::1]:5000"] {
        send("outside", to);
    }
    send("b", "192.0.2.2:5000");
    for family in families {
        assert!(list(family).contains("sport=80"), "{}", list(family));
    }
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    for family in families {
        assert!(!list(family).contains("sport=80"), "{}", list(family));
    }
    // A pod's connection to another host with this port stays.
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    assert!(list("ipv4").contains("dst=192.0.2.2"), "{}", list("ipv4"));
}

/// A runtime deletes a pod after a failed addition, with the same configuration.
#[test]
fn pod_with_invalid_host_ports_is_refused_and_can_be_deleted() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    for mappings in [
        json!([{ "hostPort": 70000, "containerPort": 80 }]),
        json!([{}]),
        json!(5),
    ] {
        let config = with_ports(&world, mappings);
        let error = world.call(&Call::new("ADD", "a"), &config).unwrap_err();
        assert_eq!(error["code"], 7, "{error}");
        world.call(&Call::new("DEL", "a"), &config).unwrap();
    }
    let mut config = world.config();
    config["runtimeConfig"] = json!({ "aliases": ["a"] });
    let error = world.call(&Call::new("ADD", "a"), &config).unwrap_err();
    assert_eq!(error["code"], 7, "{error}");
}

/// CVE-2020-8558: host ports on the loopback address must not open the node's local services.
#[test]
fn pod_does_not_reach_local_services_of_the_node() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let config = with_ports(&world, json!([{ "hostPort": 8080, "containerPort": 80 }]));
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    world.serve("node", 9000);
    world
        .exec(
            "a",
            "sh -c 'ip route del local 127.0.0.0/8 dev lo table local; ip route del local 127.0.0.1 dev lo table local; \
             ip addr flush dev lo; ip route add 127.0.0.0/8 via 10.244.0.1; \
             echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet' || true",
        )
        .unwrap();
    assert!(world.connect("a", "10.244.0.1:9000", true).is_some());
    assert!(world.connect("a", "127.0.0.1:9000", false).is_none());
    let guard = "nft delete chain ip hostports-cni0 loopback-guard";
    world.exec("node", guard).unwrap();
    assert!(
        world.connect("a", "127.0.0.1:9000", true).is_some(),
        "the test does not reach the guard"
    );
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    let left = "cat /proc/sys/net/ipv4/conf/cni0/route_localnet";
    assert_eq!(world.exec("node", left).unwrap().trim(), "0");
}
