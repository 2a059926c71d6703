//! A container's environment, in upstream's order: Services, then `envFrom`, then `env`.

use super::expand::expand_references;
use super::fields::{self, Addresses};
use super::service_env::list_service_variables;
use crate::volumes::Objects;
use api_meta::Quantity;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapKeySelector, Container, EnvFromSource, EnvVar, EnvVarSource, Pod, Secret,
    SecretKeySelector, Service,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inputs of the environment in addition to the pod.
pub(crate) struct Sources<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) addresses: Addresses,
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
}

/// Variables in the order of their definition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(Vec<(String, String)>);

impl Environment {
    fn put(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            // Replaced in place: the order of first definitions is the order that the process sees.
            Some(entry) => entry.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    pub(crate) fn expand(&self, text: &str) -> String {
        expand_references(text, |name| self.get(name))
    }

    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }
}

/// Returns the environment of `container`.
///
/// # Errors
/// A missing object or key, as the message of a CreateContainerConfigError.
pub(crate) async fn build_environment(
    pod: &Pod,
    container: &Container,
    sources: &Sources<'_>,
) -> Result<Environment, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    // Old images find Services by these variables, so that the API enables them by default.
    let links = crate::pod::spec::read_spec(pod)
        .enable_service_links
        .unwrap_or(true);
    let services = list_service_variables(&sources.services, namespace, links);
    let mut all = Environment::default();
    for from in container.env_from.iter().flatten() {
        add_env_from(namespace, from, sources, &mut all).await?;
    }
    // Separate from the rest: a variable may refer to one of `env` that is defined above it, and to
    // all others.
    let mut own = Environment::default();
    for var in container.env.iter().flatten() {
        let value = match &var.value_from {
            Some(from) => read_value_from(pod, container, var, from, sources).await?,
            None => {
                let lookup = |name: &str| {
                    own.get(name)
                        .or_else(|| all.get(name))
                        .or_else(|| services.get(name).map(String::as_str))
                };
                Some(expand_references(
                    var.value.as_deref().unwrap_or_default(),
                    lookup,
                ))
            }
        };
        if let Some(value) = value {
            own.put(&var.name, value);
        }
    }
    own.into_pairs()
        .into_iter()
        .for_each(|(name, value)| all.put(&name, value));
    // Last and only if absent: a variable of the container must win over a Service of the same
    // name.
    for (name, value) in services {
        if all.get(&name).is_none() {
            all.put(&name, value);
        }
    }
    Ok(all)
}

async fn add_env_from(
    namespace: &str,
    from: &EnvFromSource,
    sources: &Sources<'_>,
    all: &mut Environment,
) -> Result<(), String> {
    let prefix = from.prefix.as_deref().unwrap_or_default();
    if let Some(source) = &from.config_map_ref {
        let map: Option<Arc<ConfigMap>> = sources
            .objects
            .get(namespace, &source.name, source.optional.unwrap_or(false))
            .await?;
        for (key, value) in map.iter().flat_map(|m| m.data.iter().flatten()) {
            all.put(&format!("{prefix}{key}"), value.clone());
        }
    }
    if let Some(source) = &from.secret_ref {
        let secret: Option<Arc<Secret>> = sources
            .objects
            .get(namespace, &source.name, source.optional.unwrap_or(false))
            .await?;
        for (key, value) in secret.iter().flat_map(|s| s.data.iter().flatten()) {
            all.put(
                &format!("{prefix}{key}"),
                String::from_utf8_lossy(&value.0).into_owned(),
            );
        }
    }
    Ok(())
}

async fn read_value_from(
    pod: &Pod,
    container: &Container,
    var: &EnvVar,
    from: &EnvVarSource,
    sources: &Sources<'_>,
) -> Result<Option<String>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(reference) = &from.field_ref {
        return fields::read_field(pod, &reference.field_path, &sources.addresses).map(Some);
    }
    if let Some(selector) = &from.resource_field_ref {
        let of = selector
            .container_name
            .as_deref()
            // An empty name means the container itself.
            .filter(|n| !n.is_empty() && *n != container.name);
        let other = of
            .and_then(|name| crate::pod::spec::find_container(pod, name))
            .map(|(_, c)| c);
        return fields::read_resource(
            other.as_ref().unwrap_or(container),
            selector,
            sources.allocatable,
        )
        .map(Some);
    }
    if let Some(reference) = &from.config_map_key_ref {
        return read_config_map_key(namespace, reference, sources).await;
    }
    if let Some(reference) = &from.secret_key_ref {
        return read_secret_key(namespace, reference, sources).await;
    }
    Err(format!(
        "variable {} has a source that is not supported",
        var.name
    ))
}

async fn read_config_map_key(
    namespace: &str,
    reference: &ConfigMapKeySelector,
    sources: &Sources<'_>,
) -> Result<Option<String>, String> {
    let optional = reference.optional.unwrap_or(false);
    let map: Option<Arc<ConfigMap>> = sources
        .objects
        .get(namespace, &reference.name, optional)
        .await?;
    let value = map
        .as_ref()
        .and_then(|m| m.data.as_ref())
        .and_then(|d| d.get(&reference.key))
        .cloned();
    let key = KeyReference {
        kind: "ConfigMap",
        namespace,
        name: &reference.name,
        key: &reference.key,
        optional,
    };
    require_key(value, key)
}

