//! Dynamic resource allocation: claims made from templates, devices allocated to them, and freed.
//!
//! The nodes are those of the scheduler's tests, without a kubelet.

use integration_tests::{Test, grant_rule, name_of, wait_for};
use serde_json::{Value, json};

use crate::scheduling::{
    create, create_node, pod_for, start, wait_until_scheduled, wait_until_unschedulable,
};

const RESOURCE: &str = "resource.k8s.io/v1";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Returns the driver and the DeviceClass of a test.
fn class_of(test: &Test) -> String {
    test.name("class")
}

pub(crate) fn driver_of(test: &Test) -> String {
    format!("{}.example.com", test.namespace)
}

pub(crate) fn claims(test: &Test) -> String {
    test.group(RESOURCE, "resourceclaims")
}

/// Creates the class, a template for one device of it, and a node with each of these numbers of
/// devices. Returns the names of the nodes.
async fn create_devices(test: &Test, counts: &[usize]) -> Vec<String> {
    create_class(test).await;
    let mut nodes = Vec::new();
    for (index, count) in counts.iter().enumerate() {
        let node = create_node(test, &format!("node{index}"), json!({})).await;
        create_slice(test, &node, *count).await;
        nodes.push(node);
    }
    nodes
}

/// Creates the class of a test, and the template `one` for one device of it.
pub(crate) async fn create_class(test: &Test) {
    let expression = format!("device.driver == '{}'", driver_of(test));
    let class = json!({"apiVersion": RESOURCE, "kind": "DeviceClass",
        "metadata": {"name": class_of(test)}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    test.create("/apis/resource.k8s.io/v1/deviceclasses", &class)
        .await;
    let template = json!({"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"}, "spec": {"spec": claim_spec(test)}});
    let templates = test.group(RESOURCE, "resourceclaimtemplates");
    test.create(&templates, &template).await;
}

/// Creates a pool with this number of devices on a node.
pub(crate) async fn create_slice(test: &Test, node: &str, count: usize) {
    let devices: Vec<_> = (0..count)
        .map(|i| json!({"name": format!("device-{i}")}))
        .collect();
    let slice = json!({"apiVersion": RESOURCE, "kind": "ResourceSlice",
        "metadata": {"name": test.name(node)}, "spec": {"driver": driver_of(test), "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
    test.create("/apis/resource.k8s.io/v1/resourceslices", &slice)
        .await;
}

fn claim_spec(test: &Test) -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class_of(test)}}]}})
}

/// Returns a pod that uses a claim: `resourceClaimTemplateName` or `resourceClaimName`.
fn pod_with_claim(test: &Test, name: &str, kind: &str, claim: &str) -> Value {
    let mut pod = pod_for(
        test,
        name,
        json!({"resourceClaims": [{"name": "gpu", kind: claim}]}),
    );
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    pod
}

/// Returns the name of the claim that was made for a pod.
pub(crate) async fn generated_claim(test: &Test, pod: &str) -> String {
    let status =
        |pod: &Value| pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].clone();
    let path = test.core(&format!("pods/{pod}"));
    let pod = test
        .wait_until(&path, "with a claim", |pod| status(pod).is_string())
        .await;
    status(&pod).as_str().unwrap().to_owned()
}

async fn delete_pod(test: &Test, name: &str) {
    let path = test.core(&format!("pods/{name}?gracePeriodSeconds=0"));
    test.admin.delete(&path).await.expect_status(200);
    test.wait_until_deleted(&test.core(&format!("pods/{name}")))
        .await;
}

#[tokio::test]
async fn pods_get_the_nodes_of_free_devices_and_the_next_one_waits_for_one() {
    let test = start().await;
    let nodes = create_devices(&test, &[1, 1]).await;
    for name in ["p1", "p2"] {
        create(
            &test,
            &pod_with_claim(&test, name, "resourceClaimTemplateName", "one"),
        )
        .await;
    }
    let first = wait_until_scheduled(&test, "p1").await;
    let second = wait_until_scheduled(&test, "p2").await;
    assert!(first != second && nodes.contains(&first) && nodes.contains(&second));

    let name = generated_claim(&test, "p1").await;
    let path = format!("{}/{name}", claims(&test));
    let claim = test.read(&path).await;
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(
        (&result["pool"], &result["device"]),
        (&json!(first), &json!("device-0"))
    );
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "p1");
    assert_eq!(claim["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(
        claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"],
        "gpu"
    );
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "p1");

    create(
        &test,
        &pod_with_claim(&test, "p3", "resourceClaimTemplateName", "one"),
    )
    .await;
    wait_until_unschedulable(&test, "p3", "cannot allocate all claims").await;
    delete_pod(&test, "p1").await;
    assert_eq!(wait_until_scheduled(&test, "p3").await, first);
    test.wait_until_deleted(&path).await;
}

