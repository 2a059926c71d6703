//! The link between the nodes: a bridge on the machine, a pair of devices for each further node,
//! and routes to the pods of the other nodes.

use super::device::{add_address, device_exists, ensure_device, family_option};
use crate::command::run_command;
use crate::error::Result;
use crate::namespaces::Namespaces;
use crate::node::ClusterNode;
use crate::settings::Settings;

/// The node's end of the link.
const DEVICE: &str = "eth0";

/// Connects a node to the bridge; runs on the machine.
pub(super) fn connect_node(
    settings: &Settings,
    node: &ClusterNode,
    namespaces: &Namespaces,
) -> Result<()> {
    if settings.node_network.is_none() {
        return Ok(());
    }
    let (bridge, link) = (settings.link_bridge(), node.link(settings));
    ensure_device(&bridge, "bridge", settings.link_addresses(1))?;
    if !namespaces.run(|| device_exists(DEVICE))? {
        // The other end of a link to namespaces that no longer exist.
        let _ = run_command("ip", &["link", "delete", &link]);
        let inside = namespaces.network();
        run_command(
            "ip",
            &[
                "link",
                "add",
                &link,
                "type",
                "veth",
                "peer",
                "name",
                DEVICE,
                "netns",
                &inside.to_string_lossy(),
            ],
        )?;
    }
    run_command("ip", &["link", "set", &link, "master", &bridge, "up"])?;
    namespaces.run(|| {
        let mut addresses = settings.link_addresses(node.number).into_iter();
        addresses.try_for_each(|address| add_address(DEVICE, address))?;
        run_command("ip", &["link", "set", DEVICE, "up"])?;
        let mut gateways = settings.link_addresses(1).into_iter();
        gateways.try_for_each(|gateway| {
            let family = family_option(gateway);
            let gateway = gateway.addr().to_string();
            run_command(
                "ip",
                &[family, "route", "replace", "default", "via", &gateway],
            )
            .map(drop)
        })
    })?
}

/// Adds the routes from a node to the pods of the other nodes, or only one to the machine if an
/// agent adds the others. Runs in the node's namespaces.
pub(super) fn add_routes(
    settings: &Settings,
    node: &ClusterNode,
    nodes: &[ClusterNode],
) -> Result<()> {
    if settings.has_network_agent() {
        return add_machine_route(settings, node);
    }
    for other in nodes.iter().filter(|other| other.number != node.number) {
        for (pods, gateway) in routes_to_pods(settings, other) {
            run_command("ip", &["route", "replace", &pods, "via", &gateway])?;
        }
    }
    Ok(())
}

/// Adds a route without a gateway to the machine's own address, which the agent uses as the gateway
/// of the machine's pods. The address is on the link, but not in the range of the link.
fn add_machine_route(settings: &Settings, node: &ClusterNode) -> Result<()> {
    let machine = settings.node_address;
    // For IPv6, the kernel responds to neighbours only with addresses of the device.
    if node.is_isolated && machine.is_ipv4() {
        let machine = machine.to_string();
        run_command("ip", &["route", "replace", &machine, "dev", DEVICE])?;
    }
    Ok(())
}

/// Returns the ranges of a node's pods, each with the address on the link that leads to them.
fn routes_to_pods(settings: &Settings, node: &ClusterNode) -> Vec<(String, String)> {
    let ranges = node.pods.iter();
    ranges
        .filter_map(|range| {
            let gateway = settings.link_address(node.number, range.addr().is_ipv4())?;
            Some((range.to_string(), gateway.to_string()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_leads_through_the_node_of_the_pods() {
        let settings = Settings::with_nodes(3);
        let routes: Vec<_> = settings
            .nodes()
            .iter()
            .flat_map(|node| routes_to_pods(&settings, node))
            .collect();
        let expected = [
            ("10.244.0.0/24", "198.18.7.1"),
            ("10.244.1.0/24", "198.18.7.2"),
            ("10.244.2.0/24", "198.18.7.3"),
        ];
        let expected = expected.map(|(pods, via)| (pods.to_owned(), via.to_owned()));
        assert_eq!(routes, expected);
    }
}
