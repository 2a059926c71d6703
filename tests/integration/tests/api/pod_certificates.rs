//! PodCertificateRequests: what a kubelet may request and read, and what a signer may write.

use integration_tests::{ReplyExt, find_condition, wait_for};
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane, Options};

const GROUP: &str = "/apis/certificates.k8s.io/v1beta1";
const SIGNER: &str = "example.com/pods";
/// An empty certificate request of an Ed25519 key.
const REQUEST: &str = "MH8wMwIBADAAMCowBQYDK2VwAyEADuG16W2lAzV8O9YUJoCWjBKyVjJuqDnvcY00NHEMrH+gADAFBgMrZXADQQCzCaUTm3lFz1lzvCAMRW7wgsw3QTazpTXY8w33A5ILB42Ce/UdTThr/0Wv+G474/w9jxflHHO+2uSjo5POLOwH";

async fn start() -> ControlPlane {
    let flags = [
        "--runtime-config=certificates.k8s.io/v1beta1/podcertificaterequests=true",
        "--feature-gates=PodCertificateRequest=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
    ];
    ControlPlane::start_with(Options {
        api_server: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..Options::default()
    })
    .await
}

fn path(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/podcertificaterequests")
}

async fn create(caller: &Caller, path: &str, object: &Value) -> Value {
    let reply = caller.post(path, object).await;
    assert_eq!(reply.status, 201, "{path}: {}", reply.text());
    reply.json()
}

/// Creates the nodes `one` and `two`, and a pod on `one`; returns the spec of a request for it.
async fn create_pod(admin: &Caller) -> Value {
    let mut uids = Vec::new();
    for node in ["one", "two"] {
        let created = create(admin, "/api/v1/nodes", &json!({"metadata": {"name": node}})).await;
        uids.push(created["metadata"]["uid"].clone());
    }
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = create(admin, accounts, &json!({"metadata": {"name": "sa"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "one", "serviceAccountName": "sa",
        "containers": [{"name": "c", "image": "i"}]}});
    let pod = create(admin, "/api/v1/namespaces/default/pods", &pod).await;
    json!({"signerName": SIGNER, "podName": "p", "podUID": pod["metadata"]["uid"], "nodeName": "one",
        "nodeUID": uids[0], "serviceAccountName": "sa",
        "serviceAccountUID": account["metadata"]["uid"], "stubPKCS10Request": REQUEST})
}

fn request(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn kubelet_requests_and_reads_certificates_of_its_own_pods() {
    let plane = start().await;
    let admin = plane.admin();
    let spec = create_pod(&admin).await;
    let [own, other] = ["one", "two"].map(|node| plane.kubelet(node));
    let reply = own.post(&path("default"), &request("a", &spec)).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(
        reply.header("warning").contains("stored but has no effect"),
        "a warning"
    );
    let created = reply.json();
    assert_eq!(created["spec"]["maxExpirationSeconds"], 86400);
    assert_eq!(created["status"], json!({}));

    // The pod runs on another node, whatever the request says.
    let mut forged = spec.clone();
    forged["nodeName"] = json!("two");
    for spec in [&spec, &forged] {
        let reply = other.post(&path("default"), &request("b", spec)).await;
        assert!([403, 500].contains(&reply.status), "{}", reply.text());
    }
    let mut account = spec.clone();
    account["serviceAccountName"] = json!("default");
    assert_eq!(
        own.post(&path("default"), &request("b", &account))
            .await
            .status,
        403
    );

    let one = format!("{}/a", path("default"));
    wait_for("the node authorizer knows the request", async || {
        own.get(&one).await.status == 200
    })
    .await;
    assert_eq!(other.get(&one).await.status, 403);
    let list =
        |node: &str| format!("{GROUP}/podcertificaterequests?fieldSelector=spec.nodeName%3D{node}");
    let listed = own.get(&list("one")).await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    for path in [list("one"), path("default")] {
        assert_eq!(other.get(&path).await.status, 403, "{path}");
    }
    // Only the signer decides.
    let denial = json!({"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "R",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let status = format!("{one}/status");
    for kubelet in [&own, &other] {
        assert_eq!(kubelet.merge_patch(&status, &denial).await.status, 403);
        assert_eq!(
            kubelet
                .merge_patch(&one, &json!({"metadata": {"labels": {"a": "b"}}}))
                .await
                .status,
            403
        );
        assert_eq!(kubelet.delete(&one).await.status, 403);
    }
}

#[tokio::test]
async fn signer_decides_once() {
    let plane = start().await;
    let admin = plane.admin();
    let spec = create_pod(&admin).await;
    let rule = |resource: &str, verbs: Value| json!({"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs});
    let write = rule(
        "podcertificaterequests/status",
        json!(["get", "update", "patch"]),
    );
    let mut sign = rule("signers", json!(["sign"]));
    sign["resourceNames"] = json!([SIGNER]);
    plane.grant("writer", "", json!([write])).await;
    plane.grant("signer", "", json!([write, sign])).await;
    let mut denied = request("a", &spec);
    let conditions = json!([{"type": "Denied", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    denied["status"] = json!({"conditions": conditions});
    // The status of a new request is not taken.
    let created = create(&admin, &path("default"), &denied).await;
    assert_eq!(created["status"], json!({}));
    let status = format!("{}/a/status", path("default"));
    let change = json!({"status": {"conditions": conditions}, "metadata": {"labels": {"a": "b"}}});
    let writer = plane.user("writer", None);
    writer
        .merge_patch(&status, &change)
        .await
        .expect_causes(&[("spec.signerName", "FieldValueForbidden")]);
    let signer = plane.user("signer", None);
    let written = signer
        .merge_patch(&status, &change)
        .await
        .expect_success()
        .json();
    assert_eq!(find_condition(&written, "Denied")["status"], "True");
    assert_eq!(written["metadata"]["labels"], Value::Null);
    let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "R",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    signer
        .merge_patch(&status, &failed)
        .await
        .expect_causes(&[("status", "FieldValueInvalid")]);
    let one = format!("{}/a", path("default"));
    let change = json!({"spec": {"signerName": "example.com/other"}});
    admin
        .merge_patch(&one, &change)
        .await
        .expect_causes(&[("spec", "FieldValueInvalid")]);
    let table = admin
        .clone()
        .with_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
        .get(&one)
        .await
        .json();
    let cells = json!(["a", "p", "sa", "one", SIGNER, "Denied", "<none>"]);
    assert_eq!(table["rows"][0]["cells"], cells);
    let mut forged = spec.clone();
    forged["stubPKCS10Request"] = json!("AAAA");
    admin
        .post(&path("default"), &request("b", &forged))
        .await
        .expect_causes(&[("spec.stubPKCS10Request", "FieldValueInvalid")]);
}
