//! Wires the admission policies: the objects that can be parameters.

use crate::feature_gates::{FeatureGates, MUTATING_POLICIES};
use crate::webhooks::ServedKinds;
use api_kinds::{ObjectSchema, Resource};
use api_meta::{Meta, Selector};
use apiserver_admission::PolicyPlugins;
use apiserver_cache::{Caches, Entry, convert_entries, convert_entry};
use apiserver_convert::codec;
use apiserver_policy::{
    MutatingPolicies, ParamAccessCheck, ParamObjects, ParamResource, PatchObjects, PolicyMetrics,
    PolicySetup, ValidatingPolicies,
};
use apiserver_request::{Authorizer, Objects};
use apiserver_webhook::GroupVersionResource;
use serde_json::Value;
use std::sync::Arc;

/// Builds the plugins.
pub fn build_policies(
    caches: &Arc<Caches>,
    authorizer: &Arc<dyn Authorizer>,
    metrics: &Arc<PolicyMetrics>,
    gates: &FeatureGates,
) -> PolicyPlugins {
    let objects: Arc<dyn Objects> = caches.clone();
    let setup = PolicySetup {
        objects,
        kinds: Arc::new(ServedKinds(caches.clone())),
        params: Arc::new(CachedParams(caches.clone())),
        authorizer: authorizer.clone(),
        patches: Arc::new(ServedKinds(caches.clone())),
        metrics: metrics.clone(),
    };
    PolicyPlugins {
        mutating: Arc::new(MutatingPolicies::new(
            setup.clone(),
            gates.is_enabled(MUTATING_POLICIES),
        )),
        validating: Arc::new(ValidatingPolicies::new(setup)),
    }
}

impl PatchObjects for ServedKinds {
    fn merge_partial(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        live: &Value,
        partial: &Value,
    ) -> Result<Value, String> {
        let Some(schema) = self.find_schema(resource, subresource) else {
            return Err(format!("no schema for {}", resource.resource));
        };
        let untyped =
            |why: String| format!("failed to convert patch object to typed object: {why}");
        let (_, problems) = codec::check_tree(&schema, partial.clone())
            .map_err(|error| untyped(error.to_string()))?;
        if let Some(problem) = problems.first() {
            let problem = problem.to_string();
            let field = problem.split('"').nth(1).unwrap_or_default();
            return Err(untyped(format!(".{field}: field not declared in schema")));
        }
        let merged = apiserver_fields::merge_object(&schema, live, partial)
            .map_err(|error| error.to_string())?;
        let (merged, _) =
            codec::check_admitted(&schema, merged).map_err(|error| error.to_string())?;
        Ok(merged)
    }

    fn decode_patched(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: Value,
    ) -> Result<Value, String> {
        let Some(schema) = self.find_schema(resource, subresource) else {
            return Ok(object);
        };
        let (object, problems) =
            codec::check_admitted(&schema, object).map_err(|error| error.to_string())?;
        match problems.first() {
            // Custom resources are pruned later.
            Some(problem) if matches!(schema, ObjectSchema::BuiltIn(_)) => {
                Err(format!("strict decoding error: {problem}"))
            }
            _ => Ok(object),
        }
    }
}

/// Builds the check of the authors of policies and bindings.
pub fn build_param_check(
    caches: &Arc<Caches>,
    authorizer: &Arc<dyn Authorizer>,
) -> Arc<ParamAccessCheck> {
    Arc::new(ParamAccessCheck::new(
        authorizer.clone(),
        caches.clone(),
        Arc::new(CachedParams(caches.clone())),
    ))
}

/// Bytes of the stored parameters that are read for one binding and request at most. Each is
/// decoded for each request, and users of a namespace may be able to create as many as they like.
const MAX_PARAMETERS: usize = 16 * 1024 * 1024;

/// Objects of the watch caches, custom resources included.
struct CachedParams(Arc<Caches>);

impl CachedParams {
    fn find_row(&self, resource: &GroupVersionResource) -> Option<Arc<Resource>> {
        let served = self.0.served();
        let rows = served.resources();
        rows.find(&resource.group, &resource.version, &resource.resource)
            .cloned()
    }
}

/// Returns the object with the type that expressions read.
fn with_type(mut object: Value, row: &Resource) -> Value {
    let version = match row.group.as_ref() {
        "" => row.version.to_string(),
        group => format!("{group}/{}", row.version),
    };
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), version.into());
        fields.insert("kind".to_owned(), row.kind.as_ref().into());
    }
    object
}

fn read_param(entry: &Entry, row: &Resource) -> Result<Value, String> {
    let object = entry.tree_as(row).map_err(|error| error.to_string())?;
    Ok(with_type(object, row))
}

