//! Restrictions of a kubelet's requests about pods.

use super::NodeRestriction;
use crate::context::{forbidden_error, list_at, string_at};
use api_meta::{ApiError, Meta, semantic};
use apiserver_request::{AdmissionRequest, Operation};
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";

impl NodeRestriction {
    pub(super) async fn check_pod(
        &self,
        request: &AdmissionRequest<'_>,
        node: &str,
    ) -> Result<(), ApiError> {
        match (request.subresource, request.operation) {
            ("", Operation::Create) => {
                check_create(request, node).map_err(|why| forbidden_error(request, why))?;
                self.owner_is_current(request, node).await
            }
            ("", Operation::Delete) => self.check_deletion(request, node).await,
            // The main resource of a pod is written by controllers, never by its kubelet.
            ("", _) => {
                let why = format!(
                    "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
                );
                Err(forbidden_error(request, why))
            }
            ("status", _) => {
                check_status(request, node).map_err(|why| forbidden_error(request, why))
            }
            ("eviction", _) => self.check_eviction(request, node).await,
            (other, _) => {
                let why = format!(
                    "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
                );
                Err(forbidden_error(request, why))
            }
        }
    }

    /// Checks that the owner of a mirror pod is the current Node object, not a deleted one of the
    /// same name.
    async fn owner_is_current(
        &self,
        request: &AdmissionRequest<'_>,
        node: &str,
    ) -> Result<(), ApiError> {
        let stored = self
            .0
            .find_object("", "nodes", "", node)
            .await?
            .ok_or_else(|| ApiError::not_found("", "nodes", node))?;
        // The garbage collector deletes a pod whose owner has another uid.
        let uid = string_at(&request.object, "/metadata/ownerReferences/0/uid");
        if uid == stored.uid() {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!(
                "node {node} UID mismatch: expected {uid} got {}",
                stored.uid()
            ),
        ))
    }

    async fn check_deletion(
        &self,
        request: &AdmissionRequest<'_>,
        node: &str,
    ) -> Result<(), ApiError> {
        // A deletion of a collection admits each object with its stored state.
        let stored = match &request.old {
            Some(old) => Some(old.clone()),
            None => self
                .0
                .find_object("", "pods", request.namespace, request.name)
                .await?
                .map(|p| (*p).clone()),
        };
        let stored = stored.ok_or_else(|| ApiError::not_found("", "pods", request.name))?;
        if string_at(&stored, "/spec/nodeName") == node {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!("node {node:?} can only delete pods with spec.nodeName set to itself"),
        ))
    }

    async fn check_eviction(
        &self,
        request: &AdmissionRequest<'_>,
        node: &str,
    ) -> Result<(), ApiError> {
        // The eviction names its pod only in the path; the body carries no node.
        let pod = self
            .0
            .find_object("", "pods", request.namespace, request.name)
            .await?;
        let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", request.name))?;
        if string_at(&pod, "/spec/nodeName") == node {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!("node {node} can only evict pods with spec.nodeName set to itself"),
        ))
    }
}

