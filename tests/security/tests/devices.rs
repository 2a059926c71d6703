//! Claims for devices: the allocation decides which devices a pod gets, and what a node may read.

#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{ControlPlane, Reply};

/// Longer than the authorizer needs to know a pod.
const PATIENCE: Duration = Duration::from_secs(60);
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn claim(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}})
}

fn allocation() -> Value {
    json!({"allocation": {"devices": {"results": [{"request": "r", "driver": "d.example.com",
        "pool": "p", "device": "of-another-tenant"}]}}})
}

/// Returns the allocation of a claim.
fn allocated(reply: Reply) -> Value {
    reply.expect_success().json()["status"]["allocation"].clone()
}

/// A right to claims and their status is no right to choose the devices: that is the scheduler's.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_can_not_allocate_a_device_to_its_claim() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let rules = json!([{"apiGroups": ["resource.k8s.io"], "verbs": ["*"],
        "resources": ["resourceclaims", "resourceclaims/status"]}]);
    plane.grant("jane", "default", rules).await;
    let jane = plane.user("jane", None);
    let mut chosen = claim("c");
    chosen["status"] = allocation();
    let created = jane.post(CLAIMS, &chosen).await;
    assert_eq!(allocated(created), Value::Null);
    let path = format!("{CLAIMS}/c");
    let status = format!("{path}/status");
    let mut current = jane.get(&path).await.expect_success().json();
    current["status"] = allocation();
    assert_eq!(allocated(jane.put(&path, &current).await), Value::Null);
    let patch = json!({"status": allocation()});
    assert_eq!(
        allocated(jane.merge_patch(&path, &patch).await),
        Value::Null
    );
    let mut applied = claim("c");
    applied["status"] = allocation();
    let added = json!([{"op": "add", "path": "/status", "value": allocation()}]);
    current["metadata"]["resourceVersion"] = Value::Null;
    let by_apply = format!("{status}?fieldManager=jane");
    for (way, reply) in [
        ("update", jane.put(&status, &current).await),
        ("merge patch", jane.merge_patch(&status, &patch).await),
        ("JSON patch", jane.json_patch(&status, &added).await),
        ("apply", jane.apply(&by_apply, &applied).await),
    ] {
        assert_eq!(reply.status, 422, "{way}: {}", reply.text());
        let text = reply.text();
        assert!(text.contains("resourceclaims/binding"), "{way}: {text}");
    }
    assert_eq!(allocated(jane.get(&path).await), Value::Null);
    // The same change by a user with the right.
    assert_ne!(
        allocated(admin.merge_patch(&status, &patch).await),
        Value::Null
    );
}

/// A node reads the claims that its pods use.
#[tokio::test(flavor = "multi_thread")]
async fn node_reads_no_claims_of_other_nodes() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &account).await.expect_success();
    for node in ["one", "two"] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        admin.post("/api/v1/nodes", &object).await.expect_success();
        admin.post(CLAIMS, &claim(node)).await.expect_success();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node}, "spec": {
            "nodeName": node, "resourceClaims": [{"name": "d", "resourceClaimName": node}],
            "containers": [{"name": "c", "image": "example.com/c:1"}]}});
        let pods = "/api/v1/namespaces/default/pods";
        admin.post(pods, &pod).await.expect_success();
    }
    let one = plane.kubelet("one");
    let get = async |name: &str| one.get(&format!("{CLAIMS}/{name}")).await;
    // The right follows from the pod, once the authorizer knows it.
    let begun = Instant::now();
    while get("one").await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "the node reads no claim");
    }
    get("two").await.expect_status(403);
    one.get(CLAIMS).await.expect_status(403);
    let patch = json!({"status": allocation()});
    for path in [format!("{CLAIMS}/one"), format!("{CLAIMS}/one/status")] {
        one.merge_patch(&path, &patch).await.expect_status(403);
    }
}
