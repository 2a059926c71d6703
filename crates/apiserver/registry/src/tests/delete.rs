use super::{causes, config_map, find_resource, pod, start_cluster, user_write};
use crate::{DeleteOptions, ListQuery, Propagation};
use api_meta::{Meta, Reason, Selector, meta::str_at};
use apiserver_cache::Selection;
use serde_json::{Value, json};

#[tokio::test]
async fn object_without_finalizers_is_removed_at_once() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    let deleted = cluster.delete(maps, "a", json!({})).await.unwrap();
    assert!(deleted.removed);
    assert_eq!(
        deleted.object.resource_version(),
        cluster.etcd.revision().to_string()
    );
    assert_eq!(cluster.etcd.get("/registry/configmaps/d/a"), None);
    let again = cluster.delete(maps, "a", json!({})).await.unwrap_err();
    assert_eq!(again.reason, Reason::NotFound);
}

#[tokio::test]
async fn finalizers_keep_the_object_with_a_deletion_timestamp() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    cluster.create(maps, object).await.unwrap();
    let first = cluster.delete(maps, "a", json!({})).await.unwrap();
    assert!(!first.removed && first.object.is_being_deleted());
    let stored = cluster.stored(maps, "configmaps/d/a").unwrap();
    assert_eq!(stored.finalizers(), ["example.com/x"]);
    let revision = cluster.etcd.revision();
    let second = cluster.delete(maps, "a", json!({})).await.unwrap();
    assert!(!second.removed);
    assert_eq!(
        cluster.etcd.revision(),
        revision,
        "a second delete changes nothing"
    );
}

#[tokio::test]
async fn failed_precondition_keeps_the_object() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    let created = cluster.create(maps, config_map("a")).await.unwrap();
    for preconditions in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let options = json!({"preconditions": preconditions});
        let error = cluster
            .delete(maps, "a", options.clone())
            .await
            .unwrap_err();
        assert_eq!(error.reason, Reason::Conflict, "{options}");
    }
    let right = json!({"preconditions":
        {"uid": created.uid(), "resourceVersion": created.resource_version()}});
    assert!(cluster.delete(maps, "a", right).await.unwrap().removed);
}

#[tokio::test]
async fn dry_run_of_a_delete_keeps_the_object() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    let deleted = cluster
        .delete(maps, "a", json!({"dryRun": ["All"]}))
        .await
        .unwrap();
    assert!(deleted.removed, "the response is that of a real delete");
    assert!(cluster.etcd.get("/registry/configmaps/d/a").is_some());
}

#[tokio::test]
async fn object_that_another_client_removes_first_is_not_found() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    cluster
        .etcd
        .before_txns(1, |writes| writes.delete("/registry/configmaps/d/a"));
    let error = cluster.delete(maps, "a", json!({})).await.unwrap_err();
    assert_eq!(error.reason, Reason::NotFound);
}

#[tokio::test]
async fn finalizer_that_another_client_adds_first_is_respected() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    let theirs = apiserver_convert::encode_stored(maps, &object);
    cluster.etcd.before_txns(1, move |writes| {
        writes.put("/registry/configmaps/d/a", &theirs)
    });
    let deleted = cluster.delete(maps, "a", json!({})).await.unwrap();
    assert!(!deleted.removed && deleted.object.is_being_deleted());
}

#[tokio::test]
async fn pod_on_a_node_gets_its_grace_period() {
    let cluster = start_cluster().await;
    let pods = find_resource("v1", "pods");
    let mut object = pod("p");
    object["spec"]["nodeName"] = json!("n");
    object["spec"]["terminationGracePeriodSeconds"] = json!(45);
    cluster.create(pods, object).await.unwrap();
    let grace = |object: &Value| object["metadata"]["deletionGracePeriodSeconds"].clone();
    let first = cluster.delete(pods, "p", json!({})).await.unwrap();
    assert_eq!((first.removed, grace(&first.object)), (false, json!(45)));
    let shorter = json!({"gracePeriodSeconds": 5});
    let second = cluster.delete(pods, "p", shorter).await.unwrap();
    assert_eq!(grace(&second.object), json!(5));
    let longer = json!({"gracePeriodSeconds": 60});
    let third = cluster.delete(pods, "p", longer).await.unwrap();
    assert_eq!(grace(&third.object), json!(5), "a grace period never grows");
    let forced = json!({"gracePeriodSeconds": 0});
    assert!(cluster.delete(pods, "p", forced).await.unwrap().removed);
}

#[tokio::test]
async fn pod_without_a_node_is_removed_at_once() {
    let cluster = start_cluster().await;
    let pods = find_resource("v1", "pods");
    cluster.create(pods, pod("p")).await.unwrap();
    assert!(cluster.delete(pods, "p", json!({})).await.unwrap().removed);
}

#[tokio::test]
async fn propagation_policy_becomes_a_finalizer() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        let name = policy.to_lowercase();
        cluster.create(maps, config_map(&name)).await.unwrap();
        let options = json!({"propagationPolicy": policy});
        let deleted = cluster.delete(maps, &name, options).await.unwrap();
        assert!(!deleted.removed, "{policy}");
        assert_eq!(deleted.object.finalizers(), [finalizer], "{policy}");
    }
}

#[tokio::test]
async fn later_background_delete_replaces_a_foreground_one() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    cluster.create(maps, config_map("a")).await.unwrap();
    cluster
        .delete(maps, "a", json!({"propagationPolicy": "Foreground"}))
        .await
        .unwrap();
    let background = json!({"propagationPolicy": "Background"});
    assert!(cluster.delete(maps, "a", background).await.unwrap().removed);
}

