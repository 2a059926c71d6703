//! The rights of machines that join, beyond those of kubeadm's tokens: they read the published
//! configuration, kube-proxy works with the identity of its node, and the certificates of kubelets'
//! servers are approved.

use serde_json::{Value, json};

use super::bootstrap::TOKEN_GROUP;
use crate::published;

const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of all kubelets.
const NODES: &str = "system:nodes";
const CONFIGURATION: &str = "ironclad:join-configuration";
const GET_NODES: &str = "ironclad:get-nodes";
const SERVING: &str = "ironclad:kubelet-serving-certificates";
const APPROVER: &str = "ironclad:kubelet-serving-approver";

/// Returns the Role to read the published configuration. It has ranges and names, no secret.
pub fn configuration_role() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "Role",
        "metadata": { "name": CONFIGURATION, "namespace": published::NAMESPACE },
        "rules": [{
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [published::CLUSTER_CONFIG, published::KUBELET_CONFIG],
            "verbs": ["get"],
        }],
    })
}

/// Returns the binding of [`configuration_role`].
pub fn configuration_binding() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": { "name": CONFIGURATION, "namespace": published::NAMESPACE },
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": CONFIGURATION },
        // kubeadm binds its configuration to the same two kinds of groups.
        "subjects": [group(TOKEN_GROUP), group(NODES)],
    })
}

/// Returns the ClusterRoles.
pub fn cluster_roles() -> [Value; 3] {
    let requests = "certificatesigningrequests";
    let certificates = "certificates.k8s.io";
    [
        // As with kubeadm: a machine must not take the name of a node that exists.
        (GET_NODES, json!([rule("", &["nodes"], &["get"])])),
        // The approver of serving certificates examines whether the requester has this right.
        (
            SERVING,
            json!([rule(
                certificates,
                &[&format!("{requests}/selfnodeserver")],
                &["create"]
            )]),
        ),
        (
            APPROVER,
            json!([
                // An approval needs both: the update of the subresource, and `approve` for the
                // signer (admission plugin CertificateApproval).
                rule(certificates, &[&format!("{requests}/approval")], &["update"]),
                {
                    "apiGroups": [certificates],
                    "resources": ["signers"],
                    "resourceNames": ["kubernetes.io/kubelet-serving"],
                    "verbs": ["approve"],
                },
            ]),
        ),
    ]
    .map(|(name, rules)| {
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRole",
            "metadata": { "name": name },
            "rules": rules,
        })
    })
}

/// Returns the ClusterRoleBindings.
pub fn cluster_bindings() -> [Value; 4] {
    let approver = json!({
        "kind": "ServiceAccount",
        "name": "kubelet-serving-approver",
        "namespace": "kube-system",
    });
    [
        (GET_NODES, GET_NODES, group(TOKEN_GROUP)),
        (SERVING, SERVING, group(NODES)),
        (APPROVER, APPROVER, approver),
        // Every node runs a kube-proxy, and could read its credentials anyway.
        ("ironclad:node-proxier", "system:node-proxier", group(NODES)),
    ]
    .map(|(name, role, subject)| {
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
            "subjects": [subject],
        })
    })
}

/// Returns a ClusterRoleBinding of the group of all kubelets: on joined machines, kube-proxy has
/// the identity of its node.
pub fn bind_to_nodes(role: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("{role}-nodes") },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
        "subjects": [group(NODES)],
    })
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

fn group(name: &str) -> Value {
    json!({ "apiGroup": RBAC, "kind": "Group", "name": name })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A token must not read Secrets.
    #[test]
    fn tokens_read_two_config_maps_and_nodes_only() {
        let bound: Vec<_> = cluster_bindings()
            .into_iter()
            .filter(|binding| binding["subjects"][0]["name"] == TOKEN_GROUP)
            .map(|binding| binding["roleRef"]["name"].clone())
            .collect();
        assert_eq!(bound, [GET_NODES]);
        let role = configuration_role();
        assert_eq!(role["rules"].as_array().unwrap().len(), 1);
        assert_eq!(
            role["rules"][0]["resourceNames"],
            json!(["kubeadm-config", "kubelet-config"])
        );
        for role in cluster_roles().iter().take(1).chain([&role]) {
            assert_eq!(role["rules"][0]["verbs"], json!(["get"]));
        }
    }
}
