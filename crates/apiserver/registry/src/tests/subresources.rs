use super::{Cluster, find_resource, pod, start_cluster, start_without, user_write};
use crate::Eviction;
use api_meta::{ApiError, Meta, Reason, meta::str_at};
use api_strategy::DisabledFields;
use serde_json::{Value, json};
use testkit_etcd::FakeEtcd;

fn binding(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": node}})
}

async fn bind(cluster: &Cluster, binding: Value) -> Result<(), ApiError> {
    let mut write = user_write(find_resource("v1", "pods"), "p");
    write.subresource = "binding".into();
    cluster.registry.bind_pod(&mut write, binding).await
}

async fn evict(cluster: &Cluster) -> Result<(), ApiError> {
    let mut write = user_write(find_resource("v1", "pods"), "p");
    write.subresource = "eviction".into();
    let body = json!({"metadata": {"name": "p", "namespace": "d"}});
    let evicted = cluster
        .registry
        .evict_pod(&mut write, Eviction { body })
        .await;
    cluster.catch_up().await;
    evicted
}

/// Stores a running, ready pod of the application `web`.
async fn store_running_pod(cluster: &Cluster) {
    let mut object = pod("p");
    object["metadata"]["labels"] = json!({"app": "web"});
    object["metadata"]["uid"] = json!("pod-uid");
    object["spec"]["nodeName"] = json!("n");
    object["status"] =
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let stored = apiserver_convert::encode_stored(find_resource("v1", "pods"), &object);
    cluster.etcd.put("/registry/pods/d/p", &stored);
    cluster.catch_up().await;
}

async fn store_budget(cluster: &Cluster, name: &str, allowed: i64) {
    let object = json!({"metadata": {"name": name, "namespace": "d", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1}});
    let resource = find_resource("policy/v1", "poddisruptionbudgets");
    let stored = apiserver_convert::encode_stored(resource, &object);
    cluster
        .etcd
        .put(&format!("/registry/poddisruptionbudgets/d/{name}"), &stored);
    cluster.catch_up().await;
}

#[tokio::test]
async fn binding_assigns_the_node_and_sets_the_condition() {
    let cluster = start_cluster().await;
    let pods = find_resource("v1", "pods");
    cluster.create(pods, pod("p")).await.unwrap();
    bind(&cluster, binding("n1")).await.unwrap();
    let stored = cluster.stored(pods, "pods/d/p").unwrap();
    assert_eq!(str_at(&stored, &["spec", "nodeName"]), "n1");
    let condition = &stored["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("PodScheduled"), &json!("True"))
    );
}

#[tokio::test]
async fn second_binding_is_a_conflict() {
    let cluster = start_cluster().await;
    cluster
        .create(find_resource("v1", "pods"), pod("p"))
        .await
        .unwrap();
    bind(&cluster, binding("n1")).await.unwrap();
    let error = bind(&cluster, binding("n2")).await.unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
    assert!(
        error.message.contains("already assigned to node \"n1\""),
        "{error}"
    );
}

#[tokio::test]
async fn binding_of_an_earlier_pod_of_the_name_is_a_conflict() {
    let cluster = start_cluster().await;
    cluster
        .create(find_resource("v1", "pods"), pod("p"))
        .await
        .unwrap();
    let mut earlier = binding("n1");
    earlier["metadata"]["uid"] = json!("uid-of-the-earlier-pod");
    let error = bind(&cluster, earlier).await.unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
}

#[tokio::test]
async fn pod_with_a_scheduling_gate_is_not_bound() {
    let cluster = start_cluster().await;
    let mut object = pod("p");
    object["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    cluster
        .create(find_resource("v1", "pods"), object)
        .await
        .unwrap();
    let error = bind(&cluster, binding("n1")).await.unwrap_err();
    assert!(error.message.contains("schedulingGates"), "{error}");
}

#[tokio::test]
async fn binding_needs_a_node() {
    let cluster = start_cluster().await;
    cluster
        .create(find_resource("v1", "pods"), pod("p"))
        .await
        .unwrap();
    assert!(bind(&cluster, binding("")).await.is_err());
    let mut other = binding("n1");
    other["target"]["kind"] = json!("Machine");
    assert!(bind(&cluster, other).await.is_err());
}

#[tokio::test]
async fn eviction_spends_the_budget_and_marks_the_pod() {
    let cluster = start_cluster().await;
    store_running_pod(&cluster).await;
    store_budget(&cluster, "b", 1).await;
    evict(&cluster).await.unwrap();
    let budgets = find_resource("policy/v1", "poddisruptionbudgets");
    let budget = cluster.stored(budgets, "poddisruptionbudgets/d/b").unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], json!(0));
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    let stored = cluster
        .stored(find_resource("v1", "pods"), "pods/d/p")
        .unwrap();
    assert!(stored.is_being_deleted());
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    let target = conditions
        .iter()
        .find(|c| c["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(target["reason"], "EvictionByEvictionAPI");
}

#[tokio::test]
async fn spent_budget_rejects_the_eviction() {
    let cluster = start_cluster().await;
    store_running_pod(&cluster).await;
    store_budget(&cluster, "b", 0).await;
    let error = evict(&cluster).await.unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::TooManyRequests, 429));
    assert_eq!(super::causes(&error), [("DisruptionBudget", "")]);
    let stored = cluster
        .stored(find_resource("v1", "pods"), "pods/d/p")
        .unwrap();
    assert!(!stored.is_being_deleted());
}

