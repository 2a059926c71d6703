//! Packets pass or not, as the policies say.

use std::time::Instant;

use net_nft::Family;
use net_policy::{GuardedNetwork, PolicyState};
use serde_json::{Value, json};
use testkit_network::Transport::{Sctp, Udp};
use testkit_network::{DEADLINE, DROPPED, OUTSIDE, PODS, exchange, exchange_datagrams, run_script};

use crate::world::World;

const A: &str = "10.244.0.2:8080";
const B: &str = "10.244.0.3:8080";
const B_OTHER: &str = "10.244.0.3:8081";
const B6: &str = "[fd00::3]:8080";
const B6_OTHER: &str = "[fd00::3]:8081";
const SERVER: &str = "192.0.2.2:8080";
const SERVER_EXCEPTED: &str = "192.0.2.3:8080";
const SERVER6: &str = "[2001:db8::2]:8080";

/// A world with servers everywhere and the rules of its pods a (client), b (server) and c (other).
fn world() -> Option<World> {
    let mut world = World::start()?;
    for place in ["a", "b", OUTSIDE] {
        world.serve(place);
    }
    world
        .state
        .set_namespace("ns", Some([("team".to_owned(), "x".to_owned())].into()));
    world.set_pod("a", json!({ "app": "client" }), true);
    world.set_pod("b", json!({ "app": "server" }), true);
    world.set_pod("c", json!({ "app": "other" }), true);
    world.install();
    Some(world)
}

fn for_server(rest: Value) -> Value {
    with_selector("server", rest)
}

fn with_selector(app: &str, rest: Value) -> Value {
    let mut spec = json!({ "podSelector": { "matchLabels": { "app": app } } });
    spec.as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    spec
}

#[test]
fn ingress_is_denied_and_allowed_by_pods_ports_and_names() {
    let Some(mut world) = world() else { return };
    for to in [B, B6] {
        world.check("a", to, true);
        world.check(OUTSIDE, to, true);
    }
    world.set_policy("p", for_server(json!({})));
    world.sync();
    for to in [B, B6] {
        world.check("a", to, false);
        world.check(OUTSIDE, to, false);
        world.check("node", to, true);
    }
    assert!(!world.reaches("a", B, Udp, false));
    world.check("b", SERVER, true);
    world.check("b", A, true);

    let client = json!({ "podSelector": { "matchLabels": { "app": "client" } } });
    world.set_policy(
        "p",
        for_server(json!({ "ingress": [{ "from": [client], "ports": [{ "port": "web" }] }] })),
    );
    world.sync();
    for (to, other) in [(B, B_OTHER), (B6, B6_OTHER)] {
        world.check("a", to, true);
        world.check("a", other, false);
        world.check("c", to, false);
        assert!(!world.reaches("a", to, Udp, false), "the name is of TCP");
    }
    world.set_pod("c", json!({ "app": "client" }), true);
    world.sync();
    world.check("c", B, true);

    world.set_policy(
        "p",
        for_server(json!({ "ingress": [{ "ports": [{ "port": 8000, "endPort": 8080, "protocol": "UDP" }] }] })),
    );
    world.sync();
    assert!(world.reaches("a", B, Udp, true));
    assert!(world.reaches(OUTSIDE, B6, Udp, true));
    assert!(!world.reaches("a", B_OTHER, Udp, false));
    world.check("a", B, false);

    world.delete_policy("p");
    world.sync();
    world.check("a", B, true);
    world.check(OUTSIDE, B6_OTHER, true);
}

#[test]
fn sctp_is_denied_and_allowed_by_ports_names_and_blocks() {
    let Some(mut world) = world() else { return };
    for place in ["a", "b", OUTSIDE] {
        if let Err(reason) = world.serve_sctp(place) {
            println!("skipped: no sockets of SCTP: {reason}");
            return;
        }
    }
    let check = |world: &World, from: &str, to: &str, expect: bool| {
        let found = world.reaches(from, to, Sctp, expect);
        assert_eq!(found, expect, "{from} to {to}\n{}", world.list_rules());
    };
    for to in [B, B6] {
        check(&world, "a", to, true);
        check(&world, OUTSIDE, to, true);
    }
    world.set_policy("p", for_server(json!({})));
    world.sync();
    for to in [B, B6] {
        check(&world, "a", to, false);
        check(&world, OUTSIDE, to, false);
    }
    // By its number, by a range and by its name: no other port, and no other protocol.
    for port in [
        json!({ "port": 8080, "protocol": "SCTP" }),
        json!({ "port": 8000, "endPort": 8080, "protocol": "SCTP" }),
        json!({ "port": "sctp-web", "protocol": "SCTP" }),
    ] {
        let client = json!({ "podSelector": { "matchLabels": { "app": "client" } } });
        let ingress = json!({ "ingress": [{ "from": [client], "ports": [port] }] });
        world.set_policy("p", for_server(ingress));
        world.sync();
        for (to, other) in [(B, B_OTHER), (B6, B6_OTHER)] {
            check(&world, "a", to, true);
            check(&world, "a", other, false);
            check(&world, "c", to, false);
            world.check("a", to, false);
            assert!(!world.reaches("a", to, Udp, false), "{port}");
        }
    }
    world.delete_policy("p");
    let blocks = json!([{ "to": [{ "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.3/32"] } }],
        "ports": [{ "port": 8080, "protocol": "SCTP" }] }]);
    let egress = json!({ "policyTypes": ["Egress"], "egress": blocks });
    world.set_policy("q", with_selector("client", egress));
    world.sync();
    check(&world, "a", SERVER, true);
    for to in [SERVER_EXCEPTED, SERVER6, B] {
        check(&world, "a", to, false);
    }
    world.check("a", SERVER, false);
}

