//! Admission as the registry runs it: passes, retries, the body of a Scale.

use super::{Cluster, config_map, find_resource, start_with, user_write};
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use testkit_etcd::FakeEtcd;

type Action = fn(&mut AdmissionRequest<'_>) -> Result<(), ApiError>;

/// Records the objects of its calls and does as a test says.
struct Recorder {
    calls: Mutex<Vec<Value>>,
    act: Action,
}

#[async_trait::async_trait]
impl Admission for Recorder {
    fn name(&self) -> &'static str {
        "Recorder"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.calls.lock().unwrap().push(request.object.clone());
        (self.act)(request)
    }
}

async fn start(act: Action) -> (Cluster, Arc<Recorder>) {
    let recorder = Arc::new(Recorder {
        calls: Mutex::default(),
        act,
    });
    let cluster = start_with(FakeEtcd::start().await, vec![recorder.clone()]).await;
    (cluster, recorder)
}

fn count(recorder: &Recorder) -> usize {
    recorder.calls.lock().unwrap().len()
}

fn is_update(request: &AdmissionRequest<'_>) -> bool {
    request.old.is_some()
}

#[tokio::test]
async fn mutating_plugins_run_again_once_if_a_webhook_changed_the_object() {
    let (cluster, recorder) = start(|request| {
        request.object["data"]["again"] = json!("yes");
        request.reinvocation.request();
        Ok(())
    })
    .await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    let calls = recorder.calls.lock().unwrap();
    let seen: Vec<&Value> = calls.iter().map(|call| &call["data"]["again"]).collect();
    assert_eq!(seen, [&Value::Null, &json!("yes")]);
}

#[tokio::test]
async fn rejected_update_of_a_current_object_is_not_repeated() {
    let (cluster, recorder) = start(|request| match is_update(request) {
        true => Err(ApiError::bad_request("rejected")),
        false => Ok(()),
    })
    .await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    let before = count(&recorder);
    let mut write = user_write(maps, "a");
    let change = |old: &Value| Ok(old.clone());
    let error = cluster.change(&mut write, false, change).await.unwrap_err();
    assert_eq!(error.message, "rejected");
    assert_eq!(count(&recorder) - before, 1);
}

#[tokio::test]
async fn fields_of_the_server_are_restored_after_a_webhook() {
    let (cluster, _) = start(|request| {
        if is_update(request) {
            request.object["spec"]["replicas"] = json!(5);
            request.object["status"] = json!({"replicas": 77});
            request.object["metadata"]["generation"] = json!(99);
            request.object["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
            request.reinvocation.request();
        }
        Ok(())
    })
    .await;
    let updated = update_deployment(&cluster, "").await;
    assert_eq!(updated["spec"]["replicas"], 5);
    assert_eq!(updated["status"]["replicas"], Value::Null);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert!(!updated.is_being_deleted());
}

#[tokio::test]
async fn scale_is_admitted_as_a_scale() {
    let (cluster, recorder) = start(|request| {
        if request.subresource == "scale" {
            request.object["spec"]["replicas"] = json!(3);
            request.reinvocation.request();
        }
        Ok(())
    })
    .await;
    let scale = update_deployment(&cluster, "scale").await;
    assert_eq!(scale["spec"]["replicas"], 3);
    let seen = recorder.calls.lock().unwrap().last().cloned().unwrap();
    assert_eq!(seen["kind"], "Scale");
    let deployments = find_resource("apps/v1", "deployments");
    let stored = cluster.stored(deployments, "deployments/d/a").unwrap();
    assert_eq!(stored["spec"]["replicas"], 3);
    assert_eq!(
        stored["spec"]["template"]["spec"]["containers"][0]["name"],
        "c"
    );
}

/// Creates a Deployment and sets an annotation, or two replicas through its Scale.
async fn update_deployment(cluster: &Cluster, subresource: &str) -> Value {
    let deployments = find_resource("apps/v1", "deployments");
    let labels = json!({"app": "a"});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    cluster.create(deployments, object).await.unwrap();
    let mut write = user_write(deployments, "a");
    write.subresource = subresource.to_owned();
    let set = |pointer: &'static str, value: Value| {
        move |old: &Value| {
            let mut new = old.clone();
            new[pointer]["replicas"] = value.clone();
            Ok(new)
        }
    };
    if subresource == "scale" {
        let change = set("spec", json!(2));
        let scaled = cluster.registry.update_scale(&mut write, &change, false);
        return scaled.await.unwrap();
    }
    cluster
        .change(&mut write, false, |old| Ok(old.clone()))
        .await
        .unwrap()
}

#[tokio::test]
async fn rejection_carries_the_warnings_before_it() {
    let (cluster, _) = start(|request| {
        request.warnings.push("careful".into());
        Err(ApiError::bad_request("rejected"))
    })
    .await;
    let maps = find_resource("v1", "configmaps");
    let error = cluster.create(maps, config_map("a")).await.unwrap_err();
    assert_eq!(error.warnings, ["careful"]);
}
