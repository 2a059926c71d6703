use super::{Cluster, causes, config_map, find_resource, start_cluster, start_with};
use crate::{ListQuery, ListResult};
use api_kinds::Resource;
use api_meta::{Reason, Selector};
use apiserver_cache::Selection;
use serde_json::json;
use std::sync::Arc;
use testkit_etcd::FakeEtcd;

fn maps() -> &'static Arc<Resource> {
    find_resource("v1", "configmaps")
}

/// Returns a cluster with the ConfigMaps `names`.
async fn start_with_maps(names: &[&str]) -> Cluster {
    let cluster = start_cluster().await;
    for name in names {
        cluster.create(maps(), config_map(name)).await.unwrap();
    }
    cluster
}

fn names(result: &ListResult) -> Vec<&str> {
    result.entries.iter().map(|entry| entry.name()).collect()
}

fn page(limit: usize, continue_token: &str) -> ListQuery {
    ListQuery {
        selection: Selection {
            namespace: Some("d".into()),
            ..Selection::default()
        },
        limit,
        continue_token: continue_token.to_owned(),
        ..ListQuery::default()
    }
}

#[tokio::test]
async fn pages_show_the_list_at_one_revision() {
    let cluster = start_with_maps(&["a", "b", "c", "d", "e"]).await;
    let first = cluster.list(maps(), &page(2, "")).await.unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], Some(3)));
    cluster.create(maps(), config_map("bb")).await.unwrap();
    cluster.delete(maps(), "c", json!({})).await.unwrap();
    let second = cluster
        .list(maps(), &page(2, &first.continue_token))
        .await
        .unwrap();
    assert_eq!(
        (names(&second), second.remaining),
        (vec!["c", "d"], Some(1))
    );
    assert_eq!(second.revision, first.revision);
    let last = cluster
        .list(maps(), &page(2, &second.continue_token))
        .await
        .unwrap();
    assert_eq!((names(&last), last.remaining), (vec!["e"], None));
    assert_eq!(last.continue_token, "");
}

#[tokio::test]
async fn remaining_count_is_omitted_with_a_selector() {
    let cluster = start_with_maps(&["a", "b", "c"]).await;
    let mut query = page(1, "");
    query.selection.labels = Selector::parse("!app").unwrap();
    let result = cluster.list(maps(), &query).await.unwrap();
    assert_eq!(result.remaining, None);
    assert_ne!(result.continue_token, "");
}

#[tokio::test]
async fn page_that_ends_with_the_list_has_no_token() {
    let cluster = start_with_maps(&["a", "b"]).await;
    let result = cluster.list(maps(), &page(2, "")).await.unwrap();
    assert_eq!(
        (result.continue_token.as_str(), result.remaining),
        ("", None)
    );
}

#[tokio::test]
async fn expired_token_offers_one_that_continues_at_the_current_revision() {
    let cluster = start_with_maps(&["a", "b", "c"]).await;
    let first = cluster.list(maps(), &page(1, "")).await.unwrap();
    // A server that starts now has no history before its first list.
    cluster.create(maps(), config_map("d")).await.unwrap();
    cluster.etcd.compact(cluster.etcd.revision());
    let Cluster { etcd, tasks, .. } = cluster;
    tasks.shutdown().cancel();
    let cluster = start_with(etcd, Vec::new()).await;
    let error = cluster
        .list(maps(), &page(5, &first.continue_token))
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::Expired, 410));
    let rest = cluster
        .list(maps(), &page(5, &error.continue_token))
        .await
        .unwrap();
    assert_eq!(names(&rest), ["b", "c", "d"]);
}

#[tokio::test]
async fn token_is_not_combined_with_a_resource_version() {
    let cluster = start_with_maps(&["a", "b"]).await;
    let first = cluster.list(maps(), &page(1, "")).await.unwrap();
    let query = ListQuery {
        resource_version: "5".into(),
        ..page(1, &first.continue_token)
    };
    let error = cluster.list(maps(), &query).await.unwrap_err();
    assert_eq!(error.reason, Reason::BadRequest);
}

#[tokio::test]
async fn malformed_token_is_a_bad_request() {
    use base64::Engine;
    let cluster = start_with_maps(&["a"]).await;
    let encode = |token: serde_json::Value| {
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string())
    };
    for token in [
        "%%%".to_owned(),
        encode(json!("text")),
        encode(json!({"v": "meta.k8s.io/v2", "rv": 1, "start": "a"})),
        encode(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": ""})),
        encode(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "/a"})),
        encode(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "../secrets/a"})),
    ] {
        let error = cluster.list(maps(), &page(1, &token)).await.unwrap_err();
        assert_eq!(error.reason, Reason::BadRequest, "{token}");
    }
}

#[tokio::test]
async fn exact_match_shows_the_list_of_that_revision() {
    let cluster = start_with_maps(&["a", "b"]).await;
    let then = cluster.etcd.revision();
    cluster.delete(maps(), "a", json!({})).await.unwrap();
    let query = ListQuery {
        resource_version: then.to_string(),
        version_match: "Exact".into(),
        ..page(0, "")
    };
    let result = cluster.list(maps(), &query).await.unwrap();
    assert_eq!((names(&result), result.revision), (vec!["a", "b"], then));
    let not_older = ListQuery {
        version_match: "NotOlderThan".into(),
        ..query
    };
    assert_eq!(
        names(&cluster.list(maps(), &not_older).await.unwrap()),
        ["b"]
    );
}

