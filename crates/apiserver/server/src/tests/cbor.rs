//! CBOR with its feature gate: bodies, responses, watches, apply, the store.

use super::custom::{TABS, crontab, crontabs};
use super::{Answer, MAPS, TestServer, config_map, request, soon, start_server};
use api_codec::cbor;
use api_kinds::Resource;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::sync::Arc;

const CBOR: &str = "application/cbor";
const APPLY: &str = "application/apply-patch+cbor";
const GATE: &str = "--feature-gates=CBORServingAndStorage=true";

impl TestServer {
    /// Sends CBOR and accepts CBOR.
    async fn send_cbor(&self, method: &str, path: &str, form: &str, body: &Value) -> Answer {
        let request = request(method, path)
            .header("content-type", form)
            .header("accept", CBOR);
        self.send(request, cbor::encode_value(body)).await
    }

    async fn get_cbor(&self, path: &str, accept: &str) -> Value {
        let request = request("GET", path).header("accept", accept);
        self.send(request, "").await.cbor()
    }
}

impl Answer {
    #[track_caller]
    fn cbor(&self) -> Value {
        assert_eq!(self.header("content-type"), CBOR);
        assert!(self.body.starts_with(&cbor::MAGIC), "{:02x?}", self.body);
        cbor::parse(&self.body).unwrap()
    }
}

/// Installs `crontabs`, whose objects are written as CBOR.
async fn install_crontabs(server: &TestServer) {
    let resource = |version| {
        let mut resource = Resource::clone(&crontabs(version));
        if let Some(storage) = &mut resource.storage {
            storage.format = api_kinds::StorageFormat::Cbor;
        }
        Arc::new(resource)
    };
    let caches = &server.server.caches;
    caches
        .install(vec![resource("v1"), resource("v2")])
        .await
        .unwrap();
}

#[tokio::test]
async fn object_is_written_and_read_in_cbor() {
    let server = start_server(&[GATE]).await;
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "data": {"k": "AQIDBA=="}});
    let secrets = "/api/v1/namespaces/d/secrets";
    let created = server.send_cbor("POST", secrets, CBOR, &secret).await;
    assert_eq!(created.code, 201);
    let created = created.cbor();
    assert_eq!(
        (&created["data"], &created["type"]),
        (&secret["data"], &json!("Opaque"))
    );
    let path = format!("{secrets}/s");
    let read = server.get(&path).await.json();
    assert_eq!(server.get_cbor(&path, CBOR).await, read);
    // Bytes are written as bytes, and are read as such.
    let bytes = b"\x44data\xa1\x41k\xd6\x44\x01\x02\x03\x04";
    let whole = server
        .send(request("GET", &path).header("accept", CBOR), "")
        .await;
    assert!(whole.body.windows(bytes.len()).any(|part| part == bytes));
    secret["data"] = json!({"k": "BAMCAQ=="});
    let updated = server.send_cbor("PUT", &path, CBOR, &secret).await.cbor();
    assert_eq!(updated["data"], secret["data"]);
    let patch = request("PATCH", &path)
        .header("content-type", "application/json-patch+json")
        .header("accept", CBOR);
    let patch = server
        .send(patch, r#"[{"op": "remove", "path": "/data/k"}]"#)
        .await;
    assert_eq!(patch.cbor().get("data"), None);
}

#[tokio::test]
async fn list_has_all_its_forms_in_cbor() {
    let server = start_server(&[GATE]).await;
    server.create_map("a").await;
    server.create_map("b").await;
    let list = server.get_cbor(MAPS, CBOR).await;
    assert_eq!(list, server.get(MAPS).await.json());
    assert_eq!(list["items"][0].get("kind"), None);
    let form = |kind: &str| format!("{CBOR};as={kind};v=v1;g=meta.k8s.io");
    let table = server.get_cbor(MAPS, &form("Table")).await;
    assert_eq!(table["rows"][1]["cells"][0], "b");
    let partial = server
        .get_cbor(MAPS, &form("PartialObjectMetadataList"))
        .await;
    assert_eq!(partial["items"][1]["metadata"]["name"], "b");
    assert_eq!(partial["items"][1].get("data"), None);
    let deleted = request("DELETE", MAPS).header("accept", CBOR);
    let deleted = server.send(deleted, "").await.cbor();
    assert_eq!(
        (&deleted["kind"], deleted["items"].as_array().map(Vec::len)),
        (&json!("ConfigMapList"), Some(2))
    );
}

