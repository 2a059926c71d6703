use super::{Fixture, admit, pod, rejection, request, user};
use crate::namespace_lifecycle::NamespaceLifecycle;
use apiserver_request::Operation;
use serde_json::{Value, json};

fn plugin(status: Value) -> NamespaceLifecycle {
    let namespace = json!({"metadata": {"name": "d"}, "status": status});
    NamespaceLifecycle(
        Fixture::default()
            .with("", "namespaces", namespace)
            .context(),
    )
}

#[tokio::test]
async fn object_is_created_in_an_existing_namespace_only() {
    let (alice, mut object) = (user("alice", "people"), pod(json!({})));
    let plugin = plugin(json!({"phase": "Active"}));
    let create = request(Operation::Create, &alice, "pods", &object);
    assert!(admit(&plugin, create).await.is_ok());
    object["metadata"]["namespace"] = json!("missing");
    let create = request(Operation::Create, &alice, "pods", &object);
    let error = admit(&plugin, create).await.unwrap_err();
    assert_eq!(error, "namespaces \"missing\" not found");
}

#[tokio::test]
async fn terminating_namespace_takes_updates_and_deletes_but_no_new_objects() {
    let (alice, object) = (user("alice", "people"), pod(json!({})));
    let plugin = plugin(json!({"phase": "Terminating"}));
    let create = request(Operation::Create, &alice, "pods", &object);
    let error = admit(&plugin, create).await.unwrap_err();
    assert!(error.contains("because it is being terminated"), "{error}");
    for operation in [Operation::Update, Operation::Delete] {
        let write = request(operation, &alice, "pods", &object);
        assert!(admit(&plugin, write).await.is_ok(), "{operation:?}");
    }
}

#[tokio::test]
async fn system_namespaces_can_not_be_deleted() {
    let admin = user("admin", "system:masters");
    let plugin = plugin(json!({}));
    for (name, kept) in [
        ("default", true),
        ("kube-system", true),
        ("kube-public", true),
        ("kube-node-lease", false),
        ("d", false),
    ] {
        let object = json!({"metadata": {"name": name}});
        let delete = request(Operation::Delete, &admin, "namespaces", &object);
        assert_eq!(rejection(&plugin, delete).await.is_some(), kept, "{name}");
    }
}
