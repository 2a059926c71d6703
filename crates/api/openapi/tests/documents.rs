//! Discovery and OpenAPI as kubectl and generators read them.
#![allow(clippy::unwrap_used, missing_docs)]

use api_openapi::{CustomResources, discovery, gnostic, v2, v3};
use serde_json::Value;
use std::sync::LazyLock;

static APPS: LazyLock<Value> = LazyLock::new(|| document("apis/apps/v1").unwrap());
static CORE: LazyLock<Value> = LazyLock::new(|| document("api/v1").unwrap());
static SWAGGER: LazyLock<Value> = LazyLock::new(|| v2::document(&CustomResources::default()));

fn document(path: &str) -> Option<Value> {
    v3::document(path, &CustomResources::default())
}

fn hash(path: &str) -> String {
    v3::hash(path, &CustomResources::default()).unwrap()
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|item| item[field].as_str().unwrap().to_owned())
        .collect()
}

/// Calls `visit` for all references of a document.
fn visit_references(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => {
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                visit(reference);
            }
            map.values()
                .for_each(|value| visit_references(value, visit));
        }
        Value::Array(list) => list.iter().for_each(|value| visit_references(value, visit)),
        _ => {}
    }
}

fn built_in() -> api_kinds::ResourceSet {
    api_kinds::ResourceSet::new([])
}

#[test]
fn core_is_a_version_and_not_a_group() {
    assert_eq!(
        discovery::api_versions("h:1")["versions"],
        serde_json::json!(["v1"])
    );
    assert!(discovery::api_group(&built_in(), "").is_none());
    let groups = discovery::api_groups(&built_in());
    assert!(!names(&groups["groups"], "name").contains(&String::new()));
}

#[test]
fn group_prefers_its_first_version() {
    let group = discovery::api_group(&built_in(), "autoscaling").unwrap();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    assert_eq!(names(&group["versions"], "version"), ["v2", "v1"]);
    assert_eq!(
        (&group["kind"], &group["apiVersion"]),
        (&"APIGroup".into(), &"v1".into())
    );
}

#[test]
fn group_that_is_not_served_has_no_document() {
    assert!(discovery::api_group(&built_in(), "example.com").is_none());
    assert!(discovery::api_resources(&built_in(), "apps", "v1beta1").is_none());
    assert!(document("apis/apps/v1beta1").is_none());
}

#[test]
fn resources_have_verbs_short_names_and_categories() {
    let list = discovery::api_resources(&built_in(), "", "v1").unwrap();
    let find = |name: &str| {
        let all = list["resources"].as_array().unwrap().iter();
        all.clone().find(|r| r["name"] == name).unwrap().clone()
    };
    let pods = find("pods");
    assert_eq!(pods["shortNames"], serde_json::json!(["po"]));
    assert_eq!(pods["categories"], serde_json::json!(["all"]));
    assert_eq!(pods["singularName"], "pod");
    assert!(pods["storageVersionHash"].is_string());
    assert!(
        pods["verbs"]
            .as_array()
            .unwrap()
            .contains(&"deletecollection".into())
    );
    assert_eq!(find("pods/log")["verbs"], serde_json::json!(["get"]));
}

#[test]
fn subresource_of_another_group_names_that_group() {
    let list = discovery::api_resources(&built_in(), "apps", "v1").unwrap();
    let scale = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["name"] == "deployments/scale");
    let scale = scale.unwrap();
    assert_eq!(
        (&scale["group"], &scale["kind"]),
        (&"autoscaling".into(), &"Scale".into())
    );
}

#[test]
fn resources_are_sorted_by_name() {
    let list = discovery::api_resources(&built_in(), "apps", "v1").unwrap();
    let found = names(&list["resources"], "name");
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(found, sorted);
}

#[test]
fn aggregated_discovery_has_all_groups_in_one_document() {
    let all = discovery::aggregated(&built_in(), false, "v2");
    assert_eq!(all["apiVersion"], "apidiscovery.k8s.io/v2");
    let groups: Vec<&Value> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| &i["metadata"]["name"])
        .collect();
    assert!(groups.contains(&&"batch".into()) && !groups.contains(&&"".into()));
    let batch = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|i| i["metadata"]["name"] == "batch")
        .unwrap();
    let jobs = batch["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["resource"] == "jobs");
    assert_eq!(jobs.unwrap()["scope"], "Namespaced");
    assert_eq!(batch["versions"][0]["freshness"], "Current");
}

