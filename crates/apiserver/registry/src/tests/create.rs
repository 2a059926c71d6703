use super::{causes, config_map, find_resource, start_cluster, start_with, user_write};
use api_meta::{ApiError, Meta, Reason};
use apiserver_request::{Admission, AdmissionRequest};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use testkit_etcd::FakeEtcd;
use tonic::Status;

#[tokio::test]
async fn created_object_has_system_metadata() {
    let cluster = start_cluster().await;
    let mut object = config_map("a");
    object["metadata"]["uid"] = json!("chosen-by-the-client");
    object["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    object["data"] = json!({"k": "v"});
    let maps = find_resource("v1", "configmaps");
    let created = cluster.create(maps, object).await.unwrap();
    assert_eq!(created.uid().len(), 36, "the server chooses the UID");
    assert_ne!(created.meta_str("creationTimestamp"), "");
    assert!(!created.is_being_deleted());
    assert_eq!(
        created.resource_version(),
        cluster.etcd.revision().to_string()
    );
    assert_eq!(
        created["metadata"]["managedFields"][0]["manager"],
        "kubectl"
    );
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored.uid(), created.uid());
    assert_eq!(
        stored.resource_version(),
        "",
        "the store keeps the revision itself"
    );
}

#[tokio::test]
async fn object_with_a_resource_version_is_not_created() {
    let cluster = start_cluster().await;
    let mut object = config_map("a");
    object["metadata"]["resourceVersion"] = json!("7");
    let created = cluster
        .create(find_resource("v1", "configmaps"), object)
        .await;
    assert_eq!(created.unwrap_err().code(), 500);
    assert_eq!(cluster.etcd.get("/registry/configmaps/d/a"), None);
}

#[tokio::test]
async fn namespace_of_the_object_must_be_that_of_the_path() {
    let cluster = start_cluster().await;
    let mut object = config_map("a");
    object["metadata"]["namespace"] = json!("other");
    let error = cluster
        .create(find_resource("v1", "configmaps"), object)
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::BadRequest);
}

#[tokio::test]
async fn existing_name_is_a_conflict() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    let error = cluster.create(maps, config_map("a")).await.unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::AlreadyExists, 409));
    assert_eq!(error.message, "configmaps \"a\" already exists");
}

#[tokio::test]
async fn conflict_with_an_object_that_is_being_deleted_says_so() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    cluster.create(maps, object).await.unwrap();
    cluster.delete(maps, "a", json!({})).await.unwrap();
    let error = cluster.create(maps, config_map("a")).await.unwrap_err();
    assert_eq!(error.reason, Reason::AlreadyExists);
    assert!(
        error.message.starts_with("object is being deleted"),
        "{error}"
    );
}

#[tokio::test]
async fn generated_name_that_exists_is_generated_again() {
    let cluster = start_cluster().await;
    let mut object = config_map("");
    object["metadata"] = json!({"generateName": "web-", "namespace": "d"});
    cluster.etcd.before_txns(2, |writes| {
        let key = writes.key().to_owned();
        writes.put(&key, b"");
    });
    let created = cluster
        .create(find_resource("v1", "configmaps"), object)
        .await
        .unwrap();
    assert!(created.name().starts_with("web-") && created.name().len() == 9);
    assert_eq!(cluster.etcd.count_requests("txn"), 3);
}

#[tokio::test]
async fn generated_names_that_all_exist_are_a_conflict_to_retry() {
    let cluster = start_cluster().await;
    let mut object = config_map("");
    object["metadata"] = json!({"generateName": "web-", "namespace": "d"});
    cluster.etcd.before_txns(8, |writes| {
        let key = writes.key().to_owned();
        writes.put(&key, b"");
    });
    let error = cluster
        .create(find_resource("v1", "configmaps"), object)
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::AlreadyExists);
    assert_eq!(error.details.unwrap().retry_after_seconds, 1);
}

