//! Keeps lookups away from lost machines. Cluster DNS runs on each machine of the control plane,
//! with an EndpointSlice of its own; another machine that sees it lost sets its endpoint to not
//! ready.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use client::ListParams;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::time::{Instant, MissedTickBehavior};

use super::servers::Servers;
use crate::connect::connect_admin;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

const NAMESPACE: &str = "kube-system";
/// The slices of cluster DNS that this tool writes.
const SLICES: &str =
    "kubernetes.io/service-name=kube-dns,endpointslice.kubernetes.io/managed-by=ironclad";
const INTERVAL: Duration = Duration::from_secs(1);
/// Time after which the slices are compared without a change of a machine's state.
const REPAIR_INTERVAL: Duration = Duration::from_secs(60);

/// Follows the state of the other machines until it is dropped.
pub(super) async fn follow_machines(servers: Arc<Servers>, settings: Settings, layout: Layout) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut done: Option<(BTreeSet<IpAddr>, Instant)> = None;
    loop {
        interval.tick().await;
        // A machine that is cut off sees all others as lost.
        if !servers.has_current_state() {
            done = None;
            continue;
        }
        let healthy = servers.healthy_addresses();
        if let Some((before, time)) = &done
            && *before == healthy
            && time.elapsed() < REPAIR_INTERVAL
        {
            continue;
        }
        match update_slices(&healthy, &settings, &layout).await {
            Ok(()) => done = Some((healthy, Instant::now())),
            Err(error) => tracing::debug!(%error, "changing the endpoints of cluster DNS again"),
        }
    }
}

async fn update_slices(
    healthy: &BTreeSet<IpAddr>,
    settings: &Settings,
    layout: &Layout,
) -> Result<()> {
    let client = connect_admin(settings, layout)?;
    let failed = |cause| Error::Api {
        what: "the endpoints of cluster DNS".to_owned(),
        cause,
    };
    let api = client.namespaced::<EndpointSlice>(NAMESPACE);
    let slices = api.list(&ListParams::new().with_labels(SLICES)).await;
    let slices = slices.map_err(failed)?.items;
    let mut nodes = Vec::new();
    // The Nodes that the slices name, and not those with the label of the control plane, which any
    // administrator may remove from a machine that still runs cluster DNS.
    for name in list_node_names(&slices) {
        match client.api::<Node>().get(&name).await {
            Err(error) if error.is_not_found() => {}
            found => nodes.push(found.map_err(failed)?),
        }
    }
    let alive = find_alive(&nodes, healthy, &settings.node_name);
    for slice in change_slices(slices, &alive, &settings.node_name) {
        // An update has the resourceVersion of the list: after a change in the meantime it fails,
        // and is decided again.
        api.update(&slice).await.map_err(failed)?;
        let name = slice.metadata.name.unwrap_or_default();
        tracing::info!(slice = name, "changed an endpoint of cluster DNS");
    }
    Ok(())
}

/// Returns the names of the Nodes whose endpoints the slices have.
fn list_node_names(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints
        .filter_map(|endpoint| endpoint.node_name.clone())
        .collect()
}

/// Returns the names of the other machines of the control plane that are not lost.
fn find_alive(nodes: &[Node], healthy: &BTreeSet<IpAddr>, own: &str) -> BTreeSet<String> {
    let is_alive = |node: &&Node| {
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref());
        let mut addresses = addresses.into_iter().flatten();
        addresses.any(|address| {
            let address = address.address.parse();
            address.is_ok_and(|address: IpAddr| healthy.contains(&address))
        })
    };
    let names = nodes.iter().filter(is_alive);
    let names = names.filter_map(|node| node.metadata.name.clone());
    names.filter(|name| name != own).collect()
}

/// Returns whether this machine decides about the endpoint of `node`: of the other machines, the
/// first by name that is not lost does. If two of them disagree because one path is cut, each would
/// set back the change of the other.
fn decides_about(node: &str, alive: &BTreeSet<String>, own: &str) -> bool {
    let earlier = |other: &String| other != node && other.as_str() < own;
    node != own && !alive.iter().any(earlier)
}

