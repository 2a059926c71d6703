//! Resizes of pods: what their node supports, and what it could ever allocate.

use crate::context::{Context, forbidden_error, list_at, string_at};
use api_meta::{ApiError, Cause, Meta};
use api_semantics::quantities::parse_quantity;
use api_semantics::resources::{Options, ResourceList, count, pod_requests};
use api_semantics::tree;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;
use std::sync::Arc;

const POD_LEVEL: &str = "InPlacePodLevelResourcesVerticalScaling";
const INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";
/// Minor version of the first release in which nodes declare their features by default.
const DECLARED_SINCE: u32 = 36;

/// Rejects changes of a pod that need a feature which its node does not declare (KEP-5328): the
/// change would be stored, and never happen.
pub struct NodeDeclaredFeatureValidator(pub Context);

/// Rejects resizes that the pod's node can't ever allocate.
pub struct PodResizeValidator(pub Context);

#[async_trait::async_trait]
impl Admission for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let Some(old) = find_change(request, &["", "resize"]) else {
            return Ok(());
        };
        let needed = list_needed_features(old, &request.object);
        if needed.is_empty() || self.0.emulated_minor < DECLARED_SINCE {
            return Ok(());
        }
        let node = find_node(&self.0, request).await?;
        let declared = list_at(&node, "/status/declaredFeatures");
        let is_missing = |feature: &&str| !declared.iter().any(|name| name == *feature);
        let missing: Vec<&str> = needed.into_iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let why = format!(
            "pod update requires features {} which are not available on node {:?}",
            missing.join(", "),
            node.name()
        );
        Err(forbidden_error(request, why))
    }
}

#[async_trait::async_trait]
impl Admission for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if find_change(request, &["resize"]).is_none() {
            return Ok(());
        }
        let node = find_node(&self.0, request).await?;
        let system = node.pointer("/metadata/labels/kubernetes.io~1os");
        if let Some(system) = system.and_then(Value::as_str).filter(|os| *os != "linux") {
            let name = node.name();
            let why =
                format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
            return Err(reject_for(request, why, "UnsupportedPlatform"));
        }
        let pod = tree::pod(&request.object);
        let lacking = list_lacking(&pod_requests(&pod, &Options::default()), &node);
        if lacking.is_empty() {
            return Ok(());
        }
        let why = format!(
            "node didn't have enough allocatable resources: {}",
            lacking.join("; ")
        );
        Err(reject_for(request, why, "NodeCapacity"))
    }
}

/// Returns the old pod if the request changes the spec of one that has a node.
fn find_change<'a>(request: &'a AdmissionRequest<'_>, subresources: &[&str]) -> Option<&'a Value> {
    let is_pod = (request.group, request.resource) == ("", "pods");
    if !is_pod
        || request.operation != Operation::Update
        || !subresources.contains(&request.subresource)
        || string_at(&request.object, "/spec/nodeName").is_empty()
    {
        return None;
    }
    let old = request.old.as_ref()?;
    (old.get("spec") != request.object.get("spec")).then_some(old)
}

async fn find_node(
    context: &Context,
    request: &AdmissionRequest<'_>,
) -> Result<Arc<Value>, ApiError> {
    let name = string_at(&request.object, "/spec/nodeName");
    let node = context.find_object("", "nodes", "", name).await?;
    node.ok_or_else(|| forbidden_error(request, format!("node {name:?} not found")))
}

fn reject_for(request: &AdmissionRequest<'_>, why: String, cause: &str) -> ApiError {
    let mut error = forbidden_error(request, why);
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: cause.to_owned(),
            ..Cause::default()
        });
    }
    error
}

/// Returns the features of nodes that a change of a pod needs.
fn list_needed_features(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    let of_pod = |pod: &Value| pod.pointer("/spec/resources").cloned();
    if of_pod(old) != of_pod(new) {
        needed.push(POD_LEVEL);
    }
    let path = "/spec/initContainers";
    let mut pairs = list_at(old, path).iter().zip(list_at(new, path));
    let is_resized = pairs.any(|(old, new)| {
        string_at(old, "/restartPolicy") != "Always" && old.get("resources") != new.get("resources")
    });
    if is_resized {
        needed.push(INIT_CONTAINERS);
    }
    needed
}

/// Returns CPU and memory of which a pod requests more than the node can allocate.
fn list_lacking(requests: &ResourceList<'_>, node: &Value) -> Vec<String> {
    let lacking = ["cpu", "memory"].into_iter().filter_map(|name| {
        let requested = requests.get(name)?;
        let allocatable = node
            .pointer(&format!("/status/allocatable/{name}"))
            .and_then(parse_quantity)
            .unwrap_or(api_meta::Quantity::ZERO);
        (requested > allocatable).then(|| {
            let (requested, allocatable) = (count(name, requested), count(name, allocatable));
            format!("{name}, requested: {requested}, allocatable: {allocatable}")
        })
    });
    lacking.collect()
}
