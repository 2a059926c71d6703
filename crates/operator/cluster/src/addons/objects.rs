//! Rights of the cluster's own identities, and the Service and EndpointSlice of cluster DNS.

use serde_json::{Value, json};

use crate::settings::Settings;

pub(super) const NAMESPACE: &str = "kube-system";
/// The role of the agents of NetworkPolicies, which run in kube-proxy.
pub(super) const POLICY_ROLE: &str = "ironclad:network-policy";

/// Returns the rights of the cluster's DNS servers.
pub(super) fn cluster_role(settings: &Settings) -> Value {
    let mut resources = vec!["services", "pods", "namespaces"];
    // For `--allow-nodes`.
    resources.extend(settings.has_foreign_network().then_some("nodes"));
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "system:cluster-dns" },
        "rules": [
            { "apiGroups": [""], "resources": resources, "verbs": ["list", "watch"] },
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
        ],
    })
}

/// Returns the rights of the agents of NetworkPolicies, in addition to those that upstream's policy
/// gives kube-proxy.
pub(super) fn policy_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": POLICY_ROLE },
        "rules": [
            { "apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"] },
            { "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"] },
        ],
    })
}

/// Lets the API server use the kubelets. Upstream's bootstrap policy has the role and leaves the
/// binding to the issuer of the certificate.
pub(super) fn kubelet_client_binding() -> Value {
    role_binding(
        "ironclad:apiserver-kubelet-client",
        "system:kubelet-api-admin",
        operator_pki::KUBELET_CLIENT,
    )
}

pub(super) fn role_binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    })
}

pub(super) fn dns_service(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": NAMESPACE,
            "labels": {
                // The labels of kubeadm, by which monitoring finds cluster DNS.
                "k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": settings.dns_service_address(),
            "selector": { "k8s-app": "kube-dns" },
            "ports": [
                // The target port is that of a CoreDNS Deployment; the static slice has the port on
                // the node.
                { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
                { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
            ],
        },
    })
}

/// Returns the name of the EndpointSlice of the DNS server on this machine.
pub(crate) fn name_dns_slice(settings: &Settings) -> String {
    match settings.joined_control_plane() {
        None => "kube-dns-node".to_owned(),
        Some(_) => format!("kube-dns-node-{}", settings.node_name),
    }
}

pub(super) fn endpoint_slice(settings: &Settings) -> Value {
    let address = settings.dns_listen_address();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name_dns_slice(settings),
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                // The EndpointSlice controller leaves slices of other managers alone.
                "endpointslice.kubernetes.io/managed-by": "ironclad",
            },
        },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{
            "addresses": [address],
            // Static, except that other machines of a shared control plane change it for a lost one
            // (`api_proxy/dns_endpoints.rs`).
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": settings.node_name,
        }],
        "ports": [
            { "name": "dns", "port": settings.ports.dns, "protocol": "UDP" },
            { "name": "dns-tcp", "port": settings.ports.dns, "protocol": "TCP" },
        ],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cni_plugin::CniPlugin;

    #[test]
    fn dns_service_leads_to_the_server_on_the_node() {
        let settings = Settings::example();
        let service = dns_service(&settings);
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.10");
        let slice = endpoint_slice(&settings);
        assert_eq!(
            slice["metadata"]["labels"]["kubernetes.io/service-name"],
            "kube-dns"
        );
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.244.0.1"]));
        let ports = slice["ports"].as_array().unwrap();
        assert!(ports.iter().all(|port| port["port"] == 10053), "{ports:?}");
        // kube-proxy matches ports of a slice by name and protocol.
        let key = |port: &Value| (port["name"].clone(), port["protocol"].clone());
        let of_service: Vec<_> = service["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(key)
            .collect();
        assert_eq!(ports.iter().map(key).collect::<Vec<_>>(), of_service);
    }

    #[test]
    fn dns_server_and_policy_agents_may_only_read() {
        let foreign = Settings {
            cni: CniPlugin::None,
            ..Settings::example()
        };
        assert_eq!(
            cluster_role(&foreign)["rules"][0]["resources"],
            json!(["services", "pods", "namespaces", "nodes"])
        );
        let own = cluster_role(&Settings::example());
        assert!(!own.to_string().contains("nodes"), "{own}");
        let roles = [own, cluster_role(&foreign), policy_role()];
        for rule in roles
            .iter()
            .flat_map(|role| role["rules"].as_array().unwrap())
        {
            assert_eq!(rule["verbs"], json!(["list", "watch"]), "{rule}");
            let resources = rule["resources"].as_array().unwrap();
            assert!(!resources.contains(&json!("secrets")), "{rule}");
        }
    }
}