#[test]
fn entity_tag_is_quoted_and_depends_on_the_bytes() {
    let tag = discovery::entity_tag(b"a");
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == 66);
    assert_ne!(tag, discovery::entity_tag(b"b"));
}

#[test]
fn index_lists_a_document_for_every_version_with_its_hash() {
    let paths = v3::index_paths(&CustomResources::default());
    let url = paths["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(
        url,
        format!("/openapi/v3/apis/apps/v1?hash={}", hash("apis/apps/v1"))
    );
    assert!(paths["api/v1"].is_object());
    assert_ne!(hash("api/v1"), hash("apis/apps/v1"));
}

#[test]
fn references_of_a_document_resolve_within_it() {
    for document in [&*APPS, &*CORE] {
        visit_references(document, &mut |reference| {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference}");
        });
    }
}

#[test]
fn references_of_version_2_resolve_within_it() {
    visit_references(&SWAGGER, &mut |reference| {
        assert!(
            SWAGGER.pointer(reference.trim_start_matches('#')).is_some(),
            "{reference}"
        );
    });
}

#[test]
fn operation_identifiers_are_unique() {
    let mut seen = std::collections::HashSet::new();
    for (path, item) in SWAGGER["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if let Some(id) = operation["operationId"].as_str() {
                assert!(seen.insert(id), "{method} {path}: {id}");
            }
        }
    }
    assert!(seen.len() > 700, "{}", seen.len());
}

