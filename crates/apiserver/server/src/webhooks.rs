//! Wires the admission webhooks: the served kinds, the resolver of Services, the configuration.

use crate::options::ServerOptions;
use api_codec::json;
use api_kinds::{Name, ObjectSchema, Resource};
use api_meta::{ApiError, Kind};
use apiserver_admission::WebhookPlugins;
use apiserver_cache::Caches;
use apiserver_convert::{codec, convert_admitted, default_custom};
use apiserver_policy::MatchConditions;
use apiserver_request::{Authorizer, Objects};
use apiserver_webhook::{
    GroupVersionKind, GroupVersionResource, Kinds, MutatingWebhooks, PluginConfig, Setup,
    ValidatingWebhooks, WebhookConfig, WebhookMetrics, read_plugin_configs,
};
use apiserver_webhook_client::{
    ClusterIpResolver, Credentials, EndpointResolver, Kubeconfig, ServiceResolver, Transport,
};
use base_task::Tasks;
use serde_json::Value;
use std::sync::Arc;

/// Builds both plugins.
///
/// # Errors
/// A configuration file that can't be used.
pub fn build_webhooks(
    options: &ServerOptions,
    caches: &Arc<Caches>,
    authorizer: &Arc<dyn Authorizer>,
    metrics: &Arc<WebhookMetrics>,
    tasks: &Tasks,
) -> anyhow::Result<WebhookPlugins> {
    let objects: Arc<dyn Objects> = caches.clone();
    let config = match &options.admission_control_config_file {
        Some(path) => read_plugin_configs(path)?,
        None => WebhookConfig::default(),
    };
    let resolver = build_resolver(options, &objects);
    let setup = |config: &PluginConfig| {
        let credentials = match &config.kube_config {
            Some(path) => Kubeconfig::read_file(path)?.credentials()?,
            None => Credentials::default(),
        };
        anyhow::Ok(Setup {
            objects: objects.clone(),
            kinds: Arc::new(ServedKinds(caches.clone())),
            transport: Transport::new(tasks.clone(), resolver.clone(), credentials),
            metrics: metrics.clone(),
            skipped: options.skip_admission_webhooks.clone(),
            conditions: Arc::new(MatchConditions::new(authorizer.clone())),
        })
    };
    Ok(WebhookPlugins {
        mutating: Arc::new(MutatingWebhooks::new(setup(&config.mutating)?)),
        validating: Arc::new(ValidatingWebhooks::new(setup(&config.validating)?)),
    })
}

/// Builds the resolver of Services, to endpoints or to cluster IPs.
pub fn build_resolver(
    options: &ServerOptions,
    objects: &Arc<dyn Objects>,
) -> Arc<dyn ServiceResolver> {
    if options.enable_aggregator_routing {
        Arc::new(EndpointResolver(objects.clone()))
    } else {
        Arc::new(ClusterIpResolver(objects.clone()))
    }
}

/// The served kinds, custom resources included.
pub(crate) struct ServedKinds(pub(crate) Arc<Caches>);

impl ServedKinds {
    fn find(&self, resource: &GroupVersionResource) -> Option<Arc<Resource>> {
        self.0
            .served()
            .resources()
            .find(&resource.group, &resource.version, &resource.resource)
            .cloned()
    }

    /// Returns the schema of the body of a resource or subresource.
    pub(crate) fn find_schema(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Option<ObjectSchema> {
        let found = self.find(resource)?;
        if subresource.is_empty() {
            return Some(found.schema.clone());
        }
        found.subresource(subresource)?.schema.clone()
    }
}

fn stored_prefix(resource: &Resource) -> Option<&Name> {
    resource.storage.as_ref().map(|storage| &storage.prefix)
}

#[async_trait::async_trait]
impl Kinds for ServedKinds {
    fn find_kind(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Option<GroupVersionKind> {
        let found = self.find(resource)?;
        if subresource.is_empty() {
            return Some(GroupVersionKind::new(
                &found.group,
                &found.version,
                &found.kind,
            ));
        }
        let sub = found.subresource(subresource)?;
        Some(GroupVersionKind::new(&sub.group, &sub.version, &sub.kind))
    }

    fn equivalent_resources(&self, resource: &GroupVersionResource) -> Vec<GroupVersionResource> {
        let served = self.0.served();
        let found = self.find(resource);
        let Some(stored) = found.as_deref().and_then(stored_prefix) else {
            return Vec::new();
        };
        served
            .resources()
            .served()
            .filter(|row| stored_prefix(row) == Some(stored))
            .map(|row| GroupVersionResource::new(&row.group, &row.version, &row.plural))
            .filter(|other| other != resource)
            .collect()
    }

    async fn convert_object(
        &self,
        object: Value,
        from: &GroupVersionResource,
        to: &GroupVersionResource,
    ) -> Result<Value, ApiError> {
        match (self.find(from), self.find(to)) {
            (Some(from), Some(to)) => convert_admitted(&from, &to, object).await,
            _ => Err(ApiError::internal(format!(
                "unable to convert to {}: unknown kind",
                to.resource
            ))),
        }
    }

    fn explicit_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &Value,
    ) -> Value {
        match self.find_schema(resource, subresource) {
            Some(schema) => codec::explicit_tree(&schema, object),
            None => object.clone(),
        }
    }

