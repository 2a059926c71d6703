//! Creates the Node objects of a cluster with several nodes before their kubelets start.
//!
//! The controller manager would allocate ranges of pods in the order in which kubelets register,
//! but the CNI configurations, routes and the address of cluster DNS are written before. A Node
//! that is created with its range keeps it.

use std::net::IpAddr;
use std::time::Duration;

use client::{Client, Decode, ListParams};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::start::start_processes;
use super::wait;
use crate::connect::connect_admin;
use crate::control_plane::CONTROL_PLANE_LABEL;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::plan::{Plan, make_plan};
use crate::routes::GATEWAY;
use crate::settings::Settings;

/// Time for the list of nodes, which a running API server returns at once.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

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
    let processes = start_processes(settings, layout, plan)?;
    // The former API server would end during the requests below.
    wait::wait_for_own_server(settings, &processes, layout).await?;
    wait::wait_for_api_server(client, layout).await?;
    // A machine may have joined since `check_added_nodes`.
    check_ranges_are_free(&nodes, &list_nodes(client).await?)?;
    for node in &nodes {
        create_node(client, node).await?;
    }
    Ok(())
}

/// Rejects nodes that an `up` would add to a cluster if another machine has the addresses of their
/// pods. Nothing is stored before: routes and plans are computed from the stored number of nodes.
///
/// # Errors
/// Another machine has a range, or the API server does not respond.
pub(super) async fn check_added_nodes(settings: &Settings, layout: &Layout) -> Result<()> {
    let before = Settings::load(&settings.data_dir)?;
    let is_larger = before.is_some_and(|before| before.node_count < settings.node_count);
    // Without the kubeconfig no API server was ever started, and no machine can have joined.
    if !is_larger || !layout.admin_kubeconfig().exists() {
        return Ok(());
    }
    let client = connect_admin(settings, layout)?;
    let listed = tokio::time::timeout(LIST_TIMEOUT, list_nodes(&client)).await;
    match listed {
        Ok(Ok(nodes)) => check_ranges_are_free(&settings.nodes(), &nodes),
        Ok(Err(Error::Api { cause, .. })) if !cause.is_unavailable() => Err(Error::Api {
            what: "listing the nodes".to_owned(),
            cause,
        }),
        _ => Err(Error::Refused(
            "the API server does not respond, and a machine that joined the cluster may have the addresses of further nodes; \
             start the cluster with `ironclad up` first, and run the command again"
                .to_owned(),
        )),
    }
}

async fn list_nodes(client: &Client) -> Result<Vec<Node>> {
    let list = client.api::<Node>().list(&ListParams::new()).await;
    list.map(|list| list.items).map_err(|cause| Error::Api {
        what: "listing the nodes".to_owned(),
        cause,
    })
}

/// Rejects new nodes whose range of pods another machine has.
fn check_ranges_are_free(own: &[ClusterNode], nodes: &[Node]) -> Result<()> {
    match find_range_conflict(own, nodes) {
        None => Ok(()),
        Some((name, range)) => Err(Error::Refused(format!(
            "node {name} joined the cluster and has the addresses {range}, which a further node of this machine would need; \
             leave --nodes as it was, or remove that node first: `ironclad reset` on its machine, and `kubectl delete node {name}`"
        ))),
    }
}

/// Returns a node of another machine, and its range, if a node of `own` has a part of that range.
fn find_range_conflict(own: &[ClusterNode], nodes: &[Node]) -> Option<(String, IpNet)> {
    nodes.iter().find_map(|node| {
        let name = node.metadata.name.clone()?;
        let taken = |range: &IpNet| {
            let overlaps = |own: &ClusterNode| own.name != name && own.pods.overlap(*range);
            own.iter().any(overlaps)
        };
        let range = list_pod_ranges(node).into_iter().find(taken)?;
        Some((name, range))
    })
}

/// Returns the ranges of a node's pods.
pub(crate) fn list_pod_ranges(node: &Node) -> Vec<IpNet> {
    let spec = node.spec.as_ref();
    let listed = spec.and_then(|spec| spec.pod_cidrs.clone());
    let single = spec.and_then(|spec| Some(vec![spec.pod_cidr.clone()?]));
    let texts = listed.or(single).unwrap_or_default();
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Publishes the address through which other machines reach a node that is a namespace of this one.
pub(super) async fn publish_gateways(settings: &Settings, client: &Client) -> Result<()> {
    // Routes are of IPv4, as labels are: they can't have the colons of other addresses.
    let IpAddr::V4(gateway) = settings.node_address else {
        return Ok(());
    };
    for node in settings.nodes().iter().filter(|node| node.is_isolated) {
        let patch = json!({ "metadata": { "labels": { GATEWAY: gateway } } });
        let api = client.api::<Node>();
        let patched = api.patch(&node.name, &client::Patch::Merge(patch)).await;
        patched.map_err(|cause| Error::Api {
            what: format!("Node {}", node.name),
            cause,
        })?;
    }
    Ok(())
}

/// Gives the node of this machine the label of nodes with a control plane.
pub(super) async fn label_control_plane(settings: &Settings, client: &Client) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { CONTROL_PLANE_LABEL: "" } } });
    let api = client.api::<Node>();
    let patched = api
        .patch(&settings.node_name, &client::Patch::Merge(patch))
        .await;
    patched.map(drop).map_err(|cause| Error::Api {
        what: format!("Node {}", settings.node_name),
        cause,
    })
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
    let object = Node::decode_tree(&node_object(node))
        .map_err(|error| Error::Refused(format!("{} can't be built: {error}", node.name)))?;
    match client.api::<Node>().create(&object).await {
        // A start that was interrupted may have created it.
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
            // As upstream's kubelet sets it: without it the attach/detach controller skips the
            // node.
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
        "spec": { "podCIDR": node.pods.primary(), "podCIDRs": node.pods.iter().collect::<Vec<_>>() },
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
        let large = [node("w1", "10.244.0.0/22")];
        assert!(find_range_conflict(&own, &large).is_some());
        assert_eq!(
            find_range_conflict(&own, &[node("w1", "10.244.9.0/24")]),
            None
        );
    }

    /// A stored number of nodes would give the range of a joined machine to a further node.
    #[tokio::test]
    async fn nodes_are_added_only_while_the_api_server_responds() {
        let dir = tempfile::tempdir().unwrap();
        let in_dir = |settings: Settings| Settings {
            data_dir: dir.path().into(),
            ..settings
        };
        let (one, two) = (in_dir(Settings::example()), in_dir(Settings::with_nodes(2)));
        let layout = Layout::new(dir.path(), false);
        check_added_nodes(&two, &layout).await.unwrap();
        one.save().unwrap();
        check_added_nodes(&two, &layout).await.unwrap();
        // Bound and not listening: no other program can take the port.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let server = format!("http://{}", socket.local_addr().unwrap());
        let kubeconfig = json!({
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}],
            "current-context": "x",
        });
        std::fs::write(layout.admin_kubeconfig(), kubeconfig.to_string()).unwrap();
        let error = check_added_nodes(&two, &layout).await.unwrap_err();
        assert!(error.to_string().contains("does not respond"), "{error}");
        check_added_nodes(&one, &layout).await.unwrap();
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
