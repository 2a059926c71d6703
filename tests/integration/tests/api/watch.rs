//! Watches: order and completeness, selectors, initial events, bookmarks, time limits.

use integration_tests::{Components, ReplyExt, Test, Watch, config_map, pod, wait_for_value};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Starts a watch of the ConfigMaps of the test's namespace, from now on, with more parameters.
async fn watch_from_now(test: &Test, query: &str) -> Watch {
    let path = test.core("configmaps");
    let version = test.version(&path).await;
    test.admin
        .watch(&format!(
            "{path}?watch=true&resourceVersion={version}&{query}"
        ))
        .await
}

async fn patch_labels(test: &Test, name: &str, labels: Value) {
    let path = test.core(&format!("configmaps/{name}"));
    let patch = json!({"metadata": {"labels": labels}});
    test.admin
        .merge_patch(&path, &patch)
        .await
        .expect_status(200);
}

fn pairs(events: &[(&str, &str)]) -> Vec<(String, String)> {
    events
        .iter()
        .map(|&(kind, name)| (kind.to_owned(), name.to_owned()))
        .collect()
}

#[tokio::test]
async fn every_change_is_one_event_in_the_order_of_versions() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut watch = watch_from_now(&test, "").await;
    assert_eq!(watch.headers["content-type"], "application/json");
    let mut expected = Vec::new();
    for name in ["a", "b", "c"] {
        test.create(&path, &config_map(name)).await;
        expected.push(("ADDED", name));
    }
    for (round, name) in ["a", "b", "a", "c", "b"].into_iter().enumerate() {
        patch_labels(&test, name, json!({"round": round.to_string()})).await;
        expected.push(("MODIFIED", name));
    }
    for name in ["c", "a"] {
        test.admin
            .delete(&format!("{path}/{name}"))
            .await
            .expect_status(200);
        expected.push(("DELETED", name));
    }
    let mut versions = Vec::new();
    for (kind, name) in expected {
        let (got, object) = watch.event().await;
        assert_eq!(
            (got.as_str(), &object["metadata"]["name"]),
            (kind, &json!(name))
        );
        let version = object["metadata"]["resourceVersion"].as_str().unwrap();
        versions.push(version.parse::<u64>().unwrap());
    }
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
}

#[tokio::test]
async fn watch_resumes_after_the_version_of_an_event() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut versions = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let object = test.create(&path, &config_map(name)).await;
        versions.push(
            object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    let mut watch = test
        .admin
        .watch(&format!("{path}?watch=1&resourceVersion={}", versions[1]))
        .await;
    assert_eq!(
        watch.take(2).await,
        pairs(&[("ADDED", "c"), ("ADDED", "d")])
    );
}

#[tokio::test]
async fn watch_without_a_version_starts_with_what_exists() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    for query in ["", "&resourceVersion=", "&resourceVersion=0"] {
        let mut watch = test
            .admin
            .watch(&format!(
                "{path}?watch=true&fieldSelector=metadata.name=c{query}"
            ))
            .await;
        let (kind, object) = watch.event().await;
        assert_eq!(kind, "ADDED", "{query}");
        assert_eq!(
            (
                &object["kind"],
                &object["apiVersion"],
                &object["metadata"]["name"]
            ),
            (&json!("ConfigMap"), &json!("v1"), &json!("c"))
        );
    }
}

#[tokio::test]
async fn change_into_a_selector_is_added_and_out_of_it_deleted() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let mut watch = watch_from_now(&test, "labelSelector=in%3Dyes").await;
    for labels in [
        json!({"in": "yes"}),
        json!({"other": "x"}),
        json!({"in": "no"}),
        json!({"other": "y"}),
        json!({"in": "yes"}),
    ] {
        patch_labels(&test, "c", labels).await;
    }
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let (kind, object) = watch.event().await;
        if kind == "DELETED" {
            // The object as it was when it matched, with the version of the change.
            assert_eq!(
                object["metadata"]["labels"],
                json!({"in": "yes", "other": "x"})
            );
        }
        kinds.push(kind);
    }
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED", "ADDED"]);
}

