//! Wires the admission webhooks: the served kinds, the resolver of Services, the configuration.

use crate::options::ServerOptions;
use api_codec::json;
use api_kinds::Resource;
use api_meta::Kind;
use apiserver_admission::WebhookPlugins;
use apiserver_request::Objects;
use apiserver_webhook::{
    ClusterIpResolver, Credentials, EndpointResolver, GroupVersionKind, GroupVersionResource,
    Kinds, MutatingWebhooks, PluginConfig, ServiceResolver, Setup, Transport, ValidatingWebhooks,
    WebhookConfig, WebhookMetrics, read_plugin_configs,
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
    objects: &Arc<dyn Objects>,
    metrics: &Arc<WebhookMetrics>,
    tasks: &Tasks,
) -> anyhow::Result<WebhookPlugins> {
    let config = match &options.admission_control_config_file {
        Some(path) => read_plugin_configs(path)?,
        None => WebhookConfig::default(),
    };
    let resolver: Arc<dyn ServiceResolver> = if options.enable_aggregator_routing {
        Arc::new(EndpointResolver(objects.clone()))
    } else {
        Arc::new(ClusterIpResolver(objects.clone()))
    };
    let setup = |config: &PluginConfig| {
        let credentials = match &config.kube_config {
            Some(path) => Credentials::read_file(path)?,
            None => Credentials::default(),
        };
        anyhow::Ok(Setup {
            objects: objects.clone(),
            kinds: Arc::new(ServedKinds),
            transport: Transport::new(tasks.clone(), resolver.clone(), credentials),
            metrics: metrics.clone(),
            skipped: options.skip_admission_webhooks.clone(),
            // A compiler of match conditions is wired here.
            conditions: None,
        })
    };
    Ok(WebhookPlugins {
        mutating: Arc::new(MutatingWebhooks::new(setup(&config.mutating)?)),
        validating: Arc::new(ValidatingWebhooks::new(setup(&config.validating)?)),
    })
}

/// The kinds of the server's table.
struct ServedKinds;

fn find(resource: &GroupVersionResource) -> Option<&'static Resource> {
    api_kinds::find(&resource.group, &resource.version, &resource.resource)
}

/// Returns the schema of the body of a resource or subresource.
fn find_message(
    resource: &GroupVersionResource,
    subresource: &str,
) -> Option<&'static api_schema::Message> {
    let found = find(resource)?;
    if subresource.is_empty() {
        Some(found.message)
    } else {
        found.subresource(subresource)?.message
    }
}

impl Kinds for ServedKinds {
    fn find_kind(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Option<GroupVersionKind> {
        let found = find(resource)?;
        if subresource.is_empty() {
            return Some(GroupVersionKind::new(
                found.group,
                found.version,
                found.kind,
            ));
        }
        let sub = found.subresource(subresource)?;
        Some(GroupVersionKind::new(sub.group, sub.version, sub.kind))
    }

    fn equivalent_resources(&self, resource: &GroupVersionResource) -> Vec<GroupVersionResource> {
        let prefix = |row: &Resource| row.storage.as_ref().map(|storage| storage.prefix);
        let Some(stored) = find(resource).and_then(prefix) else {
            return Vec::new();
        };
        api_kinds::resources()
            .iter()
            .filter(|row| row.served && prefix(row) == Some(stored))
            .map(|row| GroupVersionResource::new(row.group, row.version, row.plural))
            .filter(|other| other != resource)
            .collect()
    }

    fn convert_object(
        &self,
        object: Value,
        from: &GroupVersionResource,
        to: &GroupVersionResource,
    ) -> Result<Value, String> {
        match (find(from), find(to)) {
            (Some(from), Some(to)) => Ok(apiserver_convert::convert_object(from, to, object)),
            _ => Err(format!(
                "unable to convert to {}: unknown kind",
                to.resource
            )),
        }
    }

    fn explicit_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: &Value,
    ) -> Value {
        match find_message(resource, subresource) {
            Some(message) => json::explicit(message, object),
            None => object.clone(),
        }
    }

    fn decode_object(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: Value,
    ) -> Result<Value, String> {
        match find_message(resource, subresource) {
            // Unknown fields are dropped, as by Go's decoder.
            Some(message) => json::check(message, object)
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
        if let Some(row) = find(resource).filter(|row| is_whole(row)) {
            let kind = Kind {
                group: row.group,
                version: row.version,
                kind: row.kind,
                namespaced: row.namespaced,
            };
            api_defaulting::default_object(kind, object);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn resource(group: &str, version: &str, name: &str) -> GroupVersionResource {
        GroupVersionResource::new(group, version, name)
    }

    #[test]
    fn resources_that_share_storage_are_equivalent() {
        let core = resource("", "v1", "events");
        let group = resource("events.k8s.io", "v1", "events");
        let others = ServedKinds.equivalent_resources(&core);
        assert_eq!(others, [group.clone()]);
        assert_eq!(ServedKinds.equivalent_resources(&group), [core]);
        let scalers = resource("autoscaling", "v1", "horizontalpodautoscalers");
        let others = ServedKinds.equivalent_resources(&scalers);
        assert_eq!(
            others,
            [resource("autoscaling", "v2", "horizontalpodautoscalers")]
        );
        let pods = resource("", "v1", "pods");
        assert!(ServedKinds.equivalent_resources(&pods).is_empty());
    }

    #[test]
    fn body_of_a_subresource_has_its_own_kind() {
        for (subresource, expect) in [
            ("", ("", "v1", "Pod")),
            ("status", ("", "v1", "Pod")),
            ("eviction", ("policy", "v1", "Eviction")),
            ("binding", ("", "v1", "Binding")),
            ("attach", ("", "v1", "PodAttachOptions")),
        ] {
            let pods = resource("", "v1", "pods");
            let found = ServedKinds.find_kind(&pods, subresource).unwrap();
            let (group, version, kind) = expect;
            assert_eq!(found, GroupVersionKind::new(group, version, kind));
        }
    }

    #[test]
    fn autoscaler_is_converted_to_the_version_of_the_webhook() {
        let old = resource("autoscaling", "v1", "horizontalpodautoscalers");
        let new = resource("autoscaling", "v2", "horizontalpodautoscalers");
        let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
        let converted = ServedKinds
            .convert_object(object.clone(), &old, &new)
            .unwrap();
        assert_eq!(converted["apiVersion"], "autoscaling/v2");
        assert_eq!(converted["spec"]["metrics"][0]["type"], "Resource");
        let back = ServedKinds.convert_object(converted, &new, &old).unwrap();
        assert_eq!(back["spec"], object["spec"]);
    }

    #[test]
    fn patched_object_of_a_wrong_type_is_rejected() {
        let pods = resource("", "v1", "pods");
        let decode = |object: Value| ServedKinds.decode_object(&pods, "", object);
        assert!(decode(json!({"spec": {"containers": "none"}})).is_err());
        let kept = decode(json!({"metadata": {"name": "p"}, "other": 1})).unwrap();
        assert_eq!(kept["other"], Value::Null, "unknown fields are dropped");
    }

    #[test]
    fn defaults_are_set_on_whole_objects_only() {
        let pods = resource("", "v1", "pods");
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        ServedKinds.default_object(&pods, "", &mut pod);
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        let mut eviction = json!({"metadata": {"name": "p"}});
        let before = eviction.clone();
        ServedKinds.default_object(&pods, "eviction", &mut eviction);
        assert_eq!(eviction, before);
    }
}
