//! DefaultBinder: writes a Binding.

use async_trait::async_trait;
use client::Client;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use scheduler_framework::{Bind, BindError, Cluster, ExtensionPoints, Plugin, PodInfo};
use serde_json::Value;
use std::sync::Arc;

/// Binds through the API server. Created with [`DefaultBinder::with_client`], because a registry
/// entry has no client.
pub struct DefaultBinder {
    client: Client,
}

impl DefaultBinder {
    /// Name of the plugin.
    pub const NAME: &'static str = "DefaultBinder";

    /// Creates a binder that uses a client.
    pub fn with_client(client: Client) -> Self {
        Self { client }
    }
}

impl Plugin for DefaultBinder {
    const NAME: &'static str = "DefaultBinder";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Err("DefaultBinder needs a client".to_owned())
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.bind(&self);
    }
}

#[async_trait]
impl Bind for DefaultBinder {
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<bool, BindError> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.name().to_owned()),
                namespace: Some(pod.namespace().to_owned()),
                // With the UID the API server rejects the binding if the pod was deleted and
                // created again under its name.
                uid: Some(pod.uid().to_owned()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let pods = self.client.namespaced::<Pod>(pod.namespace());
        let posted = pods
            .subresource_create::<_, Status>(pod.name(), "binding", &binding)
            .await;
        posted.map(|_| true).map_err(|error| BindError {
            plugin: Self::NAME,
            message: error.to_string(),
        })
    }
}
