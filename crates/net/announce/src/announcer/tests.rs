#![allow(clippy::unwrap_used)]
use super::*;
use crate::ethernet::BROADCAST;
use crate::ndp;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const CLUSTER: u64 = 7;
const LINK: u32 = 2;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(host: u8) -> Link {
    Link {
        index: LINK,
        name: "eth0".to_owned(),
        mac: [2, 0, 0, 0, 0, host],
        networks: vec![
            "192.0.2.0/24".parse().unwrap(),
            "2001:db8::/64".parse().unwrap(),
        ],
        link_local: None,
        device: None,
    }
}

fn claim(address: &str) -> Claim {
    Claim {
        address: ip(address),
        nodes: None,
    }
}

fn desire(claims: Vec<Claim>) -> Desired {
    Desired {
        is_eligible: true,
        cluster: CLUSTER,
        claims,
    }
}

/// A switch with nodes, and the frames that they have sent.
struct Network {
    nodes: Vec<Announcer>,
    now: Duration,
    announced: Vec<String>,
    stopped: BTreeSet<usize>,
}

impl Network {
    fn new(count: u8, claims: &[Claim]) -> Self {
        let mut network = Self {
            nodes: Vec::new(),
            now: ms(1000),
            announced: Vec::new(),
            stopped: BTreeSet::new(),
        };
        for n in 1..=count {
            let mut node = Announcer::new(format!("node-{n}"), network.now);
            node.set_links(vec![link(n)], HashSet::new(), network.now);
            node.set_desired(desire(claims.to_vec()), network.now);
            network.nodes.push(node);
        }
        network
    }

    fn run(&mut self, time: u64) {
        let end = self.now + ms(time);
        while self.now < end {
            self.now += HEARTBEAT_INTERVAL;
            for n in 0..self.nodes.len() {
                if !self.stopped.contains(&n) {
                    let outputs = self.nodes[n].tick(self.now);
                    self.deliver(n, &outputs);
                }
            }
        }
    }

    fn deliver(&mut self, from: usize, outputs: &[Output]) {
        for output in outputs {
            let Output::Send { frame, .. } = output else {
                continue;
            };
            let message = parse_frame(frame).and_then(|(kind, _, payload)| {
                (kind == ARP).then(|| ArpMessage::parse(payload)).flatten()
            });
            if let Some(message) = message {
                self.announced
                    .push(format!("node-{} {}", from + 1, message.sender));
            }
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                if !self.stopped.contains(&to) {
                    let answers = self.nodes[to].receive(LINK, frame, self.now);
                    self.deliver(to, &answers);
                }
            }
        }
    }

    fn owners(&self, address: &str) -> Vec<usize> {
        let running = (0..self.nodes.len()).filter(|n| !self.stopped.contains(n));
        running
            .filter(|n| {
                self.nodes[*n]
                    .owned()
                    .any(|(_, owned)| owned == ip(address))
            })
            .map(|n| n + 1)
            .collect()
    }
}

const ADDRESSES: [&str; 4] = ["192.0.2.10", "192.0.2.11", "192.0.2.12", "2001:db8::10"];

fn claims() -> Vec<Claim> {
    ADDRESSES.map(claim).to_vec()
}

/// Returns a request of a client for an address.
fn build_request(address: &str) -> Vec<u8> {
    let client = ArpMessage {
        is_request: true,
        sender_mac: [2, 0, 0, 0, 0, 99],
        sender: Ipv4Addr::new(192, 0, 2, 99),
        target: address.parse().unwrap(),
    };
    // A reply with the fields of a request.
    let mut frame = arp::build_announcement(client.sender_mac, client.sender);
    frame[38..42].copy_from_slice(&client.target.octets());
    frame
}

#[test]
fn each_address_has_one_owner_that_is_announced() {
    let mut network = Network::new(3, &claims());
    network.run(900);
    network.run(600);
    for address in ADDRESSES {
        assert_eq!(network.owners(address).len(), 1, "{address}");
    }
    assert!(!network.announced.is_empty());
}