/// Sets the name of creates without one, counts both phases, and warns in the validating phase.
struct Namer {
    name: &'static str,
    phases: Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl Admission for Namer {
    fn name(&self) -> &'static str {
        "Namer"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let names = [request.name, request.object.name()].join("/");
        self.phases.lock().push(format!("admit {names}"));
        if !self.name.is_empty() {
            request.object.set_meta_str("name", self.name);
        }
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let is_named = !request.name.is_empty() && request.name == request.object.name();
        self.phases.lock().push(format!("validate {is_named}"));
        request.warnings.push("w".to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn name_is_generated_after_mutating_admission() {
    for (name, collisions, expect, phases) in [
        ("", 0, "web-", vec!["admit /", "validate true"]),
        (
            "",
            2,
            "web-",
            vec!["admit /", "validate true", "validate true", "validate true"],
        ),
        ("chosen", 0, "chosen", vec!["admit /", "validate true"]),
    ] {
        let namer = Arc::new(Namer {
            name,
            phases: Mutex::default(),
        });
        let cluster = start_with(FakeEtcd::start().await, vec![namer.clone()]).await;
        cluster.etcd.before_txns(collisions, |writes| {
            let key = writes.key().to_owned();
            writes.put(&key, b"");
        });
        let mut write = user_write(find_resource("v1", "configmaps"), "");
        let mut object = config_map("");
        object["metadata"] = json!({"generateName": "web-", "namespace": "d"});
        let created = cluster.registry.create(&mut write, object).await.unwrap();
        assert!(created.name().starts_with(expect), "{}", created.name());
        assert_eq!(*namer.phases.lock(), phases, "{name:?} {collisions}");
        assert_eq!(write.warnings, ["w"], "{name:?} {collisions}");
    }
}

#[tokio::test]
async fn name_set_by_mutating_admission_that_exists_is_a_conflict() {
    let namer = Arc::new(Namer {
        name: "chosen",
        phases: Mutex::default(),
    });
    let cluster = start_with(FakeEtcd::start().await, vec![namer]).await;
    let maps = find_resource("v1", "configmaps");
    let mut object = config_map("");
    object["metadata"] = json!({"generateName": "web-", "namespace": "d"});
    cluster.create(maps, object.clone()).await.unwrap();
    let mut write = user_write(maps, "");
    for dry_run in [false, true] {
        write.dry_run = dry_run;
        let error = cluster.registry.create(&mut write, object.clone()).await;
        let error = error.unwrap_err();
        assert_eq!(error.reason, Reason::AlreadyExists, "{dry_run}");
        assert_eq!(
            error.message,
            "configmaps \"chosen\" already exists, the server was not able to generate a unique \
             name for the object"
        );
    }
}

#[tokio::test]
async fn dry_run_stores_nothing_and_reports_conflicts() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let mut write = user_write(maps, "");
    write.dry_run = true;
    let created = cluster
        .registry
        .create(&mut write, config_map("a"))
        .await
        .unwrap();
    assert_ne!(created.uid(), "");
    assert_eq!(cluster.etcd.count_requests("txn"), 0);
    cluster.create(maps, config_map("a")).await.unwrap();
    let again = cluster.registry.create(&mut write, config_map("a")).await;
    assert_eq!(again.unwrap_err().reason, Reason::AlreadyExists);
}

#[tokio::test]
async fn invalid_object_is_rejected_with_the_field() {
    let cluster = start_cluster().await;
    let error = cluster
        .create(find_resource("v1", "configmaps"), config_map("Not_A_Name"))
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::Invalid, 422));
    assert_eq!(causes(&error), [("FieldValueInvalid", "metadata.name")]);
    assert_eq!(cluster.etcd.count_requests("txn"), 0);
}

#[tokio::test]
async fn event_expires_after_the_configured_time() {
    let cluster = start_cluster().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "d"},
        "involvedObject": {"kind": "Pod", "namespace": "d", "name": "p"}, "type": "Normal"});
    cluster
        .create(find_resource("v1", "events"), event)
        .await
        .unwrap();
    cluster
        .create(find_resource("v1", "configmaps"), config_map("a"))
        .await
        .unwrap();
    assert_ne!(cluster.etcd.get("/registry/events/d/e").unwrap().1, 0);
    assert_eq!(cluster.etcd.get("/registry/configmaps/d/a").unwrap().1, 0);
    assert!(cluster.etcd.lease_ttls().iter().all(|ttl| *ttl >= 3600));
}

#[tokio::test]
async fn failure_of_the_store_is_an_error_without_internals() {
    let cluster = start_cluster().await;
    cluster
        .etcd
        .fail_next(Status::unavailable("dial tcp 10.1.2.3:2379: refused"));
    let error = cluster
        .create(find_resource("v1", "configmaps"), config_map("a"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), 500);
    assert!(!error.message.contains("10.1.2.3"), "{error}");
    assert_eq!(error.details.unwrap().retry_after_seconds, 1);
}

/// Adds a label; rejects objects with the label `reject`, in the phase that it names.
struct Labeler;

#[async_trait::async_trait]
impl Admission for Labeler {
    fn name(&self) -> &'static str {
        "Labeler"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.object.label("reject") == Some("mutating") {
            return Err(ApiError::bad_request("rejected"));
        }
        request.object["metadata"]["labels"]["admitted"] = json!("yes");
        request.warnings.push("labelled".into());
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        assert_eq!(request.object.label("admitted"), Some("yes"));
        match request.object.label("reject") {
            Some("validating") => Err(ApiError::bad_request("rejected")),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn admission_changes_the_object_before_it_is_validated_and_stored() {
    let etcd = FakeEtcd::start().await;
    let cluster = start_with(etcd, vec![Arc::new(Labeler)]).await;
    let maps = find_resource("v1", "configmaps");
    let mut write = user_write(maps, "");
    cluster
        .registry
        .create(&mut write, config_map("a"))
        .await
        .unwrap();
    assert_eq!(write.warnings, ["labelled"]);
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored.label("admitted"), Some("yes"));
}

#[tokio::test]
async fn object_that_admission_rejects_is_not_stored() {
    let etcd = FakeEtcd::start().await;
    let cluster = start_with(etcd, vec![Arc::new(Labeler)]).await;
    for phase in ["mutating", "validating"] {
        let mut object = config_map("a");
        object["metadata"]["labels"] = json!({"reject": phase});
        let created = cluster
            .create(find_resource("v1", "configmaps"), object)
            .await;
        assert_eq!(created.unwrap_err().reason, Reason::BadRequest, "{phase}");
    }
    assert_eq!(cluster.etcd.count_requests("txn"), 0);
}