#[tokio::test]
async fn errors_and_deletes_are_in_cbor() {
    let server = start_server(&[GATE]).await;
    let created = server.create_map("a").await.json();
    let path = format!("{MAPS}/a");
    let missing = request("GET", &format!("{MAPS}/b")).header("accept", CBOR);
    let missing = server.send(missing, "").await;
    assert_eq!(
        (missing.code, &missing.cbor()["reason"]),
        (404, &json!("NotFound"))
    );
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"uid": "another"}});
    let refused = server.send_cbor("DELETE", &path, CBOR, &options).await;
    assert_eq!(
        (refused.code, &refused.cbor()["reason"]),
        (409, &json!("Conflict"))
    );
    options["preconditions"]["uid"] = created["metadata"]["uid"].clone();
    let deleted = server.send_cbor("DELETE", &path, CBOR, &options).await;
    assert_eq!(
        (deleted.code, &deleted.cbor()["status"]),
        (200, &json!("Success"))
    );
}

#[tokio::test]
async fn errors_before_the_handler_are_in_json() {
    let server = start_server(&[GATE]).await;
    let request = http::Request::get(MAPS)
        .header("authorization", "Bearer alice-token")
        .header("accept", CBOR);
    let forbidden = server.send(request, "").await;
    assert_eq!(forbidden.status(), (403, "Forbidden".to_owned()));
    assert_eq!(forbidden.header("content-type"), "application/json");
}

#[tokio::test]
async fn unknown_fields_are_reported_and_duplicates_rejected() {
    let server = start_server(&[GATE]).await;
    let mut map = config_map("a");
    map["colour"] = json!("red");
    let path = format!("{MAPS}?fieldValidation=Strict");
    let strict = server.send_cbor("POST", &path, CBOR, &map).await;
    let message = strict.cbor()["message"].clone();
    assert_eq!(strict.code, 400);
    assert!(
        message.to_string().contains("unknown field \\\"colour\\\""),
        "{message}"
    );
    let warned = server.send_cbor("POST", MAPS, CBOR, &map).await;
    assert_eq!(warned.code, 201);
    assert_eq!(
        warned.header("warning"),
        "299 - \"unknown field \\\"colour\\\"\""
    );
    for query in ["", "?fieldValidation=Ignore"] {
        let twice = request("POST", &format!("{MAPS}{query}")).header("content-type", CBOR);
        let twice = server
            .send(twice, &b"\xa2\x44data\xa0\x44data\xa0"[..])
            .await;
        assert_eq!(twice.status(), (400, "BadRequest".to_owned()));
        assert!(
            twice.text().contains("duplicate map key"),
            "{}",
            twice.text()
        );
    }
}

#[tokio::test]
async fn body_that_is_no_object_is_rejected_as_in_json() {
    let server = start_server(&[GATE]).await;
    install_crontabs(&server).await;
    for (bytes, text) in [
        (&b"\xf6"[..], "null"),
        (b"\x80", "[]"),
        (b"\x01", "1"),
        (b"", ""),
    ] {
        for path in [MAPS, TABS] {
            let send = async |form: &str, body: &[u8]| {
                let request = request("POST", path).header("content-type", form);
                server.send(request, body.to_vec()).await.code
            };
            let code = send(CBOR, bytes).await;
            assert_eq!(
                code,
                send("application/json", text.as_bytes()).await,
                "{path} {text}"
            );
            assert!((400..500).contains(&code), "{path} {text} {code}");
        }
    }
}

