//! Tokens in Secrets: their uses are recorded, and marked ones are rejected.

use super::{Answer, TestServer, request, soon, start_over, start_server, start_server_in};
use crate::bootstrap::legacy_tokens::{
    Outcome, ensure_tracking_start, label_secret, label_used_secrets,
};
use apiserver_authn::UsedSecret;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Request;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEY: &str = "sa.key";
const ISSUER: &str = "--service-account-issuer=https://i";
const SECRET: &str = "/api/v1/namespaces/d/secrets/t";
const LAST_USED: &str = "/metadata/labels/kubernetes.io~1legacy-token-last-used";
const TRACKING: &str = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";

/// Signs a token as the token controller does.
fn sign_token(key: &rcgen::KeyPair, account: &Value) -> String {
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:d:sa",
        "kubernetes.io/serviceaccount/namespace": "d",
        "kubernetes.io/serviceaccount/secret.name": "t",
        "kubernetes.io/serviceaccount/service-account.name": "sa",
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
    });
    let header = json!({"alg": "ES256", "typ": "JWT"});
    let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let text = parts.join(".");
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, &key.serialize_der(), &random).unwrap();
    let signature = pair.sign(&random, text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn key_flag(path: &Path) -> String {
    format!("--service-account-signing-key-file={}", path.display())
}

/// Writes a new key that signs tokens; returns it with its path.
fn write_key(folder: &Path) -> (rcgen::KeyPair, PathBuf) {
    let key = rcgen::KeyPair::generate().unwrap();
    let path = folder.join(KEY);
    std::fs::write(&path, key.serialize_pem()).unwrap();
    (key, path)
}

/// Starts a server with an account whose Secrets are `listed`, and returns its token.
async fn start_with_token(listed: Value) -> (TestServer, String) {
    let folder = tempfile::tempdir().unwrap();
    let (key, path) = write_key(folder.path());
    let server = start_server_in(folder, &[&key_flag(&path), ISSUER]).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "sa"}, "secrets": listed});
    let accounts = "/api/v1/namespaces/d/serviceaccounts";
    let account = server.write("POST", accounts, account).await;
    assert_eq!(account.code, 201, "{}", account.text());
    let token = sign_token(&key, &account.json());
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "type": "kubernetes.io/service-account-token", "data": {"token": STANDARD.encode(&token)},
        "metadata": {"name": "t",
            "annotations": {"kubernetes.io/service-account.name": "sa"}}});
    let secret = server
        .write("POST", "/api/v1/namespaces/d/secrets", secret)
        .await;
    assert_eq!(secret.code, 201, "{}", secret.text());
    (server, token)
}

/// Sends a request that the account may not make: it is forbidden if the token is valid.
async fn send_with(server: &TestServer, token: &str) -> Answer {
    let request = Request::builder()
        .uri("/version")
        .header("authorization", format!("Bearer {token}"));
    server.send(request, "").await
}

