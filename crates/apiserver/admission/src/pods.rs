//! Small plugins that read only the object.

use crate::context::{forbidden_error, is_for, list_at, push_item, string_at};
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::{Value, json};

/// Adds tolerations: pods stay for five minutes on unreachable or not ready nodes, unless they say
/// otherwise.
pub struct DefaultTolerationSeconds;

// A node may be back within minutes, for example after a reboot, without the cost of moving its
// pods.
const SECONDS: i64 = 300;
const NODE_TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

fn tolerates_taint(toleration: &Value, taint: &str) -> bool {
    let key = string_at(toleration, "/key");
    // An empty key tolerates all taints, an empty effect all effects.
    (key == taint || key.is_empty()) && matches!(string_at(toleration, "/effect"), "NoExecute" | "")
}

#[async_trait::async_trait]
impl Admission for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        // Updates as well: tolerations may be added to a running pod but not removed, and an old
        // client may send a pod without those that were added here.
        let write = matches!(request.operation, Operation::Create | Operation::Update);
        if !is_for(request, "", "pods") || !write {
            return Ok(());
        }
        for taint in NODE_TAINTS {
            if !list_at(&request.object, "/spec/tolerations")
                .iter()
                .any(|t| tolerates_taint(t, taint))
            {
                let one = json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
                push_item(&mut request.object["spec"], "tolerations", one);
            }
        }
        Ok(())
    }
}

/// Adds a taint to new nodes, so that they get no pods until their first heartbeat.
pub struct TaintNodesByCondition;

#[async_trait::async_trait]
impl Admission for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        // Only a create: on an update, a ready node would get no pods until the controller removes
        // the taint again.
        if !is_for(request, "", "nodes") || request.operation != Operation::Create {
            return Ok(());
        }
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let same = |t: &Value| {
            string_at(t, "/key") == "node.kubernetes.io/not-ready"
                && string_at(t, "/effect") == "NoSchedule"
        };
        // The node controller removes it when the kubelet reports ready.
        if !list_at(&request.object, "/spec/taints").iter().any(same) {
            push_item(&mut request.object["spec"], "taints", taint);
        }
        Ok(())
    }
}

/// Sets the pull policy Always, so that a pod needs credentials for every image it runs.
pub struct AlwaysPullImages;

#[async_trait::async_trait]
impl Admission for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        // An image that one tenant pulled would otherwise be usable by every pod of the node,
        // without the pull Secret.
        let pods = request.group.is_empty() && request.resource == "pods";
        let containers =
            request.subresource.is_empty() || request.subresource == "ephemeralcontainers";
        if !pods
            || !containers
            || !matches!(request.operation, Operation::Create | Operation::Update)
        {
            return Ok(());
        }
        for field in ["containers", "initContainers", "ephemeralContainers"] {
            let spec = request.object.get_mut("spec");
            for container in spec
                .and_then(|s| s.get_mut(field))
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                container["imagePullPolicy"] = "Always".into();
            }
        }
        Ok(())
    }
}

/// Rejects external IPs of Services, which the cluster does not own.
pub struct DenyServiceExternalIps;

#[async_trait::async_trait]
impl Admission for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "", "services")
            || !matches!(request.operation, Operation::Create | Operation::Update)
        {
            return Ok(());
        }
        // Addresses that were admitted before this plugin was enabled may stay.
        let before = request
            .old
            .as_ref()
            .map(|o| list_at(o, "/spec/externalIPs"))
            .unwrap_or_default();
        if list_at(&request.object, "/spec/externalIPs")
            .iter()
            .any(|ip| !before.contains(ip))
        {
            return Err(forbidden_error(
                request,
                "Use of external IPs is denied by admission control",
            ));
        }
        Ok(())
    }
}