    fn encode_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &Value,
        out: &mut Vec<u8>,
    ) {
        match self.find_schema(resource, subresource) {
            Some(schema) => codec::encode_json_to(&schema, object, out),
            None => json::write_value(object, out),
        }
    }

    fn decode_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: Value,
    ) -> Result<Value, String> {
        match self.find_schema(resource, subresource) {
            // Unknown fields are dropped, as by Go's decoder.
            Some(schema) => codec::check_admitted(&schema, object)
                .map(|(object, _)| object)
                .map_err(|e| e.to_string()),
            None => Ok(object),
        }
    }

    fn default_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &mut Value,
    ) {
        // The bodies of other subresources, such as Eviction, have no defaults.
        let is_whole = |row: &Resource| {
            let sub = row.subresource(subresource);
            subresource.is_empty() || sub.is_some_and(|sub| sub.kind == row.kind)
        };
        let Some(row) = self.find(resource).filter(|row| is_whole(row)) else {
            return;
        };
        if let ObjectSchema::Custom(schema) = &row.schema {
            default_custom(schema, object);
            return;
        }
        let kind = Kind {
            group: &row.group,
            version: &row.version,
            kind: &row.kind,
            namespaced: row.namespaced,
        };
        api_defaulting::default_object(kind, object);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_storage::{Store, StoreConfig};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    /// Returns the built-in kinds, which need no store.
    fn served_kinds() -> ServedKinds {
        let store = Store::new(&StoreConfig {
            servers: vec!["http://127.0.0.1:1".into()],
            ..StoreConfig::default()
        });
        let tasks = Tasks::new(CancellationToken::new());
        ServedKinds(Caches::start(store.unwrap(), "/registry", &tasks))
    }

    fn resource(group: &str, version: &str, name: &str) -> GroupVersionResource {
        GroupVersionResource::new(group, version, name)
    }

    #[tokio::test]
    async fn resources_that_share_storage_are_equivalent() {
        let core = resource("", "v1", "events");
        let group = resource("events.k8s.io", "v1", "events");
        let others = served_kinds().equivalent_resources(&core);
        assert_eq!(others, std::slice::from_ref(&group));
        assert_eq!(served_kinds().equivalent_resources(&group), [core]);
        let scalers = resource("autoscaling", "v1", "horizontalpodautoscalers");
        let others = served_kinds().equivalent_resources(&scalers);
        assert_eq!(
            others,
            [resource("autoscaling", "v2", "horizontalpodautoscalers")]
        );
        let pods = resource("", "v1", "pods");
        assert!(served_kinds().equivalent_resources(&pods).is_empty());
    }

    #[tokio::test]
    async fn body_of_a_subresource_has_its_own_kind() {
        for (subresource, expect) in [
            ("", ("", "v1", "Pod")),
            ("status", ("", "v1", "Pod")),
            ("eviction", ("policy", "v1", "Eviction")),
            ("binding", ("", "v1", "Binding")),
            ("attach", ("", "v1", "PodAttachOptions")),
        ] {
            let pods = resource("", "v1", "pods");
            let found = served_kinds().find_kind(&pods, subresource).unwrap();
            let (group, version, kind) = expect;
            assert_eq!(found, GroupVersionKind::new(group, version, kind));
        }
    }

    #[tokio::test]
    async fn autoscaler_is_converted_to_the_version_of_the_webhook() {
        let old = resource("autoscaling", "v1", "horizontalpodautoscalers");
        let new = resource("autoscaling", "v2", "horizontalpodautoscalers");
        let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
        let converted = served_kinds()
            .convert_object(object.clone(), &old, &new)
            .await
            .unwrap();
        assert_eq!(converted["apiVersion"], "autoscaling/v2");
        assert_eq!(converted["spec"]["metrics"][0]["type"], "Resource");
        let back = served_kinds()
            .convert_object(converted, &new, &old)
            .await
            .unwrap();
        assert_eq!(back["spec"], object["spec"]);
    }

    #[tokio::test]
    async fn patched_object_of_a_wrong_type_is_rejected() {
        let pods = resource("", "v1", "pods");
        let decode = |object: Value| served_kinds().decode_object(&pods, "", object);
        assert!(decode(json!({"spec": {"containers": "none"}})).is_err());
        let kept = decode(json!({"metadata": {"name": "p"}, "other": 1})).unwrap();
        assert_eq!(kept["other"], Value::Null, "unknown fields are dropped");
    }

    #[tokio::test]
    async fn defaults_are_set_on_whole_objects_only() {
        let pods = resource("", "v1", "pods");
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        served_kinds().default_object(&pods, "", &mut pod);
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        let mut eviction = json!({"metadata": {"name": "p"}});
        let before = eviction.clone();
        served_kinds().default_object(&pods, "eviction", &mut eviction);
        assert_eq!(eviction, before);
    }
}
