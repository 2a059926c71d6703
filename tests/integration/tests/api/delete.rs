//! Deletion: of one object, of a collection and by eviction.

use integration_tests::{Components, ReplyExt, Test, config_map, pod, pod_with};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

#[tokio::test]
async fn delete_responds_with_a_status() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let status = test
        .admin
        .delete(&format!("{path}/c"))
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(
        status["details"],
        json!({"name": "c", "kind": "configmaps", "uid": object["metadata"]["uid"]})
    );
    test.admin
        .get(&format!("{path}/c"))
        .await
        .expect_status(404);
    let reply = test.admin.delete(&format!("{path}/c")).await;
    reply.expect_failure(404, "NotFound", "configmaps \"c\" not found");
}

#[tokio::test]
async fn delete_collection_removes_the_selected_objects() {
    let test = start().await;
    let path = test.core("configmaps");
    for (name, batch) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"batch": batch});
        test.create(&path, &object).await;
    }
    let reply = test
        .admin
        .delete(&format!("{path}?labelSelector=batch=x"))
        .await;
    let list = reply.expect_status(200).json();
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(test.names(&path).await, ["c"]);
}

#[tokio::test]
async fn delete_keeps_an_object_with_a_finalizer() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = config_map("c");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.create(&path, &object).await;
    let one = format!("{path}/c");
    let marked = test.admin.delete(&one).await.expect_status(200).json();
    assert_eq!(marked["kind"], "ConfigMap");
    let metadata = &marked["metadata"];
    assert!(metadata["deletionTimestamp"].is_string(), "{metadata}");
    assert_eq!(metadata["deletionGracePeriodSeconds"], 0);
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}});
    let status = test
        .admin
        .merge_patch(&one, &more)
        .await
        .expect_reason(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("no new finalizers can be added if the object is being deleted"),
        "{status}"
    );
    let none = json!({"metadata": {"finalizers": null}});
    test.admin.merge_patch(&one, &none).await.expect_status(200);
    test.admin.get(&one).await.expect_status(404);
}

#[tokio::test]
async fn delete_preconditions_are_compared() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let one = format!("{path}/c");
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let other = "00000000-0000-4000-8000-000000000000";
    let delete = async |preconditions: Value| {
        test.admin
            .delete_with(&one, &json!({"preconditions": preconditions}))
            .await
    };
    delete(json!({"uid": other})).await.expect_failure(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"c\": the UID in the precondition ({other}) does not match \
             the UID in record ({uid}). The object might have been deleted and then recreated"
        ),
    );
    delete(json!({"resourceVersion": "1"})).await.expect_failure(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"c\": the ResourceVersion in the precondition (1) does not \
             match the ResourceVersion in record ({version}). The object might have been modified"
        ),
    );
    delete(json!({"uid": uid, "resourceVersion": version}))
        .await
        .expect_status(200);
}

#[tokio::test]
async fn propagation_policy_sets_its_finalizer() {
    let test = start().await;
    let path = test.core("configmaps");
    for (policy, finalizers) in [
        (
            "Foreground",
            json!(["example.com/hold", "foregroundDeletion"]),
        ),
        ("Orphan", json!(["example.com/hold", "orphan"])),
        ("Background", json!(["example.com/hold"])),
    ] {
        let name = policy.to_lowercase();
        let mut object = config_map(&name);
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        test.create(&path, &object).await;
        let options = json!({"propagationPolicy": policy});
        let reply = test
            .admin
            .delete_with(&format!("{path}/{name}"), &options)
            .await;
        let mut marked = reply.expect_status(200).json();
        let list = marked["metadata"]["finalizers"].as_array_mut().unwrap();
        list.sort_by_key(Value::to_string);
        assert_eq!(json!(list), finalizers, "{policy}");
    }
}

#[tokio::test]
async fn contradictory_delete_options_are_invalid() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let one = format!("{path}/c");
    for (options, field) in [
        (
            json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
            "propagationPolicy",
        ),
        (
            json!({"propagationPolicy": "Sideways"}),
            "propagationPolicy",
        ),
        (json!({"dryRun": ["None"]}), "dryRun"),
    ] {
        let status = test
            .admin
            .delete_with(&one, &options)
            .await
            .expect_reason(422, "Invalid");
        assert!(
            status["message"].as_str().unwrap().contains(field),
            "{options}: {status}"
        );
    }
    test.admin.get(&one).await.expect_status(200);
}

#[tokio::test]
async fn eviction_deletes_a_pod_and_obeys_its_disruption_budget() {
    let test = start().await;
    let path = test.core("pods");
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    test.create(&path, &pod("free")).await;
    test.create(&format!("{path}/free/eviction"), &eviction("free"))
        .await;
    test.admin
        .get(&format!("{path}/free"))
        .await
        .expect_status(404);

    let mut held = pod_with("held", &json!({"nodeName": "absent-node"}));
    held["metadata"]["labels"] = json!({"held": "yes"});
    test.create(&path, &held).await;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/held/status"), &running)
        .await;
    reply.expect_status(200);
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"held": "yes"}}}});
    test.create(&test.group("policy/v1", "poddisruptionbudgets"), &budget)
        .await;
    let reply = test
        .admin
        .post(&format!("{path}/held/eviction"), &eviction("held"))
        .await;
    let status = reply.expect_failure(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    assert_eq!(status["details"]["causes"][0]["reason"], "DisruptionBudget");
}
