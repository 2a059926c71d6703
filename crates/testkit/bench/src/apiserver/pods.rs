//! The pods that the load consists of.

use super::connection::Call;
use crate::server::Server;
use anyhow::Context;
use api_codec::proto;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

/// Media types.
pub const JSON: &str = "application/json";
pub const PROTO: &str = "application/vnd.kubernetes.protobuf";

/// Namespace of the pods.
const NAMESPACE: &str = "apiserver-bench";
/// Pods on one node.
const PER_NODE: usize = 64;
/// Number of pods with one value of the label `app`.
const PER_APP: usize = 128;

/// Pods of about 4 KB of JSON each, with `managedFields`.
pub struct Pods {
    /// Number of pods.
    pub count: usize,
}

impl Pods {
    /// Describes this number of pods.
    pub fn new(count: usize) -> Self {
        Pods { count }
    }

    /// Creates the namespace and the service account that pods need: no controller does.
    pub async fn create_namespace(&self, server: &Server) -> anyhow::Result<()> {
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        for (path, name) in [("/api/v1/namespaces", NAMESPACE), (&accounts, "default")] {
            match server
                .create(path, &json!({"metadata": {"name": name}}))
                .await
            {
                // Of an earlier run.
                Err(error) if error.is_already_exists() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &'static str {
        NAMESPACE
    }

    /// Returns the path of the collection.
    pub fn collection(&self) -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/pods")
    }

    /// Returns the path of a pod.
    pub fn path(&self, number: usize) -> String {
        format!("{}/pod-{number}", self.collection())
    }

    /// Returns the path of the pods on the node of a pod, in all namespaces.
    pub fn path_of_node(&self, number: usize) -> String {
        let node = number % self.count / PER_NODE;
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-{node}")
    }

    /// Returns the path of the pods with the same label as a pod.
    pub fn path_of_app(&self, number: usize) -> String {
        let app = number % self.count / PER_APP;
        format!("{}?labelSelector=app%3Dapp-{app}", self.collection())
    }

    /// Returns a request that creates a pod.
    pub fn create(&self, number: usize, media_type: &'static str) -> anyhow::Result<Call> {
        let pod = build_pod(number);
        let body: Bytes = if media_type == PROTO {
            let message = api_schema::schema().message("k8s.io.api.core.v1.Pod");
            proto::encode_object(message.context("no message of pods")?, &pod).into()
        } else {
            pod.to_string().into()
        };
        let call = Call::get(self.collection(), media_type);
        Ok(call.with_body(Method::POST, media_type, body))
    }
}

fn build_pod(number: usize) -> Value {
    let text = |length: usize| format!("{number}-{}", "v".repeat(length));
    let environment: Vec<Value> = (0..12)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": text(60)}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10,
        "initialDelaySeconds": 5});
    let container = json!({"name": "main", "image": "registry.example.com/team/app:1.2.3",
        "command": ["/app"], "args": ["--verbose", "--listen=:8080"], "env": environment,
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "livenessProbe": probe, "readinessProbe": probe});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "namespace": NAMESPACE,
            "labels": {"app": format!("app-{}", number / PER_APP), "tier": "bench",
                "pod-template-hash": format!("{:x}", number / PER_APP)},
            "annotations": {"example.com/config": text(200)}},
        "spec": {"nodeName": format!("node-{}", number / PER_NODE), "containers": [container],
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 30}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_pods_exist() {
        let pods = Pods::new(1000);
        assert!(pods.path_of_node(1999).ends_with("node-15"));
        assert!(pods.path_of_app(1000).ends_with("app-0"));
    }
}
