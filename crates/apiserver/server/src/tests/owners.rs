//! Owner references that a request repeats.

use super::{Answer, MAPS, TestServer, config_map, request, start_server};
use serde_json::{Value, json};

const REQUEST: &str = "299 - \".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1, 1\"";
const ADMITTED: &str = "299 - \".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1, 1\"";

fn owner(uid: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})
}

fn repeated() -> Value {
    let mut first = owner("1", "p");
    first["controller"] = json!(null);
    // Another name with the same UID is another reference.
    json!([
        first,
        owner("1", "q"),
        owner("1", "p"),
        owner("2", "p"),
        owner("1", "p")
    ])
}

fn check(answer: &Answer, code: u16, warning: &str) {
    assert_eq!(answer.code, code, "{}", answer.text());
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().collect();
    assert_eq!(warnings, [warning]);
    let expected = json!([owner("1", "p"), owner("1", "q"), owner("2", "p")]);
    assert_eq!(answer.json()["metadata"]["ownerReferences"], expected);
}

async fn patch(server: &TestServer, body: Value) -> Answer {
    let form = "application/merge-patch+json";
    let request = request("PATCH", &format!("{MAPS}/b")).header("content-type", form);
    server.send(request, body.to_string()).await
}

#[tokio::test]
async fn repeated_owners_are_removed_with_a_warning() {
    let server = start_server(&[]).await;
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] = repeated();
    check(
        &server.write("POST", MAPS, object.clone()).await,
        201,
        REQUEST,
    );
    object["data"] = json!({"k": "changed"});
    let path = format!("{MAPS}/a");
    check(&server.write("PUT", &path, object).await, 200, REQUEST);
    server.create_map("b").await;
    let body = json!({"metadata": {"ownerReferences": repeated()}});
    check(&patch(&server, body).await, 200, ADMITTED);
}

#[tokio::test]
async fn distinct_owners_are_not_warned_about() {
    let server = start_server(&[]).await;
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] = json!([owner("1", "p"), owner("2", "p")]);
    let created = server.write("POST", MAPS, object).await;
    assert_eq!((created.code, created.header("warning")), (201, ""));
}
