//! CBOR with the feature gate `CBORServingAndStorage`, for a built-in kind and a custom resource.

use api_codec::cbor;
use http::Method;
use integration_tests::{
    Http2Client, Reply, ReplyExt, config_map, has_condition, name_of, wait_for,
};
use serde_json::{Value, json};
use testkit_control_plane::{ControlPlane, Options};

const CBOR: &str = "application/cbor";
const APPLY: &str = "application/apply-patch+cbor";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn start(gate: bool) -> ControlPlane {
    let options = Options {
        api_server: vec![format!("--feature-gates=CBORServingAndStorage={gate}")],
        ..Options::default()
    };
    ControlPlane::start_with(options).await
}

/// Creates a definition of `widgets`; returns the path of its objects.
async fn define_widgets(admin: &Http2Client) -> String {
    let schema = json!({"type": "object", "properties": {"data": {"type": "object",
        "additionalProperties": {"type": "string"}}, "ratio": {"type": "number"}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    admin
        .post(DEFINITIONS, &definition)
        .await
        .expect_status(201);
    wait_for("the definition is established", async || {
        let path = format!("{DEFINITIONS}/widgets.example.com");
        has_condition(&admin.get(&path).await.json(), "Established")
    })
    .await;
    "/apis/example.com/v1/namespaces/default/widgets".to_owned()
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "data": {"a": "1"}, "ratio": 1.0})
}

/// Sends a body of this type as CBOR, and accepts CBOR only.
async fn send(
    admin: &Http2Client,
    method: Method,
    path: &str,
    form: &str,
    body: &Value,
) -> (u16, Value) {
    let headers = [("accept", CBOR), ("content-type", form)];
    let body = match body {
        Value::Null => Vec::new(),
        body if form.ends_with("json") => body.to_string().into_bytes(),
        body => cbor::mark(&cbor::encode_value(body)),
    };
    read(admin.send(method, path, &headers, body).await)
}

fn read(reply: Reply) -> (u16, Value) {
    assert_eq!(reply.header("content-type"), CBOR, "{}", reply.text());
    let value = cbor::parse(&reply.body);
    (
        reply.status,
        value.unwrap_or_else(|error| panic!("{error}")),
    )
}

/// Does what clients do with objects of a kind that has `data`.
async fn use_kind(admin: &Http2Client, path: &str, object: Value) {
    let (code, created) = send(admin, Method::POST, path, CBOR, &object).await;
    assert_eq!(
        (code, &created["data"]),
        (201, &object["data"]),
        "{created}"
    );
    let version = created["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let watched = format!("{path}?watch=1&resourceVersion={version}");
    let mut watch = admin.watch_as(&watched, CBOR).await;
    assert_eq!(watch.headers["content-type"], "application/cbor-seq");

    let one = format!("{path}/a");
    let (_, got) = send(admin, Method::GET, &one, CBOR, &Value::Null).await;
    assert_eq!(got, created);
    let (_, list) = send(admin, Method::GET, path, CBOR, &Value::Null).await;
    assert_eq!(list["items"][0]["metadata"], created["metadata"], "{list}");

    let mut changed = created.clone();
    changed["data"]["b"] = json!("2");
    let (code, updated) = send(admin, Method::PUT, &one, CBOR, &changed).await;
    assert_eq!((code, &updated["data"]), (200, &changed["data"]));
    let (code, stale) = send(admin, Method::PUT, &one, CBOR, &changed).await;
    assert_eq!((code, &stale["reason"]), (409, &json!("Conflict")));
    let patch = json!([{"op": "replace", "path": "/data/b", "value": "3"}]);
    let form = "application/json-patch+json";
    let (code, patched) = send(admin, Method::PATCH, &one, form, &patch).await;
    assert_eq!((code, &patched["data"]["b"]), (200, &json!("3")));
    let mut intent = object;
    intent["data"] = json!({"c": "4"});
    let apply = format!("{one}?fieldManager=applier");
    let (code, applied) = send(admin, Method::PATCH, &apply, APPLY, &intent).await;
    let data = json!({"a": "1", "b": "3", "c": "4"});
    assert_eq!((code, &applied["data"]), (200, &data), "{applied}");

    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"uid": created["metadata"]["uid"]}});
    let (code, _) = send(admin, Method::DELETE, &one, CBOR, &options).await;
    assert_eq!(code, 200);
    let mut events = Vec::new();
    for _ in 0..4 {
        let item = watch.item(|bytes| cbor::parse(bytes).is_ok()).await;
        let event = cbor::parse(&item).unwrap();
        let data = event["object"]["data"].clone();
        events.push((event["type"].as_str().unwrap_or_default().to_owned(), data));
    }
    let event = |kind: &str, data: &Value| (kind.to_owned(), data.clone());
    let want = [
        event("MODIFIED", &updated["data"]),
        event("MODIFIED", &patched["data"]),
        event("MODIFIED", &data),
        event("DELETED", &data),
    ];
    assert_eq!(events, want);
    let (code, missing) = send(admin, Method::GET, &one, CBOR, &Value::Null).await;
    assert_eq!((code, &missing["kind"]), (404, &json!("Status")));
}