/// Returns the slices about which this machine decides and that differ from the state of their
/// machines, changed.
fn change_slices(
    slices: Vec<EndpointSlice>,
    alive: &BTreeSet<String>,
    own: &str,
) -> Vec<EndpointSlice> {
    let mut changed = Vec::new();
    for mut slice in slices {
        let mut differs = false;
        for endpoint in slice.endpoints.iter_mut().flatten() {
            let node = endpoint.node_name.clone();
            let Some(node) = node.filter(|node| decides_about(node, alive, own)) else {
                continue;
            };
            // A machine without a Node was removed.
            let is_ready = alive.contains(&node);
            let conditions = endpoint.conditions.get_or_insert_default();
            if conditions.ready != Some(is_ready) {
                differs = true;
                conditions.ready = Some(is_ready);
                // `serving` is readiness regardless of termination (KEP-1672), so the two agree
                // here.
                conditions.serving = Some(is_ready);
            }
        }
        if differs {
            changed.push(slice);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn slice(node: &str, is_ready: bool) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {"name": format!("kube-dns-node-{node}")},
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": ["10.244.0.1"],
                "nodeName": node,
                "conditions": {"ready": is_ready, "serving": is_ready},
            }],
        }))
        .unwrap()
    }

    fn node(name: &str, address: &str) -> Node {
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        let tree = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        serde_json::from_value(tree).unwrap()
    }

    /// The label of the control plane is none of them: without it a machine still runs cluster DNS.
    #[test]
    fn machines_with_cluster_dns_are_those_that_the_slices_name() {
        let mut static_slice = slice("cp1", true);
        static_slice.endpoints.as_mut().unwrap()[0].node_name = None;
        let names = list_node_names(&[slice("cp2", true), static_slice, slice("cp3", false)]);
        assert_eq!(names, ["cp2".to_owned(), "cp3".to_owned()].into());
    }

    #[test]
    fn endpoint_of_a_lost_machine_is_not_ready_until_it_is_back() {
        let nodes = [
            node("cp1", "192.0.2.1"),
            node("cp2", "192.0.2.2"),
            node("cp3", "192.0.2.3"),
        ];
        let change = |healthy: &[&str], ready: [bool; 4]| {
            let healthy = healthy.iter().map(|text| text.parse().unwrap()).collect();
            let alive = find_alive(&nodes, &healthy, "cp1");
            let names = ["cp1", "cp2", "cp3", "removed"];
            let slices = names
                .iter()
                .zip(ready)
                .map(|(name, ready)| slice(name, ready));
            let changed = change_slices(slices.collect(), &alive, "cp1");
            let changed = changed.into_iter().map(|slice| {
                let endpoint = slice.endpoints.unwrap().remove(0);
                let is_ready = endpoint.conditions.unwrap().ready.unwrap();
                format!("{} {is_ready}", endpoint.node_name.unwrap())
            });
            changed.collect::<Vec<_>>().join(", ")
        };
        let both = ["192.0.2.2", "192.0.2.3"];
        assert_eq!(change(&both, [true, true, true, false]), "");
        assert_eq!(change(&both[..1], [true, true, true, false]), "cp3 false");
        assert_eq!(change(&both, [true, true, false, false]), "cp3 true");
        assert_eq!(change(&both, [false, true, true, true]), "removed false");
        assert_eq!(
            change(&[], [true, true, true, false]),
            "cp2 false, cp3 false"
        );
    }

    /// Returns, for each of three machines, the other ones that decide about its endpoint, with
    /// their decisions, if the path between two machines is cut.
    fn decide_with_cut(cut: [&str; 2]) -> String {
        let machines = ["cp1", "cp2", "cp3"];
        let sees =
            |one: &str, other: &str| one != other && !cut.iter().all(|m| [one, other].contains(m));
        let mut found = Vec::new();
        for about in machines {
            for own in machines {
                let alive = machines.iter().filter(|other| sees(own, other));
                let alive = alive.map(|&name| name.to_owned()).collect();
                for slice in change_slices(vec![slice(about, false)], &alive, own) {
                    assert_eq!(
                        slice.endpoints.unwrap()[0].node_name.as_deref(),
                        Some(about)
                    );
                    found.push(format!("{own}: {about} ready"));
                }
                if !change_slices(vec![slice(about, true)], &alive, own).is_empty() {
                    found.push(format!("{own}: {about} not ready"));
                }
            }
        }
        found.join(", ")
    }

    #[test]
    fn machines_do_not_disagree_about_an_endpoint_if_one_path_is_cut() {
        for (cut, decisions) in [
            (["", ""], "cp2: cp1 ready, cp1: cp2 ready, cp1: cp3 ready"),
            (
                ["cp1", "cp2"],
                "cp2: cp1 not ready, cp1: cp2 not ready, cp1: cp3 ready, cp2: cp3 ready",
            ),
            (
                ["cp1", "cp3"],
                "cp2: cp1 ready, cp1: cp2 ready, cp3: cp2 ready, cp1: cp3 not ready",
            ),
            (
                ["cp2", "cp3"],
                "cp2: cp1 ready, cp3: cp1 ready, cp1: cp2 ready, cp1: cp3 ready",
            ),
        ] {
            assert_eq!(decide_with_cut(cut), decisions, "{cut:?}");
        }
    }
}
