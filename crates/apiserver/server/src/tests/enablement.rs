//! `--runtime-config` and `--feature-gates`, as clients see them.

use super::{MAPS, start_over, start_server};
use serde_json::json;
use testkit_etcd::FakeEtcd;

const CLASSES: &str = "/apis/storage.k8s.io/v1beta1/volumeattributesclasses";

#[tokio::test]
async fn disabled_apis_are_not_found() {
    let flags = ["--runtime-config=apps/v1/daemonsets=false,batch/v1=false,autoscaling/v1=false"];
    let server = start_server(&flags).await;
    for (path, code) in [
        ("/apis/apps/v1/daemonsets", 404),
        ("/apis/apps/v1/deployments", 200),
        ("/apis/batch/v1/jobs", 404),
        ("/apis/batch", 404),
        ("/apis/autoscaling/v1/horizontalpodautoscalers", 404),
        ("/apis/autoscaling/v2/horizontalpodautoscalers", 200),
        (MAPS, 200),
    ] {
        assert_eq!(server.get(path).await.code, code, "{path}");
    }
    let index = server.get("/openapi/v3").await.json();
    for (path, expect) in [
        ("apis/batch/v1", false),
        ("apis/autoscaling/v1", false),
        ("apis/autoscaling/v2", true),
        ("apis/apps/v1", true),
    ] {
        assert_eq!(index["paths"][path].is_object(), expect, "{path}");
        let code = if expect { 200 } else { 404 };
        let document = server.get(&format!("/openapi/v3/{path}")).await;
        assert_eq!(document.code, code, "{path}");
    }
    let apps = server.get("/openapi/v3/apis/apps/v1").await.json();
    let swagger = server.get("/openapi/v2").await.json();
    for document in [&apps, &swagger] {
        let paths = &document["paths"];
        assert!(paths["/apis/apps/v1/daemonsets"].is_null());
        assert!(paths["/apis/apps/v1/deployments"].is_object());
        assert!(paths["/apis/batch/v1/jobs"].is_null());
    }
    let list = server.get("/apis/apps/v1").await.json();
    let names: Vec<_> = list["resources"].as_array().unwrap().iter().collect();
    assert!(names.iter().all(|resource| resource["kind"] != "DaemonSet"));
    assert!(
        names
            .iter()
            .any(|resource| resource["kind"] == "Deployment")
    );
}

#[tokio::test]
async fn enabled_beta_version_serves_the_stored_objects_of_the_stable_one() {
    let server = start_server(&[]).await;
    assert_eq!(server.get(CLASSES).await.code, 404);
    let etcd = FakeEtcd::start().await;
    let server = start_over(etcd, &["--runtime-config=storage.k8s.io/v1beta1=true"]).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1beta1", "kind": "VolumeAttributesClass",
        "metadata": {"name": "gold"}, "driverName": "example.com", "parameters": {"iops": "9"}});
    let created = server.write("POST", CLASSES, class).await;
    assert_eq!(created.code, 201, "{}", created.json());
    assert_eq!(created.json()["apiVersion"], "storage.k8s.io/v1beta1");
    let stable = server
        .get(&format!("{}/gold", CLASSES.replace("v1beta1", "v1")))
        .await;
    assert_eq!(stable.json()["apiVersion"], "storage.k8s.io/v1");
    assert_eq!(stable.json()["parameters"], json!({"iops": "9"}));
    let group = server.get("/apis/storage.k8s.io").await.json();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn built_in_kinds_are_stored_in_the_chosen_format() {
    for (media_type, start) in [
        ("application/json", &b"{\"kind\""[..]),
        ("application/vnd.kubernetes.protobuf", b"k8s\0"),
    ] {
        let server = start_server(&[&format!("--storage-media-type={media_type}")]).await;
        server.create_map("a").await;
        let (stored, _) = server.etcd.get("/registry/configmaps/d/a").unwrap();
        assert!(
            stored.starts_with(start),
            "{}",
            String::from_utf8_lossy(&stored)
        );
        let path = format!("{MAPS}/a");
        let mut read = server.get(&path).await.json();
        assert_eq!(read["data"]["k"], "v");
        read["data"]["k"] = "w".into();
        assert_eq!(server.write("PUT", &path, read).await.code, 200);
        let listed = server.get(MAPS).await.json();
        assert_eq!(listed["items"][0]["data"]["k"], "w");
    }
}

#[tokio::test]
async fn field_of_a_disabled_gate_is_dropped_unless_the_object_has_it() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/d/deployments";
    let labels = json!({"app": "a"});
    let build = |name: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"hostnameOverride": "h", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    let server = start_server(&["--feature-gates=HostnameOverride=false"]).await;
    let created = server.write("POST", DEPLOYMENTS, build("a")).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let spec = |object: &serde_json::Value| object["spec"]["template"]["spec"].clone();
    assert!(spec(&created.json())["hostnameOverride"].is_null());
    // Stored by a server with the gate.
    let other = start_server(&[]).await;
    assert_eq!(other.write("POST", DEPLOYMENTS, build("b")).await.code, 201);
    let (stored, _) = other.etcd.get("/registry/deployments/d/b").unwrap();
    let etcd = FakeEtcd::start().await;
    etcd.put("/registry/deployments/d/b", &stored);
    let server = start_over(etcd, &["--feature-gates=HostnameOverride=false"]).await;
    let path = format!("{DEPLOYMENTS}/b");
    let mut changed = server.get(&path).await.json();
    assert_eq!(spec(&changed)["hostnameOverride"], "h");
    changed["spec"]["template"]["spec"]["hostnameOverride"] = "i".into();
    let updated = server.write("PUT", &path, changed.clone()).await;
    assert_eq!(updated.code, 200, "{}", updated.text());
    assert_eq!(spec(&updated.json())["hostnameOverride"], "i");
    // A field that was removed can not be set again.
    let mut without = updated.json();
    without["spec"]["template"]["spec"]["hostnameOverride"].take();
    let without = server.write("PUT", &path, without).await.json();
    assert!(spec(&without)["hostnameOverride"].is_null());
    changed["metadata"]["resourceVersion"].take();
    let again = server.write("PUT", &path, changed).await.json();
    assert!(spec(&again)["hostnameOverride"].is_null(), "{again}");
}
