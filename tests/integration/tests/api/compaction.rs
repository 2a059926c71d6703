//! Continue tokens of revisions that the store has compacted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use integration_tests::{ReplyExt, config_map, wait_for_value};
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Interval of compactions: a page is served for one to two intervals.
const INTERVAL: &str = "--etcd-compaction-interval=4s";
/// Upstream's message, on which clients may match.
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this \
    response to retrieve the remainder of the results. Continuing with the provided token results \
    in an inconsistent list - objects that were created, modified, or deleted between the time the \
    first chunk was returned and now may show up in the list.";

async fn create_map(admin: &Caller, name: &str) {
    admin.post(MAPS, &config_map(name)).await.expect_success();
}

async fn list(admin: &Caller, query: &str) -> Value {
    let path = format!("{MAPS}?{query}");
    admin.get(&path).await.expect_success().json()
}

/// Returns the names of the items, with their data.
fn items_of(list: &Value) -> Vec<(String, Value)> {
    let items = list["items"].as_array().unwrap().iter();
    let item = |item: &Value| {
        let name = item["metadata"]["name"].as_str().unwrap();
        (name.to_owned(), item["data"]["a"].clone())
    };
    items.map(item).collect()
}

fn token_of(object: &Value) -> &str {
    object["metadata"]["continue"].as_str().unwrap_or_default()
}

fn revision_of(list: &Value) -> u64 {
    let version = list["metadata"]["resourceVersion"].as_str();
    version.unwrap().parse().unwrap()
}

/// Requests pages with a token until it has expired; returns the Status.
async fn wait_for_expiry(admin: &Caller, query: &str) -> Value {
    let path = format!("{MAPS}?{query}");
    let reply = wait_for_value("the page to expire", async || {
        let reply = admin.get(&path).await;
        (reply.status != 200).then_some(reply)
    })
    .await;
    reply.expect_failure(410, "Expired", EXPIRED)
}

/// Changes each kind of object that the rest of a list can show: before the next page, and in it.
async fn change_everything(admin: &Caller) {
    admin.delete(&format!("{MAPS}/a")).await.expect_success();
    admin.delete(&format!("{MAPS}/d")).await.expect_success();
    let patch = json!({"data": {"a": "new"}});
    let changed = format!("{MAPS}/e");
    admin.merge_patch(&changed, &patch).await.expect_success();
    for name in ["aa", "dd", "z"] {
        create_map(admin, name).await;
    }
}

#[tokio::test]
async fn expired_token_comes_with_one_that_lists_the_rest_as_it_is_now() {
    let plane = ControlPlane::start_with_flags(&[INTERVAL]).await;
    let admin = plane.admin();
    for name in ["a", "b", "c", "d", "e", "f"] {
        create_map(&admin, name).await;
    }
    let first = list(&admin, "limit=2").await;
    let names: Vec<String> = items_of(&first).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b"]);
    change_everything(&admin).await;
    let query = format!("limit=3&continue={}", token_of(&first));
    let status = wait_for_expiry(&admin, &query).await;
    // The token has upstream's form: no revision, and the key at which the first page ended.
    let token = token_of(&status);
    let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    let expect = json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "b\0"});
    assert_eq!(decoded, expect);
    assert_eq!(status["metadata"], json!({"continue": token}));
    // The rest has neither what was deleted nor an object twice, but what was created since.
    let second = list(&admin, &format!("limit=3&continue={token}")).await;
    let expect = [("c", "1"), ("dd", "1"), ("e", "new")];
    assert_eq!(
        items_of(&second),
        expect.map(|(n, a)| (n.to_owned(), json!(a)))
    );
    assert_eq!(second["metadata"]["remainingItemCount"], 2);
    assert!(revision_of(&second) > revision_of(&first), "{second}");
    // From there on the pages are consistent again.
    create_map(&admin, "y").await;
    let last = list(&admin, &format!("continue={}", token_of(&second))).await;
    let expect = [("f", "1"), ("z", "1")];
    assert_eq!(
        items_of(&last),
        expect.map(|(n, a)| (n.to_owned(), json!(a)))
    );
    assert_eq!(revision_of(&last), revision_of(&second));
    assert_eq!(token_of(&last), "");
}

#[tokio::test]
async fn page_of_one_server_expires_at_another_and_continues_there() {
    let plane = ControlPlane::start_with_flags(&[INTERVAL]).await;
    let second = plane.start_api_server("second", &[INTERVAL]).await;
    let (here, there) = (plane.admin(), plane.admin().at(second.address()));
    for name in ["a", "b", "c"] {
        create_map(&here, name).await;
    }
    let first = list(&here, "limit=1").await;
    create_map(&here, "d").await;
    let query = format!("limit=9&continue={}", token_of(&first));
    for server in [&there, &here] {
        let status = wait_for_expiry(server, &query).await;
        for other in [&here, &there] {
            let rest = list(other, &format!("continue={}", token_of(&status))).await;
            let names: Vec<String> = items_of(&rest).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["b", "c", "d"]);
        }
    }
}

#[tokio::test]
async fn watch_of_a_version_before_the_history_ends_with_an_error() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    create_map(&admin, "a").await;
    let old = revision_of(&list(&admin, "").await);
    create_map(&admin, "b").await;
    // A server has no history from before its start.
    let second = plane.start_api_server("second", &[]).await;
    let there = plane.admin().at(second.address());
    let path = format!("{MAPS}?watch=true&timeoutSeconds=60&resourceVersion={old}");
    let reply = there.get(&path).await.expect_status(200);
    let event = reply.json();
    assert_eq!(event["type"], "ERROR", "{event}");
    let status = &event["object"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(410), &json!("Expired"))
    );
    let message = status["message"].as_str().unwrap();
    let start = format!("too old resource version: {old} (");
    assert!(message.starts_with(&start), "{message}");
}
