//! A webhook, and the files that name it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit_control_plane::{Caller, ControlPlane, Reply, WebhookReply, WebhookServer};

/// Longer than the interval in which the file is checked.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The path of reviews of access.
pub const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
/// The group of roles.
pub const RBAC: &str = "rbac.authorization.k8s.io";

/// A webhook over TLS on loopback.
pub struct Hook(pub WebhookServer);

impl Hook {
    /// Starts a webhook whose handler returns the status for a review's spec.
    pub async fn start(decide: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let server = WebhookServer::start(&[], move |_, review| {
            let status = decide(&review["spec"]);
            WebhookReply::json(&json!({"apiVersion": review["apiVersion"],
                "kind": "SubjectAccessReview", "status": status}))
        });
        Hook(server.await)
    }

    /// Starts a webhook that denies what `denied` names, as `USER VERB RESOURCE-OR-PATH`, and allows
    /// what `allowed` names.
    pub async fn with_lists(allowed: &'static [&str], denied: &'static [&str]) -> Self {
        Self::start(move |spec| {
            let request = describe(spec);
            if denied.contains(&request.as_str()) {
                return json!({"allowed": false, "denied": true, "reason": "denied by the hook"});
            }
            json!({"allowed": allowed.contains(&request.as_str())})
        })
        .await
    }

    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let authority = STANDARD.encode(self.0.authority());
        let cluster = json!({"server": self.0.url("/authorize"),
            "certificate-authority-data": authority});
        write_kubeconfig(folder, cluster, json!({"token": "of-the-server"}))
    }

    /// Returns the reviews so far.
    pub fn reviewed(&self) -> Vec<String> {
        let received = self.0.received();
        received
            .iter()
            .map(|r| describe(&r.review["spec"]))
            .collect()
    }

    pub fn count(&self, review: &str) -> usize {
        self.reviewed()
            .iter()
            .filter(|found| *found == review)
            .count()
    }
}

pub fn write_kubeconfig(folder: &Path, cluster: Value, user: Value) -> PathBuf {
    let path = folder.join("webhook.kubeconfig");
    let config = json!({"current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}]});
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Describes a review: `jane get pods/log`, `jane get /metrics`.
pub fn describe(spec: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let user = text(&spec["user"]);
    if let Some(path) = spec["nonResourceAttributes"].as_object() {
        return format!("{user} {} {}", text(&path["verb"]), text(&path["path"]));
    }
    let resource = &spec["resourceAttributes"];
    let target = match text(&resource["subresource"]).as_str() {
        "" => text(&resource["resource"]),
        subresource => format!("{}/{subresource}", text(&resource["resource"])),
    };
    format!("{user} {} {target}", text(&resource["verb"]))
}

/// Returns a webhook of the configuration with these fields besides the required ones.
pub fn webhook(kubeconfig: &Path, more: &Value) -> Value {
    let mut webhook = json!({"timeout": "3s", "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}});
    for (name, value) in more.as_object().unwrap() {
        webhook[name] = value.clone();
    }
    json!({"type": "Webhook", "name": "hook", "webhook": webhook})
}

pub fn configuration(webhooks: &[Value]) -> Value {
    let mut authorizers = webhooks.to_vec();
    authorizers.push(json!({"type": "Node", "name": "node"}));
    authorizers.push(json!({"type": "RBAC", "name": "rbac"}));
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
        "authorizers": authorizers})
}

pub fn write_config(path: &Path, config: &Value) {
    // Renamed into place, so that no half of a file is read.
    let next = path.with_extension("next");
    std::fs::write(&next, config.to_string()).unwrap();
    std::fs::rename(next, path).unwrap();
}

pub async fn start_plane(config: &Path) -> ControlPlane {
    let flag = format!("--authorization-config={}", config.display());
    ControlPlane::start_with_flags(&[&flag]).await
}

/// Starts a control plane with one webhook before Node and RBAC.
pub async fn start_with(hook: &Hook, folder: &Path, more: &Value) -> ControlPlane {
    let config = folder.join("authorization.json");
    write_config(
        &config,
        &configuration(&[webhook(&hook.kubeconfig(folder), more)]),
    );
    start_plane(&config).await
}

pub fn status_of(reply: Reply) -> Value {
    reply.expect_success().json()["status"].clone()
}

pub async fn review_self(caller: &Caller, attributes: Value) -> Value {
    let review = json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
    let path = format!("{REVIEWS}/selfsubjectaccessreviews");
    status_of(caller.post(&path, &review).await)
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}