#[tokio::test]
async fn change_into_a_field_selector_is_added_and_out_of_it_deleted() {
    let test = start().await;
    let path = test.core("pods");
    test.create(&path, &pod("p")).await;
    let version = test.version(&path).await;
    let query = format!("watch=true&resourceVersion={version}&fieldSelector=status.phase=Running");
    let mut watch = test.admin.watch(&format!("{path}?{query}")).await;
    for phase in ["Running", "Succeeded"] {
        let patch = json!({"status": {"phase": phase}});
        let reply = test
            .admin
            .merge_patch(&format!("{path}/p/status"), &patch)
            .await;
        reply.expect_status(200);
    }
    assert_eq!(
        watch.take(2).await,
        pairs(&[("ADDED", "p"), ("DELETED", "p")])
    );
}

#[tokio::test]
async fn deleted_event_has_the_last_object_and_the_version_of_the_deletion() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let mut watch = watch_from_now(&test, "").await;
    test.admin
        .delete(&format!("{path}/c"))
        .await
        .expect_status(200);
    let (kind, deleted) = watch.event().await;
    assert_eq!(kind, "DELETED");
    assert_eq!(deleted["data"], json!({"a": "1"}));
    let version = |object: &Value| -> u64 {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!(version(&deleted) > version(&object));
}

#[tokio::test]
async fn watch_by_name_shows_one_object() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut watch = watch_from_now(&test, "fieldSelector=metadata.name=b").await;
    for name in ["a", "b", "c"] {
        test.create(&path, &config_map(name)).await;
    }
    patch_labels(&test, "a", json!({"x": "y"})).await;
    patch_labels(&test, "b", json!({"x": "y"})).await;
    assert_eq!(
        watch.take(2).await,
        pairs(&[("ADDED", "b"), ("MODIFIED", "b")])
    );
}

#[tokio::test]
async fn watch_path_of_old_clients_is_served() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let old = path.replace("/api/v1/", "/api/v1/watch/");
    let mut watch = test.admin.watch(&format!("{old}/c?timeoutSeconds=1")).await;
    assert_eq!(watch.take(1).await, pairs(&[("ADDED", "c")]));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn watch_ends_after_its_timeout() {
    let test = start().await;
    let mut watch = watch_from_now(&test, "timeoutSeconds=1").await;
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() {
    let test = start().await;
    let path = test.core("configmaps");
    for name in ["a", "b"] {
        test.create(&path, &config_map(name)).await;
    }
    let version = test.version(&path).await;
    for of in ["", "0", &version] {
        let query = format!(
            "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&\
             resourceVersion={of}&labelSelector=!none"
        );
        let mut watch = test.admin.watch(&format!("{path}?{query}")).await;
        let mut names = Vec::new();
        let bookmark = loop {
            let (kind, object) = watch.event().await;
            if kind == "BOOKMARK" {
                break object;
            }
            assert_eq!(kind, "ADDED");
            names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
        };
        names.sort();
        assert_eq!(names, ["a", "b"], "from {of:?}");
        assert_eq!(bookmark["kind"], "ConfigMap");
        assert_eq!(
            bookmark["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
        let marked: u64 = bookmark["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(of.is_empty() || marked >= of.parse::<u64>().unwrap());
    }
}

#[tokio::test]
async fn watch_without_initial_events_starts_with_changes() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("before")).await;
    let query =
        "sendInitialEvents=false&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = watch_from_now(&test, query).await;
    test.create(&path, &config_map("after")).await;
    assert_eq!(watch.take(1).await, pairs(&[("ADDED", "after")]));
}

#[tokio::test]
async fn contradictory_watch_parameters_are_invalid() {
    let test = start().await;
    for (query, field) in [
        ("sendInitialEvents=true", "resourceVersionMatch"),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
            "resourceVersionMatch",
        ),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch",
        ),
    ] {
        let path = format!(
            "{}?watch=true&timeoutSeconds=1&{query}",
            test.core("configmaps")
        );
        let status = test.admin.get(&path).await.expect_reason(422, "Invalid");
        assert_eq!(
            status["details"]["causes"][0]["field"], field,
            "{query}: {status}"
        );
    }
}

