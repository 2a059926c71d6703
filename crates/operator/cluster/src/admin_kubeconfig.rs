//! The administrator's kubeconfig. With a shared control plane it names the API server of each
//! machine: as a context of its own for `kubectl`, and as a list for clients of this project, which
//! fail over.

use std::net::{IpAddr, SocketAddr};

use client::{Client, Config, ListParams, MAX_SERVERS};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use operator_pki::NamedServer;

use crate::connect::configure_admin_at;
use crate::control_plane::CONTROL_PLANE_LABEL;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::published::{self, CLUSTER_CONFIG, read_hosts};
use crate::settings::Settings;
use crate::{connect, files};

/// Writes the kubeconfig with the servers that are known. Returns true if the file changed.
pub(crate) fn write_admin_kubeconfig(settings: &Settings, layout: &Layout) -> Result<bool> {
    write_with_servers(&load_named_servers(settings, layout), settings, layout)
}

fn write_with_servers(
    servers: &[NamedServer],
    settings: &Settings,
    layout: &Layout,
) -> Result<bool> {
    let server = format_admin_url(settings);
    let path = layout.admin_kubeconfig();
    let written = operator_pki::write_admin_kubeconfig(&layout.pki(), &path, &server, servers)?;
    Ok(written)
}

/// Returns the server in the administrator's kubeconfig: people copy the file to other machines, so
/// it has the address of the load balancer, if there is one.
fn format_admin_url(settings: &Settings) -> String {
    let shared = settings.control_plane.as_ref();
    match shared.and_then(|shared| shared.endpoint.as_ref()) {
        Some(endpoint) => format!("https://{endpoint}"),
        None => settings.server_url(),
    }
}

/// Returns the API servers of all machines that this one has learned; none without a shared control
/// plane.
fn load_named_servers(settings: &Settings, layout: &Layout) -> Vec<NamedServer> {
    match settings.control_plane {
        Some(_) => name_servers(&read_stored_servers(layout)),
        None => Vec::new(),
    }
}

fn read_stored_servers(layout: &Layout) -> Vec<(String, SocketAddr)> {
    let stored = std::fs::read(layout.named_servers()).unwrap_or_default();
    serde_json::from_slice(&stored).unwrap_or_default()
}

fn name_servers(servers: &[(String, SocketAddr)]) -> Vec<NamedServer> {
    // One is the server of the kubeconfig itself.
    let servers = servers.iter().take(MAX_SERVERS - 1);
    servers
        .filter(|(name, _)| is_plain_name(name))
        .map(|(name, address)| NamedServer {
            name: name.clone(),
            url: format!("https://{address}"),
        })
        .collect()
}

/// Returns a client for commands of people that need any API server of the cluster: it fails over
/// from the proxy of this machine to the servers of the other machines.
pub(crate) fn connect_admin_anywhere(settings: &Settings, layout: &Layout) -> Result<Client> {
    let servers = load_named_servers(settings, layout);
    if servers.is_empty() {
        return connect::connect_admin(settings, layout);
    }
    let further = servers.into_iter().map(|server| server.url).collect();
    let config: Config = configure_admin_at(&settings.server_url(), layout);
    let config = config.with_further_servers(further);
    let config = config.map_err(|cause| Error::Api {
        what: layout.named_servers().display().to_string(),
        cause,
    })?;
    Ok(Client::new(config))
}

/// Reads the API servers of all machines of the control plane, and their names.
pub(crate) async fn read_named_servers(
    client: &Client,
    settings: &Settings,
) -> Result<Vec<(String, SocketAddr)>> {
    let failed = |what: &'static str| {
        move |cause| Error::Api {
            what: what.to_owned(),
            cause,
        }
    };
    let labelled = ListParams::new().with_labels(CONTROL_PLANE_LABEL);
    let nodes = client.api::<Node>().list(&labelled).await;
    let nodes = nodes.map_err(failed("listing the machines of the control plane"))?;
    let maps = client.namespaced::<ConfigMap>(published::NAMESPACE);
    let map = maps.get(CLUSTER_CONFIG).await;
    let map = map.map_err(failed("reading the addresses of the API servers"))?;
    let hosts = read_hosts(&map);
    Ok(choose_servers(&nodes.items, &hosts, settings.ports.api))
}

/// Stores the servers, and writes the kubeconfig with them. The lock of commands is held.
pub(crate) fn store_named_servers(
    servers: &[(String, SocketAddr)],
    settings: &Settings,
    layout: &Layout,
) -> Result<bool> {
    if servers.is_empty() || settings.control_plane.is_none() {
        // An administrator has removed the labels or the map, or it is a restored cluster.
        return Ok(false);
    }
    let is_written = write_with_servers(&name_servers(servers), settings, layout)?;
    // After the kubeconfig: if that fails, the next attempt finds a difference.
    let text = serde_json::to_string(servers).unwrap_or_default();
    files::write_if_changed(&layout.named_servers(), text.as_bytes())?;
    Ok(is_written)
}

