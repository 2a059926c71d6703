//! Paths that reach more than they were authorized for.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::ControlPlane;

/// Longer than the caches need to know an object.
const PATIENCE: Duration = Duration::from_secs(60);

/// CVE-2019-11247: a role in one namespace must not reach cluster-scoped objects through that
/// namespace's path.
#[tokio::test(flavor = "multi_thread")]
async fn role_in_a_namespace_cannot_reach_another_namespace() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    for name in ["tenant", "victim"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        admin
            .post("/api/v1/namespaces", &namespace)
            .await
            .expect_success();
    }
    plane
        .grant(
            "mallory",
            "tenant",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
        )
        .await;
    let mallory = plane.user("mallory", None);
    let through = "/api/v1/namespaces/tenant/namespaces";

    mallory
        .delete(&format!("{through}/victim"))
        .await
        .expect_status(404);
    mallory
        .get(&format!("{through}/victim"))
        .await
        .expect_status(404);
    mallory.get(through).await.expect_status(404);
    let labels =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    mallory
        .merge_patch(&format!("{through}/victim"), &labels)
        .await
        .expect_status(404);
    let created = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "created"}});
    mallory.post(through, &created).await.expect_status(404);
    mallory
        .put(&format!("{through}/victim/finalize"), &created)
        .await
        .expect_status(404);

    let victim = admin
        .get("/api/v1/namespaces/victim")
        .await
        .expect_success()
        .json();
    assert!(
        victim["metadata"]["deletionTimestamp"].is_null(),
        "{victim}"
    );
}

/// The same through the path of reviews, whose result is about the whole cluster.
#[tokio::test(flavor = "multi_thread")]
async fn role_in_a_namespace_cannot_review_the_cluster() {
    let plane = ControlPlane::start().await;
    plane
        .grant(
            "mallory",
            "default",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
        )
        .await;
    let mallory = plane.user("mallory", None);
    let spec = json!({"user": "kubernetes-admin", "resourceAttributes": {"verb": "get", "resource": "secrets"}});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let through = "/apis/authorization.k8s.io/v1/namespaces/default/subjectaccessreviews";
    mallory.post(through, &review).await.expect_status(404);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"}});
    mallory
        .post(
            "/apis/authentication.k8s.io/v1/namespaces/default/tokenreviews",
            &token,
        )
        .await
        .expect_status(404);
    let local = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": spec});
    plane
        .admin()
        .post(
            "/apis/authorization.k8s.io/v1/localsubjectaccessreviews",
            &local,
        )
        .await
        .expect_status(404);
}

/// `/watch/` in front of a path must not turn a command into a `watch`.
#[tokio::test(flavor = "multi_thread")]
async fn right_to_watch_cannot_run_commands_through_the_watch_prefix() {
    let plane = ControlPlane::start().await;
    plane
        .grant(
            "reader",
            "",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]),
        )
        .await;
    let reader = plane.user("reader", None);
    let node = node("n", "192.0.2.1", 10250);
    plane
        .admin()
        .post("/api/v1/nodes", &node)
        .await
        .expect_success();
    for path in [
        "/api/v1/watch/nodes/n/proxy/run/ns/pod/c?cmd=id",
        "/api/v1/watch/namespaces/default/services/s/proxy/x",
        "/api/v1/watch/namespaces/default/pods/p/proxy/x",
    ] {
        reader.post(path, &json!({})).await.expect_status(403);
        reader.get(path).await.expect_status(404);
    }
}

/// KEP-2862 and variants of CVE-2018-1002105: the permission to read nodes/proxy must not allow
/// commands.
#[tokio::test(flavor = "multi_thread")]
async fn right_to_get_nodes_proxy_cannot_run_commands() {
    let plane = ControlPlane::start().await;
    plane
        .grant(
            "monitor",
            "",
            json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}]),
        )
        .await;
    let monitor = plane.user("monitor", None);
    plane
        .admin()
        .post("/api/v1/nodes", &node("n", "127.0.0.1", 10250))
        .await
        .expect_success();
    for rest in [
        "run/ns/pod/c?cmd=id",
        "%72un/ns/pod/c",
        "exec/ns/pod/c?command=id",
        "/attach/ns/pod/c",
        "cri/exec/t",
    ] {
        monitor
            .get(&format!("/api/v1/nodes/n/proxy/{rest}"))
            .await
            .expect_status(403);
    }
    let allowed = monitor.get("/api/v1/nodes/n/proxy/metrics").await;
    assert_ne!(allowed.status, 403, "{}", allowed.text());
}

