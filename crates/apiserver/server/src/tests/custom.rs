//! A custom resource that is installed directly in the watch caches, through the handler chain.

use super::{Answer, TestServer, request, soon, start_server};
use api_kinds::{CustomSchema, ObjectSchema, Resource, Storage, Subresource};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::sync::Arc;

const GROUP: &str = "stable.example.com";
pub(super) const TABS: &str = "/apis/stable.example.com/v1/namespaces/d/crontabs";
const VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// Returns `crontabs` with a status in one version, stored as v1.
pub(super) fn crontabs(version: &'static str) -> Arc<Resource> {
    let declared = json!({"schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}, "subresources": {"status": {}}});
    let schema = CustomSchema::parse(&json!({}), &declared).unwrap();
    let schema = ObjectSchema::Custom(Arc::new(schema));
    let names = |list: &[&'static str]| list.iter().map(|name| (*name).into()).collect();
    Arc::new(Resource {
        group: GROUP.into(),
        version: version.into(),
        kind: "CronTab".into(),
        list_kind: "CronTabList".into(),
        plural: "crontabs".into(),
        singular: "crontab".into(),
        short_names: names(&["ct"]),
        categories: names(&["all"]),
        namespaced: true,
        verbs: VERBS.to_vec(),
        schema: schema.clone(),
        subresources: vec![Subresource {
            name: "status".into(),
            group: GROUP.into(),
            version: version.into(),
            kind: "CronTab".into(),
            verbs: vec!["get", "patch", "update"],
            schema: Some(schema.clone()),
        }],
        selectable_fields: names(&["metadata.name", "metadata.namespace"]),
        storage: Some(Storage {
            prefix: api_kinds::custom_prefix(GROUP, "crontabs"),
            api_version: "stable.example.com/v1".into(),
            schema,
            format: api_kinds::StorageFormat::Json,
        }),
        served: true,
    })
}

async fn start_with_crontabs() -> TestServer {
    let server = start_server(&[]).await;
    let caches = &server.server.caches;
    caches
        .install(vec![crontabs("v1"), crontabs("v2")])
        .await
        .unwrap();
    server
}

pub(super) fn crontab(name: &str) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name},
        "spec": {"cronSpec": "* * * * */5", "replicas": 1}})
}

impl TestServer {
    async fn create_tab(&self, name: &str) -> Value {
        let created = self.write("POST", TABS, crontab(name)).await;
        assert_eq!(created.code, 201, "{}", created.text());
        created.json()
    }

    async fn patch_tab(&self, form: &str, query: &str, body: &Value) -> Answer {
        let path = format!("{TABS}/a{query}");
        let request = request("PATCH", &path).header("content-type", form);
        self.send(request, body.to_string()).await
    }

    async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(request("GET", path).header("accept", accept), "")
            .await
    }
}

#[tokio::test]
async fn resource_exists_while_it_is_installed() {
    let server = start_server(&[]).await;
    assert_eq!(server.get(TABS).await.code, 404);
    let caches = &server.server.caches;
    caches.install(vec![crontabs("v1")]).await.unwrap();
    assert_eq!(server.get(TABS).await.code, 200);
    server.create_tab("a").await;
    caches.remove(GROUP, "crontabs").await.unwrap();
    assert_eq!(server.get(TABS).await.code, 404);
    caches.install(vec![crontabs("v1")]).await.unwrap();
    assert_eq!(server.get(&format!("{TABS}/a")).await.code, 200);
}

#[tokio::test]
async fn object_is_created_read_and_listed_in_each_version() {
    let server = start_with_crontabs().await;
    let created = server.create_tab("a").await;
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(
        created["spec"],
        crontab("a")["spec"],
        "fields without a schema are kept"
    );
    let (stored, _) = server
        .etcd
        .get("/registry/stable.example.com/crontabs/d/a")
        .unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored["apiVersion"], "stable.example.com/v1");
    let second = TABS.replace("/v1/", "/v2/");
    let read = server.get(&format!("{second}/a")).await.json();
    assert_eq!(read["apiVersion"], "stable.example.com/v2");
    assert_eq!(read["spec"], created["spec"]);
    let list = server.get(&second).await.json();
    assert_eq!(list["kind"], "CronTabList");
    assert_eq!(list["apiVersion"], "stable.example.com/v2");
    // Unlike built-in kinds, items keep their type.
    assert_eq!(list["items"][0]["kind"], "CronTab");
}

