//! Keeps session affinity across a full install: the new table gets the clients of the old one.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use serde::Deserialize;

use crate::base_chains::TABLE;
use net_nft::Family;

/// The used part of `nft -j list sets`.
#[derive(Default, Deserialize)]
struct Listing {
    #[serde(default)]
    nftables: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    set: Option<Set>,
}

#[derive(Deserialize)]
struct Set {
    family: String,
    table: String,
    name: String,
    /// Elements; those of other tables' sets have other shapes.
    #[serde(default)]
    elem: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Element {
    elem: Client,
}

#[derive(Deserialize)]
struct Client {
    val: IpAddr,
    /// Remaining time in seconds.
    expires: u64,
}

/// Returns the commands that add the clients of a listing to those of its sets that are `wanted`.
pub(crate) fn restore_affinity(listing: &str, desired: &BTreeSet<(Family, String)>) -> String {
    let listing: Listing = serde_json::from_str(listing).unwrap_or_default();
    let mut commands = String::new();
    for set in listing
        .nftables
        .into_iter()
        .filter_map(|entry| entry.set)
        .filter(|set| set.table == TABLE)
    {
        let family = [Family::V4, Family::V6]
            .into_iter()
            .find(|family| family.nft_name() == set.family);
        if !family.is_some_and(|family| desired.contains(&(family, set.name.clone()))) {
            continue;
        }
        let clients = set
            .elem
            .into_iter()
            .filter_map(|element| serde_json::from_value::<Element>(element).ok());
        // A client whose time is up needs no element.
        for Client { val, expires } in clients
            .map(|element| element.elem)
            .filter(|client| client.expires > 0)
        {
            // Writing to a String can't fail.
            let _ = writeln!(
                commands,
                "add element {} {TABLE} {} {{ {val} expires {expires}s }}",
                set.family, set.name
            );
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_wanted_sets_keep_the_time_that_is_left() {
        let listing = r#"{"nftables": [{"metainfo": {"json_schema_version": 1}},
            {"set": {"family": "ip", "name": "affinity60-A", "table": "kube-proxy", "flags": ["timeout"], "timeout": 60,
                "elem": [{"elem": {"val": "10.0.0.1", "expires": 41}}, {"elem": {"val": "10.0.0.2", "expires": 0}}]}},
            {"set": {"family": "ip", "name": "affinity60-B", "table": "kube-proxy", "elem": [{"elem": {"val": "10.0.0.3", "expires": 9}}]}},
            {"set": {"family": "ip", "name": "affinity60-A", "table": "other", "elem": [{"elem": {"val": "10.0.0.4", "expires": 9}}]}},
            {"set": {"family": "inet", "name": "ports", "table": "other", "elem": [{"range": [1, 2]}, 80]}}]}"#;
        let desired = BTreeSet::from(
            ["affinity60-A", "affinity60-C"].map(|set| (Family::V4, set.to_owned())),
        );
        let expect = "add element ip kube-proxy affinity60-A { 10.0.0.1 expires 41s }\n";
        assert_eq!(restore_affinity(listing, &desired), expect);
    }

    #[test]
    fn unreadable_listing_restores_nothing() {
        for listing in [
            "",
            "{}",
            "[]",
            "table ip kube-proxy {}",
            r#"{"nftables": [{"set": 1}]}"#,
        ] {
            assert_eq!(restore_affinity(listing, &BTreeSet::new()), "", "{listing}");
        }
    }
}
