//! The link between the nodes: a bridge on the machine, a pair of devices for each further node,
//! and routes to the pods of the other nodes.

use super::device::{device_exists, ensure_bridge};
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
    let Some(range) = settings.node_network else {
        return Ok(());
    };
    let (bridge, link) = (settings.link_bridge(), node.link(settings));
    let length = range.prefix_len();
    ensure_bridge(&bridge, &format!("{}/{length}", settings.link_address(1)))?;
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
    let address = format!("{}/{length}", node.address);
    namespaces.run(|| {
        run_command("ip", &["address", "replace", &address, "dev", DEVICE])?;
        run_command("ip", &["link", "set", DEVICE, "up"])?;
        let gateway = settings.link_address(1).to_string();
        run_command("ip", &["route", "replace", "default", "via", &gateway])
    })??;
    Ok(())
}

/// Adds the routes from a node to the pods of the others; runs in the node's namespaces.
pub(super) fn add_routes(
    settings: &Settings,
    node: &ClusterNode,
    nodes: &[ClusterNode],
) -> Result<()> {
    for other in nodes.iter().filter(|other| other.number != node.number) {
        let (pods, gateway) = route_to_pods(settings, other);
        run_command("ip", &["route", "replace", &pods, "via", &gateway])?;
    }
    Ok(())
}

/// Returns the range of a node's pods and the address on the link that leads to them.
fn route_to_pods(settings: &Settings, node: &ClusterNode) -> (String, String) {
    (
        node.pods.to_string(),
        settings.link_address(node.number).to_string(),
    )
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
            .map(|node| route_to_pods(&settings, node))
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