#[test]
fn egress_is_denied_and_allowed_by_blocks_and_named_ports() {
    let Some(mut world) = world() else { return };
    let egress = |rules: Value| {
        with_selector(
            "client",
            json!({ "policyTypes": ["Egress"], "egress": rules }),
        )
    };
    world.set_policy("p", egress(json!([])));
    world.sync();
    for to in [B, B6, SERVER, SERVER6] {
        world.check("a", to, false);
    }
    // The node of the pod, and connections to the pod.
    world.check("c", A, true);
    world.serve("node");
    world.check("a", "10.244.0.1:8080", true);

    let blocks = json!([{ "to": [
        { "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.3/32"] } },
        { "ipBlock": { "cidr": "::/0", "except": ["fd00::/64"] } }] }]);
    world.set_policy("p", egress(blocks));
    world.sync();
    world.check("a", SERVER, true);
    world.check("a", SERVER_EXCEPTED, false);
    world.check("a", SERVER6, true);
    world.check("a", B6, false);

    let named = json!([{ "to": [{ "namespaceSelector": { "matchLabels": { "team": "x" } } }], "ports": [{ "port": "web" }] }]);
    world.set_policy("p", egress(named));
    world.sync();
    for (to, other) in [(B, B_OTHER), (B6, B6_OTHER)] {
        world.check("a", to, true);
        world.check("a", other, false);
    }
    world.check("a", SERVER, false);
    world
        .state
        .set_namespace("ns", Some([("team".to_owned(), "y".to_owned())].into()));
    world.sync();
    world.check("a", B, false);
}

/// A Service, as kube-proxy translates it: policies see the address of the pod.
#[test]
fn policies_apply_to_pods_behind_services() {
    let Some(mut world) = world() else { return };
    world.nft(
        "table ip services {
           chain prerouting { type nat hook prerouting priority dstnat; ip daddr 10.96.0.7 tcp dport 80 dnat to 10.244.0.3:8080; }
           chain postrouting { type nat hook postrouting priority srcnat; ip saddr 10.244.0.3 ip daddr 10.244.0.3 masquerade; }
         }\n",
    );
    let service = "10.96.0.7:80";
    let client = json!({ "podSelector": { "matchLabels": { "app": "client" } } });
    world.set_policy(
        "p",
        for_server(json!({ "ingress": [{ "from": [client], "ports": [{ "port": 8080 }] }] })),
    );
    world.sync();
    world.check("a", service, true);
    world.check("c", service, false);
    world.check("b", service, true);
}

#[test]
fn connections_that_exist_stay_when_a_policy_denies_new_ones() {
    let Some(mut world) = world() else { return };
    let mut stream = world.open("a", B);
    world.set_policy("p", for_server(json!({})));
    world.sync();
    assert!(exchange(&mut stream));
    world.check("a", B, false);
}

/// The next pod with an address must not get packets of its predecessor's peers.
#[test]
fn datagrams_of_an_existing_connection_end_with_the_pod() {
    let Some(mut world) = world() else { return };
    let socket = world.open_datagrams("a", B);
    world.set_policy("p", for_server(json!({})));
    world.sync();
    world.delete_stale_connections();
    assert!(exchange_datagrams(&socket, DEADLINE), "it exists");
    world.state.set_pod("ns/b", None);
    world.sync();
    world.delete_stale_connections();
    world.set_pod("b", json!({ "app": "server" }), true);
    world.sync();
    assert!(!exchange_datagrams(&socket, DROPPED));
}