/// Returns whether the kubeconfig has these servers.
pub(crate) fn knows_servers(servers: &[(String, SocketAddr)], layout: &Layout) -> bool {
    read_stored_servers(layout) == servers
}

/// Returns the API servers of the machines, by the names of their Nodes.
///
/// Only addresses that the cluster has published as those of API servers: no other node gets a
/// serving certificate for one of them, so no kubelet can pose as an API server there. The label
/// is one that no kubelet can set.
fn choose_servers(nodes: &[Node], hosts: &[String], port: u16) -> Vec<(String, SocketAddr)> {
    let published: Vec<IpAddr> = hosts.iter().filter_map(|host| host.parse().ok()).collect();
    let find_server = |node: &Node| {
        let name = node.metadata.name.clone()?;
        let addresses = node.status.as_ref()?.addresses.iter().flatten();
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        let mut internal = internal.filter_map(|address| address.address.parse().ok());
        let address = internal.find(|address| published.contains(address))?;
        is_plain_name(&name).then_some((name, SocketAddr::new(address, port)))
    };
    let mut found: Vec<_> = nodes.iter().filter_map(find_server).collect();
    // The same file on each machine, whatever the order of the list.
    found.sort();
    found.truncate(MAX_SERVERS - 1);
    found
}

/// Returns whether a name is that of a Node: it can't break out of its place in a file.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    !name.is_empty() && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use operator_pki::Renewal;
    use serde_json::json;

    use super::*;
    use crate::cluster_files::write_credentials;

    fn node(name: &str, addresses: &[&str]) -> Node {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        let tree = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        serde_json::from_value(tree).unwrap()
    }

    /// A worker may have the label by mistake, and has a certificate for its own address.
    #[test]
    fn servers_are_the_machines_whose_address_is_published() {
        let hosts = ["cp1", "192.0.2.2", "2001:db8::3", "192.0.2.3", "localhost"];
        let hosts = hosts.map(str::to_owned);
        let nodes = [
            node("w1", &["192.0.2.77"]),
            node("cp3", &["2001:db8::3", "192.0.2.3"]),
            node("cp1", &["198.51.100.1", "192.0.2.2"]),
            node("new", &[]),
            node("a\nb", &["192.0.2.2"]),
        ];
        let found = choose_servers(&nodes, &hosts, 6443);
        let found: Vec<_> = found
            .iter()
            .map(|(name, address)| format!("{name} {address}"))
            .collect();
        assert_eq!(found, ["cp1 192.0.2.2:6443", "cp3 [2001:db8::3]:6443"]);
        let many: Vec<_> = (1..=200)
            .map(|n| node(&format!("n{n}"), &["192.0.2.2"]))
            .collect();
        assert_eq!(choose_servers(&many, &hosts, 6443).len(), MAX_SERVERS - 1);
    }

    #[test]
    fn kubeconfig_has_a_context_for_each_server_and_the_list_for_fail_over() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let mut settings = Settings {
            data_dir: dir.path().into(),
            ..Settings::example_shared()
        };
        write_credentials(&settings, &layout, Renewal::Due).unwrap();
        let load = || Config::from_kubeconfig(layout.admin_kubeconfig()).unwrap();
        assert_eq!(load().servers, ["https://127.0.0.1:6444"]);
        let servers = [("cp1", "192.0.2.2:6443"), ("cp2", "[2001:db8::3]:6443")];
        let servers = servers.map(|(name, address)| (name.to_owned(), address.parse().unwrap()));
        assert!(store_named_servers(&servers, &settings, &layout).unwrap());
        assert!(!store_named_servers(&servers, &settings, &layout).unwrap());
        assert!(!store_named_servers(&[], &settings, &layout).unwrap());
        let urls = ["https://192.0.2.2:6443", "https://[2001:db8::3]:6443"];
        assert_eq!(
            load().servers,
            [&["https://127.0.0.1:6444"], &urls[..]].concat()
        );
        for (name, url) in ["ironclad-cp1", "ironclad-cp2"].iter().zip(urls) {
            let path = layout.admin_kubeconfig();
            let config = Config::from_kubeconfig_context(path, name).unwrap();
            assert_eq!((config.server.as_str(), &config.ca), (url, &load().ca));
            assert!(config.identity.is_some() && config.servers == [url]);
        }
        // Commands use the proxy of the machine first, also with a load balancer.
        settings.control_plane.as_mut().unwrap().endpoint = Some("lb.example.com:6443".into());
        write_credentials(&settings, &layout, Renewal::Due).unwrap();
        assert_eq!(load().server, "https://lb.example.com:6443");
        let client = connect_admin_anywhere(&settings, &layout).unwrap();
        assert_eq!(client.config().server, "https://127.0.0.1:6444");
        assert_eq!(client.config().servers.len(), 3);
        // A cluster of one machine has one server.
        settings.control_plane = None;
        write_credentials(&settings, &layout, Renewal::Due).unwrap();
        assert_eq!(load().servers, ["https://127.0.0.1:6443"]);
    }
}