#[tokio::test]
async fn whole_float_is_written_without_a_fraction() {
    let server = start_with_crontabs().await;
    let mut tab = crontab("a");
    tab["spec"]["ratio"] = json!(1.0);
    let created = server.write("POST", TABS, tab).await;
    assert!(
        created.text().contains("\"ratio\":1,"),
        "{}",
        created.text()
    );
    let key = "/registry/stable.example.com/crontabs/d/a";
    let (stored, _) = server.etcd.get(key).unwrap();
    let stored = String::from_utf8(stored).unwrap();
    assert!(stored.contains("\"ratio\":1,"), "{stored}");
    let path = format!("{TABS}?includeObject=Object");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = server.get_as(&path, table).await;
    assert!(table.text().contains("\"ratio\":1,"), "{}", table.text());
    let yaml = server
        .get_as(&format!("{TABS}/a"), "application/yaml")
        .await;
    assert!(yaml.text().contains("ratio: 1\n"), "{}", yaml.text());
}

#[tokio::test]
async fn metadata_is_validated_as_for_other_kinds() {
    let server = start_with_crontabs().await;
    for (path, value) in [
        ("/metadata/name", json!("A_b")),
        ("/metadata/labels", json!({"a b": "c"})),
        ("/metadata/finalizers", json!(["a b"])),
    ] {
        let mut object = crontab("a");
        let (_, field) = path.rsplit_once('/').unwrap();
        object["metadata"][field] = value;
        let rejected = server.write("POST", TABS, object).await;
        assert_eq!(rejected.status(), (422, "Invalid".to_owned()), "{path}");
    }
    let mut object = crontab("a");
    object["metadata"]["labels"] = json!("x");
    assert_eq!(server.write("POST", TABS, object).await.code, 400);
}

