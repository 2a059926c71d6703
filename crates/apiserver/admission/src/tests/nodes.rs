//! Restrictions of a kubelet's writes, whatever its role allows.

use super::{Fixture, pod, rejection, request, user};
use crate::node_restriction::NodeRestriction;
use apiserver_request::{AdmissionRequest, Operation, User};
use serde_json::{Value, json};

fn kubelet() -> User {
    user("system:node:n1", "system:nodes")
}

fn stored_pod(node: &str) -> Value {
    let mut object = pod(json!({"nodeName": node, "serviceAccountName": "sa",
        "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}}]}));
    object["metadata"]["uid"] = json!("pod-uid");
    object
}

fn plugin(node_of_pod: &str) -> NodeRestriction {
    let node = json!({"metadata": {"name": "n1", "uid": "node-uid"}});
    let fixture =
        Fixture::default()
            .with("", "nodes", node)
            .with("", "pods", stored_pod(node_of_pod));
    NodeRestriction(fixture.context())
}

fn mirror_pod() -> Value {
    json!({"metadata": {"name": "m", "namespace": "d", "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}})
}

async fn create_pod(object: &Value) -> Option<String> {
    let kubelet = kubelet();
    rejection(
        &plugin("n1"),
        request(Operation::Create, &kubelet, "pods", object),
    )
    .await
}

#[tokio::test]
async fn kubelet_creates_mirror_pods_only() {
    assert_eq!(create_pod(&mirror_pod()).await, None);
    let mut plain = mirror_pod();
    plain["metadata"]["annotations"] = json!({});
    assert!(
        create_pod(&plain)
            .await
            .unwrap()
            .contains("can only create mirror pods")
    );
    let mut elsewhere = mirror_pod();
    elsewhere["spec"]["nodeName"] = json!("n2");
    assert!(create_pod(&elsewhere).await.is_some());
}

#[tokio::test]
async fn mirror_pod_belongs_to_the_current_node_object() {
    for (field, value) in [
        ("uid", json!("uid-of-an-earlier-node")),
        ("name", json!("n2")),
        ("kind", json!("Pod")),
        ("controller", json!(false)),
        ("blockOwnerDeletion", json!(true)),
    ] {
        let mut object = mirror_pod();
        object["metadata"]["ownerReferences"][0][field] = value;
        assert!(create_pod(&object).await.is_some(), "{field}");
    }
    let mut orphan = mirror_pod();
    orphan["metadata"]["ownerReferences"] = json!([]);
    assert!(create_pod(&orphan).await.is_some());
}

#[tokio::test]
async fn mirror_pod_refers_to_no_other_objects() {
    for (field, value, what) in [
        ("serviceAccountName", json!("sa"), "a service account"),
        ("imagePullSecrets", json!([{"name": "s"}]), "secrets"),
        (
            "volumes",
            json!([{"name": "v", "secret": {"secretName": "s"}}]),
            "secrets",
        ),
        (
            "volumes",
            json!([{"name": "v", "flexVolume": {"secretRef": {"name": "s"}}}]),
            "secrets",
        ),
        (
            "volumes",
            json!([{"name": "v", "configMap": {"name": "m"}}]),
            "configmaps",
        ),
        (
            "volumes",
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
            "persistentvolumeclaims",
        ),
        (
            "volumes",
            json!([{"name": "v", "ephemeral": {}}]),
            "persistentvolumeclaims",
        ),
        (
            "volumes",
            json!([{"name": "v", "projected": {"sources": [{"secret": {}}]}}]),
            "projected volumes",
        ),
        (
            "volumes",
            json!([{"name": "v", "csi": {"driver": "x"}}]),
            "csidrivers",
        ),
        ("resourceClaims", json!([{"name": "gpu"}]), "resourceclaims"),
        (
            "initContainers",
            json!([{"name": "i", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]),
            "secrets",
        ),
        (
            "containers",
            json!([{"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}]),
            "configmaps",
        ),
    ] {
        let mut object = mirror_pod();
        object["spec"][field] = value;
        let error = create_pod(&object).await.unwrap_or_default();
        assert!(
            error.contains(&format!("reference {what}")),
            "{field} {what}: {error}"
        );
    }
    let mut downward = mirror_pod();
    downward["spec"]["volumes"] =
        json!([{"name": "v", "projected": {"sources": [{"downwardAPI": {}}]}}]);
    assert_eq!(create_pod(&downward).await, None);
}

#[tokio::test]
async fn kubelet_deletes_and_evicts_pods_of_its_own_node() {
    let kubelet = kubelet();
    for (node, allowed) in [("n1", true), ("n2", false)] {
        let object = stored_pod(node);
        let delete = AdmissionRequest {
            old: Some(object.clone()),
            ..request(Operation::Delete, &kubelet, "pods", &object)
        };
        assert_eq!(
            rejection(&plugin(node), delete).await.is_none(),
            allowed,
            "{node}"
        );
        let evict = AdmissionRequest {
            subresource: "eviction",
            ..request(Operation::Create, &kubelet, "pods", &object)
        };
        assert_eq!(
            rejection(&plugin(node), evict).await.is_none(),
            allowed,
            "{node}"
        );
    }
}

#[tokio::test]
async fn kubelet_writes_the_status_of_its_pods_and_nothing_else() {
    let kubelet = kubelet();
    let update = async |change: &dyn Fn(&mut Value), subresource| {
        let (old, mut new) = (stored_pod("n1"), stored_pod("n1"));
        change(&mut new);
        let write = AdmissionRequest {
            old: Some(old),
            subresource,
            ..request(Operation::Update, &kubelet, "pods", &new)
        };
        rejection(&plugin("n1"), write).await
    };
    let phase = |pod: &mut Value| pod["status"] = json!({"phase": "Running"});
    assert_eq!(update(&phase, "status").await, None);
    assert!(update(&phase, "").await.is_some(), "the pod itself");
    assert!(
        update(&phase, "exec").await.is_some(),
        "another subresource"
    );
    let label = |pod: &mut Value| pod["metadata"]["labels"] = json!({"a": "b"});
    assert!(
        update(&label, "status").await.is_some(),
        "a label could attract a Service"
    );
    let claims = |pod: &mut Value| {
        pod["status"] = json!({"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "x"}]})
    };
    assert!(
        update(&claims, "status").await.is_some(),
        "the claim would become readable"
    );
    let finalizer = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["a/b"]);
    assert!(update(&finalizer, "status").await.is_some());
}

async fn request_token(pod_node: &str, reference: Value, audiences: Value) -> Option<String> {
    let kubelet = kubelet();
    let object = json!({"metadata": {"name": "sa", "namespace": "d"},
        "spec": {"boundObjectRef": reference, "audiences": audiences}});
    let create = AdmissionRequest {
        subresource: "token",
        ..request(Operation::Create, &kubelet, "serviceaccounts", &object)
    };
    rejection(&plugin(pod_node), create).await
}

fn bound_to(uid: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid})
}

#[tokio::test]
async fn token_is_bound_to_a_pod_of_the_node() {
    let vault = || json!(["vault"]);
    assert_eq!(
        request_token("n1", bound_to("pod-uid"), vault()).await,
        None
    );
    assert!(
        request_token("n2", bound_to("pod-uid"), vault())
            .await
            .is_some(),
        "another node's pod"
    );
    assert!(
        request_token("n1", bound_to("other"), vault())
            .await
            .is_some(),
        "an earlier pod"
    );
    assert!(
        request_token("n1", bound_to(""), vault()).await.is_some(),
        "no UID"
    );
    assert!(
        request_token("n1", Value::Null, vault()).await.is_some(),
        "not bound"
    );
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "name": "p", "uid": "pod-uid"});
    assert!(
        request_token("n1", secret, vault()).await.is_some(),
        "bound to a secret"
    );
}

#[tokio::test]
async fn token_has_an_audience_that_the_pods_volumes_request() {
    let request = async |audiences| request_token("n1", bound_to("pod-uid"), audiences).await;
    assert!(
        request(json!(["other"]))
            .await
            .unwrap()
            .contains("not found in pod spec volume")
    );
    assert!(
        request(json!([])).await.is_some(),
        "the API server's audience is not requested"
    );
    assert!(request(json!(["vault", "other"])).await.is_some());
}

#[tokio::test]
async fn other_users_are_not_restricted() {
    let alice = user("alice", "people");
    let object = pod(json!({"serviceAccountName": "sa"}));
    let create = request(Operation::Create, &alice, "pods", &object);
    assert_eq!(rejection(&plugin("n1"), create).await, None);
}
