//! What a kubelet does with pods.

use super::NodeRestriction;
use crate::context::{forbidden, list, text};
use api_meta::{ApiError, Meta};
use apiserver_request::{AdmissionRequest, Operation};
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";

impl NodeRestriction {
    pub(super) async fn pod(&self, request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
        match (request.subresource, request.operation) {
            ("", Operation::Create) => create(request, node).map_err(|why| forbidden(request, why)),
            ("", Operation::Delete) => self.delete(request, node).await,
            ("", _) => {
                let why =
                    format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods");
                Err(forbidden(request, why))
            }
            ("status", _) => status(request, node).map_err(|why| forbidden(request, why)),
            ("eviction", _) => self.eviction(request, node).await,
            (other, _) => {
                let why = format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed");
                Err(forbidden(request, why))
            }
        }
    }

    async fn delete(&self, request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
        let stored = match &request.old {
            Some(old) => Some(old.clone()),
            None => self.0.find("", "pods", request.namespace, request.name).await?.map(|p| (*p).clone()),
        };
        let stored = stored.ok_or_else(|| ApiError::not_found("", "pods", request.name))?;
        if text(&stored, "/spec/nodeName") == node {
            return Ok(());
        }
        Err(forbidden(request, format!("node {node:?} can only delete pods with spec.nodeName set to itself")))
    }

    async fn eviction(&self, request: &AdmissionRequest<'_>, node: &str) -> Result<(), ApiError> {
        let pod = self.0.find("", "pods", request.namespace, request.name).await?;
        let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", request.name))?;
        if text(&pod, "/spec/nodeName") == node {
            return Ok(());
        }
        Err(forbidden(request, format!("node {node} can only evict pods with spec.nodeName set to itself")))
    }
}

fn status(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    let old = request.old.as_ref().unwrap_or(&request.object);
    if text(old, "/spec/nodeName") != node {
        return Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if old.labels() != request.object.labels() {
        return Err(format!("node {node:?} cannot update labels through pod status"));
    }
    Ok(())
}

fn create(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    let pod = &request.object;
    if pod.annotation(MIRROR).is_none() {
        return Err(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if text(pod, "/spec/nodeName") != node {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    owner(pod, node)?;
    let refers = |what: &str| Err(format!("node {node:?} can not create pods that reference {what}"));
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return refers("a service account");
    }
    let volumes = list(pod, "/spec/volumes");
    let has = |field: &str| volumes.iter().any(|v| v.get(field).is_some_and(|s| !s.is_null()));
    let env = |field: &str| containers(pod).any(|c| uses(c, field));
    if has("secret") || env("secret") {
        return refers("secrets");
    }
    if has("configMap") || env("configMap") {
        return refers("configmaps");
    }
    if has("persistentVolumeClaim") || has("ephemeral") {
        return refers("persistentvolumeclaims");
    }
    if has("projected") {
        return refers("projected volumes");
    }
    if !list(pod, "/spec/resourceClaims").is_empty() {
        return refers("resourceclaims");
    }
    Ok(())
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|l| list(pod, l))
}

fn uses(container: &Value, what: &str) -> bool {
    let key = format!("/valueFrom/{what}KeyRef");
    let from = format!("/{what}Ref");
    list(container, "/env").iter().any(|e| e.pointer(&key).is_some())
        || list(container, "/envFrom").iter().any(|e| e.pointer(&from).is_some())
}

fn owner(pod: &Value, node: &str) -> Result<(), String> {
    let owners = list(pod, "/metadata/ownerReferences");
    let [owner] = owners else {
        let how = if owners.is_empty() { "an" } else { "a single" };
        return Err(format!("node {node:?} can only create pods with {how} owner reference set to itself"));
    };
    if (text(owner, "/apiVersion"), text(owner, "/kind"), text(owner, "/name")) != ("v1", "Node", node) {
        return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner.get("controller") != Some(&Value::Bool(true)) {
        return Err(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
        return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    Ok(())
}