/// A user who may only patch must not create through server-side apply.
#[tokio::test(flavor = "multi_thread")]
async fn right_to_patch_cannot_create_by_apply() {
    let plane = ControlPlane::start().await;
    let rule =
        |verbs: &[&str]| json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    plane
        .grant("patcher", "default", rule(&["get", "patch"]))
        .await;
    plane
        .grant("creator", "default", rule(&["create", "patch"]))
        .await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    let path = "/api/v1/namespaces/default/configmaps/c?fieldManager=m&force=true";
    plane
        .user("patcher", None)
        .apply(path, &object)
        .await
        .expect_status(403);
    plane
        .user("creator", None)
        .apply(path, &object)
        .await
        .expect_status(201);
    plane
        .user("patcher", None)
        .apply(path, &object)
        .await
        .expect_status(200);
}

fn node(name: &str, address: &str, port: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})
}

/// CVE-2022-3294: a node names its own address, and could name the API server's.
#[tokio::test(flavor = "multi_thread")]
async fn node_cannot_lead_the_proxy_to_the_control_plane() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let api = plane.api_address().port();
    for (at, address) in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "localhost",
        "169.254.169.254",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("evil-{at}");
        admin
            .post("/api/v1/nodes", &node(&name, address, api))
            .await
            .expect_success();
        for path in ["proxy/api/v1/secrets", "proxy/version"] {
            let reply = admin
                .get(&format!("/api/v1/nodes/{name}/{path}"))
                .await
                .expect_status(400);
            assert!(
                reply.text().contains("address not allowed"),
                "{address}: {}",
                reply.text()
            );
        }
    }
    admin
        .get("/api/v1/nodes/evil-0/proxy")
        .await
        .expect_status(301);
}

/// An IPv4-mapped IPv6 address counts as the IPv4 address.
#[tokio::test(flavor = "multi_thread")]
async fn pod_cannot_lead_the_proxy_to_loopback() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false}});
    admin
        .post("/api/v1/namespaces/default/pods", &pod)
        .await
        .expect_success();
    let port = plane.api_address().port();
    for address in [
        "::ffff:127.0.0.1",
        "127.0.0.1",
        "::1",
        "::ffff:169.254.169.254",
    ] {
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        let written = admin
            .merge_patch("/api/v1/namespaces/default/pods/p/status", &status)
            .await;
        // An address that is rejected at the write can't be proxied to either.
        if written.status == 200 {
            let reply = admin
                .get(&format!(
                    "/api/v1/namespaces/default/pods/https:p:{port}/proxy/version"
                ))
                .await;
            assert_eq!(reply.status, 400, "{address}: {}", reply.text());
        }
    }
}

/// Endpoints of a Service could name the API servers, as Nodes and pods could.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_cannot_lead_the_proxy_to_api_servers() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let service = "/api/v1/namespaces/default/services";
    let begun = Instant::now();
    while admin.get(&format!("{service}/kubernetes")).await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "no Service kubernetes");
    }
    let port = json!([{"name": "p", "port": 443}]);
    let own = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": port}});
    admin.post(service, &own).await.expect_success();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.96.0.1"]}], "ports": port});
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    admin.post(path, &slice).await.expect_success();
    // The endpoints are used when the caches know them.
    loop {
        let reply = admin
            .get(&format!("{service}/https:s:p/proxy/version"))
            .await;
        if reply.text().contains("address not allowed") {
            assert_eq!(reply.status, 400);
            break;
        }
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
    }
}

/// Representations that an object does not have are rejected before the request has any effect.
#[tokio::test(flavor = "multi_thread")]
async fn impossible_representation_is_refused() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let get = |path: &'static str, accept: &'static str| {
        let admin = admin.clone();
        async move {
            admin
                .send(http::Method::GET, path, &[("accept", accept)], "")
                .await
                .unwrap()
                .status
        }
    };
    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert_eq!(get("/api/v1/namespaces", PARTIAL).await, 406);
    assert_eq!(get("/api/v1/namespaces", PARTIAL_LIST).await, 200);
    assert_eq!(get("/api/v1/namespaces/default", PARTIAL).await, 200);
    assert_eq!(get("/api/v1/namespaces/default", PARTIAL_LIST).await, 406);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let post = |accept: &'static str| {
        let headers = [("accept", accept), ("content-type", "application/json")];
        let (admin, body) = (admin.clone(), review.to_string());
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        async move {
            admin
                .send(http::Method::POST, path, &headers, body)
                .await
                .unwrap()
                .status
        }
    };
    assert_eq!(
        post("application/json;as=Table;v=v1;g=meta.k8s.io").await,
        406
    );
    assert_eq!(
        post("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await,
        201
    );
}