/// A SYN with the addresses and ports of a tracked connection counts as a packet of that
/// connection.
#[test]
fn connection_to_a_deleted_pod_does_not_open_its_successor() {
    const CLIENT_PORT: u16 = 40_000;
    for opened_after_release in [false, true] {
        let Some(mut world) = world() else { return };
        let open = |world: &World, wait| {
            [B, B6].map(|to| world.open_from_port("a", CLIENT_PORT, to, wait))
        };
        let mut streams = Vec::new();
        if !opened_after_release {
            streams.extend(open(&world, DEADLINE));
        }
        world.state.set_pod("ns/b", None);
        world.sync();
        world.delete_stale_connections();
        if opened_after_release {
            // Containers of a pod that was deleted with force may run on.
            streams.extend(open(&world, DEADLINE));
        }
        assert!(streams.iter().all(Option::is_some), "{streams:?}");
        world.set_policy("p", for_server(json!({})));
        world.sync();
        world.replace_pod("a");
        world.replace_pod("b");
        world.serve("b");
        world.set_pod("b", json!({ "app": "server" }), true);
        world.sync();
        world.delete_stale_connections();
        let again = open(&world, DROPPED);
        assert!(
            again.iter().all(Option::is_none),
            "opened after release: {opened_after_release}, {again:?}"
        );
    }
}

#[test]
fn starting_pod_is_isolated_before_its_address_is_known() {
    let Some(mut world) = world() else { return };
    world.set_pod("a", json!({ "app": "client" }), false);
    world.set_policy(
        "p",
        with_selector("client", json!({ "policyTypes": ["Ingress", "Egress"] })),
    );
    world.sync();
    world.check("a", SERVER, false);
    world.check("c", A, false);
    world.check("c", SERVER, true);
    world.set_pod("a", json!({ "app": "free" }), true);
    world.sync();
    world.check("a", SERVER, true);

    // As after a reboot: nothing is known.
    let closed = world.state.closed_commands();
    world.nft(&closed);
    world.check("a", SERVER, false);
    world.check("node", A, true);
    world.install();
    world.check("a", SERVER, true);
}

/// Pods of one bridge have addresses that the API does not know.
#[test]
fn link_local_and_broadcast_addresses_do_not_bypass_policies() {
    let Some(mut world) = world() else { return };
    let address = world.link_local("b", "a").to_string();
    let broadcast = "10.244.0.255:8080";
    world.check("a", &address, true);
    assert!(world.reaches("c", broadcast, Udp, true));
    world.set_policy("p", for_server(json!({})));
    world.sync();
    world.check("a", &address, false);
    assert!(!world.reaches("c", broadcast, Udp, false));
    world.delete_policy("p");
    world.set_policy(
        "q",
        with_selector("client", json!({ "policyTypes": ["Egress"] })),
    );
    world.sync();
    world.check("a", &address, false);
}

/// The commands of changes lead to the same rules as an installation.
#[test]
fn rules_after_changes_are_those_of_a_new_installation() {
    let Some(mut world) = world() else { return };
    let peers = json!([{ "namespaceSelector": {} }, { "podSelector": { "matchLabels": { "app": "client" } } },
        { "ipBlock": { "cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0"] } },
        { "ipBlock": { "cidr": "::/0", "except": ["::/0"] } }]);
    let ports = json!([{ "port": "web" }, { "port": "udp-web", "protocol": "UDP" }, { "port": 1, "endPort": 9 }, { "port": 9 },
        { "protocol": "SCTP" }, { "port": 7, "protocol": "SCTP" }]);
    for round in 0..3 {
        world.set_policy(
            "p",
            for_server(json!({ "ingress": [{ "from": peers, "ports": ports }] })),
        );
        world.set_policy("q", json!({ "podSelector": {}, "egress": [{ "to": peers, "ports": ports }, { "ports": ports }] }));
        world.sync();
        world.set_pod("a", json!({ "app": "server" }), round == 1);
        world.sync();
        world.state.set_pod("ns/c", None);
        world.set_policy("p", for_server(json!({ "ingress": [{}] })));
        world.sync();
        world.set_pod(
            "c",
            json!({ "app": "client", "round": round.to_string() }),
            true,
        );
        if round < 2 {
            world.delete_policy("q");
        }
        world.set_pod("a", json!({ "app": "client" }), true);
        world.sync();
    }
    let sorted = |text: String| {
        // The kernel lists objects in the order of their creation, and elements by their hash.
        let mut words: Vec<String> = text
            .split([' ', '\n', '\t', ','])
            .map(str::to_owned)
            .filter(|word| !word.is_empty())
            .collect();
        words.sort();
        words
    };
    let changed = sorted(world.list_rules());
    let node = world.name("node");
    run_script(&format!("ip netns exec {node} nft flush ruleset")).unwrap();
    world.install();
    assert_eq!(changed, sorted(world.list_rules()));
}

