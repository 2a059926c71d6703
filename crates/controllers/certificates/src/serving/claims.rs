//! Claims of nodes on addresses. A node writes its own status, so several nodes may name one
//! address.
//!
//! **Invariant:** an address belongs to the node that named it first. A node that names the address
//! of another one later neither gets a certificate for it nor delays that of the other. The order
//! is known for claims that came while this process watched. Earlier ones have no order, whatever
//! the age of their nodes: a compromised node may be older than the node whose address it names.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use client::Event;
use controllers_runtime::Meta;
use k8s_openapi::api::core::v1::Node;

use super::addresses::list_node_addresses;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    node: String,
    /// The claim is from the first list.
    is_initial: bool,
}

/// The owner of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressOwner {
    /// No node names it.
    Unclaimed,
    /// The node that named it first.
    Node(String),
    /// Several nodes named it before the watch.
    Contested(Vec<String>),
}

/// The claims on each address, in the order in which they came.
#[derive(Debug, Default)]
pub struct AddressClaims {
    claims: HashMap<IpAddr, Vec<Claim>>,
}

impl AddressClaims {
    /// Applies a change of a node; returns the addresses that the node has gained or lost.
    /// `is_initial` holds for the events of the first list.
    pub fn apply_event(&mut self, event: &Event<Node>, is_initial: bool) -> BTreeSet<IpAddr> {
        let (old, new) = match event {
            Event::Applied { old, new } => (old.as_ref(), Some(new)),
            Event::Deleted(last) => (Some(last), None),
        };
        let name = event.object().name();
        let addresses = |node: Option<&std::sync::Arc<Node>>| {
            node.map(|node| list_node_addresses(node))
                .unwrap_or_default()
        };
        let (before, after) = (addresses(old), addresses(new));
        for address in before.difference(&after) {
            self.remove_claim(*address, name);
        }
        for address in after.difference(&before) {
            let node = name.to_owned();
            let claims = self.claims.entry(*address).or_default();
            claims.push(Claim { node, is_initial });
        }
        before.symmetric_difference(&after).copied().collect()
    }

    fn remove_claim(&mut self, address: IpAddr, node: &str) {
        if let Some(claims) = self.claims.get_mut(&address) {
            claims.retain(|claim| claim.node != node);
            if claims.is_empty() {
                self.claims.remove(&address);
            }
        }
    }

    /// Returns the owner of an address.
    pub fn find_owner(&self, address: IpAddr) -> AddressOwner {
        let claims = self.claims.get(&address).map(Vec::as_slice);
        let initial = |claim: &&Claim| claim.is_initial;
        match claims.unwrap_or_default() {
            [] => AddressOwner::Unclaimed,
            [first, rest @ ..] if first.is_initial && rest.iter().any(|claim| claim.is_initial) => {
                let nodes = claims.unwrap_or_default().iter().filter(initial);
                AddressOwner::Contested(nodes.map(|claim| claim.node.clone()).collect())
            }
            [first, ..] => AddressOwner::Node(first.node.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use serde_json::json;

    fn node(name: &str, addresses: &[&str]) -> Arc<Node> {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        let tree = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    fn change(old: Option<&Arc<Node>>, new: &Arc<Node>) -> Event<Node> {
        Event::Applied {
            old: old.cloned(),
            new: new.clone(),
        }
    }

    fn describe_owner(claims: &AddressClaims, address: &str) -> String {
        match claims.find_owner(address.parse().unwrap()) {
            AddressOwner::Unclaimed => String::new(),
            AddressOwner::Node(name) => name,
            AddressOwner::Contested(names) => names.join("?"),
        }
    }

    #[test]
    fn address_belongs_to_the_node_that_named_it_first() {
        // The attacker's node may be older or younger than the victim's, and known before it.
        for is_initial in [true, false] {
            let mut claims = AddressClaims::default();
            let before = node("attacker", &["192.0.2.66"]);
            let after = node("attacker", &["192.0.2.66", "192.0.2.7"]);
            let victim = node("victim", &["192.0.2.7"]);
            claims.apply_event(&change(None, &before), is_initial);
            claims.apply_event(&change(None, &victim), is_initial);
            let changed = claims.apply_event(&change(Some(&before), &after), false);
            assert_eq!(changed, ["192.0.2.7".parse().unwrap()].into());
            assert_eq!(describe_owner(&claims, "192.0.2.7"), "victim");
            assert_eq!(describe_owner(&claims, "192.0.2.66"), "attacker");
            claims.apply_event(&Event::Deleted(victim), false);
            assert_eq!(describe_owner(&claims, "192.0.2.7"), "attacker");
            claims.apply_event(&change(Some(&after), &before), false);
            assert_eq!(describe_owner(&claims, "192.0.2.7"), "");
        }
    }

    /// The age of a node proves nothing about when it named an address.
    #[test]
    fn address_that_several_nodes_named_before_the_watch_belongs_to_none() {
        let (a, b) = (node("a", &["192.0.2.7"]), node("b", &["192.0.2.7"]));
        let mut claims = AddressClaims::default();
        for node in [&a, &b] {
            claims.apply_event(&change(None, node), true);
        }
        assert_eq!(describe_owner(&claims, "192.0.2.7"), "a?b");
        let late = node("late", &["192.0.2.7"]);
        claims.apply_event(&change(None, &late), false);
        assert_eq!(describe_owner(&claims, "192.0.2.7"), "a?b");
        claims.apply_event(&Event::Deleted(a), false);
        assert_eq!(describe_owner(&claims, "192.0.2.7"), "b");
        claims.apply_event(&Event::Deleted(b), false);
        assert_eq!(describe_owner(&claims, "192.0.2.7"), "late");
    }

    #[test]
    fn heartbeat_changes_no_claim() {
        let mut claims = AddressClaims::default();
        let beating = node("a", &["192.0.2.7"]);
        claims.apply_event(&change(None, &beating), false);
        let changed = claims.apply_event(&change(Some(&beating), &beating), false);
        assert_eq!(changed, BTreeSet::new());
        assert_eq!(describe_owner(&claims, "192.0.2.7"), "a");
    }
}