#[tokio::test]
async fn namespace_stays_until_its_content_is_deleted() {
    let cluster = start_cluster().await;
    let namespaces = find_resource("v1", "namespaces");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let created = cluster.create(namespaces, object).await.unwrap();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    let deleted = cluster.delete(namespaces, "team", json!({})).await.unwrap();
    assert!(!deleted.removed);
    assert_eq!(str_at(&deleted.object, &["status", "phase"]), "Terminating");
    let mut finalized = deleted.object.clone();
    finalized["spec"]["finalizers"] = json!([]);
    let mut write = user_write(namespaces, "team");
    write.subresource = "finalize".into();
    cluster
        .registry
        .finalize_namespace(&mut write, &finalized)
        .await
        .unwrap();
    assert_eq!(cluster.etcd.get("/registry/namespaces/team"), None);
}

#[tokio::test]
async fn collection_delete_removes_the_selected_objects_only() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"app": app});
        cluster.create(maps, object).await.unwrap();
    }
    let selection = Selection {
        namespace: Some("d".into()),
        labels: Selector::parse("app=web").unwrap(),
        ..Selection::default()
    };
    let query = ListQuery {
        selection,
        ..ListQuery::default()
    };
    let write = user_write(maps, "");
    let options = DeleteOptions::parse(Value::Null).unwrap();
    let done = cluster
        .registry
        .delete_collection(&write, &query, &options)
        .await
        .unwrap();
    let names: Vec<&str> = done.entries.iter().map(|entry| entry.name()).collect();
    assert_eq!(names, ["a", "c"]);
    assert!(cluster.etcd.get("/registry/configmaps/d/b").is_some());
    assert!(cluster.etcd.get("/registry/configmaps/d/c").is_none());
}

#[tokio::test]
async fn collection_delete_skips_objects_that_are_gone_already() {
    let cluster = start_cluster().await;
    let maps = find_resource("v1", "configmaps");
    for name in ["a", "b"] {
        cluster.create(maps, config_map(name)).await.unwrap();
    }
    cluster.freeze_cache().await;
    cluster.etcd.delete("/registry/configmaps/d/a");
    let query = ListQuery {
        resource_version: "0".into(),
        ..ListQuery::default()
    };
    let write = user_write(maps, "");
    let options = DeleteOptions::parse(Value::Null).unwrap();
    let done = cluster
        .registry
        .delete_collection(&write, &query, &options)
        .await
        .unwrap();
    assert_eq!(done.entries.len(), 1);
    assert!(cluster.etcd.get("/registry/configmaps/d/b").is_none());
}

#[test]
fn deprecated_orphan_dependents_selects_a_policy() {
    let parse = |orphan: bool| DeleteOptions::parse(json!({"orphanDependents": orphan})).unwrap();
    assert_eq!(parse(true).propagation, Some(Propagation::Orphan));
    assert_eq!(parse(false).propagation, Some(Propagation::Background));
    assert!(parse(false).cascades_explicitly && !parse(true).cascades_explicitly);
    let none = DeleteOptions::parse(Value::Null).unwrap();
    assert_eq!((none.propagation, none.grace), (None, None));
}

#[test]
fn option_of_unsafe_deletion_is_dropped() {
    // With the gate, the option would exclude all others.
    let options = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true,
        "gracePeriodSeconds": 1});
    let options = DeleteOptions::parse(options).unwrap();
    let expect = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 1});
    assert_eq!(options.raw, expect);
}

#[test]
fn invalid_delete_options_name_the_field() {
    for (options, reason, field) in [
        (
            json!({"propagationPolicy": "Never"}),
            "FieldValueNotSupported",
            "propagationPolicy",
        ),
        (
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            "FieldValueInvalid",
            "propagationPolicy",
        ),
        (
            json!({"dryRun": ["Some"]}),
            "FieldValueNotSupported",
            "dryRun",
        ),
    ] {
        let error = DeleteOptions::parse(options.clone()).unwrap_err();
        assert_eq!(error.code(), 422, "{options}");
        assert_eq!(causes(&error), [(reason, field)], "{options}");
    }
}

#[test]
fn propagation_policy_defaults_to_the_kinds() {
    use crate::propagation::propagation_finalizers;
    let object = json!({"metadata": {"finalizers": ["example.com/x"]}});
    let finalizers = |version: &str, plural: &str, policy| {
        propagation_finalizers(find_resource(version, plural), &object, policy)
    };
    let with_orphan = Some(vec!["example.com/x".to_owned(), "orphan".to_owned()]);
    assert_eq!(finalizers("batch/v1", "jobs", None), with_orphan);
    assert_eq!(
        finalizers("v1", "replicationcontrollers", None),
        with_orphan
    );
    assert_eq!(finalizers("apps/v1", "deployments", None), None);
    let explicit = Some(Propagation::Background);
    assert_eq!(finalizers("batch/v1", "jobs", explicit), None);
    let orphan = Some(Propagation::Orphan);
    assert_eq!(
        finalizers("v1", "events", orphan),
        None,
        "events have no dependents"
    );
}

#[test]
fn policy_of_an_earlier_delete_holds_for_a_later_one_without_a_policy() {
    use crate::propagation::propagation_finalizers;
    let deployments = find_resource("apps/v1", "deployments");
    let object = json!({"metadata": {"finalizers": ["foregroundDeletion"]}});
    assert_eq!(propagation_finalizers(deployments, &object, None), None);
    let switched = propagation_finalizers(deployments, &object, Some(Propagation::Orphan));
    assert_eq!(switched, Some(vec!["orphan".to_owned()]));
}
