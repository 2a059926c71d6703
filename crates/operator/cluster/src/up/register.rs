//! Creates the Node objects of a cluster with several nodes before their kubelets start.
//!
//! The controller manager would allocate ranges of pods in the order in which kubelets register, but
//! the CNI configurations, routes and the address of cluster DNS are written before. A Node that is
//! created with its range keeps it.

use client::{Client, ListParams};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::start::start_processes;
use super::wait;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::plan::{Plan, make_plan};
use crate::routes::GATEWAY;
use crate::settings::Settings;

/// Creates the missing Node objects. Kubelets of nodes that were planned before keep running.
pub(super) async fn register_nodes(
    settings: &Settings,
    layout: &Layout,
    client: &Client,
) -> Result<()> {
    let nodes = settings.nodes();
    let known = planned_nodes(layout);
    // With one node there is nothing to choose: it gets the first range.
    if nodes.len() == 1 || nodes.iter().all(|node| known.contains(&node.name)) {
        return Ok(());
    }
    let mut plan = make_plan(settings, layout);
    plan.keep_kubelets(&known);
    start_processes(settings, layout, plan)?;
    wait::wait_for_api_server(client, layout).await?;
    check_ranges_are_free(client, &nodes).await?;
    for node in &nodes {
        create_node(client, node).await?;
    }
    Ok(())
}

/// Rejects new nodes whose range of pods another machine has got that joined in the meantime.
async fn check_ranges_are_free(client: &Client, nodes: &[ClusterNode]) -> Result<()> {
    let list = client.api::<Node>().list(&ListParams::new()).await;
    let list = list.map_err(|cause| Error::Api {
        what: "listing the nodes".to_owned(),
        cause,
    })?;
    match find_range_conflict(nodes, &list.items) {
        None => Ok(()),
        Some((name, range)) => Err(Error::Refused(format!(
            "node {name} joined the cluster and has the addresses {range}, which a further node of this machine would need; \
             remove that node first, or leave --nodes as it was"
        ))),
    }
}

/// Returns a node of another machine, and its range, if a node of `own` has the same range.
fn find_range_conflict(own: &[ClusterNode], nodes: &[Node]) -> Option<(String, String)> {
    nodes.iter().find_map(|node| {
        let name = node.metadata.name.clone()?;
        let range = node.spec.as_ref()?.pod_cidr.clone()?;
        let taken = |own: &ClusterNode| own.name != name && own.pods.to_string() == range;
        own.iter().any(taken).then_some((name, range))
    })
}

/// Publishes the address through which other machines reach a node that is a namespace of this one.
pub(super) async fn publish_gateways(settings: &Settings, client: &Client) -> Result<()> {
    for node in settings.nodes().iter().filter(|node| node.is_isolated) {
        let patch = json!({ "metadata": { "annotations": { GATEWAY: settings.node_address } } });
        let api = client.api::<Node>();
        let patched = api.patch(&node.name, &client::Patch::Merge(patch)).await;
        patched.map_err(|cause| Error::Api {
            what: format!("Node {}", node.name),
            cause,
        })?;
    }
    Ok(())
}

/// Returns the names of the nodes whose kubelet is in the present plan.
fn planned_nodes(layout: &Layout) -> Vec<String> {
    // A plan that can't be read is replaced anyway.
    let plan: Plan = std::fs::read(layout.plan())
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    plan.nodes_with_kubelet().map(str::to_owned).collect()
}

async fn create_node(client: &Client, node: &ClusterNode) -> Result<()> {
    let failed = |cause| Error::Api {
        what: format!("Node {}", node.name),
        cause,
    };
    let object: Node = serde_json::from_value(node_object(node))
        .map_err(|error| Error::Refused(format!("{} can't be built: {error}", node.name)))?;
    match client.api::<Node>().create(&object).await {
        Err(error) if error.is_already_exists() => Ok(()),
        done => done.map(drop).map_err(failed),
    }
}

/// Returns the Node as a kubelet would create it, with the range of its pods. The kubelet adds the
/// remaining labels and the status.
fn node_object(node: &ClusterNode) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": { "kubernetes.io/hostname": node.name },
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
        "spec": { "podCIDR": node.pods, "podCIDRs": [node.pods] },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn node_is_created_with_the_range_of_its_pods() {
        let settings = Settings::with_nodes(2);
        let object = node_object(&ClusterNode::new(&settings, 2));
        let node: Node = serde_json::from_value(object).unwrap();
        assert_eq!(node.metadata.name.as_deref(), Some("n1-2"));
        let spec = node.spec.unwrap();
        assert_eq!(spec.pod_cidr.as_deref(), Some("10.244.1.0/24"));
        assert_eq!(spec.pod_cidrs.unwrap(), ["10.244.1.0/24"]);
    }

    #[test]
    fn range_that_a_joined_node_has_is_not_used_again() {
        let own = Settings::with_nodes(3).nodes();
        let node = |name: &str, range: &str| -> Node {
            let tree = json!({"metadata": {"name": name}, "spec": {"podCIDR": range}});
            serde_json::from_value(tree).unwrap()
        };
        let known = [node("n1", "10.244.0.0/24"), node("n1-2", "10.244.1.0/24")];
        assert_eq!(find_range_conflict(&own, &known), None);
        let joined = [node("w1", "10.244.2.0/24")];
        let found = find_range_conflict(&own, &joined).map(|(name, _)| name);
        assert_eq!(found.as_deref(), Some("w1"));
        assert_eq!(
            find_range_conflict(&own, &[node("w1", "10.244.9.0/24")]),
            None
        );
    }

    #[test]
    fn only_kubelets_of_new_nodes_wait_for_their_objects() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        assert!(planned_nodes(&layout).is_empty());
        let before = make_plan(&Settings::example(), &layout);
        std::fs::write(layout.plan(), serde_json::to_vec(&before).unwrap()).unwrap();
        let known = planned_nodes(&layout);
        assert_eq!(known, ["n1"]);
        let mut plan = make_plan(&Settings::with_nodes(2), &layout);
        plan.keep_kubelets(&known);
        let names: Vec<_> = plan.processes.iter().map(|p| p.name.as_str()).collect();
        assert!(names.contains(&"kubelet") && names.contains(&"containerd-2"));
        assert!(!names.contains(&"kubelet-2"), "{names:?}");
    }
}