/// A pod that advertises a router could give all pods addresses that the API does not have.
#[test]
fn router_advertisements_of_pods_do_not_arrive() {
    let Some(world) = world() else { return };
    let has_address = |network: &str| {
        let listing = format!("ip -n {} -6 -o addr show dev eth0", world.name("b"));
        run_script(&listing).unwrap().contains(network)
    };
    world.advertise_network("a", "2001:db8:bad::".parse().unwrap());
    // Packets on the same path keep their order.
    world.check("a", B6, true);
    assert!(!has_address("2001:db8:bad:"));
    world.nft("flush ruleset\n");
    let began = Instant::now();
    while !has_address("2001:db8:bad:") {
        assert!(began.elapsed() < DEADLINE, "it arrives without the rules");
        world.advertise_network("a", "2001:db8:bad::".parse().unwrap());
    }
}

#[test]
fn addresses_outside_of_the_pod_range_do_not_bypass_policies() {
    let Some(mut world) = world() else { return };
    for (pod, host) in PODS {
        let name = world.name(pod);
        run_script(&format!(
            "ip -n {name} addr add 2001:db8:5::{host}/64 dev eth0 nodad
             ip -n {name} addr add 198.51.100.{host}/24 dev eth0"
        ))
        .unwrap();
    }
    let others = ["[2001:db8:5::3]:8080", "198.51.100.3:8080"];
    let check = |world: &World, expect| others.map(|to| world.check("a", to, expect));
    check(&world, true);
    world.set_policy("p", for_server(json!({})));
    world.sync();
    check(&world, false);
    world.delete_policy("p");
    world.set_policy(
        "q",
        with_selector("client", json!({ "policyTypes": ["Egress"] })),
    );
    world.sync();
    check(&world, false);
    world.delete_policy("q");
    world.sync();
    check(&world, true);
}

#[test]
fn family_without_a_pod_range_is_dropped_between_pods() {
    let Some(world) = world() else { return };
    let network = GuardedNetwork {
        ranges: vec!["10.244.0.0/24".parse().unwrap()],
        bridge: Some("br0".to_owned()),
    };
    let mut state = PolicyState::new(vec![Family::V4, Family::V6], network);
    world.nft(&state.install_commands());
    world.check("a", B, true);
    world.check("a", B6, false);
    world.check("a", &world.link_local("b", "a").to_string(), false);
    world.check("node", B6, true);
}

#[test]
fn neighbour_discovery_passes_policies_within_the_bridge_only() {
    const SOLICITATION: u8 = 135;
    const ADVERTISEMENT: u8 = 136;
    const LISTENER_REPORT: u8 = 131;
    let Some(mut world) = world() else { return };
    world.set_policy("p", for_server(json!({})));
    world.sync();
    for (from, kind, hops, expect) in [
        ("a", SOLICITATION, 255, true),
        ("a", ADVERTISEMENT, 255, true),
        ("a", LISTENER_REPORT, 1, true),
        ("a", SOLICITATION, 64, false),
        ("a", ADVERTISEMENT, 64, false),
        ("a", LISTENER_REPORT, 64, false),
        (OUTSIDE, SOLICITATION, 255, false),
        (OUTSIDE, ADVERTISEMENT, 255, false),
        (OUTSIDE, LISTENER_REPORT, 2, false),
    ] {
        let received = world.receives_icmpv6(from, "b", kind, hops, expect);
        assert_eq!(received, expect, "{from}, type {kind}, {hops} hops");
    }
    world.delete_policy("p");
    world.sync();
    assert!(world.receives_icmpv6(OUTSIDE, "b", SOLICITATION, 255, true));
}

/// Hosts outside can send packets with any source.
#[test]
fn forged_addresses_of_pods_from_outside_are_dropped() {
    const ECHO_REQUEST: u8 = 128;
    let Some(mut world) = world() else { return };
    let outside = world.name(OUTSIDE);
    run_script(&format!(
        "ip -n {outside} -6 addr add fd00::2/128 dev lo
         ip -n {outside} -6 route replace default via 2001:db8::1 src fd00::2"
    ))
    .unwrap();
    let client = json!({ "podSelector": { "matchLabels": { "app": "client" } } });
    world.set_policy(
        "p",
        for_server(json!({ "ingress": [{ "from": [client] }] })),
    );
    world.sync();
    assert!(world.receives_icmpv6("a", "b", ECHO_REQUEST, 64, true));
    assert!(!world.receives_icmpv6(OUTSIDE, "b", ECHO_REQUEST, 64, false));
    world.nft("flush ruleset\n");
    assert!(
        world.receives_icmpv6(OUTSIDE, "b", ECHO_REQUEST, 64, true),
        "it arrives without the rules"
    );
}