#[tokio::test]
async fn bookmark_has_only_type_and_version() {
    let test = start().await;
    // A bookmark is sent 2 s before the end, unless the server is held up for as long.
    let bookmark = wait_for_value("a bookmark", async || {
        let mut watch = watch_from_now(&test, "allowWatchBookmarks=true&timeoutSeconds=3").await;
        while let Some(mut event) = watch.next().await {
            if event["type"] == "BOOKMARK" {
                return Some(event["object"].take());
            }
        }
        None
    })
    .await;
    assert_eq!(
        (&bookmark["kind"], &bookmark["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    let metadata = bookmark["metadata"].as_object().unwrap();
    assert_eq!(metadata.get("name"), None);
    assert!(
        metadata["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 0
    );
    assert_eq!(bookmark.get("data"), None);
}

#[tokio::test]
async fn watch_of_a_malformed_version_fails() {
    let test = start().await;
    let path = format!("{}?watch=true&resourceVersion=abc", test.core("configmaps"));
    let status = test.admin.get(&path).await.expect_reason(500, "");
    assert_eq!(
        status["message"],
        "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
    );
}

#[tokio::test]
async fn watch_with_an_unknown_field_selector_is_a_bad_request() {
    let test = start().await;
    let path = format!(
        "{}?watch=true&fieldSelector=bogus%3D1",
        test.core("configmaps")
    );
    test.admin.get(&path).await.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn many_watches_on_one_connection_see_the_same_events() {
    let test = start().await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(watch_from_now(&test, "").await);
    }
    for name in ["a", "b"] {
        test.create(&test.core("configmaps"), &config_map(name))
            .await;
    }
    for watch in &mut watches {
        assert_eq!(
            watch.take(2).await,
            pairs(&[("ADDED", "a"), ("ADDED", "b")])
        );
    }
}

#[tokio::test]
async fn watch_across_namespaces_sees_all_of_them() {
    let test = start().await;
    let other = test.create_namespace(&json!({})).await;
    let version = test.version("/api/v1/configmaps").await;
    let query = format!(
        "watch=true&resourceVersion={version}&labelSelector=across%3D{}",
        test.namespace
    );
    let mut watch = test
        .admin
        .watch(&format!("/api/v1/configmaps?{query}"))
        .await;
    for namespace in [&test.namespace, &other] {
        let mut object = config_map("c");
        object["metadata"]["labels"] = json!({"across": test.namespace});
        test.create(
            &format!("/api/v1/namespaces/{namespace}/configmaps"),
            &object,
        )
        .await;
        let (_, object) = watch.event().await;
        assert_eq!(object["metadata"]["namespace"], namespace.as_str());
    }
}

#[tokio::test]
async fn removal_of_the_last_finalizer_is_a_deleted_event() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = config_map("c");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.create(&path, &object).await;
    let mut watch = watch_from_now(&test, "").await;
    test.admin
        .delete(&format!("{path}/c"))
        .await
        .expect_status(200);
    let none = json!({"metadata": {"finalizers": null}});
    test.admin
        .merge_patch(&format!("{path}/c"), &none)
        .await
        .expect_status(200);
    assert_eq!(
        watch.take(2).await,
        pairs(&[("MODIFIED", "c"), ("DELETED", "c")])
    );
}

#[tokio::test]
async fn watch_of_another_users_namespace_is_forbidden() {
    let test = start().await;
    let (user, client) = test.connect_user("watcher").await;
    let path = format!("{}?watch=true", test.core("configmaps"));
    client.get(&path).await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "configmaps is forbidden: User \"{user}\" cannot watch resource \"configmaps\" in API group \"\" in the \
             namespace \"{}\"",
            test.namespace
        ),
    );
}
