use super::{Cluster, find_resource, start_cluster, user_write};
use crate::{ObjectChange, Write};
use api_kinds::{Conversion, Converter, CustomSchema, ObjectSchema, Resource, Storage};
use api_meta::{ApiError, Reason};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// An apply of a manager.
struct Apply<'a> {
    cluster: &'a Cluster,
    write: Write,
    intent: &'a Value,
}

#[async_trait]
impl ObjectChange for Apply<'_> {
    async fn apply(&self, old: &Value) -> Result<Value, ApiError> {
        let registry = &self.cluster.registry;
        registry
            .merge_intent(&self.write, Some(old), self.intent, false)
            .await
    }
}

fn autoscaler(version: &str, spec: Value) -> Value {
    json!({"apiVersion": version, "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "namespace": "d"}, "spec": spec})
}

async fn apply(cluster: &Cluster, manager: &str, intent: &Value) -> Result<Value, ApiError> {
    let version = intent["apiVersion"].as_str().unwrap();
    let resource = find_resource(version, "horizontalpodautoscalers");
    let mut write = user_write(resource, "a");
    write.manager = manager.to_owned();
    write.applies = true;
    let change = Apply {
        cluster,
        write: write.clone(),
        intent,
    };
    let update = crate::Update {
        change: &change,
        replaces: false,
        mode: crate::Mode::Full,
    };
    let applied = cluster.registry.update(&mut write, &update).await;
    cluster.catch_up().await;
    applied
}

/// Returns a cluster with an autoscaler whose CPU target is 50 percent, applied by `a` in v2.
async fn start_with_autoscaler() -> Cluster {
    let cluster = start_cluster().await;
    let resource = find_resource("autoscaling/v2", "horizontalpodautoscalers");
    let mut write = user_write(resource, "");
    write.manager = "a".to_owned();
    write.applies = true;
    let target = json!({"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "metrics": [cpu]});
    let intent = autoscaler("autoscaling/v2", spec);
    let merged = cluster.registry.merge_intent(&write, None, &intent, false);
    let merged = merged.await.unwrap();
    cluster.registry.create(&mut write, merged).await.unwrap();
    cluster.catch_up().await;
    cluster
}

#[tokio::test]
async fn owner_of_v2_conflicts_with_an_apply_in_v1() {
    let cluster = start_with_autoscaler().await;
    for (target, conflicts) in [(60, true), (50, false)] {
        let spec = json!({"targetCPUUtilizationPercentage": target});
        let intent = autoscaler("autoscaling/v1", spec);
        let applied = apply(&cluster, "b", &intent).await;
        let reason = applied.as_ref().err().map(|error| error.reason);
        assert_eq!(reason, conflicts.then_some(Reason::Conflict), "{target}");
        if let Err(error) = applied {
            let expect = "Apply failed with 1 conflict: conflict with \"a\": .spec.metrics";
            assert_eq!(error.message, expect);
        }
    }
}

#[tokio::test]
async fn applier_that_moves_from_v2_to_v1_removes_a_metric() {
    let cluster = start_with_autoscaler().await;
    let target = json!({"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "minReplicas": 2});
    let intent = autoscaler("autoscaling/v1", spec);
    let applied = apply(&cluster, "a", &intent).await.unwrap();
    // The default, not the 50 percent of the apply before.
    assert_eq!(applied["spec"]["targetCPUUtilizationPercentage"], 80);
    assert_eq!(applied["spec"]["minReplicas"], 2);
    let owners = applied["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["apiVersion"], "autoscaling/v1");
}

#[derive(Debug)]
struct FailingConverter;

impl Converter for FailingConverter {
    fn convert_objects<'a>(&'a self, _: Vec<Value>, _: &'a str) -> Conversion<'a> {
        Box::pin(async { Err(ApiError::internal("the webhook is down")) })
    }
}

/// Calls the same number `size` in v1 and `count` in v2.
#[derive(Debug)]
struct RenamingConverter;

impl Converter for RenamingConverter {
    fn convert_objects<'a>(&'a self, objects: Vec<Value>, target: &'a str) -> Conversion<'a> {
        let (old, new) = if target == "e.io/v2" {
            ("size", "count")
        } else {
            ("count", "size")
        };
        let convert = move |mut object: Value| {
            object["apiVersion"] = target.into();
            // Abandoned fields are removed before a conversion, and with them the whole spec.
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
                && let Some(number) = spec.remove(old)
            {
                spec.insert(new.to_owned(), number);
            }
            object
        };
        Box::pin(async move { Ok(objects.into_iter().map(convert).collect()) })
    }
}

/// Returns two versions of a custom resource that only a converter can convert; v1 is stored.
fn custom_versions(converter: Arc<dyn Converter>) -> Vec<Arc<Resource>> {
    let mut schema = CustomSchema::default();
    schema.converter = Some(converter);
    let schema = ObjectSchema::Custom(Arc::new(schema));
    let version = |name: &'static str| {
        Arc::new(Resource {
            group: "e.io".into(),
            version: name.into(),
            kind: "Thing".into(),
            plural: "things".into(),
            schema: schema.clone(),
            subresources: Vec::new(),
            storage: Some(Storage {
                prefix: "/e.io/things".into(),
                api_version: "e.io/v1".into(),
                schema: schema.clone(),
                format: api_kinds::StorageFormat::Json,
            }),
            ..Resource::clone(find_resource("v1", "configmaps"))
        })
    };
    vec![version("v1"), version("v2")]
}

#[tokio::test]
async fn failed_conversion_of_owners_fails_an_apply_and_resets_them_in_an_update() {
    let cluster = start_cluster().await;
    let versions = custom_versions(Arc::new(FailingConverter));
    cluster
        .registry
        .caches()
        .install(versions.clone())
        .await
        .unwrap();
    let owner = json!({"manager": "a", "operation": "Update", "apiVersion": "e.io/v2",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:x": {}}}});
    let mut object = json!({"apiVersion": "e.io/v1", "kind": "Thing",
        "metadata": {"name": "a", "namespace": "d", "managedFields": [owner]},
        "spec": {"x": 1}});
    let intent = object.clone();
    let write = user_write(&versions[0], "a");
    let merged = cluster
        .registry
        .merge_intent(&write, Some(&object), &intent, true);
    assert_eq!(merged.await.unwrap_err().reason, Reason::InternalError);
    let old = object.clone();
    object["spec"]["x"] = json!(2);
    cluster
        .registry
        .track_fields(&write, Some(&old), &mut object)
        .await;
    assert_eq!(object["metadata"], json!({"name": "a", "namespace": "d"}));
    assert_eq!(object["spec"]["x"], 2);
}

#[tokio::test]
async fn owners_of_a_custom_resource_are_compared_by_its_converter() {
    let cluster = start_cluster().await;
    let versions = custom_versions(Arc::new(RenamingConverter));
    let installed = cluster.registry.caches().install(versions.clone()).await;
    installed.unwrap();
    let intent = |version: &str, spec: Value| {
        json!({"apiVersion": format!("e.io/{version}"), "kind": "Thing",
            "metadata": {"name": "a", "namespace": "d"}, "spec": spec})
    };
    let merge = async |manager: &str, at: usize, live: Option<&Value>, intent: &Value| {
        let mut write = user_write(&versions[at], "a");
        write.manager = manager.to_owned();
        let registry = &cluster.registry;
        registry.merge_intent(&write, live, intent, false).await
    };
    let first = intent("v1", json!({"size": 1, "note": "x"}));
    let first = merge("a", 0, None, &first).await.unwrap();
    let live = RenamingConverter.convert_objects(vec![first], "e.io/v2");
    let live = live.await.unwrap().remove(0);
    let other = intent("v2", json!({"count": 2}));
    let error = merge("b", 1, Some(&live), &other).await.unwrap_err();
    let expect = "Apply failed with 1 conflict: conflict with \"a\": .spec.size";
    assert_eq!(error.message, expect);
    let moved = intent("v2", json!({"note": "x"}));
    let moved = merge("a", 1, Some(&live), &moved).await.unwrap();
    assert_eq!(moved["spec"], json!({"note": "x"}));
}