fn check_status(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    // The stored pod counts: a request could claim in its body that another node's pod runs here.
    let old = request.old.as_ref().unwrap_or(&request.object);
    if string_at(old, "/spec/nodeName") != node {
        return Err(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    // Labels select pods for Services and policies; a kubelet must not move pods between them.
    if old.labels() != request.object.labels() {
        return Err(format!(
            "node {node:?} cannot update labels through pod status"
        ));
    }
    // The Node authorizer grants a node access to the claims that these fields name.
    let same = |pointer: &str| {
        let of = |pod: &Value| pod.pointer(pointer).cloned().unwrap_or_default();
        semantic::equal(&of(old), &of(&request.object))
    };
    if !same("/status/resourceClaimStatuses") {
        return Err(format!(
            "node {node:?} cannot update resource claim statuses"
        ));
    }
    if !same("/status/extendedResourceClaimStatus") {
        return Err(format!(
            "node {node:?} cannot update extended resource claim status"
        ));
    }
    if !same("/metadata/finalizers") || !same("/metadata/ownerReferences") {
        return Err(format!(
            "node {node:?} cannot update finalizers or owner references through pod status"
        ));
    }
    Ok(())
}

fn check_create(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    // Without these rules, a compromised node could create pods with any ServiceAccount and read
    // the Secrets of every namespace.
    let pod = &request.object;
    if pod.annotation(MIRROR).is_none() {
        return Err(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if string_at(pod, "/spec/nodeName") != node {
        return Err(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    // The owner reference lets the garbage collector remove mirror pods of a deleted Node.
    check_owner(pod, node)?;
    match forbidden_reference(pod) {
        Some(what) => Err(format!(
            "node {node:?} can not create pods that reference {what}"
        )),
        None => Ok(()),
    }
}

/// Returns the API objects that a pod refers to.
fn forbidden_reference(pod: &Value) -> Option<&'static str> {
    let volumes = list_at(pod, "/spec/volumes");
    let has = |field: &str| {
        volumes
            .iter()
            .any(|v| v.get(field).is_some_and(|s| !s.is_null()))
    };
    let env = |field: &str| all_containers(pod).any(|c| uses_source(c, field));
    // In-tree drivers name Secrets in fields of their own, which all have one of two names.
    let source_secret = || {
        volumes
            .iter()
            .filter_map(Value::as_object)
            .flat_map(|v| v.values())
            .any(names_secret)
    };
    let sources = volumes
        .iter()
        .flat_map(|v| list_at(v, "/projected/sources"));
    let given = |source: &Value| {
        source
            .as_object()
            .is_some_and(|s| s.iter().any(|(k, v)| k != "downwardAPI" && !v.is_null()))
    };
    // The order decides which reference a rejection names.
    let found = [
        (
            !string_at(pod, "/spec/serviceAccountName").is_empty(),
            "a service account",
        ),
        (
            has("secret") || env("secret") || has("azureFile") || source_secret(),
            "secrets",
        ),
        (
            !list_at(pod, "/spec/imagePullSecrets").is_empty(),
            "secrets",
        ),
        (has("configMap") || env("configMap"), "configmaps"),
        (
            // The controller creates a claim for an ephemeral volume, with rights that the node
            // lacks.
            has("persistentVolumeClaim") || has("ephemeral"),
            "persistentvolumeclaims",
        ),
        (sources.into_iter().any(given), "projected volumes"),
        (has("csi"), "csidrivers"),
        // The volume names an Endpoints object, which the Node authorizer would then let the node
        // read.
        (has("glusterfs"), "endpoints"),
        (
            !list_at(pod, "/spec/resourceClaims").is_empty(),
            "resourceclaims",
        ),
    ];
    found
        .into_iter()
        .find_map(|(refers, what)| refers.then_some(what))
}

fn names_secret(source: &Value) -> bool {
    ["secretRef", "nodePublishSecretRef"]
        .iter()
        .any(|field| source.get(field).is_some_and(|s| !s.is_null()))
}

fn all_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    [
        "/spec/containers",
        "/spec/initContainers",
        "/spec/ephemeralContainers",
    ]
    .into_iter()
    .flat_map(|l| list_at(pod, l))
}

fn uses_source(container: &Value, what: &str) -> bool {
    let key = format!("/valueFrom/{what}KeyRef");
    let from = format!("/{what}Ref");
    list_at(container, "/env")
        .iter()
        .any(|e| e.pointer(&key).is_some())
        || list_at(container, "/envFrom")
            .iter()
            .any(|e| e.pointer(&from).is_some())
}

fn check_owner(pod: &Value, node: &str) -> Result<(), String> {
    let owners = list_at(pod, "/metadata/ownerReferences");
    // With a second owner, the mirror pod would survive the deletion of its Node.
    let [owner] = owners else {
        let how = if owners.is_empty() { "an" } else { "a single" };
        return Err(format!(
            "node {node:?} can only create pods with {how} owner reference set to itself"
        ));
    };
    if (
        string_at(owner, "/apiVersion"),
        string_at(owner, "/kind"),
        string_at(owner, "/name"),
    ) != ("v1", "Node", node)
    {
        return Err(format!(
            "node {node:?} can only create pods with an owner reference set to itself"
        ));
    }
    if owner.get("controller") != Some(&Value::Bool(true)) {
        return Err(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    // It would let a kubelet prevent the deletion of its Node.
    if owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
        return Err(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    Ok(())
}
