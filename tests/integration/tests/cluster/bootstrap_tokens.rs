//! Bootstrap tokens: signatures of the cluster-info ConfigMap, and the deletion of expired tokens.

use api_bootstrap::{BootstrapToken, is_signature_valid};
use integration_tests::{Components, Test, wait_for};
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";

/// Creates a token that signs and authenticates; returns it and the path of its Secret.
async fn create_token(test: &Test, id: &str, expiration: &str) -> (BootstrapToken, String) {
    let token = BootstrapToken::new(id, "0123456789abcdef").unwrap();
    let name = api_bootstrap::secret_name(id);
    let secret = json!({"metadata": {"name": name}, "type": api_bootstrap::SECRET_TYPE,
        "stringData": {"token-id": id, "token-secret": token.secret(), "expiration": expiration,
            "usage-bootstrap-signing": "true", "usage-bootstrap-authentication": "true"}});
    test.create(SECRETS, &secret).await;
    (token, format!("{SECRETS}/{name}"))
}

/// Creates cluster-info unless another test has; returns its path.
async fn create_cluster_info(test: &Test) -> String {
    let map = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "one"}});
    let status = test.admin.post(MAPS, &map).await.status;
    assert!([201, 409].contains(&status), "{status}");
    format!("{MAPS}/cluster-info")
}

fn is_signed(map: &Value, kubeconfig: &str, token: &BootstrapToken) -> bool {
    signature(map, token).is_some_and(|text| is_signature_valid(text, kubeconfig, token))
}

fn signature<'a>(map: &'a Value, token: &BootstrapToken) -> Option<&'a str> {
    map["data"][format!("jws-kubeconfig-{}", token.id())].as_str()
}

async fn start() -> Test {
    Test::start(Components::All).await
}

#[tokio::test]
async fn cluster_info_is_signed_with_each_token_that_may_sign() {
    let test = start().await;
    let (first, secret) = create_token(&test, "first0", "2999-01-01T00:00:00Z").await;
    let path = create_cluster_info(&test).await;
    let signed = |kubeconfig: &'static str| {
        let token = first.clone();
        move |map: &Value| is_signed(map, kubeconfig, &token)
    };
    test.wait_until(&path, "signed", signed("one")).await;
    let (second, other) = create_token(&test, "second", "2999-01-01T00:00:00Z").await;
    test.wait_until(&path, "signed twice", |map| {
        is_signed(map, "one", &first) && is_signed(map, "one", &second)
    })
    .await;
    let patch = json!({"data": {"kubeconfig": "two"}});
    let reply = test.admin.merge_patch(&path, &patch).await;
    reply.expect_status(200);
    test.wait_until(&path, "signed again", signed("two")).await;
    // Without the usage "signing" the token still authenticates.
    let patch = json!({"stringData": {"usage-bootstrap-signing": "false"}});
    let reply = test.admin.merge_patch(&secret, &patch).await;
    reply.expect_status(200);
    test.wait_until(&path, "unsigned", |map| signature(map, &first).is_none())
        .await;
    let client = test.connect(&test.plane().bearer(&first.expose())).await;
    client.get("/api").await.expect_status(200);
    let deleted = test.admin.delete(&other).await;
    deleted.expect_status(200);
    test.wait_until(&path, "unsigned", |map| signature(map, &second).is_none())
        .await;
}

#[tokio::test]
async fn expired_token_is_deleted_and_signs_no_longer() {
    let test = start().await;
    let path = create_cluster_info(&test).await;
    let (token, secret) = create_token(&test, "soon00", "2999-01-01T00:00:00Z").await;
    test.wait_until(&path, "signed", |map| signature(map, &token).is_some())
        .await;
    let soon = jiff::Timestamp::now() + std::time::Duration::from_secs(3);
    let soon = soon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({"stringData": {"expiration": soon}});
    let reply = test.admin.merge_patch(&secret, &patch).await;
    reply.expect_status(200);
    let (_, broken) = create_token(&test, "broken", "soon").await;
    test.wait_until_deleted(&broken).await;
    test.wait_until_deleted(&secret).await;
    test.wait_until(&path, "unsigned", |map| signature(map, &token).is_none())
        .await;
    wait_for("the token is rejected", async || {
        let client = test.connect(&test.plane().bearer(&token.expose())).await;
        client.get("/api").await.status == 401
    })
    .await;
}