#[tokio::test]
async fn watch_is_a_cbor_sequence() {
    let server = start_server(&[GATE]).await;
    server.create_map("a").await;
    let accept = format!("{CBOR};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
    for accept in [CBOR, &accept] {
        let query = "watch=1&allowWatchBookmarks=1&sendInitialEvents=1\
            &resourceVersionMatch=NotOlderThan&timeoutSeconds=30";
        let request = request("GET", &format!("{MAPS}?{query}")).header("accept", accept);
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let mut response = server.open(request).await;
        assert_eq!(response.headers()["content-type"], "application/cbor-seq");
        let mut events = Vec::new();
        let mut pending = Vec::new();
        while events.len() < 2 {
            let frame = soon(response.body_mut().frame()).await.unwrap().unwrap();
            pending.extend_from_slice(frame.data_ref().unwrap());
            // An item shows where it ends, and no part of one is complete.
            while let Some(end) =
                (1..=pending.len()).find(|end| cbor::parse(&pending[..*end]).is_ok())
            {
                events.push(cbor::parse(&pending[..end]).unwrap());
                pending.drain(..end);
            }
        }
        assert_eq!(
            (&events[0]["type"], &events[0]["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!("a"))
        );
        assert_eq!(events[1]["type"], "BOOKMARK");
    }
    let accept = "application/cbor-seq";
    let watch = request("GET", &format!("{MAPS}?watch=1")).header("accept", accept);
    assert_eq!(
        server.send(watch, "").await.status(),
        (406, "NotAcceptable".to_owned())
    );
}

#[tokio::test]
async fn error_event_of_a_watch_is_in_cbor() {
    let etcd = testkit_etcd::FakeEtcd::start().await;
    etcd.put("/registry/masterleases/192.0.2.1", b"v");
    let server = super::start_over(etcd, &[GATE]).await;
    let path = format!("{MAPS}?watch=1&resourceVersion=1");
    let watch = request("GET", &path).header("accept", CBOR);
    let event = cbor::parse(&server.send(watch, "").await.body).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
}

#[tokio::test]
async fn apply_in_cbor_owns_fields() {
    let server = start_server(&[GATE]).await;
    let path = format!("{MAPS}/a?fieldManager=one");
    let one = server
        .send_cbor("PATCH", &path, APPLY, &config_map("a"))
        .await;
    assert_eq!(one.code, 201);
    let fields = &one.cbor()["metadata"]["managedFields"][0];
    assert_eq!(fields["operation"], "Apply");
    assert_eq!(fields["fieldsV1"]["f:data"], json!({"f:k": {}}));
    let mut intent = config_map("a");
    intent["data"]["k"] = json!("w");
    let path = path.replace("one", "two");
    let two = server.send_cbor("PATCH", &path, APPLY, &intent).await;
    assert_eq!((two.code, &two.cbor()["reason"]), (409, &json!("Conflict")));
    let forced = format!("{path}&force=true");
    let forced = server.send_cbor("PATCH", &forced, APPLY, &intent).await;
    assert_eq!(forced.cbor()["data"]["k"], "w");
    let twice = request("PATCH", &path).header("content-type", APPLY);
    let twice = server
        .send(twice, &b"\xa2\x44data\xa0\x44data\xa0"[..])
        .await;
    assert_eq!(twice.status(), (400, "BadRequest".to_owned()));
}

#[tokio::test]
async fn rejected_body_names_the_media_types() {
    let server = start_server(&[GATE]).await;
    install_crontabs(&server).await;
    let common =
        "the body of the request was in an unknown format - accepted media types include: ";
    let message = async |method: &str, path: &str| {
        let request = request(method, path).header("content-type", "text/csv");
        let answer = server.send(request, "a").await;
        assert_eq!(answer.code, 415, "{path}");
        answer.json()["message"]
            .as_str()
            .unwrap()
            .strip_prefix(common)
            .unwrap()
            .to_owned()
    };
    let bodies =
        "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
    assert_eq!(message("POST", MAPS).await, bodies);
    let (json, apply) = (
        "application/json-patch+json, application/merge-patch+json",
        "application/apply-patch+yaml, application/apply-patch+cbor",
    );
    let strategic = "application/strategic-merge-patch+json";
    assert_eq!(
        message("PATCH", &format!("{MAPS}/a")).await,
        format!("{json}, {strategic}, {apply}")
    );
    assert_eq!(
        message("PATCH", &format!("{TABS}/a")).await,
        format!("{json}, {apply}")
    );
    let listed = request("GET", MAPS).header("accept", "text/csv");
    let listed = server.send(listed, "").await.json();
    assert_eq!(
        listed["message"],
        format!("only the following media types are accepted: {bodies}")
    );
}

#[tokio::test]
async fn custom_resource_is_stored_and_served_in_cbor() {
    let server = start_server(&[GATE]).await;
    install_crontabs(&server).await;
    let mut tab = crontab("a");
    tab["spec"]["ratio"] = json!(1.0);
    let created = server.send_cbor("POST", TABS, CBOR, &tab).await;
    assert_eq!(created.code, 201);
    assert_eq!(created.cbor()["spec"], tab["spec"]);
    let key = "/registry/stable.example.com/crontabs/d/a";
    let (stored, _) = server.etcd.get(key).unwrap();
    assert!(stored.starts_with(&cbor::MAGIC));
    assert_eq!(cbor::parse(&stored).unwrap()["spec"], tab["spec"]);
    // Objects that were stored before the gate was switched on are JSON.
    let older = json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab",
        "metadata": {"name": "b", "namespace": "d", "uid": "u", "generation": 1}});
    server.etcd.put(
        "/registry/stable.example.com/crontabs/d/b",
        older.to_string().as_bytes(),
    );
    let second = TABS.replace("/v1/", "/v2/");
    soon(async {
        while server.get_cbor(&second, CBOR).await["items"]
            .as_array()
            .map(Vec::len)
            != Some(2)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let list = server.get_cbor(&second, CBOR).await;
    assert_eq!(list["items"][0]["kind"], "CronTab");
    assert_eq!(list["items"][1]["apiVersion"], "stable.example.com/v2");
    // JSON does not tell whole floats from integers, and neither does upstream's encoder.
    let mut in_json = server.get(&second).await.json();
    assert_eq!(in_json["items"][0]["spec"]["ratio"], json!(1));
    in_json["items"][0]["spec"]["ratio"] = json!(1.0);
    assert_eq!(list, in_json);
    let tab = format!("{TABS}/a?fieldManager=m&force=true");
    let applied = server.send_cbor("PATCH", &tab, APPLY, &crontab("a")).await;
    assert_eq!(applied.code, 200);
    let changed = server
        .send_cbor(
            "PUT",
            &format!("{TABS}/b"),
            CBOR,
            &server.get(&format!("{TABS}/b")).await.json(),
        )
        .await;
    assert_eq!(changed.code, 200);
}

#[tokio::test]
async fn custom_resource_in_cbor_is_read_while_the_gate_is_off() {
    let server = start_server(&[]).await;
    let caches = &server.server.caches;
    caches.install(vec![crontabs("v1")]).await.unwrap();
    let mut tab = crontab("a");
    tab["metadata"] = json!({"name": "a", "namespace": "d", "uid": "u", "generation": 1});
    let key = "/registry/stable.example.com/crontabs/d/a";
    server.etcd.put(key, &cbor::mark(&cbor::encode_value(&tab)));
    let path = format!("{TABS}/a");
    soon(async {
        while server.get(&path).await.code != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut read = server.get(&path).await.json();
    assert_eq!(read["spec"], tab["spec"]);
    read["spec"]["replicas"] = json!(2);
    assert_eq!(server.write("PUT", &path, read).await.code, 200);
    let (stored, _) = server.etcd.get(key).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&stored).unwrap()["spec"]["replicas"],
        2
    );
}

#[tokio::test]
async fn zpages_have_cbor() {
    let server = start_server(&[GATE]).await;
    for (path, kind) in [("/statusz", "Statusz"), ("/flagz", "Flagz")] {
        let accept = format!("{CBOR};v=v1beta1;g=config.k8s.io;as={kind}");
        let page = server.get_cbor(path, &accept).await;
        assert_eq!(page["kind"], kind);
        assert_eq!(page["apiVersion"], "config.k8s.io/v1beta1");
    }
    let plain = request("GET", "/statusz").header("accept", CBOR);
    let rejected = server.send(plain, "").await;
    assert_eq!(rejected.code, 406);
    assert!(rejected.text().contains("text/plain, application/cbor"));
}