#[test]
fn addresses_of_a_dead_node_move_within_three_seconds_and_return() {
    let mut network = Network::new(3, &claims());
    network.run(3000);
    let owner = network.owners(ADDRESSES[0])[0];
    let others: Vec<_> = ADDRESSES
        .iter()
        .filter(|address| network.owners(address) != [owner])
        .map(|address| (*address, network.owners(address)))
        .collect();
    network.stopped.insert(owner - 1);
    network.announced.clear();
    network.run(2500);
    let next = network.owners(ADDRESSES[0]);
    assert_eq!(next.len(), 1);
    let announced = format!("node-{} {}", next[0], ADDRESSES[0]);
    assert!(
        network.announced.contains(&announced),
        "{:?}",
        network.announced
    );
    for (address, owners) in others {
        assert_eq!(network.owners(address), owners, "{address}");
    }
    network.stopped.clear();
    network.run(3000);
    assert_eq!(network.owners(ADDRESSES[0]), [owner]);
}

#[test]
fn owner_announces_again_after_a_link_cut_in_two_is_joined() {
    let mut network = Network::new(2, &claims());
    network.run(3000);
    // Neither receives the other.
    for _ in 0..50 {
        network.now += HEARTBEAT_INTERVAL;
        for node in &mut network.nodes {
            node.tick(network.now);
        }
    }
    assert_eq!(network.owners(ADDRESSES[0]), [1, 2]);
    network.announced.clear();
    network.run(2000);
    let owners = network.owners(ADDRESSES[0]);
    assert_eq!(owners.len(), 1);
    let announced = format!("node-{} {}", owners[0], ADDRESSES[0]);
    assert!(
        network.announced.contains(&announced),
        "{:?}",
        network.announced
    );
}

#[test]
fn stopped_process_answers_nothing_when_it_continues() {
    let mut network = Network::new(1, &claims());
    network.run(2000);
    let request = build_request("192.0.2.10");
    let now = network.now;
    assert_eq!(network.nodes[0].receive(LINK, &request, now).len(), 1);
    let later = now + ms(2000);
    assert_eq!(network.nodes[0].receive(LINK, &request, later), []);
    assert_eq!(network.nodes[0].owned().count(), 0);
    // It listens first, and takes its addresses again.
    assert_eq!(network.nodes[0].tick(later), []);
    network.now = later;
    network.run(1500);
    assert_eq!(network.owners("192.0.2.10"), [1]);
}

#[test]
fn leaving_node_is_replaced_at_once() {
    let mut network = Network::new(2, &claims());
    network.run(3000);
    let owner = network.owners(ADDRESSES[0])[0];
    let outputs = network.nodes[owner - 1].leave();
    network.deliver(owner - 1, &outputs);
    assert_eq!(network.owners(ADDRESSES[0]), [3 - owner]);
}

#[test]
fn node_without_right_or_endpoints_owns_nothing() {
    let only = |node: &str| Claim {
        nodes: Some(BTreeSet::from([node.to_owned()])),
        ..claim("192.0.2.10")
    };
    let mut network = Network::new(3, &[only("node-2"), only("node-9")]);
    network.run(3000);
    assert_eq!(network.owners("192.0.2.10"), [2]);
    // The label on its Node: others don't take over, because they have no endpoint.
    let now = network.now;
    let outputs = network.nodes[1].set_desired(Desired::default(), now);
    network.deliver(1, &outputs);
    assert!(network.owners("192.0.2.10").is_empty());
}

#[test]
fn own_addresses_and_those_of_other_networks_are_not_announced() {
    let claims = ["192.0.2.5", "198.51.100.1", "192.0.2.255"].map(claim);
    let mut network = Network::new(1, &claims);
    let own = HashSet::from([ip("192.0.2.5")]);
    let now = network.now;
    network.nodes[0].set_links(vec![link(1)], own, now);
    network.run(3000);
    assert_eq!(network.nodes[0].owned().count(), 0);
}

