use super::{Fixture, admit, pod, rejection, request, user};
use crate::default_classes::DefaultStorageClass;
use crate::priority::Priority;
use crate::runtime_class::RuntimeClass;
use apiserver_request::{Admission, Operation};
use serde_json::{Value, json};

const PRIORITY: &str = "scheduling.k8s.io";

async fn create(plugin: &dyn Admission, resource: &str, object: &Value) -> Result<Value, String> {
    let alice = user("alice", "people");
    admit(plugin, request(Operation::Create, &alice, resource, object)).await
}

fn priority_class(name: &str, value: i64, default: bool) -> Value {
    json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"})
}

#[tokio::test]
async fn pod_gets_the_priority_of_its_class() {
    let fixture = Fixture::default().with(
        PRIORITY,
        "priorityclasses",
        priority_class("high", 1000, false),
    );
    let plugin = Priority(fixture.context());
    let object = pod(json!({"priorityClassName": "high"}));
    let spec = create(&plugin, "pods", &object).await.unwrap()["spec"].clone();
    assert_eq!(spec["priority"], 1000);
    assert_eq!(spec["preemptionPolicy"], "Never");
}

#[tokio::test]
async fn pod_without_a_class_gets_the_default_or_zero() {
    let none = Priority(Fixture::default().context());
    let spec = create(&none, "pods", &pod(json!({}))).await.unwrap()["spec"].clone();
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec.get("priorityClassName"), None);
    let fixture = Fixture::default()
        .with(PRIORITY, "priorityclasses", priority_class("b", 20, true))
        .with(PRIORITY, "priorityclasses", priority_class("a", 10, true));
    let spec = create(&Priority(fixture.context()), "pods", &pod(json!({})))
        .await
        .unwrap()["spec"]
        .clone();
    assert_eq!(
        spec["priorityClassName"], "a",
        "the lowest of several defaults"
    );
}

#[tokio::test]
async fn client_can_not_choose_its_own_priority() {
    let fixture = Fixture::default().with(
        PRIORITY,
        "priorityclasses",
        priority_class("high", 1000, false),
    );
    let plugin = Priority(fixture.context());
    for spec in [
        json!({"priorityClassName": "high", "priority": 2000}),
        json!({"priority": 5}),
        json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}),
        json!({"priorityClassName": "unknown"}),
    ] {
        assert!(
            create(&plugin, "pods", &pod(spec.clone())).await.is_err(),
            "{spec}"
        );
    }
}

#[tokio::test]
async fn system_classes_exist_before_the_bootstrap() {
    let plugin = Priority(Fixture::default().context());
    let object = pod(json!({"priorityClassName": "system-node-critical"}));
    let spec = create(&plugin, "pods", &object).await.unwrap()["spec"].clone();
    assert_eq!(spec["priority"], 2_000_001_000_i64);
}

#[tokio::test]
async fn second_default_priority_class_is_rejected() {
    let fixture =
        Fixture::default().with(PRIORITY, "priorityclasses", priority_class("a", 10, true));
    let plugin = Priority(fixture.context());
    let alice = user("alice", "people");
    let resource = "scheduling.k8s.io/priorityclasses";
    let second = priority_class("b", 20, true);
    let error = rejection(
        &plugin,
        request(Operation::Create, &alice, resource, &second),
    )
    .await;
    assert!(error.unwrap().contains("Only one default can exist"));
    let same = priority_class("a", 30, true);
    let update = request(Operation::Update, &alice, resource, &same);
    assert_eq!(rejection(&plugin, update).await, None);
}

#[tokio::test]
async fn newest_default_storage_class_is_set() {
    let class = |name: &str, created: &str, default: &str| {
        let key = "storageclass.kubernetes.io/is-default-class";
        json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": {key: default}}})
    };
    let group = "storage.k8s.io";
    let fixture = Fixture::default()
        .with(
            group,
            "storageclasses",
            class("old", "2024-01-01T00:00:00Z", "true"),
        )
        .with(
            group,
            "storageclasses",
            class("new", "2025-01-01T00:00:00Z", "true"),
        )
        .with(
            group,
            "storageclasses",
            class("newest", "2026-01-01T00:00:00Z", "false"),
        );
    let plugin = DefaultStorageClass(fixture.context());
    let claim = pod(json!({}));
    let admitted = create(&plugin, "persistentvolumeclaims", &claim)
        .await
        .unwrap();
    assert_eq!(admitted["spec"]["storageClassName"], "new");
    let none = pod(json!({"storageClassName": ""}));
    let admitted = create(&plugin, "persistentvolumeclaims", &none)
        .await
        .unwrap();
    assert_eq!(
        admitted["spec"]["storageClassName"], "",
        "an empty class means none"
    );
}

#[tokio::test]
async fn runtime_class_sets_overhead_and_scheduling() {
    let class = json!({"metadata": {"name": "vm"}, "overhead": {"podFixed": {"memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    let fixture = Fixture::default().with("node.k8s.io", "runtimeclasses", class);
    let plugin = RuntimeClass(fixture.context());
    let object = pod(json!({"runtimeClassName": "vm", "nodeSelector": {"disk": "ssd"}}));
    let spec = create(&plugin, "pods", &object).await.unwrap()["spec"].clone();
    assert_eq!(spec["overhead"], json!({"memory": "64Mi"}));
    assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "vm": "yes"}));
    assert_eq!(spec["tolerations"][0]["key"], "vm");
    for spec in [
        json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
        json!({"runtimeClassName": "vm", "overhead": {"memory": "1Gi"}}),
        json!({"runtimeClassName": "unknown"}),
    ] {
        assert!(
            create(&plugin, "pods", &pod(spec.clone())).await.is_err(),
            "{spec}"
        );
    }
}

#[tokio::test]
async fn overhead_without_a_runtime_class_is_rejected() {
    let plugin = RuntimeClass(Fixture::default().context());
    let (alice, object) = (
        user("alice", "people"),
        pod(json!({"overhead": {"memory": "1Gi"}})),
    );
    let error = rejection(&plugin, request(Operation::Create, &alice, "pods", &object)).await;
    assert!(error.unwrap().contains("Overhead"));
}