#[tokio::test]
async fn pod_with_two_budgets_can_not_be_evicted() {
    let cluster = start_cluster().await;
    store_running_pod(&cluster).await;
    store_budget(&cluster, "b", 1).await;
    store_budget(&cluster, "c", 1).await;
    let error = evict(&cluster).await.unwrap_err();
    assert_eq!(error.code(), 500);
    assert!(
        error.message.contains("more than one PodDisruptionBudget"),
        "{error}"
    );
}

#[tokio::test]
async fn pending_pod_is_evicted_without_a_budget() {
    let cluster = start_cluster().await;
    let mut object = pod("p");
    object["metadata"]["labels"] = json!({"app": "web"});
    cluster
        .create(find_resource("v1", "pods"), object)
        .await
        .unwrap();
    store_budget(&cluster, "b", 0).await;
    evict(&cluster).await.unwrap();
    assert_eq!(cluster.etcd.get("/registry/pods/d/p"), None);
}

#[tokio::test]
async fn scale_changes_the_replicas_only() {
    let cluster = start_cluster().await;
    let deployments = find_resource("apps/v1", "deployments");
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let created = cluster.create(deployments, object).await.unwrap();
    let mut write = user_write(deployments, "p");
    write.subresource = "scale".into();
    let set = |replicas: i64| {
        move |scale: &Value| {
            let mut scale = scale.clone();
            scale["spec"] = json!({"replicas": replicas});
            Ok(scale)
        }
    };
    let scale = cluster
        .registry
        .update_scale(&mut write, &set(5), false)
        .await
        .unwrap();
    assert_eq!(scale["spec"]["replicas"], json!(5));
    assert_eq!(scale["status"]["selector"], json!("app=web"));
    let stored = cluster.stored(deployments, "deployments/d/p").unwrap();
    assert_eq!(stored["spec"]["template"], created["spec"]["template"]);
    let error = cluster
        .registry
        .update_scale(&mut write, &set(-1), false)
        .await
        .unwrap_err();
    assert_eq!(
        super::causes(&error),
        [("FieldValueInvalid", "spec.replicas")]
    );
}

#[tokio::test]
async fn token_request_without_an_issuer_is_not_found() {
    let cluster = start_cluster().await;
    let mut write = user_write(find_resource("v1", "serviceaccounts"), "default");
    let requested = cluster.registry.request_token(&mut write, json!({})).await;
    assert_eq!(requested.unwrap_err().code(), 404);
}

/// Changes requests of the whole pod, of 2 processors, from 1.
async fn resize_pod(cluster: &Cluster) -> Result<Value, ApiError> {
    let pods = find_resource("v1", "pods");
    let mut object = pod("p");
    object["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    cluster.create(pods, object).await?;
    let mut write = user_write(pods, "p");
    write.subresource = "resize".into();
    let change = |old: &Value| {
        let mut new = old.clone();
        new["spec"]["resources"]["requests"]["cpu"] = json!("2");
        Ok(new)
    };
    cluster.change(&mut write, false, change).await
}

#[tokio::test]
async fn resize_of_a_pod_with_resources_of_its_own_needs_the_gate() {
    let resized = resize_pod(&start_cluster().await).await.unwrap();
    assert_eq!(resized["spec"]["resources"]["requests"]["cpu"], "2");
    assert_eq!(resized["metadata"]["generation"], 2);
    let off = DisabledFields::new(|gate| gate != "InPlacePodLevelResourcesVerticalScaling");
    let cluster = start_without(off, FakeEtcd::start().await, Vec::new()).await;
    let error = resize_pod(&cluster).await.unwrap_err();
    assert_eq!(error.reason, Reason::Invalid);
    assert!(
        error.message.contains("feature gate is disabled"),
        "{}",
        error.message
    );
}