#[test]
fn change_of_an_interface_keeps_its_addresses_and_its_end_gives_them_up() {
    let mut network = Network::new(2, &claims());
    network.run(3000);
    let owner = network.owners(ADDRESSES[0])[0];
    let own = HashSet::from([ip("192.0.2.7")]);
    let mut changed = link(u8::try_from(owner).unwrap());
    changed.networks.push("198.51.100.0/24".parse().unwrap());
    let now = network.now;
    network.nodes[owner - 1].set_links(vec![changed], own.clone(), now);
    assert_eq!(network.owners(ADDRESSES[0]), [owner]);
    assert_eq!(network.nodes[owner - 1].count_members(), 1);
    network.nodes[owner - 1].set_links(Vec::new(), own, now);
    assert!(network.owners(ADDRESSES[0]).is_empty());
    network.run(2500);
    assert_eq!(network.owners(ADDRESSES[0]), [3 - owner]);
}

#[test]
fn heartbeats_of_other_clusters_and_of_the_own_name_are_ignored() {
    let mut network = Network::new(1, &claims());
    network.run(2000);
    for (cluster, node) in [(CLUSTER + 1, "node-2"), (CLUSTER, "node-1")] {
        let heartbeat = Heartbeat {
            cluster,
            node: node.to_owned(),
            is_leaving: false,
        };
        let frame = heartbeat.build([2, 0, 0, 0, 0, 2]);
        let now = network.now;
        let mac = [2, 0, 0, 0, 0, 2];
        let reports = match cluster {
            CLUSTER => vec![Output::DuplicateName { mac }],
            _ => Vec::new(),
        };
        assert_eq!(network.nodes[0].receive(LINK, &frame, now), reports);
        // Once a minute.
        assert_eq!(network.nodes[0].receive(LINK, &frame, now), []);
    }
    assert_eq!(network.nodes[0].count_members(), 0);
}

#[test]
fn conflict_is_reported_and_answered_every_ten_seconds() {
    let mut network = Network::new(1, &claims());
    network.run(2000);
    let mac: Mac = [2, 0, 0, 0, 0, 66];
    let frame = arp::build_announcement(mac, Ipv4Addr::new(192, 0, 2, 10));
    let Some(node) = network.nodes.first_mut() else {
        panic!("one node")
    };
    let mut defend = |now| {
        node.last_tick = now;
        node.receive(LINK, &frame, now)
    };
    let outputs = defend(ms(3000));
    let address = ip("192.0.2.10");
    assert_eq!(outputs[1], Output::Conflict { address, mac });
    let Output::Send { frame, .. } = &outputs[0] else {
        panic!("{outputs:?}")
    };
    assert_eq!(frame[..6], BROADCAST);
    assert_eq!(defend(ms(12_999)), []);
    assert_eq!(defend(ms(13_000)).len(), 2);
}

#[test]
fn new_address_is_announced_at_once_and_repeated() {
    let mut network = Network::new(1, &[]);
    network.run(2000);
    let now = network.now;
    let outputs = network.nodes[0].set_desired(desire(claims()), now);
    assert_eq!(outputs.len(), ADDRESSES.len());
    network.run(9000);
    let count = |host: &str| {
        network
            .announced
            .iter()
            .filter(|a| a.ends_with(host))
            .count()
    };
    assert_eq!(count("192.0.2.10"), 5);
    let group = ndp::solicited_group("2001:db8::10".parse().unwrap());
    assert_eq!(group.to_string(), "ff02::1:ff00:10");
}

#[test]
fn arbitrary_frames_are_harmless() {
    let mut network = Network::new(1, &claims());
    network.run(2000);
    let now = network.now;
    let seeds = [
        build_request("192.0.2.10"),
        Heartbeat {
            cluster: CLUSTER,
            node: "x".to_owned(),
            is_leaving: false,
        }
        .build([2; 6]),
        link(9)
            .advertiser()
            .build_announcement("2001:db8::10".parse().unwrap()),
    ];
    for frame in seeds {
        for length in 0..frame.len() {
            network.nodes[0].receive(LINK, &frame[..length], now);
        }
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0xff;
            network.nodes[0].receive(LINK, &changed, now);
        }
    }
}
