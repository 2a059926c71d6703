use super::{Fixture, admit, pod, rejection, request, user};
use crate::pods::{
    AlwaysPullImages, DefaultTolerationSeconds, DenyServiceExternalIps, TaintNodesByCondition,
};
use crate::storage::{ClaimResize, InUseProtection};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::{Value, json};

async fn create(plugin: &dyn Admission, resource: &str, object: &Value) -> Value {
    let alice = user("alice", "people");
    admit(plugin, request(Operation::Create, &alice, resource, object))
        .await
        .unwrap()
}

#[tokio::test]
async fn pod_tolerates_unreachable_nodes_for_five_minutes() {
    let own = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    let admitted = create(
        &DefaultTolerationSeconds,
        "pods",
        &pod(json!({"tolerations": [own]})),
    )
    .await;
    let tolerations = admitted["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.len(), 2);
    assert_eq!(
        tolerations[0]["tolerationSeconds"], 5,
        "the pod's own stays"
    );
    assert_eq!(tolerations[1]["key"], "node.kubernetes.io/unreachable");
    assert_eq!(tolerations[1]["tolerationSeconds"], 300);
    let everything = pod(json!({"tolerations": [{"operator": "Exists"}]}));
    let admitted = create(&DefaultTolerationSeconds, "pods", &everything).await;
    assert_eq!(admitted, everything);
}

#[tokio::test]
async fn new_node_is_tainted_until_it_is_ready() {
    let node = json!({"metadata": {"name": "n"}, "spec": {}});
    let once = create(&TaintNodesByCondition, "nodes", &node).await;
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    assert_eq!(once["spec"]["taints"], json!([taint]));
    assert_eq!(create(&TaintNodesByCondition, "nodes", &once).await, once);
}

#[tokio::test]
async fn every_container_pulls_its_image() {
    let object = pod(
        json!({"containers": [{"name": "c", "imagePullPolicy": "Never"}], "initContainers": [{"name": "i"}]}),
    );
    let spec = create(&AlwaysPullImages, "pods", &object).await["spec"].clone();
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(spec["initContainers"][0]["imagePullPolicy"], "Always");
}

#[tokio::test]
async fn external_ips_can_be_kept_but_not_added() {
    let alice = user("alice", "people");
    let service = |ips: Value| pod(json!({"externalIPs": ips}));
    let (old, more) = (
        service(json!(["192.0.2.1"])),
        service(json!(["192.0.2.1", "192.0.2.2"])),
    );
    let update = |object| AdmissionRequest {
        old: Some(old.clone()),
        ..request(Operation::Update, &alice, "services", object)
    };
    assert_eq!(rejection(&DenyServiceExternalIps, update(&old)).await, None);
    assert!(
        rejection(&DenyServiceExternalIps, update(&more))
            .await
            .is_some()
    );
    let create = request(Operation::Create, &alice, "services", &old);
    assert!(rejection(&DenyServiceExternalIps, create).await.is_some());
}

#[tokio::test]
async fn storage_objects_get_their_protection_finalizer_once() {
    for (resource, finalizer) in [
        ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
        ("persistentvolumes", "kubernetes.io/pv-protection"),
    ] {
        let once = create(&InUseProtection, resource, &pod(json!({}))).await;
        assert_eq!(once["metadata"]["finalizers"], json!([finalizer]));
        assert_eq!(create(&InUseProtection, resource, &once).await, once);
    }
}

#[tokio::test]
async fn claim_grows_only_if_it_is_bound_and_its_class_allows_it() {
    let alice = user("alice", "people");
    let class = |name: &str, allowed: bool| json!({"metadata": {"name": name}, "allowVolumeExpansion": allowed});
    let fixture = Fixture::default()
        .with("storage.k8s.io", "storageclasses", class("grows", true))
        .with("storage.k8s.io", "storageclasses", class("fixed", false));
    let plugin = ClaimResize(fixture.context());
    let claim = |class: &str, size: &str, phase: &str| {
        let mut claim =
            pod(json!({"storageClassName": class, "resources": {"requests": {"storage": size}}}));
        claim["status"] = json!({"phase": phase});
        claim
    };
    for (class, phase, size, allowed) in [
        ("grows", "Bound", "2Gi", true),
        ("grows", "Pending", "2Gi", false),
        ("fixed", "Bound", "2Gi", false),
        ("unknown", "Bound", "2Gi", false),
        ("fixed", "Bound", "1024Mi", true),
    ] {
        let (old, new) = (claim(class, "1Gi", phase), claim(class, size, phase));
        let update = AdmissionRequest {
            old: Some(old),
            ..request(Operation::Update, &alice, "persistentvolumeclaims", &new)
        };
        assert_eq!(
            rejection(&plugin, update).await.is_none(),
            allowed,
            "{class} {phase} {size}"
        );
    }
}
