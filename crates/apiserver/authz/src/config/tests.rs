//! Tables over files.

#![allow(clippy::unwrap_used)]

use super::{AuthorizerSpec, load_content};
use crate::mode::Mode;
use apiserver_webhook_client::ReviewVersion;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns a webhook with these fields besides the required ones; null removes a field.
fn webhook(file: &str, more: &Value) -> Value {
    let mut webhook = json!({"timeout": "3s", "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": file}});
    for (name, value) in more.as_object().unwrap() {
        webhook[name] = value.clone();
    }
    json!({"type": "Webhook", "name": "hook.example.com", "webhook": webhook})
}

fn load(authorizers: &Value) -> Result<Vec<AuthorizerSpec>, String> {
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration", "authorizers": authorizers});
    load_content(config.to_string().as_bytes())
}

fn kubeconfig() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

#[test]
fn authorizers_have_the_order_and_the_settings_of_the_file() {
    let file = kubeconfig();
    let path = file.path().to_str().unwrap();
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let content = format!(
            "apiVersion: apiserver.config.k8s.io/{version}\nkind: AuthorizationConfiguration\n\
             authorizers:\n- type: Node\n  name: node\n- type: Webhook\n  name: hook\n  webhook:\n    \
             timeout: 500ms\n    subjectAccessReviewVersion: v1beta1\n    failurePolicy: NoOpinion\n    \
             unauthorizedTTL: 10s\n    cacheAuthorizedRequests: false\n    \
             matchConditionSubjectAccessReviewVersion: v1\n    matchConditions:\n    \
             - expression: request.user != 'x'\n    connectionInfo:\n      type: KubeConfigFile\n      \
             kubeConfigFile: {path}\n- type: RBAC\n  name: rbac\n"
        );
        let specs = load_content(content.as_bytes()).unwrap();
        let modes: Vec<Mode> = specs.iter().map(|spec| spec.mode).collect();
        assert_eq!(modes, [Mode::Node, Mode::Webhook, Mode::Rbac]);
        let webhook = specs[1].webhook.as_ref().unwrap();
        assert_eq!(webhook.timeout, Duration::from_millis(500));
        assert_eq!(webhook.version, ReviewVersion::V1beta1);
        assert!(webhook.authorized_ttl.is_zero());
        assert_eq!(webhook.unauthorized_ttl, Duration::from_secs(10));
        assert!(!webhook.denies_on_error);
        assert_eq!(webhook.conditions.len(), 1);
    }
}

#[test]
fn fields_that_are_left_out_have_upstreams_defaults() {
    let file = kubeconfig();
    let path = file.path().to_str().unwrap();
    let specs = load(&json!([webhook(path, &json!({}))])).unwrap();
    let webhook = specs[0].webhook.as_ref().unwrap();
    assert_eq!(webhook.authorized_ttl, Duration::from_secs(300));
    assert_eq!(webhook.unauthorized_ttl, Duration::from_secs(30));
    assert!(webhook.denies_on_error);
}

#[test]
fn unusable_webhooks_are_refused_with_their_field() {
    let file = kubeconfig();
    let path = file.path().to_str().unwrap();
    let condition = |source: &str| json!({"matchConditions": [{"expression": source}]});
    for (more, expect) in [
        (json!({"timeout": null}), "webhook.timeout: Required"),
        (json!({"timeout": "31s"}), "must be > 0s and <= 30s"),
        (json!({"timeout": "-1s"}), "must be > 0s and <= 30s"),
        (json!({"timeout": 3}), "strict decoding error"),
        (json!({"authorizedTTL": "-1s"}), "authorizedTTL: Invalid"),
        (
            json!({"unauthorizedTTL": "-1s"}),
            "unauthorizedTTL: Invalid",
        ),
        (
            json!({"subjectAccessReviewVersion": null}),
            "subjectAccessReviewVersion: Required",
        ),
        (
            json!({"subjectAccessReviewVersion": "v2"}),
            "subjectAccessReviewVersion: Unsupported",
        ),
        (
            json!({"matchConditionSubjectAccessReviewVersion": "v1beta1"}),
            "matchConditionSubjectAccessReviewVersion: Unsupported",
        ),
        (json!({"failurePolicy": null}), "failurePolicy: Required"),
        (
            json!({"failurePolicy": "Fail"}),
            "failurePolicy: Unsupported",
        ),
        (
            json!({"connectionInfo": {"type": "InClusterConfig"}}),
            "use KubeConfigFile",
        ),
        (
            json!({"connectionInfo": {}}),
            "connectionInfo.type: Required",
        ),
        (
            json!({"connectionInfo": {"type": "Other"}}),
            "connectionInfo.type: Unsupported",
        ),
        (
            json!({"connectionInfo": {"type": "KubeConfigFile"}}),
            "kubeConfigFile: Required",
        ),
        (
            json!({"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "relative"}}),
            "must be an absolute path",
        ),
        (
            json!({"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/"}}),
            "must be a regular file",
        ),
        (condition(" "), "matchConditions[0].expression: Required"),
        (condition("request.user"), "must evaluate to bool"),
        (condition("1 +"), "compilation failed"),
        (json!({"unknown": 1}), "unknown field"),
        (
            json!({"matchConditions": vec![json!({"expression": "true"}); 65]}),
            "Too many",
        ),
        (
            json!({"matchConditions": [{"expression": "true"}, {"expression": "true"}]}),
            "matchConditions[1].expression: Duplicate",
        ),
    ] {
        let error = load(&json!([webhook(path, &more)])).unwrap_err();
        assert!(error.contains(expect), "{more}: {error}");
    }
    let more = json!({"matchConditionSubjectAccessReviewVersion": null,
        "matchConditions": [{"expression": "true"}]});
    let error = load(&json!([webhook(path, &more)])).unwrap_err();
    assert!(error.contains("required if match conditions"), "{error}");
}

#[test]
fn unusable_authorizers_are_refused_with_their_field() {
    let file = kubeconfig();
    let hook = webhook(file.path().to_str().unwrap(), &json!({}));
    let mut other_name = hook.clone();
    other_name["name"] = "A_b".into();
    let mut of_rbac = hook.clone();
    (of_rbac["type"], of_rbac["name"]) = ("RBAC".into(), "rbac".into());
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    for (authorizers, expect) in [
        (json!([]), "authorizers: Required"),
        (json!([{"name": "rbac"}]), "authorizers[0].type: Required"),
        (
            json!([{"type": "Rbac", "name": "rbac"}]),
            "Unsupported value",
        ),
        (json!([{"type": "RBAC", "name": "r"}]), "must be \"rbac\""),
        (json!([{"type": "RBAC"}]), "authorizers[0].name: Required"),
        (json!([rbac, rbac]), "authorizers[1].type: Duplicate"),
        (json!([hook, hook]), "authorizers[1].name: Duplicate"),
        (json!([other_name]), "authorizers[0].name: Invalid"),
        (json!([of_rbac]), "may only be specified when type=Webhook"),
        (
            json!([{"type": "Webhook", "name": "h"}]),
            "required when type=Webhook",
        ),
        (json!(vec![rbac; 65]), "Too many"),
    ] {
        let error = load(&authorizers).unwrap_err();
        assert!(error.contains(expect), "{authorizers}: {error}");
    }
}

#[test]
fn other_files_are_refused() {
    for content in [
        "",
        "apiVersion: apiserver.config.k8s.io/v2\nkind: AuthorizationConfiguration",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizer: []",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []\n\
         authorizers: []",
    ] {
        assert!(load_content(content.as_bytes()).is_err(), "{content}");
    }
}