#[tokio::test]
async fn shared_claim_keeps_its_pods_together_and_is_freed_after_the_last() {
    let test = start().await;
    create_devices(&test, &[1, 1]).await;
    let claim = json!({"apiVersion": RESOURCE, "kind": "ResourceClaim",
        "metadata": {"name": "shared"}, "spec": claim_spec(&test)});
    test.create(&claims(&test), &claim).await;
    for name in ["p1", "p2"] {
        create(
            &test,
            &pod_with_claim(&test, name, "resourceClaimName", "shared"),
        )
        .await;
    }
    let first = wait_until_scheduled(&test, "p1").await;
    assert_eq!(wait_until_scheduled(&test, "p2").await, first);
    let path = format!("{}/shared", claims(&test));
    let count = |claim: &Value| {
        claim["status"]["reservedFor"]
            .as_array()
            .map_or(0, Vec::len)
    };
    test.wait_until(&path, "reserved twice", |claim| count(claim) == 2)
        .await;
    delete_pod(&test, "p1").await;
    let left = test
        .wait_until(&path, "reserved once", |claim| count(claim) == 1)
        .await;
    assert!(left["status"]["allocation"].is_object());
    delete_pod(&test, "p2").await;
    let free = |claim: &Value| {
        claim["status"]["allocation"].is_null() && claim["metadata"]["finalizers"].is_null()
    };
    test.wait_until(&path, "free", free).await;
}

#[tokio::test]
async fn claim_of_a_finished_pod_is_deleted_and_its_device_freed() {
    let test = start().await;
    create_devices(&test, &[1]).await;
    create(
        &test,
        &pod_with_claim(&test, "p1", "resourceClaimTemplateName", "one"),
    )
    .await;
    wait_until_scheduled(&test, "p1").await;
    let path = format!("{}/{}", claims(&test), generated_claim(&test, "p1").await);
    let done = json!({"status": {"phase": "Succeeded"}});
    let status = test.core("pods/p1/status");
    test.admin
        .merge_patch(&status, &done)
        .await
        .expect_status(200);
    test.wait_until_deleted(&path).await;
    create(
        &test,
        &pod_with_claim(&test, "p2", "resourceClaimTemplateName", "one"),
    )
    .await;
    wait_until_scheduled(&test, "p2").await;
}

#[tokio::test]
async fn pod_waits_for_its_class_and_its_claim() {
    let test = start().await;
    create_node(&test, "node", json!({})).await;
    create(
        &test,
        &pod_with_claim(&test, "p1", "resourceClaimName", "late"),
    )
    .await;
    wait_until_unschedulable(&test, "p1", "resourceclaim \"late\" not found").await;
    let claim = json!({"apiVersion": RESOURCE, "kind": "ResourceClaim",
        "metadata": {"name": "late"}, "spec": claim_spec(&test)});
    test.create(&claims(&test), &claim).await;
    let class = class_of(&test);
    wait_until_unschedulable(&test, "p1", &format!("device class {class} does not exist")).await;
    create_devices(&test, &[1]).await;
    wait_until_scheduled(&test, "p1").await;
    let names = test.items(&claims(&test)).await;
    assert_eq!(names.iter().map(name_of).collect::<Vec<_>>(), ["late"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn allocation_of_a_claim_is_written_with_the_right_to_bind_only() {
    let test = start().await;
    let claim = json!({"apiVersion": RESOURCE, "kind": "ResourceClaim",
        "metadata": {"name": "one"}, "spec": claim_spec(&test)});
    test.create(&claims(&test), &claim).await;
    let (user, client) = test.connect_user("driver").await;
    let rule = |resource: &str| grant_rule("resource.k8s.io", &[resource], &["patch"]);
    let (status, binding) = ("resourceclaims/status", "resourceclaims/binding");
    test.grant(&user, &[rule(status), rule(binding)]).await;
    let result = json!({"request": "r", "driver": driver_of(&test), "pool": "p", "device": "x"});
    let patch = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let path = format!("{}/one/status", claims(&test));
    let reply = client.merge_patch(&path, &patch).await;
    let text = reply.expect_status(422).json()["message"].to_string();
    assert!(text.contains("resourceclaims/binding"), "{text}");
    // The right counts for the cluster: devices belong to no namespace.
    let rules = json!([rule(binding)]);
    test.plane().grant(&user, "", rules).await;
    wait_for("the grant is effective", async || {
        client.merge_patch(&path, &patch).await.status == 200
    })
    .await;
}
