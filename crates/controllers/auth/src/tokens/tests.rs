#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use client::events::Recorder;
use controllers_runtime::testing::serve;
use controllers_runtime::{Accounts, describe_actions};

fn make_secret() -> Secret {
    serde_json::from_value(
        json!({"metadata": {"name": "t", "namespace": "n", "uid": "s", "annotations": {NAME: "a"}},
        "type": TYPE}),
    )
    .unwrap()
}

fn make_key() -> TokenKey {
    TokenKey::from_pem(
        rcgen::KeyPair::generate()
            .unwrap()
            .serialize_pem()
            .as_bytes(),
    )
    .unwrap()
}

/// Returns the actions for a Secret whose account is missing in the cache; `server` is the API
/// server's response.
async fn reconcile_without_cached_account(server: &'static str) -> Vec<String> {
    let (client, _) = serve(move |_| Some(server.to_owned())).await.unwrap();
    let executor = Executor::new(
        Arc::new(Accounts::new(client, false).for_controller("t")),
        Recorder::disconnected(),
    );
    let tokens = Tokens {
        secrets: Cache::with_objects(vec![make_secret()]),
        accounts: Cache::with_objects(Vec::new()),
        key: make_key(),
        ca: None,
    };
    describe_actions(&tokens.reconcile("n/t", &executor).await.unwrap())
}

#[tokio::test]
async fn token_secret_of_an_account_that_the_cache_lacks_is_filled() {
    let got =
        reconcile_without_cached_account(r#"{"metadata":{"name":"a","namespace":"n","uid":"u"}}"#)
            .await;
    assert_eq!(got, ["update Secret t"]);
}

#[tokio::test]
async fn token_secret_of_an_account_of_another_uid_is_deleted() {
    let mut old = make_secret();
    old.metadata
        .annotations
        .get_or_insert_default()
        .insert(UID.to_owned(), "earlier".to_owned());
    let account =
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}}))
            .unwrap();
    assert_eq!(
        describe_actions(&reconcile_secret(&old, Some(&account), &make_key(), None)),
        ["delete Secret t"]
    );
    assert_eq!(
        describe_actions(&reconcile_secret(&old, None, &make_key(), None)),
        ["delete Secret t"]
    );
}

#[test]
fn secret_in_deletion_is_left_alone() {
    let mut secret = make_secret();
    secret.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
    assert!(reconcile_secret(&secret, None, &make_key(), None).is_empty());
}

#[test]
fn token_names_the_account_and_the_secret_and_is_kept() {
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}}))
            .unwrap();
    let key = make_key();
    let got = reconcile_secret(&make_secret(), Some(&account), &key, Some("CA"));
    let filled: Secret = serde_json::from_value(got[0].as_write().unwrap().body.clone()).unwrap();
    let data = filled.data.clone().unwrap();
    assert_eq!(data["namespace"].0, b"n");
    assert_eq!(data["ca.crt"].0, b"CA");
    let token = String::from_utf8(data["token"].0.clone()).unwrap();
    assert_eq!(token.split('.').count(), 3);
    assert!(reconcile_secret(&filled, Some(&account), &key, Some("CA")).is_empty());
}

#[test]
fn changed_root_ca_updates_the_secret_but_not_its_token() {
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}}))
            .unwrap();
    let key = make_key();
    let fill = |secret: &Secret, ca: &str| -> Secret {
        let got = reconcile_secret(secret, Some(&account), &key, Some(ca));
        serde_json::from_value(got[0].as_write().unwrap().body.clone()).unwrap()
    };
    let first = fill(&make_secret(), "old");
    let second = fill(&first, "new");
    let data = |secret: &Secret, field: &str| secret.data.as_ref().unwrap()[field].clone();
    assert_eq!(data(&first, "token"), data(&second, "token"));
    assert_eq!(data(&second, "ca.crt").0, b"new");
}
