//! Evaluates packets against the generated text, as nftables does. It knows only the grammar that
//! the crate writes, and panics for anything else.

use std::net::IpAddr;

use ipnet::IpNet;
use net_nft::Family;

use super::{Packet, PolicyState};

/// Returns whether both base chains let a packet pass.
pub(super) fn passes(state: &PolicyState, packet: Packet) -> bool {
    let family = Family::of(packet.source);
    assert_eq!(family, Family::of(packet.destination), "{packet:?}");
    let same = format!("{} . {}", packet.source, packet.destination);
    if state.tables.element(family, "same-pod", &same).is_some() {
        return true;
    }
    let in_range = |address: IpAddr| {
        let ranges = state.network.ranges.iter();
        ranges.clone().any(|range| range.contains(&address))
    };
    [
        ("egress-pods", packet.source, "unknown-sources"),
        ("ingress-pods", packet.destination, "unknown-destinations"),
    ]
    .into_iter()
    .all(|(map, address, unknown)| {
        let verdict = match state.tables.element(family, map, &address.to_string()) {
            Some("accept") => Some(true),
            Some(verdict) => {
                let chain = verdict.strip_prefix("goto ").expect("goto");
                evaluate_chain(state, family, chain, packet)
            }
            None if in_range(address) => evaluate_chain(state, family, unknown, packet),
            None => None,
        };
        verdict != Some(false)
    })
}

/// Returns the verdict of a chain; None at its end.
fn evaluate_chain(
    state: &PolicyState,
    family: Family,
    chain: &str,
    packet: Packet,
) -> Option<bool> {
    let rules = state
        .tables
        .chain(family, chain)
        .unwrap_or_else(|| panic!("{chain} does not exist"));
    rules
        .iter()
        .find_map(|rule| evaluate_rule(state, family, rule, packet))
}

fn evaluate_rule(state: &PolicyState, family: Family, rule: &str, packet: Packet) -> Option<bool> {
    let word = family.nft_name();
    let mut rest = rule;
    loop {
        let named = format!("{word} daddr . meta l4proto . th dport @");
        let protocol = packet.protocol.nft_name();
        let (matches, left) = if rest == "accept" {
            return Some(true);
        } else if rest == "drop" {
            return Some(false);
        } else if let Some(chain) = rest.strip_prefix("jump ") {
            return evaluate_chain(state, family, chain, packet);
        } else if let Some(tail) = rest.strip_prefix(&named) {
            let (set, left) = tail.split_once(' ').unwrap();
            let element = format!("{} . {protocol} . {}", packet.destination, packet.port);
            (state.tables.element(family, set, &element).is_some(), left)
        } else if let Some(tail) = rest.strip_prefix("meta l4proto ") {
            let (name, left) = tail.split_once(' ').unwrap();
            (name == protocol, left)
        } else if let Some(tail) = rest.strip_prefix(&format!("{word} ")) {
            let (field, tail) = tail.split_once(' ').unwrap();
            let address = match field {
                "saddr" => packet.source,
                "daddr" => packet.destination,
                other => panic!("{other} in {rule}"),
            };
            evaluate_address(state, family, address, tail)
        } else if let Some((name, tail)) = rest.split_once(" dport { ") {
            let (ranges, left) = tail.split_once(" } ").unwrap();
            let in_range = ranges.split(", ").any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                (first.parse().unwrap()..=last.parse().unwrap()).contains(&packet.port)
            });
            (name == protocol && in_range, left)
        } else {
            panic!("{rest} in {rule}");
        };
        if !matches {
            return None;
        }
        rest = left;
    }
}

/// Evaluates the right side of a match of an address; returns what follows it, too.
fn evaluate_address<'a>(
    state: &PolicyState,
    family: Family,
    address: IpAddr,
    text: &'a str,
) -> (bool, &'a str) {
    if let Some(tail) = text.strip_prefix('@') {
        let (set, left) = tail.split_once(' ').unwrap();
        let element = state.tables.element(family, set, &address.to_string());
        return (element.is_some(), left);
    }
    if let Some(tail) = text.strip_prefix("!= { ") {
        let (nets, left) = tail.split_once(" } ").unwrap();
        let mut nets = nets.split(", ").map(|net| net.parse::<IpNet>().unwrap());
        return (!nets.any(|net| net.contains(&address)), left);
    }
    let (net, left) = text.split_once(' ').unwrap();
    (net.parse::<IpNet>().unwrap().contains(&address), left)
}