#[tokio::test]
async fn update_needs_the_version_and_counts_generations() {
    let server = start_with_crontabs().await;
    let mut tab = server.create_tab("a").await;
    let path = format!("{TABS}/a");
    tab["spec"]["replicas"] = json!(2);
    tab["status"] = json!({"ready": 1});
    let mut unversioned = tab.clone();
    unversioned["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    assert_eq!(server.write("PUT", &path, unversioned).await.code, 422);
    let updated = server.write("PUT", &path, tab).await.json();
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(updated.get("status"), None, "only the subresource sets it");
    let mut tab = updated;
    tab["spec"]["replicas"] = json!(9);
    tab["status"] = json!({"ready": 1});
    let updated = server
        .write("PUT", &format!("{path}/status"), tab)
        .await
        .json();
    assert_eq!(updated["status"], json!({"ready": 1}));
    assert_eq!(updated["spec"]["replicas"], 2);
    assert_eq!(updated["metadata"]["generation"], 2);
}

#[tokio::test]
async fn patches_without_a_schema_are_applied_and_strategic_ones_rejected() {
    let server = start_with_crontabs().await;
    server.create_tab("a").await;
    let merge = json!({"spec": {"replicas": null, "suspend": true}});
    let answer = server
        .patch_tab("application/merge-patch+json", "", &merge)
        .await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    let operations = json!([{"op": "add", "path": "/spec/list", "value": [1]}]);
    let answer = server
        .patch_tab("application/json-patch+json", "", &operations)
        .await;
    assert_eq!(
        answer.json()["spec"],
        json!({"cronSpec": "* * * * */5", "suspend": true, "list": [1]})
    );
    let strategic = "application/strategic-merge-patch+json";
    let answer = server.patch_tab(strategic, "", &merge).await;
    assert_eq!(answer.status(), (415, "UnsupportedMediaType".to_owned()));
    assert_eq!(
        answer.json()["message"],
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
}

#[tokio::test]
async fn apply_owns_fields_by_their_value() {
    let server = start_with_crontabs().await;
    let apply = "application/apply-patch+yaml";
    let one = server
        .patch_tab(apply, "?fieldManager=one", &crontab("a"))
        .await;
    assert_eq!(one.code, 201, "{}", one.text());
    let mut intent = crontab("a");
    intent["spec"] = json!({"replicas": 5});
    let two = server.patch_tab(apply, "?fieldManager=two", &intent).await;
    assert_eq!(two.status(), (409, "Conflict".to_owned()));
    assert_eq!(
        two.json()["details"]["causes"][0]["field"],
        ".spec.replicas"
    );
    let forced = server
        .patch_tab(apply, "?fieldManager=two&force=true", &intent)
        .await;
    assert_eq!(forced.json()["spec"]["replicas"], 5);
    let mut rest = crontab("a");
    rest["spec"] = json!({});
    let left = server
        .patch_tab(apply, "?fieldManager=one", &rest)
        .await
        .json();
    assert_eq!(left["spec"], json!({"replicas": 5}));
}

#[tokio::test]
async fn watch_has_events_in_the_requested_version() {
    let server = start_with_crontabs().await;
    let path = format!("{}?watch=true", TABS.replace("/v1/", "/v2/"));
    let request = request("GET", &path).body(Full::default()).unwrap();
    let mut watch = server.open(request).await.into_body();
    server.create_tab("a").await;
    let frame = soon(watch.frame()).await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["apiVersion"], "stable.example.com/v2");
    assert_eq!(event["object"]["metadata"]["name"], "a");
    server
        .server
        .caches
        .remove(GROUP, "crontabs")
        .await
        .unwrap();
    assert!(soon(watch.frame()).await.is_none(), "the watch ends");
}

#[tokio::test]
async fn objects_are_deleted_alone_and_together() {
    let server = start_with_crontabs().await;
    for name in ["a", "b", "c"] {
        server.create_tab(name).await;
    }
    let deleted = server
        .send(request("DELETE", &format!("{TABS}/a")), "")
        .await;
    assert_eq!(deleted.json()["status"], "Success");
    let deleted = server.send(request("DELETE", TABS), "").await.json();
    assert_eq!(deleted["items"].as_array().unwrap().len(), 2);
    let list = server.get(TABS).await.json();
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn protobuf_exists_for_metadata_only() {
    let server = start_with_crontabs().await;
    server.create_tab("a").await;
    let path = format!("{TABS}/a");
    let protobuf = "application/vnd.kubernetes.protobuf";
    for path in [TABS, &path] {
        assert_eq!(server.get_as(path, protobuf).await.code, 406, "{path}");
    }
    let fallback = server
        .get_as(&path, &format!("{protobuf},application/yaml"))
        .await;
    assert_eq!(fallback.header("content-type"), "application/yaml");
    let metadata = format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
    assert_eq!(server.get_as(&path, &metadata).await.code, 200);
    let body = request("POST", TABS).header("content-type", protobuf);
    let mut envelope = b"k8s\0".to_vec();
    envelope.extend(b"\x0a\x00");
    assert_eq!(server.send(body, envelope).await.code, 400);
}

#[tokio::test]
async fn table_has_name_and_age() {
    let server = start_with_crontabs().await;
    server.create_tab("a").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = server.get_as(TABS, accept).await.json();
    assert_eq!(table["columnDefinitions"][1]["name"], "Age");
    assert_eq!(table["rows"][0]["cells"][0], "a");
}

#[tokio::test]
async fn discovery_has_the_resource_in_all_forms() {
    let server = start_with_crontabs().await;
    let groups = server.get("/apis").await.json();
    let group = groups["groups"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(group["name"], GROUP);
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let one = server.get("/apis/stable.example.com").await.json();
    assert_eq!(one["versions"].as_array().unwrap().len(), 2);
    let list = server.get("/apis/stable.example.com/v1").await.json();
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|resource| resource["name"].as_str())
        .collect();
    assert_eq!(names, ["crontabs", "crontabs/status"]);
    assert_eq!(list["resources"][0]["shortNames"], json!(["ct"]));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let all = server.get_as("/apis", accept).await.json();
    let last = all["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["metadata"]["name"], GROUP);
    assert_eq!(last["versions"][1]["resources"][0]["resource"], "crontabs");
    let root = server.get("/").await.json();
    assert!(
        root["paths"]
            .to_string()
            .contains("/apis/stable.example.com/v2")
    );
    assert_eq!(server.get("/apis/stable.example.com/v9").await.code, 404);
}

#[tokio::test]
async fn resource_in_the_group_of_definitions_is_deleted_like_others() {
    const DEFINITIONS: &str = "apiextensions.k8s.io";
    let server = start_server(&[]).await;
    let mut row = Resource::clone(&crontabs("v1"));
    row.group = DEFINITIONS.into();
    row.subresources.clear();
    let storage = row.storage.as_mut().unwrap();
    storage.prefix = api_kinds::custom_prefix(DEFINITIONS, "crontabs");
    storage.api_version = "apiextensions.k8s.io/v1".into();
    let caches = &server.server.caches;
    caches.install(vec![Arc::new(row)]).await.unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/namespaces/d/crontabs";
    let mut object = crontab("a");
    object["apiVersion"] = "apiextensions.k8s.io/v1".into();
    let created = server.write("POST", path, object).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let deleted = server
        .write("DELETE", &format!("{path}/a"), json!({}))
        .await;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    assert_eq!(server.get(&format!("{path}/a")).await.code, 404);
}