async fn read_secret_key(
    namespace: &str,
    reference: &SecretKeySelector,
    sources: &Sources<'_>,
) -> Result<Option<String>, String> {
    let optional = reference.optional.unwrap_or(false);
    let secret: Option<Arc<Secret>> = sources
        .objects
        .get(namespace, &reference.name, optional)
        .await?;
    let value = secret
        .as_ref()
        .and_then(|s| s.data.as_ref())
        .and_then(|d| d.get(&reference.key));
    // Variables are text for the CRI; a Secret with other bytes belongs in a volume.
    let value = value.map(|v| String::from_utf8_lossy(&v.0).into_owned());
    let key = KeyReference {
        kind: "Secret",
        namespace,
        name: &reference.name,
        key: &reference.key,
        optional,
    };
    require_key(value, key)
}

/// A key of a ConfigMap or a Secret.
struct KeyReference<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    key: &'a str,
    /// A missing key is no error.
    optional: bool,
}

fn require_key(
    value: Option<String>,
    reference: KeyReference<'_>,
) -> Result<Option<String>, String> {
    // An optional key that is missing leaves the variable unset, which differs from an empty value.
    if value.is_some() || reference.optional {
        return Ok(value);
    }
    let KeyReference {
        kind,
        namespace,
        name,
        key,
        ..
    } = reference;
    Err(format!(
        "couldn't find key {key} in {kind} {namespace}/{name}"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing;
    use serde_json::{Value, json};

    /// Builds the environment of a container on a node without an API server.
    async fn build(container: Value, services: Value) -> Result<Vec<(String, String)>, String> {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = testing::context(testing::settings(dir.path()));
        let mut whole = container;
        whole["name"] = json!("c");
        let pod = testing::pod(json!({"containers": [whole]}));
        let container = crate::pod::spec::app_containers(&pod).next().unwrap();
        let services: Vec<Service> = serde_json::from_value(services).unwrap();
        let sources = Sources {
            objects: &kubelet.objects,
            services: services.into_iter().map(Arc::new).collect(),
            addresses: Addresses {
                pod_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
                host_ips: vec!["192.0.2.1".into()],
            },
            allocatable: &kubelet.allocatable,
        };
        let built = build_environment(&pod, container, &sources).await?;
        Ok(built.into_pairs())
    }

    fn value_of<'a>(all: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let found = all.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    #[tokio::test]
    async fn variable_refers_to_those_before_it_and_to_services() {
        let services = json!([{"metadata": {"namespace": "ns", "name": "db"},
            "spec": {"clusterIP": "10.0.0.5", "ports": [{"port": 1}]}}]);
        let env = json!([
            {"name": "A", "value": "$(LATER)"},
            {"name": "LATER", "value": "$(A)-$(DB_SERVICE_HOST)-$$(A)"},
        ]);
        let built = build(json!({"env": env}), services).await.unwrap();
        assert_eq!(value_of(&built, "A"), Some("$(LATER)"), "not defined yet");
        assert_eq!(value_of(&built, "LATER"), Some("$(LATER)-10.0.0.5-$(A)"));
    }

    #[tokio::test]
    async fn variable_of_the_container_replaces_that_of_a_service_and_an_earlier_one() {
        let services = json!([{"metadata": {"namespace": "ns", "name": "db"},
            "spec": {"clusterIP": "10.0.0.5", "ports": [{"port": 1}]}}]);
        let env = json!([
            {"name": "DB_SERVICE_HOST", "value": "first"},
            {"name": "DB_SERVICE_HOST", "value": "second"},
        ]);
        let built = build(json!({"env": env}), services).await.unwrap();
        let hosts = built.iter().filter(|(name, _)| name == "DB_SERVICE_HOST");
        let hosts: Vec<_> = hosts.map(|(_, value)| value.as_str()).collect();
        assert_eq!(hosts, ["second"]);
    }

    #[tokio::test]
    async fn variable_has_the_value_of_a_field_or_of_a_resource() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let env = json!([
            {"name": "POD", "valueFrom": field("metadata.name")},
            {"name": "IPS", "valueFrom": field("status.podIPs")},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        ]);
        let resources = json!({"limits": {"cpu": "250m"}});
        let container = json!({"env": env, "resources": resources});
        let built = build(container, json!([])).await.unwrap();
        assert_eq!(value_of(&built, "POD"), Some("a"));
        assert_eq!(value_of(&built, "IPS"), Some("10.0.0.1,fd00::1"));
        assert_eq!(value_of(&built, "CPU"), Some("250"));
    }

    #[tokio::test]
    async fn variable_without_a_value_or_with_an_unknown_field_is_an_error() {
        for from in [
            json!({"fieldRef": {"fieldPath": "spec.hostname"}}),
            json!({"configMapKeyRef": {"name": "m", "key": "k"}}),
            json!({}),
        ] {
            let env = json!([{"name": "A", "valueFrom": from}]);
            assert!(
                build(json!({"env": env}), json!([])).await.is_err(),
                "{from}"
            );
        }
    }

    #[test]
    fn missing_key_is_an_error_unless_it_is_optional() {
        let key = |optional| KeyReference {
            kind: "Secret",
            namespace: "ns",
            name: "s",
            key: "k",
            optional,
        };
        assert_eq!(require_key(None, key(true)), Ok(None));
        let message = "couldn't find key k in Secret ns/s".to_owned();
        assert_eq!(require_key(None, key(false)), Err(message));
    }
}