#[async_trait::async_trait]
impl ParamObjects for CachedParams {
    fn find_resource(&self, api_version: &str, kind: &str) -> Option<ParamResource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = self.0.served();
        let mut rows = served.resources().served();
        // Kinds without storage, such as reviews, are no parameters.
        let row = rows.find(|row| {
            row.storage.is_some()
                && row.group == group
                && row.version == version
                && row.kind == kind
        })?;
        Some(ParamResource {
            resource: GroupVersionResource::new(&row.group, &row.version, &row.plural),
            is_namespaced: row.namespaced,
        })
    }

    async fn find_object(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let row = self.find_row(resource);
        let cache = self.0.find_cache(&resource.group, &resource.resource);
        let (Some(row), Some(cache)) = (row, cache) else {
            return Ok(None);
        };
        let Some(entry) = cache.get(&cache.kind().object_key(namespace, name)) else {
            return Ok(None);
        };
        let converted = convert_entry(&row, entry).await;
        let entry = converted.map_err(|error| error.message)?;
        read_param(&entry, &row).map(Some)
    }

    async fn list_objects(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Value>, String> {
        let row = self.find_row(resource);
        let cache = self.0.find_cache(&resource.group, &resource.resource);
        let (Some(row), Some(cache)) = (row, cache) else {
            return Ok(Vec::new());
        };
        let prefix = namespace.map_or(String::new(), |name| format!("{name}/"));
        // The revision of the snapshot is not used, so that any number will do.
        let snapshot = cache.snapshot(0);
        let entries = snapshot.range_entries(&prefix, "");
        // A conversion may change labels.
        let foreign = row.schema.converter().is_some();
        // Before the objects are decoded: a tenant may fill the namespace with others.
        let entries = entries.filter(|entry| foreign || selector.matches(|key| entry.label(key)));
        let entries: Vec<Arc<Entry>> = entries.cloned().collect();
        let size: usize = entries.iter().map(|entry| entry.stored_size()).sum();
        if size > MAX_PARAMETERS {
            return Err(format!(
                "the parameters have more than {MAX_PARAMETERS} bytes together"
            ));
        }
        let converted = convert_entries(&row, entries).await;
        let entries = converted.map_err(|error| error.message)?;
        let objects = entries.iter().map(|entry| read_param(entry, &row));
        objects
            .filter(|object| {
                let selected = |object: &Value| selector.matches_map(object.labels());
                object.as_ref().map_or(true, selected)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_storage::{Store, StoreConfig};
    use base_task::Tasks;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn stored_kinds_can_be_parameters() {
        let store = Store::new(&StoreConfig {
            servers: vec!["http://127.0.0.1:1".into()],
            ..StoreConfig::default()
        });
        let tasks = Tasks::new(CancellationToken::new());
        let params = CachedParams(Caches::start(store.unwrap(), "/registry", &tasks));
        for (version, kind, expect) in [
            ("v1", "ConfigMap", Some(("configmaps", true))),
            ("v1", "Node", Some(("nodes", false))),
            ("apps/v1", "Deployment", Some(("deployments", true))),
            ("authentication.k8s.io/v1", "TokenReview", None),
            ("apps/v1", "ConfigMap", None),
            ("example.com/v1", "Limit", None),
        ] {
            let found = params.find_resource(version, kind);
            let found = found.map(|found| (found.resource.resource, found.is_namespaced));
            let expect = expect.map(|(plural, scope)| (plural.to_owned(), scope));
            assert_eq!(found, expect, "{version} {kind}");
        }
        let maps = GroupVersionResource::new("", "v1", "configmaps");
        assert!(params.find_object(&maps, "n", "a").await.unwrap().is_none());
        let selector = Selector::default();
        let all = params.list_objects(&maps, Some("n"), &selector);
        assert!(all.await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn parameters_of_a_selector_are_limited_in_bytes() {
        let etcd = testkit_etcd::FakeEtcd::start().await;
        let store = Store::new(&StoreConfig {
            servers: vec![etcd.url().to_owned()],
            ..StoreConfig::default()
        })
        .unwrap();
        let map = |name: &str, app: &str| {
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "n", "labels": {"app": app}},
                "data": {"k": "v".repeat(MAX_PARAMETERS / 8)}})
        };
        for n in 0..9 {
            let app = if n < 7 { "few" } else { "rest" };
            let name = format!("m{n}");
            let key = format!("/registry/configmaps/n/{name}");
            store
                .create(&key, map(&name, app).to_string().into(), None)
                .await
                .unwrap();
        }
        let tasks = Tasks::new(CancellationToken::new());
        let caches = Caches::start(store, "/registry", &tasks);
        caches.wait_ready().await;
        let params = CachedParams(caches);
        let maps = GroupVersionResource::new("", "v1", "configmaps");
        let list = async |selector: &str| {
            let selector = Selector::parse(selector).unwrap();
            params.list_objects(&maps, Some("n"), &selector).await
        };
        assert_eq!(list("app=few").await.unwrap().len(), 7);
        assert_eq!(list("app=rest").await.unwrap().len(), 2);
        let rejected = list("app in (few, rest)").await.unwrap_err();
        assert!(rejected.contains("more than 16777216 bytes"), "{rejected}");
    }
}
