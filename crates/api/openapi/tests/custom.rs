//! Documents of custom resources.
#![allow(clippy::unwrap_used, missing_docs)]

use api_kinds::{CustomSchema, ObjectSchema, Resource, ResourceSet, Storage, Subresource};
use api_openapi::{CustomResources, Definition, gnostic, v2, v3};
use serde_json::{Value, json};
use std::sync::Arc;

const PATH: &str = "apis/stable.example.com/v1";
const TAB: &str = "com.example.stable.v1.CronTab";

fn schema() -> Value {
    json!({"type": "object", "description": "A table of times.", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["times", "port", "when"], "properties": {
            "times": {"type": "string", "pattern": "^.*$", "default": "* * *", "nullable": false},
            "when": {"type": "string", "nullable": true},
            "port": {"x-kubernetes-int-or-string": true},
            "limit": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "limited": {"x-kubernetes-int-or-string": true, "anyOf": [{"pattern": "^a"}]},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"a": {"type": "string"}}},
            "steps": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}}},
            "limits": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
            "on": {"type": "boolean", "default": false},
            "any": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                "x-kubernetes-validations": [{"rule": "true"}],
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}}}})
}

struct Stored(Value);

impl Definition for Stored {
    fn revision(&self) -> i64 {
        self.0["metadata"]["resourceVersion"].as_i64().unwrap()
    }

