//! Warnings about stored fields without effect, so that users do not rely on an accepted request.

use crate::context::{list_at, string_at};
use crate::pod_security::pod_template_path;
use api_meta::{ApiError, tree};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;

// Storing such an object without a word would let users believe that a rule protects them.
const NETWORK: &str = "stored but not enforced by Ironclad's network: traffic stays unrestricted unless another network \
                       plugin enforces NetworkPolicies";

const CANDIDATES: &str = "stored but has no effect: leaders are elected by Leases alone";
const STORAGE_VERSIONS: &str = "stored but has no effect: no component reads or collects it";
const TRUST_BUNDLES: &str = "stored but has no effect in pods: kubelets do not mount it";
const TAINT_RULES: &str =
    "stored but has no effect: devices have the taints of their ResourceSlice only";

const POD_CERTIFICATES: &str = "stored but has no effect in pods: kubelets do not request such \
                                certificates, and no signer of Ironclad issues them";

const POOL_REQUESTS: &str =
    "stored but has no effect: no component writes its status or deletes it";
const GROUPS: &str = "stored but has no effect: each pod is scheduled alone";

/// Kinds without effect: group, resource, warning.
const KINDS: [(&str, &str, &str); 9] = [
    ("networking.k8s.io", "networkpolicies", NETWORK),
    ("coordination.k8s.io", "leasecandidates", CANDIDATES),
    (
        "internal.apiserver.k8s.io",
        "storageversions",
        STORAGE_VERSIONS,
    ),
    ("certificates.k8s.io", "clustertrustbundles", TRUST_BUNDLES),
    (
        "certificates.k8s.io",
        "podcertificaterequests",
        POD_CERTIFICATES,
    ),
    ("resource.k8s.io", "devicetaintrules", TAINT_RULES),
    (
        "resource.k8s.io",
        "resourcepoolstatusrequests",
        POOL_REQUESTS,
    ),
    ("scheduling.k8s.io", "podgroups", GROUPS),
    ("scheduling.k8s.io", "workloads", GROUPS),
];

/// Adds a warning to the response of writes that request something which no component enforces. It
/// can't be disabled.
pub struct UnenforcedWarnings {
    /// A component of the cluster enforces NetworkPolicies. This server can't see whether one does.
    pub(crate) network_policies_enforced: bool,
}

#[async_trait::async_trait]
impl Admission for UnenforcedWarnings {
    fn name(&self) -> &'static str {
        "UnenforcedWarnings"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.subresource.is_empty()
            && matches!(request.operation, Operation::Create | Operation::Update)
        {
            let warnings = list_warnings(request, self.network_policies_enforced);
            request.warnings.extend(warnings);
        }
        Ok(())
    }
}

fn list_warnings(request: &AdmissionRequest<'_>, network_policies_enforced: bool) -> Vec<String> {
    // An update repeats the warning: the author of a changed rule may not have seen the first one.
    let row = KINDS
        .iter()
        .find(|(group, resource, _)| *group == request.group && *resource == request.resource);
    if let Some((_, resource, text)) = row {
        return match *resource == "networkpolicies" && network_policies_enforced {
            true => Vec::new(),
            false => vec![format!("{} is {text}", request.kind)],
        };
    }
    if request.group.is_empty() && request.resource == "pods" {
        // A pod's spec hardly changes, so one warning at creation is enough.
        let created = request.operation == Operation::Create;
        return if created {
            unsupported_fields(request.object.get("spec"), "spec")
        } else {
            Vec::new()
        };
    }
    let Some(pointer) = pod_template_path(request) else {
        return Vec::new();
    };
    let place = format!("{}.spec", pointer.trim_start_matches('/').replace('/', "."));
    unsupported_fields(
        request
            .object
            .pointer(pointer)
            .and_then(|template| template.get("spec")),
        &place,
    )
}

