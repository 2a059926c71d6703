#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use client::events::Recorder;
use controllers_runtime::testing::serve;
use controllers_runtime::{Accounts, describe};

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
        Arc::new(Accounts::new(client, false).of("t")),
        Recorder::disconnected(),
    );
    let tokens = Tokens {
        secrets: Cache::fixed(vec![make_secret()]),
        accounts: Cache::fixed(Vec::new()),
        key: make_key(),
        ca: None,
    };
    describe(&tokens.reconcile("n/t", &executor).await.unwrap())
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
        describe(&reconcile_secret(&old, Some(&account), &make_key(), None)),
        ["delete Secret t"]
    );
    assert_eq!(
        describe(&reconcile_secret(&old, None, &make_key(), None)),
        ["delete Secret t"]
    );
}
