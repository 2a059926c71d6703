//! A kubelet writes its own Node, Lease and CSINode, the status of pods bound to its node, mirror pods of its own, and
//! tokens for pods that run there. Nothing else, whatever its role allows.

mod labels;
mod pods;

use crate::certificates;
use crate::context::{Context, forbidden, list, text};
use api_meta::{ApiError, Meta};
use apiserver_authz::node_name;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;

/// The plugin.
pub struct NodeRestriction(pub Context);

#[async_trait::async_trait]
impl Admission for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check(request).await
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check(request).await
    }
}

impl NodeRestriction {
    async fn check(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let Some(node) = node_name(request.user) else { return Ok(()) };
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", request.user.name);
            return Err(forbidden(request, why));
        }
        match (request.group, request.resource) {
            ("", "pods") => self.pod(request, node).await,
            ("", "nodes") => own_node(request, node),
            ("", "persistentvolumeclaims") => claim(request, node),
            ("", "serviceaccounts") => self.token(request, node).await,
            ("coordination.k8s.io", "leases") => lease(request, node),
            ("storage.k8s.io", "csinodes") => csi_node(request, node),
            ("certificates.k8s.io", "certificatesigningrequests") => certificate(request),
            _ => Ok(()),
        }
    }

    async fn token(&self, request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
        if request.operation != Operation::Create || request.subresource != "token" {
            return Ok(());
        }
        let reference = request.object.pointer("/spec/boundObjectRef").unwrap_or(&Value::Null);
        let (name, uid) = (text(reference, "/name"), text(reference, "/uid"));
        if text(reference, "/kind") != "Pod" || text(reference, "/apiVersion") != "v1" || name.is_empty() {
            return Err(forbidden(request, "node requested token not bound to a pod"));
        }
        if uid.is_empty() {
            return Err(forbidden(request, "node requested token with a pod binding without a uid"));
        }
        let pod = self.0.find("", "pods", request.namespace, name).await?;
        let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", name))?;
        if pod.uid() != uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(forbidden(request, why));
        }
        if text(&pod, "/spec/nodeName") != node {
            return Err(forbidden(request, "node requested token bound to a pod scheduled on a different node"));
        }
        Ok(())
    }
}

fn own_node(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    let name = if request.name.is_empty() { request.object.name() } else { request.name };
    if name != node {
        return Err(forbidden(request, format!("node {node:?} is not allowed to modify node {name:?}")));
    }
    match (request.operation, &request.old) {
        (Operation::Create, _) => {
            let set = labels::forbidden_changes(&request.object, &Value::Null);
            if !set.is_empty() {
                let why = format!("node {node:?} is not allowed to set the following labels: {}", set.join(", "));
                return Err(forbidden(request, why));
            }
        }
        (Operation::Update, Some(old)) => {
            let changed = labels::forbidden_changes(&request.object, old);
            if !changed.is_empty() {
                return Err(forbidden(request, format!("is not allowed to modify labels: {}", changed.join(", "))));
            }
            if list(&request.object, "/spec/taints") != list(old, "/spec/taints") {
                return Err(forbidden(request, format!("node {node:?} is not allowed to modify taints")));
            }
            if list(&request.object, "/metadata/ownerReferences") != list(old, "/metadata/ownerReferences") {
                return Err(forbidden(request, format!("node {node:?} is not allowed to modify ownerReferences")));
            }
        }
        _ => {}
    }
    Ok(())
}

fn claim(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    if request.subresource != "status" || request.operation != Operation::Update {
        return Err(forbidden(request, format!("node {node:?} may only update PVC status")));
    }
    Ok(())
}

fn lease(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    if request.namespace != "kube-node-lease" {
        return Err(forbidden(request, "can only access leases in the \"kube-node-lease\" system namespace"));
    }
    let name = if request.operation == Operation::Create { request.object.name() } else { request.name };
    if name != node {
        return Err(forbidden(request, "can only access node lease with the same name as the requesting node"));
    }
    Ok(())
}

fn csi_node(request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
    let name = if request.operation == Operation::Create { request.object.name() } else { request.name };
    if name != node {
        return Err(forbidden(request, "can only access CSINode with the same name as the requesting node"));
    }
    Ok(())
}

fn certificate(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let signer = text(&request.object, "/spec/signerName");
    let for_nodes = matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet");
    if request.operation != Operation::Create || !for_nodes {
        return Ok(());
    }
    match certificates::subject(&request.object) {
        Some((name, _)) if name == request.user.name => Ok(()),
        _ => Err(forbidden(request, format!("can only create a node CSR with CN={}", request.user.name))),
    }
}
