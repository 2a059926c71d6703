//! Deployments and ReplicaSets.

use integration_tests::{
    Components, Test, deployment, find_condition, has_condition, name_of, pod,
};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::All).await
}

fn path_of(test: &Test, name: &str) -> String {
    test.group("apps/v1", &format!("deployments/{name}"))
}

async fn create(test: &Test, object: &Value) {
    test.create(&test.group("apps/v1", "deployments"), object)
        .await;
}

/// Waits until the Deployment `d` has this many available pods of the current template and no
/// others.
async fn wait_until_rolled_out(test: &Test, replicas: u64) -> Value {
    test.wait_until(&path_of(test, "d"), "rolled out", |object| {
        let status = &object["status"];
        let count = |field: &str| status[field].as_u64().unwrap_or(0);
        status["observedGeneration"] == object["metadata"]["generation"]
            && count("replicas") == replicas
            && count("updatedReplicas") == replicas
            && count("availableReplicas") == replicas
    })
    .await
}

/// Returns the ReplicaSets of the Deployment `d`, in the order of their revisions.
async fn replica_sets(test: &Test) -> Vec<Value> {
    let mut sets = test
        .items(&test.group("apps/v1", "replicasets?labelSelector=app%3Dd"))
        .await;
    sets.sort_by_key(revision_of);
    sets
}

