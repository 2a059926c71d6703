//! The requests of a machine that joins.

use client::{Client, Config, Source};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use operator_discovery::{Cluster, KeyPin, discover_cluster, pin_certificates};

use super::options::{DiscoveryOptions, DiscoverySource};
use crate::connect::USER_AGENT;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::published;
use crate::ranges::Ranges;
use crate::settings::Settings;
use crate::up::register::list_pod_ranges;
use crate::up::wait;

/// Verifies the cluster by the token or by the pins of the command, and reports the key of its CA.
pub(super) async fn discover(
    discovery: &DiscoveryOptions,
    report_progress: &dyn Fn(&str),
) -> Result<Cluster> {
    let cluster = match &discovery.source {
        DiscoverySource::File { path, pins } => Cluster::from_file(path, pins).await?,
        DiscoverySource::Token { endpoint, trust } => {
            report_progress(&format!("verifying the cluster at {endpoint}"));
            discover_cluster(endpoint, &discovery.token, trust, USER_AGENT).await?
        }
    };
    // An operator can compare the key with that of the cluster, above all after a join without a
    // pin.
    let pins = pin_certificates(cluster.ca.as_bytes());
    let pins: Vec<_> = pins.iter().map(KeyPin::to_string).collect();
    report_progress(&format!("the cluster's CA has the key {}", pins.join(", ")));
    Ok(cluster)
}

/// Returns a client with the bootstrap token.
pub(super) fn connect_with_token(cluster: &Cluster, discovery: &DiscoveryOptions) -> Client {
    let config = Config::builder(cluster.server.url())
        .with_ca(Source::Inline(cluster.ca.clone().into_bytes()))
        .with_token(Source::Inline(discovery.token.expose().into_bytes()))
        .user_agent(USER_AGENT);
    Client::new(config)
}

/// Reads a ConfigMap that the cluster publishes.
pub(super) async fn read_map(client: &Client, name: &str) -> Result<ConfigMap> {
    let maps = client.namespaced::<ConfigMap>(published::NAMESPACE);
    maps.get(name).await.map_err(|cause| {
        let what = if cause.is_unauthorized() {
            "the token is not valid: it has expired or was deleted; create one with `ironclad token create`".to_owned()
        } else {
            format!("reading the ConfigMap {name}; {}", published::PUBLISH_REMEDY)
        };
        Error::Api { what, cause }
    })
}

/// Rejects the name of a Ready node, because the token can request that node's certificate.
pub(super) async fn check_name_is_free(client: &Client, name: &str) -> Result<()> {
    match find_node(client, name).await? {
        // kubeadm has the same check. A node that is not Ready may be this machine after a
        // reinstallation.
        Some(node) if wait::is_node_ready(&node) => Err(Error::Refused(format!(
            "the cluster has a node {name} that is Ready; give another name with --node-name, or delete that node with \
             `kubectl delete node {name}` if it no longer exists"
        ))),
        _ => Ok(()),
    }
}

/// Rejects the name of any node: a machine of the control plane creates its own, and that of a
/// machine which joins at the same time is not Ready yet.
pub(super) async fn check_node_is_absent(client: &Client, name: &str) -> Result<()> {
    match find_node(client, name).await? {
        Some(_) => Err(describe_foreign_node(name)),
        None => Ok(()),
    }
}

pub(super) fn describe_foreign_node(name: &str) -> Error {
    Error::Refused(format!(
        "the cluster has a node {name} that this machine did not create; if that is another machine, join with another \
         --node-name (after `ironclad reset`, if the command had begun); if it no longer exists, run `kubectl delete node {name}`, \
         and then this command again"
    ))
}

async fn find_node(client: &Client, name: &str) -> Result<Option<Node>> {
    match client.api::<Node>().get(name).await {
        Ok(node) => Ok(Some(node)),
        // An administrator may have removed the token's right to read nodes.
        Err(error) if error.is_not_found() || error.is_forbidden() => Ok(None),
        Err(cause) => Err(Error::Api {
            what: format!("reading Node {name}"),
            cause,
        }),
    }
}

/// Waits until the cluster has allocated the addresses of the node's pods.
pub(super) async fn wait_for_pods(
    client: &Client,
    settings: &Settings,
    layout: &Layout,
) -> Result<Ranges> {
    let find = |node: &Node| Some(list_pod_ranges(node)).filter(|ranges| !ranges.is_empty());
    let log = layout.log("kubelet");
    let what = "the allocation of pod addresses";
    let ranges = wait::watch_until(client, &settings.node_name, what, &log, find).await?;
    let text: Vec<_> = ranges.iter().map(ToString::to_string).collect();
    let text = text.join(",");
    // A Node that another client created may have any range.
    let is_allocated = |pods: &Ranges| {
        let families = settings.pod_cidr.families();
        settings.pod_cidr.includes_all(pods) && pods.families() == families
    };
    Ranges::from_list(&ranges)
        .ok()
        .filter(is_allocated)
        .ok_or_else(|| {
            Error::Refused(format!(
                "the pods of this node have the range {text}, which is not in the cluster's range {}; run `kubectl delete node {}`, and \
                 then this command again",
                settings.pod_cidr, settings.node_name
            ))
        })
}
