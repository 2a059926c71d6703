//! Services that hijack the traffic of others (CVE-2020-8554, CVE-2021-25737, CVE-2021-25740).

#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use testkit_control_plane::ControlPlane;

fn service(name: &str, more: &Value) -> Value {
    let mut spec = json!({"ports": [{"port": 443}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// A user who may write Services in one namespace must not redirect the whole cluster's traffic to
/// an address.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_cannot_claim_an_external_address() {
    let options = testkit_control_plane::Options {
        api_server: vec![
            "--enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs".to_owned(),
        ],
        ..Default::default()
    };
    let plane = ControlPlane::start_with(options).await;
    plane
        .grant(
            "mallory",
            "default",
            json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]),
        )
        .await;
    let mallory = plane.user("mallory", None);
    let base = "/api/v1/namespaces/default/services";
    let external = json!({"externalIPs": ["203.0.113.1"]});

    mallory
        .post(base, &service("s", &external))
        .await
        .expect_status(403);
    mallory
        .post(base, &service("s", &json!({})))
        .await
        .expect_success();
    let stored = mallory.get(&format!("{base}/s")).await.json();
    let mut changed = stored.clone();
    changed["spec"]["externalIPs"] = json!(["203.0.113.1"]);
    mallory
        .put(&format!("{base}/s"), &changed)
        .await
        .expect_status(403);
    mallory
        .merge_patch(&format!("{base}/s"), &json!({"spec": external}))
        .await
        .expect_status(403);
    let add = json!([{"op": "add", "path": "/spec/externalIPs", "value": ["203.0.113.1"]}]);
    mallory
        .json_patch(&format!("{base}/s"), &add)
        .await
        .expect_status(403);
    mallory
        .apply(
            &format!("{base}/s?fieldManager=m&force=true"),
            &service("s", &external),
        )
        .await
        .expect_status(403);
    mallory
        .apply(
            &format!("{base}/t?fieldManager=m"),
            &service("t", &external),
        )
        .await
        .expect_status(403);
    // Only the cluster may write the status: a load balancer's address redirects traffic, too.
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}});
    plane
        .grant(
            "editor",
            "default",
            json!([{"apiGroups": [""], "resources": ["services"], "verbs": ["*"]}]),
        )
        .await;
    plane
        .user("editor", None)
        .merge_patch(&format!("{base}/s/status"), &ingress)
        .await
        .expect_status(403);
    assert_eq!(
        plane.admin().get(&format!("{base}/s")).await.json()["spec"]["externalIPs"],
        Value::Null
    );
}

/// Endpoints on a node's own addresses would make every node's proxy connect to its own host.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_cannot_point_at_the_nodes_themselves() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let v4 = [
        "127.0.0.1",
        "127.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",
    ];
    let v6 = [
        "::1",
        "fe80::1",
        "ff02::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
    ];
    for address in v4.iter().chain(&v6) {
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"},
            "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]});
        let reply = admin
            .post("/api/v1/namespaces/default/endpoints", &endpoints)
            .await;
        assert_eq!(reply.status, 422, "Endpoints {address}: {}", reply.text());
        let not_ready = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"},
            "subsets": [{"notReadyAddresses": [{"ip": address}], "ports": [{"port": 80}]}]});
        let reply = admin
            .post("/api/v1/namespaces/default/endpoints", &not_ready)
            .await;
        assert_eq!(
            reply.status,
            422,
            "not ready Endpoints {address}: {}",
            reply.text()
        );
        let family = if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        };
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e"},
            "addressType": family, "endpoints": [{"addresses": [address]}], "ports": [{"port": 80}]});
        let reply = admin
            .post(
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
                &slice,
            )
            .await;
        assert_eq!(
            reply.status,
            422,
            "EndpointSlice {address}: {}",
            reply.text()
        );
    }
}

/// The built-in role `edit` must not allow sending a Service's traffic into another namespace.
#[tokio::test(flavor = "multi_thread")]
async fn role_edit_may_not_write_endpoints() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let roles = admin
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles")
        .await
        .expect_success()
        .json();
    let mut rules = 0;
    for role in roles["items"].as_array().unwrap() {
        // The roles of which `edit` and `admin` consist.
        let part_of = |name: &str| {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
            role["metadata"]["labels"][label] == "true"
        };
        if !part_of("edit") && !part_of("admin") {
            continue;
        }
        for rule in role["rules"].as_array().into_iter().flatten() {
            let words = |field: &str| -> Vec<&str> {
                rule[field]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect()
            };
            let endpoints = words("resources")
                .iter()
                .any(|r| ["endpoints", "endpointslices", "*"].contains(r));
            let writes = words("verbs")
                .iter()
                .any(|v| !["get", "list", "watch"].contains(v));
            assert!(!(endpoints && writes), "{role}");
            rules += 1;
        }
    }
    assert!(rules > 10, "the roles behind edit and admin were not found");
}