#[test]
fn operation_names_action_and_kind() {
    let create = &APPS["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["post"];
    assert_eq!(create["operationId"], "createAppsV1NamespacedDeployment");
    assert_eq!(create["x-kubernetes-action"], "post");
    assert_eq!(
        create["x-kubernetes-group-version-kind"]["kind"],
        "Deployment"
    );
}

#[test]
fn object_paths_have_name_and_namespace_parameters() {
    let item = &CORE["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"];
    let parameters = names(&item["parameters"], "name");
    assert!(
        parameters.contains(&"name".to_owned()) && parameters.contains(&"namespace".to_owned())
    );
}

#[test]
fn list_of_all_namespaces_can_only_be_read() {
    let item = CORE["paths"]["/api/v1/pods"].as_object().unwrap();
    assert!(item.contains_key("get") && !item.contains_key("post") && !item.contains_key("delete"));
}

#[test]
fn patch_accepts_the_four_patch_types() {
    let patch = &APPS["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let types: Vec<&String> = patch["requestBody"]["content"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    for media_type in [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ] {
        assert!(types.contains(&&media_type.to_owned()), "{media_type}");
    }
}

#[test]
fn schema_carries_merge_and_list_markers() {
    let spec = &CORE["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(spec["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(spec["containers"]["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(spec["containers"]["x-kubernetes-list-type"], "map");
    assert_eq!(spec["tolerations"]["x-kubernetes-list-type"], "atomic");
}

#[test]
fn quantity_and_int_or_string_are_texts_in_version_2() {
    let definitions = &SWAGGER["definitions"];
    let quantity = &definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["type"], "string");
    let port = &definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!(
        (&port["type"], &port["format"]),
        (&"string".into(), &"int-or-string".into())
    );
}

#[test]
fn kinds_are_marked_so_that_clients_find_their_schema() {
    let deployment = &APPS["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    let kinds = deployment["x-kubernetes-group-version-kind"]
        .as_array()
        .unwrap();
    assert_eq!(kinds[0]["group"], "apps");
    assert_eq!(kinds[0]["kind"], "Deployment");
}

#[test]
fn required_fields_are_listed() {
    let container = &CORE["components"]["schemas"]["io.k8s.api.core.v1.Container"];
    assert_eq!(container["required"], serde_json::json!(["name"]));
}

#[test]
fn protobuf_documents_begin_with_their_version() {
    // Field 1 of both documents is the version, as a string.
    let bytes = gnostic::version2(&SWAGGER);
    assert_eq!(&bytes[..5], b"\x0a\x032.0");
    let bytes = gnostic::version3(&APPS);
    assert_eq!(&bytes[..7], b"\x0a\x053.0.0");
}

#[test]
fn namespaced_lists_are_served_for_all_namespaces_too() {
    let all = &APPS["paths"]["/apis/apps/v1/deployments"]["get"];
    assert_eq!(all["operationId"], "listAppsV1DeploymentForAllNamespaces");
    assert!(CORE["paths"]["/api/v1/nodes"]["get"].is_object());
    assert!(
        CORE["paths"]
            .get("/api/v1/namespaces/{namespace}/nodes")
            .is_none()
    );
}

#[test]
fn streams_are_offered_where_objects_can_be_watched() {
    let content = |path: &str| {
        let response = &CORE["paths"][path]["get"]["responses"]["200"]["content"];
        let types = response.as_object().unwrap().keys().cloned();
        types.collect::<Vec<String>>()
    };
    let stream = "application/json;stream=watch".to_owned();
    assert!(content("/api/v1/namespaces/{namespace}/pods").contains(&stream));
    assert!(!content("/api/v1/componentstatuses").contains(&stream));
}

#[test]
fn time_and_bytes_have_formats() {
    let schemas = &CORE["components"]["schemas"];
    let time = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"];
    assert_eq!(
        (&time["type"], &time["format"]),
        (&"string".into(), &"date-time".into())
    );
    let data = &schemas["io.k8s.api.core.v1.Secret"]["properties"]["data"];
    assert_eq!(data["additionalProperties"]["format"], "byte");
}

#[test]
fn reference_with_a_description_is_wrapped() {
    // OpenAPI 3.0 ignores keywords beside a reference.
    let pod = &CORE["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
    let spec = &pod["properties"]["spec"];
    assert!(spec.get("$ref").is_none(), "{spec}");
    let reference = "#/components/schemas/io.k8s.api.core.v1.PodSpec";
    assert_eq!(spec["allOf"][0]["$ref"], reference);
}

#[test]
fn reviews_can_only_be_created() {
    let document = document("apis/authorization.k8s.io/v1").unwrap();
    let item = &document["paths"]["/apis/authorization.k8s.io/v1/subjectaccessreviews"];
    assert!(item["post"].is_object() && item.get("get").is_none());
}

#[test]
fn media_types_of_cbor_are_listed_if_they_are_served() {
    let pods = "/api/v1/namespaces/{namespace}/pods";
    let log = &format!("{pods}/{{name}}/log");
    let pod = &format!("{pods}/{{name}}");
    let response = ["responses", "200", "content"];
    for serves in [false, true] {
        let custom = CustomResources::default().with_cbor(serves);
        let document = v3::document("api/v1", &custom).unwrap();
        let types = |path: &str, method: &str, at: &[&str]| {
            let operation = &document["paths"][path][method];
            let content = at.iter().fold(operation, |value, name| &value[*name]);
            let names = content.as_object().unwrap().keys();
            names
                .filter(|name| name.contains("cbor"))
                .cloned()
                .collect::<Vec<_>>()
        };
        let (object, sequence) = ("application/cbor", "application/cbor-seq");
        let watch = "/api/v1/watch/pods";
        for (path, method, at, listed) in [
            (pod.as_str(), "get", &response[..], vec![object]),
            (pods, "post", &response[..], vec![object]),
            (pods, "get", &response[..], vec![object, sequence]),
            (watch, "get", &response[..], vec![object, sequence]),
            (log.as_str(), "get", &response[..], vec![object]),
            (
                pod.as_str(),
                "patch",
                &["requestBody", "content"],
                vec!["application/apply-patch+cbor"],
            ),
            (pods, "post", &["requestBody", "content"], vec![]),
        ] {
            let mut found = types(path, method, at);
            found.sort();
            let expect = if serves { listed } else { Vec::new() };
            assert_eq!(found, expect, "{method} {path} {serves}");
        }
        let is_default = v3::hash("api/v1", &custom) == Some(hash("api/v1"));
        assert_ne!(is_default, serves, "clients cache documents by their hash");
    }
}
