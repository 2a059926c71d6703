//! BackendTLSPolicies that the gateway can't list.

use serde_json::{Value, json};

use crate::ingress::{ingress, rule};
use crate::setting::Setting;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ironclad-gateway";
const URL: &str = "http://a.example.com/";

/// A policy could say that requests need TLS, so that they must not be sent without it.
#[tokio::test(flavor = "multi_thread")]
async fn backends_are_refused_while_policies_cannot_be_listed() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let spec = json!({"rules": [rule("a.example.com", "/", "web")]});
    setting.create(ingress("a", "i", spec)).await;
    setting.wait_for_server(URL, "web").await;
    let admin = setting.plane.admin();
    let mut role: Value = admin.get(ROLE).await.json();
    let rules = role["rules"].clone();
    for rule in role["rules"].as_array_mut().unwrap() {
        if let Some(names) = rule["resources"].as_array_mut() {
            names.retain(|name| name != "backendtlspolicies");
        }
    }
    let mut role = admin.put(ROLE, &role).await.expect_success().json();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    setting
        .create(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "backendtlspolicies.gateway.networking.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
            "spec": {"group": "gateway.networking.k8s.io", "scope": "Namespaced",
                "names": {"kind": "BackendTLSPolicy", "plural": "backendtlspolicies"},
                "versions": [version]}}),
        )
        .await;
    setting
        .wait_for(&[URL], |response| response.status == 500)
        .await;
    role["rules"] = rules;
    admin.put(ROLE, &role).await.expect_success();
    setting.wait_for_server(URL, "web").await;
}
