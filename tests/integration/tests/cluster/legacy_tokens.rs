//! Tokens in Secrets: their uses are recorded, and a marked one is rejected.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{Components, Test, wait_for};
use serde_json::{Value, json};

const LAST_USED: &str = "/metadata/labels/kubernetes.io~1legacy-token-last-used";
const TRACKING: &str = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";

fn token_of(secret: &Value) -> Option<String> {
    let bytes = STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

#[tokio::test]
async fn use_of_a_token_is_recorded_and_a_marked_token_is_rejected() {
    let test = Test::start(Components::All).await;
    test.create(
        &test.core("serviceaccounts"),
        &json!({"metadata": {"name": "sa"}}),
    )
    .await;
    let secrets = test.core("secrets");
    let secret = json!({"type": "kubernetes.io/service-account-token", "metadata": {"name": "t",
        "annotations": {"kubernetes.io/service-account.name": "sa"}}});
    test.create(&secrets, &secret).await;
    let path = format!("{secrets}/t");
    test.wait_until(&path, "filled", |secret| token_of(secret).is_some())
        .await;
    let secret = test.admin.get(&path).await.json();
    assert_eq!(secret.pointer(LAST_USED), None, "not used yet");
    let token = token_of(&secret).unwrap();
    let client = test.connect(&test.plane().bearer(&token)).await;
    client.get("/api").await.expect_status(200);
    let is_recorded = |secret: &Value| secret.pointer(LAST_USED).is_some();
    test.wait_until(&path, "recorded", is_recorded).await;
    let since = |map: &Value| map["data"]["since"].is_string();
    test.wait_until(TRACKING, "tracked", since).await;
    let patch =
        json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}});
    let reply = test.admin.merge_patch(&path, &patch).await;
    reply.expect_status(200);
    wait_for("the token to be rejected", async || {
        client.get("/api").await.status == 401
    })
    .await;
}