fn revision_of(object: &Value) -> u64 {
    let revision = &object["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
    revision
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

async fn patch_template(test: &Test, image: &str) {
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    let reply = test.admin.merge_patch(&path_of(test, "d"), &patch).await;
    reply.expect_status(200);
}

async fn patch_spec(test: &Test, spec: Value) {
    let reply = test
        .admin
        .merge_patch(&path_of(test, "d"), &json!({"spec": spec}))
        .await;
    reply.expect_status(200);
}

fn pods_of(test: &Test, label: &str) -> String {
    test.core(&format!("pods?labelSelector={label}"))
}

fn replica_set(replicas: u32) -> Value {
    let mut object = deployment("r", replicas);
    object["kind"] = json!("ReplicaSet");
    object
}

async fn wait_until_ready(test: &Test, replicas: u64) -> Value {
    let path = test.group("apps/v1", "replicasets/r");
    test.wait_until(&path, "ready", |object| {
        let status = &object["status"];
        status["readyReplicas"].as_u64().unwrap_or(0) == replicas
            && status["replicas"].as_u64() == Some(replicas)
    })
    .await
}

#[tokio::test]
async fn deployment_runs_its_pods() {
    let test = start().await;
    create(&test, &deployment("d", 3)).await;
    let object = wait_until_rolled_out(&test, 3).await;
    assert_eq!(revision_of(&object), 1);
    assert_eq!(
        find_condition(&object, "Available")["reason"],
        "MinimumReplicasAvailable"
    );
    test.wait_until(&path_of(&test, "d"), "complete", |object| {
        find_condition(object, "Progressing")["reason"] == "NewReplicaSetAvailable"
    })
    .await;
    let sets = replica_sets(&test).await;
    assert_eq!(sets.len(), 1);
    let hash = &sets[0]["metadata"]["labels"]["pod-template-hash"];
    assert_eq!(name_of(&sets[0]), format!("d-{}", hash.as_str().unwrap()));
    let owner = &sets[0]["metadata"]["ownerReferences"][0];
    assert_eq!(
        (
            &owner["kind"],
            &owner["name"],
            &owner["controller"],
            &owner["blockOwnerDeletion"]
        ),
        (
            &json!("Deployment"),
            &json!("d"),
            &json!(true),
            &json!(true)
        )
    );
    let pods = test.items(&pods_of(&test, "app%3Dd")).await;
    assert_eq!(pods.len(), 3);
    for pod in pods {
        assert_eq!(pod["metadata"]["labels"]["pod-template-hash"], *hash);
        assert_eq!(
            pod["metadata"]["ownerReferences"][0]["uid"],
            sets[0]["metadata"]["uid"]
        );
        assert!(name_of(&pod).starts_with(&format!("{}-", name_of(&sets[0]))));
    }
}

#[tokio::test]
async fn deployment_scales_up_and_down() {
    let test = start().await;
    create(&test, &deployment("d", 1)).await;
    wait_until_rolled_out(&test, 1).await;
    for replicas in [3, 0] {
        let scale = json!({"spec": {"replicas": replicas}});
        let path = format!("{}/scale", path_of(&test, "d"));
        test.admin
            .merge_patch(&path, &scale)
            .await
            .expect_status(200);
        wait_until_rolled_out(&test, replicas).await;
        let pods = pods_of(&test, "app%3Dd");
        test.wait_until_items(&pods, "scaled", |pods| pods.len() == replicas as usize)
            .await;
    }
    assert_eq!(replica_sets(&test).await.len(), 1);
}

#[tokio::test]
async fn changed_template_is_rolled_out_in_a_new_replica_set() {
    let test = start().await;
    create(&test, &deployment("d", 2)).await;
    wait_until_rolled_out(&test, 2).await;
    patch_template(&test, "example.com/c:2").await;
    let object = wait_until_rolled_out(&test, 2).await;
    assert_eq!(revision_of(&object), 2);
    let sets = replica_sets(&test).await;
    let replicas: Vec<&Value> = sets.iter().map(|set| &set["spec"]["replicas"]).collect();
    assert_eq!(replicas, [&json!(0), &json!(2)]);
    let pods = pods_of(&test, "app%3Dd");
    test.wait_until_items(&pods, "replaced", |pods| {
        pods.len() == 2
            && pods
                .iter()
                .all(|pod| pod["spec"]["containers"][0]["image"] == "example.com/c:2")
    })
    .await;
}

#[tokio::test]
async fn earlier_template_uses_its_replica_set_again() {
    let test = start().await;
    create(&test, &deployment("d", 1)).await;
    wait_until_rolled_out(&test, 1).await;
    let first = name_of(&replica_sets(&test).await[0]).to_owned();
    for image in ["example.com/c:2", "example.com/c:1"] {
        patch_template(&test, image).await;
        wait_until_rolled_out(&test, 1).await;
    }
    let sets = replica_sets(&test).await;
    assert_eq!(sets.len(), 2);
    assert_eq!(
        (name_of(&sets[1]), revision_of(&sets[1])),
        (first.as_str(), 3)
    );
    assert_eq!(
        sets[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[tokio::test]
async fn paused_deployment_scales_but_does_not_roll_out() {
    let test = start().await;
    create(&test, &deployment("d", 1)).await;
    wait_until_rolled_out(&test, 1).await;
    patch_spec(&test, json!({"paused": true})).await;
    test.wait_until(&path_of(&test, "d"), "paused", |object| {
        find_condition(object, "Progressing")["reason"] == "DeploymentPaused"
    })
    .await;
    patch_template(&test, "example.com/c:2").await;
    patch_spec(&test, json!({"replicas": 2})).await;
    test.wait_until(&path_of(&test, "d"), "scaled", |object| {
        object["status"]["availableReplicas"] == 2
    })
    .await;
    assert_eq!(replica_sets(&test).await.len(), 1);
    patch_spec(&test, json!({"paused": false})).await;
    wait_until_rolled_out(&test, 2).await;
    assert_eq!(replica_sets(&test).await.len(), 2);
}

#[tokio::test]
async fn stuck_rollout_stays_within_its_bounds() {
    let test = start().await;
    let mut object = deployment("d", 4);
    object["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
    create(&test, &object).await;
    wait_until_rolled_out(&test, 4).await;
    let nowhere = json!({"template": {"spec": {"nodeSelector": {"absent": test.namespace}}}});
    patch_spec(&test, nowhere).await;
    let sets = test.group("apps/v1", "replicasets?labelSelector=app%3Dd");
    let has = |old: u64, new: u64| {
        move |sets: &[Value]| {
            let mut replicas: Vec<(u64, u64)> = sets
                .iter()
                .map(|set| {
                    (
                        revision_of(set),
                        set["spec"]["replicas"].as_u64().unwrap_or(0),
                    )
                })
                .collect();
            replicas.sort_unstable();
            replicas == [(1, old), (2, new)]
        }
    };
    test.wait_until_items(&sets, "4 old and 2 new pods", has(4, 2))
        .await;
    // New replicas are shared out in proportion.
    patch_spec(&test, json!({"replicas": 8})).await;
    test.wait_until_items(&sets, "7 old and 3 new pods", has(7, 3))
        .await;
}

#[tokio::test]
async fn rollout_beyond_its_deadline_is_reported() {
    let test = start().await;
    let mut object = deployment("d", 1);
    object["spec"]["progressDeadlineSeconds"] = json!(2);
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"absent": test.namespace});
    create(&test, &object).await;
    let object = test
        .wait_until(&path_of(&test, "d"), "beyond its deadline", |object| {
            find_condition(object, "Progressing")["reason"] == "ProgressDeadlineExceeded"
        })
        .await;
    let condition = find_condition(&object, "Progressing");
    assert_eq!(condition["status"], "False");
    let set = &replica_sets(&test).await[0];
    assert_eq!(
        condition["message"],
        format!("ReplicaSet \"{}\" has timed out progressing.", name_of(set))
    );
    assert_eq!(
        find_condition(&object, "Available")["reason"],
        "MinimumReplicasUnavailable"
    );
}

#[tokio::test]
async fn recreate_starts_no_pod_before_the_old_ones_are_gone() {
    let test = start().await;
    let mut object = deployment("d", 2);
    object["spec"]["strategy"] = json!({"type": "Recreate"});
    create(&test, &object).await;
    wait_until_rolled_out(&test, 2).await;
    let pods = test.core("pods");
    let version = test.version(&pods).await;
    let query = format!("watch=true&resourceVersion={version}&labelSelector=app%3Dd");
    let mut watch = test.admin.watch(&format!("{pods}?{query}")).await;
    patch_template(&test, "example.com/c:2").await;
    // A pod that terminates counts as ended once its phase says so; it may be deleted later.
    let mut ended = std::collections::HashSet::new();
    let mut added = 0;
    while added < 2 {
        let (kind, pod) = watch.event().await;
        let is_over = matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        match kind.as_str() {
            "ADDED" => {
                assert_eq!(ended.len(), 2, "a new pod beside an old one");
                added += 1;
            }
            _ if is_over || kind == "DELETED" => {
                ended.insert(pod["metadata"]["name"].to_string());
            }
            _ => {}
        }
    }
    wait_until_rolled_out(&test, 2).await;
}

#[tokio::test]
async fn replica_sets_beyond_the_history_limit_are_deleted() {
    let test = start().await;
    let mut object = deployment("d", 0);
    object["spec"]["revisionHistoryLimit"] = json!(1);
    create(&test, &object).await;
    for version in 2..=4 {
        patch_template(&test, &format!("example.com/c:{version}")).await;
        test.wait_until(&path_of(&test, "d"), "rolled out", |object| {
            revision_of(object) == version
        })
        .await;
    }
    let sets = test.group("apps/v1", "replicasets?labelSelector=app%3Dd");
    let sets = test
        .wait_until_items(&sets, "the last two revisions", |sets| sets.len() == 2)
        .await;
    let mut revisions: Vec<u64> = sets.iter().map(revision_of).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [3, 4]);
}

#[tokio::test]
async fn deleted_pod_is_replaced() {
    let test = start().await;
    test.create(&test.group("apps/v1", "replicasets"), &replica_set(1))
        .await;
    wait_until_ready(&test, 1).await;
    let pods = pods_of(&test, "app%3Dr");
    let first = test.items(&pods).await.remove(0);
    let path = test.core(&format!("pods/{}", name_of(&first)));
    test.admin.delete(&path).await.expect_status(200);
    test.wait_until_items(&pods, "replaced", |pods| {
        pods.len() == 1 && name_of(&pods[0]) != name_of(&first) && has_condition(&pods[0], "Ready")
    })
    .await;
}

#[tokio::test]
async fn replica_set_adopts_a_matching_pod_and_releases_a_relabelled_one() {
    let test = start().await;
    let mut bare = pod("bare");
    bare["metadata"]["labels"] = json!({"app": "r"});
    test.create(&test.core("pods"), &bare).await;
    let set = test
        .create(&test.group("apps/v1", "replicasets"), &replica_set(2))
        .await;
    let path = test.core("pods/bare");
    test.wait_until(&path, "adopted", |pod| {
        pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
    })
    .await;
    let set = wait_until_ready(&test, 2).await;
    assert_eq!(set["status"]["fullyLabeledReplicas"], 2);
    let label = json!({"metadata": {"labels": {"app": "free"}}});
    test.admin
        .merge_patch(&path, &label)
        .await
        .expect_status(200);
    test.wait_until(&path, "released", |pod| {
        pod["metadata"].get("ownerReferences").is_none()
    })
    .await;
    let pods = pods_of(&test, "app%3Dr");
    test.wait_until_items(&pods, "replaced", |pods| pods.len() == 2)
        .await;
}

#[tokio::test]
async fn pod_with_the_lowest_deletion_cost_is_deleted_first() {
    let test = start().await;
    test.create(&test.group("apps/v1", "replicasets"), &replica_set(3))
        .await;
    wait_until_ready(&test, 3).await;
    let pods = pods_of(&test, "app%3Dr");
    let names = test.names(&pods).await;
    for (name, cost) in names.iter().zip(["5", "-100", "50"]) {
        let annotation = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
        let path = test.core(&format!("pods/{name}"));
        test.admin
            .merge_patch(&path, &annotation)
            .await
            .expect_status(200);
    }
    let path = test.group("apps/v1", "replicasets/r");
    let scale = json!({"spec": {"replicas": 1}});
    test.admin
        .merge_patch(&path, &scale)
        .await
        .expect_status(200);
    let left = test
        .wait_until_items(&pods, "scaled", |pods| pods.len() == 1)
        .await;
    assert_eq!(name_of(&left[0]), names[2]);
}
