//! Limits a kubelet to its own Node, Lease and CSINode, the status of pods bound to its node, its
//! own mirror pods, and tokens and certificates for pods that run there, also if its role allows
//! more.

mod labels;
mod pod_certificates;
mod pods;
mod tokens;

use crate::certificates;
use crate::context::{Context, forbidden_error, list_at, string_at};
use api_meta::{ApiError, Meta, semantic};
use apiserver_authz::node_name;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;

/// Restricts requests of kubelets.
pub struct NodeRestriction(pub Context);

#[async_trait::async_trait]
impl Admission for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    // Checked twice: before the other plugins for an early rejection, and after them on the object
    // that is stored.
    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check_request(request).await
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check_request(request).await
    }
}

impl NodeRestriction {
    async fn check_request(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let Some(node) = node_name(request.user) else {
            return Ok(());
        };
        // A member of system:nodes without a node's name can't be limited to its own objects.
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", request.user.name);
            return Err(forbidden_error(request, why));
        }
        match (request.group, request.resource) {
            // Every other resource is left to the Node authorizer and RBAC.
            ("", "pods") => self.check_pod(request, node).await,
            ("", "nodes") => check_own_node(request, node),
            ("", "persistentvolumeclaims") => check_claim(request, node),
            ("", "serviceaccounts") => self.check_token(request, node).await,
            ("coordination.k8s.io", "leases") => check_lease(request, node),
            ("storage.k8s.io", "csinodes") => check_csi_node(request, node),
            ("resource.k8s.io", "resourceslices") => check_slice(request, node),
            ("certificates.k8s.io", "certificatesigningrequests") => check_certificate(request),
            ("certificates.k8s.io", "podcertificaterequests") => {
                self.check_pod_certificate(request, node).await
            }
            _ => Ok(()),
        }
    }
}

fn check_own_node(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    // A create carries the name only in the object.
    let name = if request.name.is_empty() {
        request.object.name()
    } else {
        request.name
    };
    if name != node {
        return Err(forbidden_error(
            request,
            format!("node {node:?} is not allowed to modify node {name:?}"),
        ));
    }
    let problem = match (request.operation, &request.old) {
        (Operation::Create, _) => find_forbidden_field(&request.object, node),
        (Operation::Update, Some(old)) => find_forbidden_change(&request.object, old, node),
        _ => None,
    };
    problem.map_or(Ok(()), |why| Err(forbidden_error(request, why)))
}

// spec.configSource could make a node read any ConfigMap.
const CONFIG_SOURCE: &str = "/spec/configSource";

fn has_config_source(node: &Value) -> bool {
    node.pointer(CONFIG_SOURCE)
        .is_some_and(|source| !source.is_null())
}

/// Returns why a kubelet may not create its node like this.
fn find_forbidden_field(object: &Value, node: &str) -> Option<String> {
    if has_config_source(object) {
        return Some(format!("node {node:?} is not allowed to set configSource"));
    }
    // Pods are kept off a node by labels that only an administrator may set. A kubelet that could
    // set them would attract such pods.
    let set = labels::forbidden_changes(object, &Value::Null);
    (!set.is_empty()).then(|| {
        format!(
            "node {node:?} is not allowed to set the following labels: {}",
            set.join(", ")
        )
    })
}

/// Returns why a kubelet may not update its node like this.
fn find_forbidden_change(object: &Value, old: &Value, node: &str) -> Option<String> {
    // Labels that were set by an administrator may stay in an update, since only changes count.
    let changed = labels::forbidden_changes(object, old);
    if !changed.is_empty() {
        let changed = changed.join(", ");
        return Some(format!("is not allowed to modify labels: {changed}"));
    }
    // A kubelet that removed its taints would attract pods. It registers with any taints.
    let field = if list_at(object, "/spec/taints") != list_at(old, "/spec/taints") {
        "taints"
    } else if has_config_source(object)
        && object.pointer(CONFIG_SOURCE) != old.pointer(CONFIG_SOURCE)
    {
        "configSource"
    // An owner reference could make the garbage collector delete the Node.
    } else if list_at(object, "/metadata/ownerReferences")
        != list_at(old, "/metadata/ownerReferences")
    {
        "ownerReferences"
    } else {
        return None;
    };
    Some(format!("node {node:?} is not allowed to modify {field}"))
}

fn check_claim(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    if request.subresource != "status" || request.operation != Operation::Update {
        return Err(forbidden_error(
            request,
            format!("node {node:?} may only update PVC status"),
        ));
    }
    let old = request.old.as_ref().unwrap_or(&Value::Null);
    let new = &request.object;
    // resourceVersion may be absent (an unconditional update), and the server writes managedFields:
    // ignore both.
    let metadata = semantic::equal_except(
        &old["metadata"],
        &new["metadata"],
        &["resourceVersion", "managedFields"],
    );
    // The fields that a kubelet reports after it has expanded a volume.
    let kubelet = [
        "capacity",
        "conditions",
        "allocatedResources",
        "allocatedResourceStatuses",
    ];
    let status = semantic::equal_except(&old["status"], &new["status"], &kubelet);
    if metadata && status && semantic::equal_except(old, new, &["metadata", "status"]) {
        return Ok(());
    }
    let why = format!(
        "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
    );
    Err(forbidden_error(request, why))
}

/// Checks that a node creates and deletes only its own slices; the Node authorizer can't see the
/// content of new slices or of collections.
fn check_slice(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    // A delete carries no new object. The stored one says which node the slice belongs to.
    let slice = match request.operation {
        Operation::Delete => request.old.as_ref().unwrap_or(&Value::Null),
        _ => &request.object,
    };
    if string_at(slice, "/spec/nodeName") == node {
        return Ok(());
    }
    Err(forbidden_error(
        request,
        "can only create, update or delete a ResourceSlice with spec.nodeName set to the requesting node",
    ))
}

fn check_lease(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    // Leases elsewhere elect leaders. A kubelet that holds one could stop a controller.
    if request.namespace != "kube-node-lease" {
        return Err(forbidden_error(
            request,
            "can only access leases in the \"kube-node-lease\" system namespace",
        ));
    }
    let name = if request.operation == Operation::Create {
        request.object.name()
    } else {
        request.name
    };
    if name != node {
        return Err(forbidden_error(
            request,
            "can only access node lease with the same name as the requesting node",
        ));
    }
    Ok(())
}

fn check_csi_node(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    let name = if request.operation == Operation::Create {
        request.object.name()
    } else {
        request.name
    };
    if name != node {
        return Err(forbidden_error(
            request,
            "can only access CSINode with the same name as the requesting node",
        ));
    }
    Ok(())
}

fn check_certificate(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    // A certificate for another node's name would give access to that node's Secrets.
    let signer = string_at(&request.object, "/spec/signerName");
    let for_nodes = matches!(
        signer,
        "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
    );
    if request.operation != Operation::Create || !for_nodes {
        return Ok(());
    }
    match certificates::read_request(&request.object) {
        // An unreadable request is rejected as well, because its subject is unknown.
        Ok(read) if read.common_name == request.user.name => Ok(()),
        _ => Err(forbidden_error(
            request,
            format!("can only create a node CSR with CN={}", request.user.name),
        )),
    }
}
