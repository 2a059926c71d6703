//! Names of the API servers in the ConfigMaps that a cluster publishes: `cluster-info` and
//! `kubeadm-config`.

use std::collections::BTreeSet;

use controllers_runtime::Meta;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterConfiguration {
    control_plane_endpoint: Option<String>,
    api_server: Option<ApiServer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiServer {
    #[serde(rename = "certSANs")]
    cert_sans: Option<Vec<String>>,
}

/// Stands among the hosts of a `kubeadm-config` that could be read. No host has this name.
pub const COMPLETE: &str = "?";

/// Returns the hosts of API servers in a ConfigMap: addresses and names in lower case, and
/// [`COMPLETE`]. Other users may
/// write maps of these names in their own namespaces.
pub fn read_server_hosts(map: &ConfigMap) -> BTreeSet<String> {
    let value = |key: &str| map.data.as_ref()?.get(key).map(String::as_str);
    let hosts = match (map.namespace(), map.name()) {
        ("kube-public", "cluster-info") => value("kubeconfig").map(read_kubeconfig_hosts),
        ("kube-system", "kubeadm-config") => {
            value("ClusterConfiguration").and_then(read_configuration_hosts)
        }
        _ => None,
    };
    let hosts = hosts.into_iter().flatten();
    hosts.map(|host| host.to_ascii_lowercase()).collect()
}

fn read_kubeconfig_hosts(text: &str) -> Vec<String> {
    let clusters = client::read_clusters(text).unwrap_or_default();
    let hosts = clusters.iter().filter_map(|cluster| {
        let (_, rest) = cluster.server.split_once("://")?;
        parse_host(rest.split(['/', '?', '#']).next()?)
    });
    hosts.collect()
}

fn read_configuration_hosts(text: &str) -> Option<Vec<String>> {
    let parsed: ClusterConfiguration = serde_yaml::from_str(text).ok()?;
    let endpoint = parsed.control_plane_endpoint;
    let endpoint = endpoint.and_then(|endpoint| parse_host(&endpoint));
    let names = parsed.api_server.and_then(|server| server.cert_sans);
    let hosts = endpoint.into_iter().chain(names.into_iter().flatten());
    Some(hosts.chain([COMPLETE.to_owned()]).collect())
}

/// Returns the host of `HOST` or `HOST:PORT`, an IPv6 address without brackets.
fn parse_host(authority: &str) -> Option<String> {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn hosts_of_api_servers_are_read_from_the_published_maps_only() {
        let info = "clusters: [{cluster: {server: 'https://API.example.com:6443'}}, \
            {cluster: {server: 'https://[2001:db8::1]:6443/'}}, {cluster: {server: 'https://'}}]";
        let configuration = "{controlPlaneEndpoint: 'vip.example.com:6443', apiServer: {certSANs: [N1, 192.0.2.2]}}";
        let (info_key, key) = ("kubeconfig", "ClusterConfiguration");
        for (namespace, name, key, text, expected) in [
            (
                "kube-public",
                "cluster-info",
                info_key,
                info,
                &["2001:db8::1", "api.example.com"][..],
            ),
            ("kube-public", "cluster-info", info_key, "[", &[]),
            ("kube-public", "other", info_key, info, &[]),
            ("default", "cluster-info", info_key, info, &[]),
            (
                "kube-system",
                "kubeadm-config",
                key,
                configuration,
                &["192.0.2.2", COMPLETE, "n1", "vip.example.com"],
            ),
            ("kube-system", "kubeadm-config", key, "{}", &[COMPLETE]),
            (
                "kube-system",
                "kubeadm-config",
                key,
                "{apiServer: {certSANs: n1}}",
                &[],
            ),
            ("kube-system", "kubeadm-config", key, "- a", &[]),
            ("default", "kubeadm-config", key, configuration, &[]),
        ] {
            let tree =
                json!({"metadata": {"namespace": namespace, "name": name}, "data": {key: text}});
            let map: ConfigMap = serde_json::from_value(tree).unwrap();
            let hosts: Vec<_> = read_server_hosts(&map).into_iter().collect();
            assert_eq!(hosts, expected, "{namespace}/{name} {text}");
        }
    }
}
