//! Creates the Node objects of a cluster with several nodes before their kubelets start.
//!
//! The controller manager would allocate ranges of pods in the order in which kubelets register, but
//! the CNI configurations, routes and the address of cluster DNS are written before. A Node that is
//! created with its range keeps it.

use client::Client;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::start::start_processes;
use super::wait;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::plan::{Plan, make_plan};
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
    for node in &nodes {
        create_node(client, node).await?;
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
