//! Files that change while the control plane runs.

#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::json;
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane};

async fn request_token(admin: &Caller) -> String {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let reply = admin.post(path, &request).await.expect_success().json();
    reply["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(caller: &Caller) -> u16 {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    caller
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await
        .status
}

/// Files are checked at most every ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_replaced_key_are_refused_without_a_restart() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await
        .expect_success();
    let old = plane.bearer(&request_token(&admin).await);
    assert_eq!(review(&old).await, 201);

    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    std::fs::write(plane.key("sa"), &key).unwrap();
    std::fs::write(plane.key("sa").with_extension("pub"), &key).unwrap();
    let deadline = Instant::now() + Duration::from_secs(40);
    while review(&old).await != 401 {
        assert!(
            Instant::now() < deadline,
            "the token of the old key is still accepted"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // The signing key is checked on its own schedule.
    while review(&plane.bearer(&request_token(&admin).await)).await != 201 {
        assert!(
            Instant::now() < deadline,
            "no token of the new key is accepted"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