/// Resets the owners of an object; returns whether it has owners afterwards.
async fn reset_owners(admin: &Http2Client, path: &str, object: &Value, sent: Value) -> bool {
    let path = format!("{path}/{}", name_of(object));
    let apply = format!("{path}?fieldManager=applier&force=true");
    let (_, mut owned) = send(admin, Method::PATCH, &apply, APPLY, object).await;
    owned["metadata"]["managedFields"] = sent;
    let (code, reset) = send(admin, Method::PUT, &path, CBOR, &owned).await;
    assert_eq!(code, 200, "{reset}");
    reset["metadata"].get("managedFields").is_some()
}

#[tokio::test]
async fn owners_are_reset_in_cbor_as_in_json() {
    let plane = start(true).await;
    let admin = Http2Client::connect(&plane.admin()).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let widgets = define_widgets(&admin).await;
    for (path, object, sent, keeps) in [
        (maps, config_map("a"), json!([]), false),
        (maps, config_map("a"), json!([{}]), false),
        (maps, config_map("a"), Value::Null, true),
        // As upstream, the metadata of a custom resource has lost its empty lists by then.
        (&widgets, widget("a"), json!([]), true),
        (&widgets, widget("a"), json!([{}]), false),
    ] {
        let kept = reset_owners(&admin, path, &object, sent.clone()).await;
        assert_eq!(kept, keeps, "{path} {sent}");
    }
    let mut object = config_map("b");
    object["metadata"]["managedFields"] = json!([]);
    let path = format!("{maps}/b?fieldManager=applier");
    let (code, status) = send(&admin, Method::PATCH, &path, APPLY, &object).await;
    let message = &status["message"];
    assert_eq!(
        (code, message),
        (400, &json!("metadata.managedFields must be nil"))
    );
}

#[tokio::test]
async fn clients_use_both_kinds_of_resources_in_cbor() {
    let plane = start(true).await;
    let admin = Http2Client::connect(&plane.admin()).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    use_kind(&admin, maps, config_map("a")).await;
    let widgets = define_widgets(&admin).await;
    use_kind(&admin, &widgets, widget("a")).await;
}

#[tokio::test]
async fn server_without_the_gate_reads_what_one_with_it_has_stored() {
    let plane = start(true).await;
    let admin = Http2Client::connect(&plane.admin()).await;
    let widgets = define_widgets(&admin).await;
    let (code, created) = send(&admin, Method::POST, &widgets, CBOR, &widget("a")).await;
    assert_eq!(code, 201);
    let second = plane.start_api_server("second", &[]).await;
    let second = Http2Client::connect(&plane.admin().at(second.address())).await;
    let one = format!("{widgets}/a");
    wait_for("the second server serves the definition", async || {
        second.get(&one).await.status == 200
    })
    .await;
    let mut read = second.get(&one).await.expect_status(200).json();
    assert_eq!(read["metadata"], created["metadata"]);
    read["data"]["a"] = json!("2");
    second.put(&one, &read).await.expect_status(200);
    let path = format!("{one}?resourceVersion=");
    let (_, object) = send(&admin, Method::GET, &path, CBOR, &Value::Null).await;
    assert_eq!(object["data"]["a"], "2");
}

#[tokio::test]
async fn cbor_is_rejected_as_by_upstream_while_the_gate_is_off() {
    let plane = start(false).await;
    let admin = Http2Client::connect(&plane.admin()).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let text = format!("only the following media types are accepted: {accepted}");
    let list = admin.get_as(maps, CBOR).await;
    list.expect_failure(406, "NotAcceptable", &text);
    let unknown = "the body of the request was in an unknown format - accepted media types include";
    let body = cbor::encode_value(&config_map("a"));
    let created = admin.post_as(maps, CBOR, body.clone()).await;
    let text = format!("{unknown}: {accepted}");
    created.expect_failure(415, "UnsupportedMediaType", &text);
    let headers = [("content-type", APPLY)];
    let path = format!("{maps}/a?fieldManager=m");
    let applied = admin.send(Method::PATCH, &path, &headers, body).await;
    let text = format!(
        "{unknown}: application/json-patch+json, application/merge-patch+json, \
         application/strategic-merge-patch+json, application/apply-patch+yaml"
    );
    applied.expect_failure(415, "UnsupportedMediaType", &text);
    // Clients that prefer CBOR offer JSON, too.
    let both = admin
        .get_as(maps, "application/cbor,application/json")
        .await;
    assert_eq!(both.header("content-type"), "application/json");
}