/// Returns the features of a pod that a kubelet of this release may have to reject.
fn unsupported_fields(spec: Option<&Value>, place: &str) -> Vec<String> {
    // The kubelet decides by the features that its container runtime reports, which the API server
    // cannot know.
    const REFUSED: &str =
        "the kubelet refuses the pod where the container runtime does not support it";
    let Some(spec) = spec else { return Vec::new() };
    let mut found = Vec::new();
    // The default true shares the node's users and works everywhere.
    if spec.get("hostUsers") == Some(&Value::Bool(false)) {
        found.push(format!(
            "{place}.hostUsers: Ironclad's kubelet has no user namespaces and refuses the pod"
        ));
    }
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    let all: Vec<&Value> = containers
        .iter()
        .flat_map(|field| list_at(spec, &format!("/{field}")))
        .collect();
    let anywhere = |demands: fn(&Value) -> bool| {
        demands(spec) || all.iter().any(|container| demands(container))
    };
    if anywhere(|v| {
        matches!(
            string_at(v, "/securityContext/appArmorProfile/type"),
            "Localhost" | "RuntimeDefault"
        )
    }) {
        found.push(format!("{place}: appArmorProfile: {REFUSED}"));
    }
    if anywhere(|v| tree::find(v, "/securityContext/seLinuxOptions").is_some_and(demands_anything))
    {
        found.push(format!("{place}: seLinuxOptions: {REFUSED}"));
    }
    let recursive = |mount: &Value| string_at(mount, "/recursiveReadOnly") == "Enabled";
    if all
        .iter()
        .any(|container| list_at(container, "/volumeMounts").iter().any(recursive))
    {
        found.push(format!("{place}: recursiveReadOnly=Enabled: {REFUSED}"));
    }
    found
}

fn demands_anything(options: &Value) -> bool {
    options.as_object().is_some_and(|map| {
        // Clients that marshal the whole struct send empty options, which demand nothing.
        map.values()
            .any(|value| value.as_str().is_some_and(|text| !text.is_empty()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_request::User;
    use serde_json::json;

    fn check(group: &str, resource: &str, kind: &str, object: Value) -> Vec<String> {
        check_with(false, group, resource, kind, object)
    }

    fn check_with(
        network_policies_enforced: bool,
        group: &str,
        resource: &str,
        kind: &str,
        object: Value,
    ) -> Vec<String> {
        let user = User::default();
        let request = AdmissionRequest {
            operation: Operation::Create,
            user: &user,
            group,
            version: "v1",
            resource,
            subresource: "",
            kind,
            namespace: "n",
            name: "o",
            object,
            old: None,
            options: Value::Null,
            dry_run: false,
            warnings: Default::default(),
            reinvocation: Default::default(),
        };
        list_warnings(&request, network_policies_enforced)
    }

    #[test]
    fn policies_are_not_warned_about_where_they_are_enforced() {
        for (group, resource, text) in KINDS {
            let expect = match resource {
                "networkpolicies" => Vec::new(),
                _ => vec![format!("X is {text}")],
            };
            assert_eq!(
                check_with(true, group, resource, "X", json!({})),
                expect,
                "{resource}"
            );
        }
    }

    #[test]
    fn kinds_that_nothing_enforces_are_warned_about() {
        for (group, resource, text) in KINDS {
            assert_eq!(
                check(group, resource, "X", json!({})),
                [format!("X is {text}")],
                "{resource}"
            );
        }
        for (group, resource) in [
            ("", "configmaps"),
            ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ] {
            assert!(
                check(group, resource, "X", json!({})).is_empty(),
                "{resource}"
            );
        }
        assert!(check("networking.k8s.io", "ingresses", "Ingress", json!({})).is_empty());
    }

    #[test]
    fn pods_with_unsupported_features_are_warned_about() {
        let container =
            |context: Value| json!({"containers": [{"name": "c", "securityContext": context}]});
        let mount = json!([{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled"}]);
        for (spec, expect) in [
            (json!({"containers": [{"name": "c"}]}), 0),
            (json!({"hostUsers": true}), 0),
            (json!({"hostUsers": false}), 1),
            (
                container(json!({"appArmorProfile": {"type": "Unconfined"}})),
                0,
            ),
            (
                container(json!({"appArmorProfile": {"type": "RuntimeDefault"}})),
                1,
            ),
            (json!({"securityContext": {"seLinuxOptions": {}}}), 0),
            (
                json!({"securityContext": {"seLinuxOptions": {"level": "s0:c1"}}}),
                1,
            ),
            (json!({"initContainers": [{"volumeMounts": mount}]}), 1),
        ] {
            assert_eq!(
                check("", "pods", "Pod", json!({"spec": spec})).len(),
                expect,
                "{spec}"
            );
            let workload = json!({"spec": {"template": {"spec": spec}}});
            assert_eq!(
                check("apps", "deployments", "Deployment", workload).len(),
                expect,
                "{spec}"
            );
        }
    }
}
