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
        key: Arc::new(Followed::load(Vec::new(), |_| Ok(make_key())).unwrap()),
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

#[test]
fn changed_key_signs_new_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sa.key");
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}}))
            .unwrap();
    let keys = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    std::fs::write(&path, keys[0].serialize_pem()).unwrap();
    let followed = TokenKey::follow_file(&path).unwrap();
    // Returns whether the current token is signed with this key.
    let is_signed = |key: &rcgen::KeyPair| {
        let token = followed.refresh().sign(&account, &make_secret()).unwrap();
        let public = jsonwebtoken::DecodingKey::from_ec_pem(key.public_key_pem().as_bytes());
        let mut rules = jsonwebtoken::Validation::new(Algorithm::ES256);
        rules.required_spec_claims.clear();
        rules.validate_exp = false;
        jsonwebtoken::decode::<serde_json::Value>(&token, &public.unwrap(), &rules).is_ok()
    };
    assert!(is_signed(&keys[0]));
    // All sizes differ, because times of two quick writes may be equal.
    for text in ["broken\n".to_owned(), keys[1].serialize_pem() + "\n"] {
        std::fs::write(&path, &text).unwrap();
        let is_new = text != "broken\n";
        assert_eq!(
            [is_signed(&keys[0]), is_signed(&keys[1])],
            [!is_new, is_new]
        );
    }
}

/// Reads of files block a thread of the runtime, so the watch of the files makes them.
#[tokio::test]
async fn reconcile_reads_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "1").unwrap();
    let always = std::time::Duration::ZERO;
    let key = Followed::load(vec![path.clone()], |_| Ok(make_key())).unwrap();
    let ca = Followed::load(vec![path.clone()], |_| Ok("CA".to_owned())).unwrap();
    let account = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
    let tokens = Tokens {
        secrets: Cache::with_objects(vec![make_secret()]),
        accounts: Cache::with_objects(vec![serde_json::from_value(account).unwrap()]),
        key: Arc::new(key.check_every(always)),
        ca: Some(Arc::new(ca.check_every(always))),
    };
    let (client, _) = serve(|_| None).await.unwrap();
    let executor = Executor::new(
        Arc::new(Accounts::new(client, false).for_controller("t")),
        Recorder::disconnected(),
    );
    let ca = tokens.ca.as_ref().unwrap();
    let before = (tokens.key.last_read(), ca.last_read());
    std::fs::write(&path, "22").unwrap();
    let actions = tokens.reconcile("n/t", &executor).await.unwrap();
    assert_eq!(describe_actions(&actions), ["update Secret t"]);
    let after = (tokens.key.last_read(), ca.last_read());
    assert!(Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1));
    assert!(!Arc::ptr_eq(&before.0, &tokens.key.current()));
}