#[tokio::test]
async fn revision_before_the_cache_started_is_read_from_the_store() {
    let cluster = start_with_maps(&["a", "b", "c"]).await;
    let then = cluster.etcd.revision();
    cluster.delete(maps(), "a", json!({})).await.unwrap();
    let Cluster { etcd, tasks, .. } = cluster;
    tasks.shutdown().cancel();
    let cluster = start_with(etcd, Vec::new()).await;
    let query = ListQuery {
        resource_version: then.to_string(),
        version_match: "Exact".into(),
        ..page(2, "")
    };
    let first = cluster.list(maps(), &query).await.unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], Some(1)));
    let rest = cluster
        .list(maps(), &page(2, &first.continue_token))
        .await
        .unwrap();
    assert_eq!((names(&rest), rest.revision), (vec!["c"], then));
}

#[tokio::test]
async fn compacted_revision_is_expired() {
    let cluster = start_with_maps(&["a"]).await;
    let then = cluster.etcd.revision();
    cluster.create(maps(), config_map("b")).await.unwrap();
    cluster.etcd.compact(cluster.etcd.revision());
    let Cluster { etcd, tasks, .. } = cluster;
    tasks.shutdown().cancel();
    let cluster = start_with(etcd, Vec::new()).await;
    let query = ListQuery {
        resource_version: then.to_string(),
        version_match: "Exact".into(),
        ..page(0, "")
    };
    let error = cluster.list(maps(), &query).await.unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::Expired, 410));
}

#[tokio::test]
async fn future_revision_is_a_timeout_with_a_cause() {
    let cluster = start_with_maps(&["a"]).await;
    let future = (cluster.etcd.revision() + 1000).to_string();
    let error = cluster
        .registry
        .get(maps(), "d", "a", &future)
        .await
        .unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::Timeout, 504));
    assert_eq!(causes(&error), [("ResourceVersionTooLarge", "")]);
    let exact = ListQuery {
        resource_version: future,
        version_match: "Exact".into(),
        ..page(0, "")
    };
    let error = cluster.list(maps(), &exact).await.unwrap_err();
    assert_eq!((error.reason, error.code()), (Reason::Timeout, 504));
    assert_eq!(causes(&error), [("ResourceVersionTooLarge", "")]);
}

#[tokio::test]
async fn invalid_combinations_with_resource_version_match_are_rejected() {
    let cluster = start_with_maps(&["a"]).await;
    for (version, version_match, token, reason) in [
        ("", "Exact", "", "FieldValueForbidden"),
        ("", "NotOlderThan", "", "FieldValueForbidden"),
        ("0", "Exact", "", "FieldValueForbidden"),
        ("5", "Exact", "x", "FieldValueForbidden"),
        ("5", "Newest", "", "FieldValueNotSupported"),
    ] {
        let query = ListQuery {
            resource_version: version.into(),
            version_match: version_match.into(),
            ..page(0, token)
        };
        let error = cluster.list(maps(), &query).await.unwrap_err();
        let expect = [(reason, "resourceVersionMatch")];
        assert_eq!(causes(&error), expect, "{version} {version_match} {token}");
    }
}

#[tokio::test]
async fn resource_version_of_a_read_must_be_a_number() {
    let cluster = start_with_maps(&["a"]).await;
    for version in ["abc", "-1", "1.5"] {
        let error = cluster
            .registry
            .get(maps(), "d", "a", version)
            .await
            .unwrap_err();
        assert_eq!(error.reason, Reason::BadRequest, "{version}");
    }
}

#[tokio::test]
async fn get_without_a_resource_version_shows_the_latest_write() {
    let cluster = start_cluster().await;
    let object = apiserver_convert::encode_stored(maps(), &config_map("a"));
    let revision = cluster.etcd.put("/registry/configmaps/d/a", &object);
    let entry = cluster.registry.get(maps(), "d", "a", "").await.unwrap();
    assert_eq!(entry.revision, revision);
    let missing = cluster
        .registry
        .get(maps(), "d", "b", "")
        .await
        .unwrap_err();
    assert_eq!(missing.message, "configmaps \"b\" not found");
}

#[tokio::test]
async fn read_at_version_zero_is_served_without_the_store() {
    let cluster = start_with_maps(&["a"]).await;
    cluster.etcd.stall(true);
    assert!(cluster.registry.get(maps(), "d", "a", "0").await.is_ok());
    let query = ListQuery {
        resource_version: "0".into(),
        ..page(0, "")
    };
    assert_eq!(names(&cluster.list(maps(), &query).await.unwrap()), ["a"]);
    cluster.etcd.stall(false);
}

#[tokio::test]
async fn kind_that_is_not_stored_has_no_list() {
    let etcd = FakeEtcd::start().await;
    let cluster = start_with(etcd, Vec::new()).await;
    let reviews = find_resource("authentication.k8s.io/v1", "tokenreviews");
    let error = cluster
        .list(reviews, &ListQuery::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), 404);
}