/// Returns the Secret when its label has a value other than `before`.
async fn wait_for_label(server: &TestServer, before: Option<&str>) -> Value {
    soon(async {
        loop {
            let secret = server.get(SECRET).await.json();
            let label = secret.pointer(LAST_USED).and_then(Value::as_str);
            if label != before {
                return secret;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn use_of_a_token_is_recorded_once_a_day() {
    let (server, token) = start_with_token(json!([{"name": "t"}])).await;
    let labelling = tokio::spawn(label_used_secrets(server.server.clone()));
    let answer = send_with(&server, &token).await;
    assert_eq!(answer.code, 403, "{}", answer.text());
    let warning = answer.header("warning");
    assert!(warning.contains("auto-generated secret-based"), "{warning}");
    let secret = wait_for_label(&server, None).await;
    let label = secret.pointer(LAST_USED).and_then(Value::as_str).unwrap();
    let today = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC);
    let days = [today.date(), today.date().yesterday().unwrap()];
    assert!(days.iter().any(|day| day.to_string() == label), "{label}");
    // A label of another day is replaced, but one of today is not written again.
    let old =
        json!({"metadata": {"labels": {"kubernetes.io/legacy-token-last-used": "2001-01-01"}}});
    let patch = request("PATCH", SECRET).header("content-type", "application/merge-patch+json");
    assert_eq!(server.send(patch, old.to_string()).await.code, 200);
    // The cache of the server that verifies the token may lag.
    let secret = soon(async {
        loop {
            send_with(&server, &token).await;
            let secret = server.get(SECRET).await.json();
            if secret.pointer(LAST_USED) != Some(&json!("2001-01-01")) {
                return secret;
            }
        }
    })
    .await;
    for _ in 0..3 {
        send_with(&server, &token).await;
    }
    let page = server.get("/metrics").await;
    let page = page.text();
    for (name, is_counted) in [
        ("serviceaccount_legacy_tokens_total ", true),
        ("serviceaccount_legacy_auto_token_uses_total ", true),
        ("serviceaccount_legacy_manual_token_uses_total ", false),
    ] {
        let count = page.lines().find_map(|line| line.strip_prefix(name));
        let count: f64 = count.unwrap().parse().unwrap();
        assert_eq!(count > 0.0, is_counted, "{name}: {page}");
    }
    let now = server.get(SECRET).await.json();
    let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&now), version(&secret));
    labelling.abort();
}

/// Starts a server beside the first one, on its store and with its key.
async fn start_beside(first: &TestServer) -> TestServer {
    let key = key_flag(&first.folder.path().join(KEY));
    start_over(first.etcd.clone(), &[&key, ISSUER]).await
}

/// Holds back the store until both servers have sent a transaction, so that both change the Secret
/// that they read before.
async fn let_transactions_meet(server: &TestServer, before: usize) {
    soon(async {
        while server.etcd.count_requests("txn") < before + 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    server.etcd.stall(false);
}

#[tokio::test]
async fn servers_that_label_a_secret_at_the_same_time_both_succeed() {
    let (first, _) = start_with_token(Value::Null).await;
    let second = start_beside(&first).await;
    let uid = first.get(SECRET).await.json()["metadata"]["uid"].clone();
    let [namespace, name] = ["d", "t"].map(str::to_owned);
    let uid = uid.as_str().unwrap().to_owned();
    let used = UsedSecret {
        namespace,
        name,
        uid,
    };
    // The clock of a server may be ahead, and the later day stays, whichever server is first.
    for (days, label, writes) in [
        (["2026-02-27", "2026-02-27"], "2026-02-27", 1..=1),
        (["2026-02-28", "2026-03-01"], "2026-03-01", 1..=2),
        (["2026-03-03", "2026-03-02"], "2026-03-03", 1..=2),
    ] {
        let [one, other] = days.map(|day| day.parse().unwrap());
        let (transactions, revision) = (first.etcd.count_requests("txn"), first.etcd.revision());
        first.etcd.stall(true);
        let (one, other, ()) = tokio::join!(
            label_secret(&first.server, &used, one),
            label_secret(&second.server, &used, other),
            let_transactions_meet(&first, transactions),
        );
        assert_eq!((one, other), (Ok(()), Ok(())), "{days:?}");
        let secret = first.get(SECRET).await.json();
        assert_eq!(secret.pointer(LAST_USED), Some(&json!(label)), "{days:?}");
        let written = first.etcd.revision() - revision;
        assert!(writes.contains(&written), "{days:?}: {written}");
        let secret = second.get(SECRET).await.json();
        assert_eq!(secret.pointer(LAST_USED), Some(&json!(label)), "{days:?}");
    }
}

#[tokio::test]
async fn use_at_two_servers_is_recorded_beside_the_write_of_a_client() {
    let (first, token) = start_with_token(Value::Null).await;
    let second = start_beside(&first).await;
    let servers = [&first, &second];
    let labelling = servers.map(|server| tokio::spawn(label_used_secrets(server.server.clone())));
    let transactions = first.etcd.count_requests("txn");
    let revision = first.etcd.revision();
    first.etcd.stall(true);
    let patch = json!({"metadata": {"labels": {"owner": "alice"}}});
    let request = request("PATCH", SECRET).header("content-type", "application/merge-patch+json");
    let (one, other, patched, ()) = tokio::join!(
        send_with(&first, &token),
        send_with(&second, &token),
        second.send(request, patch.to_string()),
        // The client's transaction is the third one.
        let_transactions_meet(&first, transactions + 1),
    );
    assert_eq!((one.code, other.code, patched.code), (403, 403, 200));
    let secret = wait_for_label(&first, None).await;
    assert_eq!(
        secret.pointer("/metadata/labels/owner"),
        Some(&json!("alice"))
    );
    // The label is there once, and no later use of the day writes it again.
    for server in servers {
        wait_for_label(server, None).await;
        assert_eq!(send_with(server, &token).await.code, 403);
    }
    assert_eq!(first.etcd.revision(), revision + 2);
    for task in labelling {
        task.abort();
    }
}

#[tokio::test]
async fn marked_token_is_rejected_until_the_mark_is_removed() {
    let (server, token) = start_with_token(Value::Null).await;
    let answer = send_with(&server, &token).await;
    assert_eq!((answer.code, answer.header("warning")), (403, ""));
    for (mark, expect) in [(json!("2026-01-01"), 401), (Value::Null, 403)] {
        let patch = json!({"metadata":
            {"labels": {"kubernetes.io/legacy-token-invalid-since": mark}}});
        let request =
            request("PATCH", SECRET).header("content-type", "application/merge-patch+json");
        assert_eq!(server.send(request, patch.to_string()).await.code, 200);
        soon(async {
            while send_with(&server, &token).await.code != expect {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn start_of_tracking_is_created_and_mended() {
    let server = start_server(&[]).await;
    let ensure = async |may_create| {
        let done = ensure_tracking_start(&server.server, may_create).await;
        done.unwrap()
    };
    assert_eq!(ensure(false).await, Outcome::Kept);
    assert_eq!(server.get(TRACKING).await.code, 404);
    assert_eq!(ensure(true).await, Outcome::Created);
    let map = server.get(TRACKING).await.json();
    let since = map["data"]["since"].as_str().unwrap().to_owned();
    // A day of the past stays; one that can't be read is replaced.
    for (value, expect) in [("2001-01-01", "2001-01-01"), ("yesterday", since.as_str())] {
        let request =
            request("PATCH", TRACKING).header("content-type", "application/merge-patch+json");
        let patch = json!({"data": {"since": value, "other": "x"}});
        assert_eq!(server.send(request, patch.to_string()).await.code, 200);
        let map = soon(async {
            loop {
                // The cache may not show the patch yet.
                assert_eq!(ensure(true).await, Outcome::Kept);
                let map = server.get(TRACKING).await.json();
                if map["data"]["since"] == expect {
                    return map;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_eq!(map["data"]["other"], "x");
    }
}