    fn load(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

fn definition(schema: &Value) -> Value {
    json!({"metadata": {"name": "crontabs.stable.example.com", "resourceVersion": 1},
        "spec": {"group": "stable.example.com", "versions": [{"name": "v1", "served": true, "storage": true,
            "selectableFields": [{"jsonPath": ".spec.times"}],
            "schema": {"openAPIV3Schema": schema}}]}})
}

fn crontabs(schema: &ObjectSchema) -> Resource {
    let subresource =
        |name: &'static str, group: &'static str, kind: &'static str, schema| Subresource {
            name: name.into(),
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            verbs: vec!["get", "patch", "update"],
            schema: Some(schema),
        };
    let scale = api_kinds::find("apps", "v1", "deployments").unwrap();
    let scale = scale.subresource("scale").unwrap().schema.clone().unwrap();
    Resource {
        group: "stable.example.com".into(),
        version: "v1".into(),
        kind: "CronTab".into(),
        list_kind: "CronTabList".into(),
        plural: "crontabs".into(),
        singular: "crontab".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: vec![
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
        schema: schema.clone(),
        subresources: vec![
            subresource("status", "stable.example.com", "CronTab", schema.clone()),
            subresource("scale", "autoscaling", "Scale", scale),
        ],
        selectable_fields: Vec::new(),
        storage: Some(Storage {
            prefix: api_kinds::custom_prefix("stable.example.com", "crontabs"),
            api_version: "stable.example.com/v1".into(),
            schema: schema.clone(),
            format: api_kinds::StorageFormat::Json,
        }),
        served: true,
    }
}

fn collect(resource: Resource, definition: Value) -> CustomResources {
    let set = ResourceSet::new([Arc::new(resource)]);
    let definition: Arc<dyn Definition> = Arc::new(Stored(definition));
    CustomResources::new(&set, |name| {
        (name == "crontabs.stable.example.com").then(|| definition.clone())
    })
}

fn custom_with(schema: &Value) -> CustomResources {
    let declared = json!({"schema": {"openAPIV3Schema": schema}});
    let parsed = CustomSchema::parse(&json!({}), &declared).unwrap_or_default();
    let parsed = ObjectSchema::Custom(Arc::new(parsed));
    collect(crontabs(&parsed), definition(schema))
}

fn document() -> Value {
    v3::document(PATH, &custom_with(&schema())).unwrap()
}

fn object_in_version_2(schema: &Value) -> Value {
    v2::document(&custom_with(schema))["definitions"][TAB].clone()
}

/// Returns a field of `spec` in version 3.
fn field(name: &str) -> Value {
    document()["components"]["schemas"][TAB]["properties"]["spec"]["properties"][name].clone()
}

#[test]
fn index_lists_versions_with_a_hash_that_follows_the_definition() {
    let resource = || crontabs(&ObjectSchema::Custom(Arc::default()));
    let hash_of = |change: &dyn Fn(&mut Value)| {
        let mut changed = definition(&schema());
        change(&mut changed);
        let custom = collect(resource(), changed);
        let hash = v3::hash(PATH, &custom).unwrap();
        let url = &v3::index_paths(&custom)[PATH]["serverRelativeURL"];
        assert_eq!(url, &format!("/openapi/v3/{PATH}?hash={hash}"));
        (hash, v2::hash(&custom, std::iter::empty()))
    };
    let first = hash_of(&|_| {});
    assert_eq!(hash_of(&|_| {}), first);
    let other = hash_of(&|d| d["metadata"]["resourceVersion"] = json!(2));
    assert!(other.0 != first.0 && other.1 != first.1);
    let none = CustomResources::default();
    assert!(v3::hash(PATH, &none).is_none() && v3::document(PATH, &none).is_none());
}

#[test]
fn resource_without_a_definition_is_left_out() {
    let resource = crontabs(&ObjectSchema::Custom(Arc::default()));
    let set = ResourceSet::new([Arc::new(resource)]);
    assert!(v3::hash(PATH, &CustomResources::new(&set, |_| None)).is_none());
}

#[test]
fn object_has_its_kind_metadata_and_selectable_fields() {
    let object = &document()["components"]["schemas"][TAB];
    let kind = json!([{"group": "stable.example.com", "version": "v1", "kind": "CronTab"}]);
    assert_eq!(object["x-kubernetes-group-version-kind"], kind);
    assert_eq!(
        object["x-kubernetes-selectable-fields"],
        json!([{"fieldPath": "spec.times"}])
    );
    assert_eq!(object["description"], "A table of times.");
    let metadata = &object["properties"]["metadata"]["allOf"][0]["$ref"];
    assert_eq!(
        metadata,
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert!(
        object["properties"]["apiVersion"]["description"]
            .as_str()
            .unwrap()
            .len()
            > 20
    );
    let list = &document()["components"]["schemas"]["com.example.stable.v1.CronTabList"];
    assert_eq!(list["required"], json!(["items"]));
    let item = format!("#/components/schemas/{TAB}");
    assert_eq!(list["properties"]["items"]["items"]["$ref"], item);
    assert_eq!(
        list["x-kubernetes-group-version-kind"][0]["kind"],
        "CronTabList"
    );
}

#[test]
fn keywords_are_those_of_the_definition() {
    let times = json!({"type": "string", "pattern": "^.*$", "default": "* * *"});
    assert_eq!(field("times"), times);
    assert_eq!(field("when"), json!({"type": "string", "nullable": true}));
    assert_eq!(field("on"), json!({"type": "boolean", "default": false}));
    assert_eq!(
        field("steps")["x-kubernetes-list-map-keys"],
        json!(["name"])
    );
    assert_eq!(field("free")["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(
        field("any")["x-kubernetes-validations"],
        json!([{"rule": "true"}])
    );
    assert_eq!(field("any")["oneOf"][1], json!({"required": ["b"]}));
}

#[test]
fn int_or_string_is_a_union() {
    let types = json!([{"type": "integer"}, {"type": "string"}]);
    for name in ["port", "limit"] {
        assert_eq!(
            field(name),
            json!({"x-kubernetes-int-or-string": true, "anyOf": types}),
            "{name}"
        );
    }
    let limited = field("limited");
    assert_eq!(limited["anyOf"], json!([{"pattern": "^a"}]));
    assert_eq!(limited["allOf"], json!([{"anyOf": types}]));
}

#[test]
fn embedded_objects_have_metadata() {
    let template = field("template");
    assert_eq!(template["required"], json!(["kind", "apiVersion"]));
    assert!(template["properties"]["metadata"]["allOf"].is_array());
}

#[test]
fn paths_have_the_media_types_of_custom_resources() {
    let paths = &document()["paths"];
    let base = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs";
    let mut found: Vec<&String> = paths.as_object().unwrap().keys().collect();
    found.sort();
    let expect =
        ["", "/{name}", "/{name}/scale", "/{name}/status"].map(|rest| format!("{base}{rest}"));
    let mut expect = expect.to_vec();
    expect.insert(0, "/apis/stable.example.com/v1/crontabs".into());
    assert_eq!(found, expect.iter().collect::<Vec<_>>());
    let create = &paths[base]["post"];
    assert_eq!(
        create["operationId"],
        "createStableExampleComV1NamespacedCronTab"
    );
    assert_eq!(create["tags"], json!(["stableExampleCom_v1"]));
    let types = |content: &Value| {
        content
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        types(&create["requestBody"]["content"]),
        ["application/json", "application/yaml"]
    );
    let patch = &paths[&format!("{base}/{{name}}")]["patch"];
    let strategic = "application/strategic-merge-patch+json".to_owned();
    assert!(!types(&patch["requestBody"]["content"]).contains(&strategic));
    let scale = &paths[&format!("{base}/{{name}}/scale")]["put"];
    assert_eq!(
        scale["operationId"],
        "replaceStableExampleComV1NamespacedCronTabScale"
    );
    assert_eq!(scale["x-kubernetes-group-version-kind"]["kind"], "CronTab");
}

#[test]
fn references_resolve_within_a_document() {
    fn visit(value: &Value, root: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                    assert!(
                        root.pointer(name.trim_start_matches('#')).is_some(),
                        "{name}"
                    );
                }
                map.values().for_each(|value| visit(value, root));
            }
            Value::Array(list) => list.iter().for_each(|value| visit(value, root)),
            _ => {}
        }
    }
    visit(&document(), &document());
    let all = v2::document(&custom_with(&schema()));
    visit(&all, &all);
    assert!(all["paths"]["/apis/stable.example.com/v1/crontabs"]["get"].is_object());
}

#[test]
fn version_2_has_no_unions_and_no_null() {
    let object = object_in_version_2(&schema());
    let spec = &object["properties"]["spec"];
    assert_eq!(spec["required"], json!(["times", "port"]));
    let field = |name: &str| spec["properties"][name].clone();
    assert_eq!(field("when"), json!({}));
    assert_eq!(field("times"), json!({"type": "string", "pattern": "^.*$"}));
    assert_eq!(field("port"), json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(
        field("free"),
        json!({"x-kubernetes-preserve-unknown-fields": true})
    );
    assert!(field("any").get("oneOf").is_none());
    let reference = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(object["properties"]["metadata"]["$ref"], reference);
    assert_eq!(
        field("template")["properties"]["metadata"]["$ref"],
        reference
    );
}

#[test]
fn schema_that_is_open_or_not_structural_lists_no_fields() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}}});
    assert!(object_in_version_2(&open).get("properties").is_none());
    let odd = json!({"type": "object", "properties": {"spec": {"properties": {}}}});
    assert!(object_in_version_2(&odd).get("properties").is_none());
    let object = v3::document(PATH, &custom_with(&odd)).unwrap();
    assert!(
        object["components"]["schemas"][TAB]
            .get("properties")
            .is_none()
    );
    let object = v3::document(PATH, &custom_with(&open)).unwrap();
    assert!(object["components"]["schemas"][TAB]["properties"]["spec"].is_object());
}

#[test]
fn definition_can_not_replace_a_built_in_type() {
    let mut resource = crontabs(&ObjectSchema::Custom(Arc::default()));
    // The type would have the name of core's pods.
    (resource.group, resource.kind) = ("core.api.k8s.io".into(), "Pod".into());
    let set = ResourceSet::new([Arc::new(resource)]);
    let custom = CustomResources::new(&set, |_| Some(Arc::new(Stored(definition(&schema())))));
    let pod = &v2::document(&custom)["definitions"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"][0]["group"], "");
}

#[test]
fn protobuf_has_booleans_of_additional_properties() {
    let bytes = gnostic::version3(
        &json!({"components": {"schemas": {"A": {"additionalProperties": false}}}}),
    );
    // 32: a message with the boolean as number 2.
    assert!(bytes.ends_with(b"\x82\x02\x02\x10\x00"), "{bytes:?}");
    assert!(gnostic::version3(&document()).len() > 1000);
}
