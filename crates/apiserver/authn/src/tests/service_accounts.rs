use super::*;
use crate::service_account::{AccountTokens, ServiceAccounts, TokenIssuer};
use crate::{Authn, Options};
use apiserver_request::Warnings;
use rcgen::KeyPair;

fn object(name: &str, namespace: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("{name}-uid")}, "spec": spec})
}

fn objects() -> Vec<(&'static str, Value)> {
    vec![
        ("serviceaccounts", object("sa", "n", json!({}))),
        (
            "pods",
            object(
                "pod",
                "n",
                json!({"serviceAccountName": "sa", "nodeName": "node"}),
            ),
        ),
        (
            "pods",
            object("other", "n", json!({"serviceAccountName": "default"})),
        ),
        ("nodes", object("node", "", json!({}))),
        ("secrets", object("secret", "n", json!({}))),
    ]
}

/// An issuer and verifiers that share one key file.
struct Cluster {
    directory: tempfile::TempDir,
    options: ServiceAccounts,
}

impl Cluster {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = write_file(
            directory.path(),
            "sa.key",
            &KeyPair::generate().unwrap().serialize_pem(),
        );
        let options = ServiceAccounts {
            issuers: vec!["https://issuer".into()],
            signing_key_file: Some(key),
            ..ServiceAccounts::default()
        };
        Cluster { directory, options }
    }

    fn issue(&self, spec: Value) -> Result<Value, String> {
        let issuer = TokenIssuer::new(&self.options, fake_objects(objects()))
            .unwrap()
            .unwrap();
        let account = object("sa", "n", json!({}));
        complete(issuer.issue(&account, json!({"spec": spec}))).map_err(|error| error.message)
    }

    fn token(&self, spec: Value) -> String {
        self.issue(spec).unwrap()["status"]["token"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Verifies against `objects`; returns the audiences that match.
    fn verify(
        &self,
        token: &str,
        audiences: &[&str],
        objects: Vec<(&'static str, Value)>,
    ) -> Result<Option<Vec<String>>, String> {
        let tokens = AccountTokens::new(&self.options, fake_objects(objects)).unwrap();
        let audiences: Vec<String> = audiences.iter().map(|a| (*a).to_owned()).collect();
        let verified = complete(tokens.verify(token, &audiences, &Warnings::default()))?;
        Ok(verified.map(|(user, audiences)| {
            assert_eq!(user.name, "system:serviceaccount:n:sa");
            assert_eq!(
                user.groups,
                ["system:serviceaccounts", "system:serviceaccounts:n"]
            );
            audiences
        }))
    }
}

fn payload(token: &str) -> Value {
    use base64::Engine;
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(
        &base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(part)
            .unwrap(),
    )
    .unwrap()
}

fn bound_to(kind: &str, name: &str) -> Value {
    json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}})
}

#[test]
fn issued_token_authenticates_its_account() {
    let cluster = Cluster::new();
    let token = cluster.token(json!({}));
    assert_eq!(
        cluster.verify(&token, &[], objects()),
        Ok(Some(vec!["https://issuer".into()]))
    );
}

#[test]
fn token_is_valid_for_its_audiences_only() {
    let cluster = Cluster::new();
    let token = cluster.token(json!({"audiences": ["vault", "db"]}));
    assert_eq!(
        cluster.verify(&token, &["db", "web"], objects()),
        Ok(Some(vec!["db".into()]))
    );
    assert!(cluster.verify(&token, &["web"], objects()).is_err());
    assert!(cluster.verify(&token, &[], objects()).is_err());
}

#[test]
fn token_review_returns_the_audiences_that_both_sides_name() {
    let mut cluster = Cluster::new();
    cluster.options.audiences = vec!["one".into(), "two".into()];
    let account = cluster.token(json!({"audiences": ["two"]}));
    let options = Options {
        token_auth_file: Some(write_file(cluster.directory.path(), "tokens", "static,u,1")),
        audiences: cluster.options.api_audiences(),
        service_accounts: Some(cluster.options.clone()),
        ..Options::default()
    };
    let authn = Authn::new(options, fake_objects(objects())).unwrap();
    for (token, wanted, expect) in [
        ("static", &[][..], Some(json!(["one", "two"]))),
        ("static", &["two", "vault"], Some(json!(["two"]))),
        ("static", &["vault"], None),
        (&account, &[], Some(json!(["two"]))),
        (&account, &["two"], Some(json!(["two"]))),
        // Valid for this server, but not for the audience of the review.
        (&account, &["one"], None),
    ] {
        let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
        let review = complete(authn.review(token, &wanted, &Arc::default()));
        assert_eq!(
            review.get("audiences"),
            expect.as_ref(),
            "{wanted:?}: {review}"
        );
    }
}

#[test]
fn token_lifetime_is_between_ten_minutes_and_2_32_seconds() {
    let cluster = Cluster::new();
    for (seconds, why) in [
        (
            599_i64,
            Some("may not specify a duration less than 10 minutes"),
        ),
        (600, None),
        (
            (1 << 32) + 1,
            Some("may not specify a duration larger than 2^32 seconds"),
        ),
    ] {
        let result = cluster.issue(json!({"expirationSeconds": seconds}));
        match why {
            Some(why) => assert!(result.unwrap_err().contains(why), "{seconds}"),
            None => assert_eq!(result.unwrap()["spec"]["expirationSeconds"], seconds),
        }
    }
}

#[test]
fn operator_limit_shortens_a_token() {
    let mut cluster = Cluster::new();
    cluster.options.max_expiration_seconds = Some(1000);
    let claims = payload(&cluster.token(json!({"expirationSeconds": 5000})));
    assert_eq!(
        claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
        1000
    );
}

#[test]
fn mounted_token_of_a_pod_is_extended_and_warns_after_its_nominal_lifetime() {
    let mut cluster = Cluster::new();
    cluster.options.extend_expiration = true;
    let mut spec = bound_to("Pod", "pod");
    spec["expirationSeconds"] = 3607.into();
    let claims = payload(&cluster.token(spec));
    let issued = claims["iat"].as_i64().unwrap();
    assert_eq!(claims["exp"].as_i64().unwrap() - issued, 365 * 24 * 3600);
    assert_eq!(
        claims["kubernetes.io"]["warnafter"].as_i64().unwrap() - issued,
        3607
    );
    let unbound = payload(&cluster.token(json!({"expirationSeconds": 3607})));
    assert_eq!(
        unbound["exp"].as_i64().unwrap() - unbound["iat"].as_i64().unwrap(),
        3607
    );
}

#[test]
fn token_of_a_pod_names_pod_and_node() {
    let claims = payload(&Cluster::new().token(bound_to("Pod", "pod")));
    assert_eq!(
        claims["kubernetes.io"]["pod"],
        json!({"name": "pod", "uid": "pod-uid"})
    );
    assert_eq!(
        claims["kubernetes.io"]["node"],
        json!({"name": "node", "uid": "node-uid"})
    );
}

#[test]
fn token_is_bound_to_existing_objects_of_the_account_only() {
    let cluster = Cluster::new();
    let stale = json!({"boundObjectRef": {"kind": "Pod", "name": "pod", "uid": "old"}});
    for (spec, why) in [
        (
            bound_to("Pod", "other"),
            "cannot bind token for serviceaccount \"sa\" to pod running with different serviceaccount name.",
        ),
        (bound_to("Pod", "none"), "pods \"none\" not found"),
        (
            bound_to("ConfigMap", "c"),
            "cannot bind token for serviceaccount \"sa\" to an unknown object of kind \"ConfigMap\"",
        ),
        (
            stale,
            "the UID in the bound object reference (old) does not match the UID in record",
        ),
    ] {
        let error = cluster.issue(spec).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn token_ends_with_the_object_that_it_is_bound_to() {
    let cluster = Cluster::new();
    for (kind, name, plural) in [
        ("Pod", "pod", "pods"),
        ("Secret", "secret", "secrets"),
        ("Node", "node", "nodes"),
    ] {
        let token = cluster.token(bound_to(kind, name));
        assert!(cluster.verify(&token, &[], objects()).is_ok(), "{kind}");
        let mut without = objects();
        without.retain(|(resource, _)| *resource != plural);
        assert!(cluster.verify(&token, &[], without).is_err(), "{kind}");
        let mut recreated = objects();
        recreated
            .iter_mut()
            .filter(|(resource, _)| *resource == plural)
            .for_each(|(_, o)| o["metadata"]["uid"] = "new".into());
        assert!(cluster.verify(&token, &[], recreated).is_err(), "{kind}");
    }
}

#[test]
fn token_of_a_deleted_account_is_rejected_after_a_minute() {
    let cluster = Cluster::new();
    let token = cluster.token(json!({}));
    let deleted = |ago: i64| {
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(ago);
        let mut all = objects();
        all[0].1["metadata"]["deletionTimestamp"] = api_meta::time::format(at).into();
        all
    };
    assert!(cluster.verify(&token, &[], deleted(10)).is_ok());
    assert!(cluster.verify(&token, &[], deleted(120)).is_err());
}

#[test]
fn token_with_another_signature_is_rejected() {
    let cluster = Cluster::new();
    let foreign = Cluster::new().token(json!({}));
    assert!(cluster.verify(&foreign, &[], objects()).is_err());
    assert!(!cluster.directory.path().as_os_str().is_empty());
}

#[test]
fn token_of_an_unknown_issuer_is_left_to_other_authenticators() {
    let mut cluster = Cluster::new();
    let token = cluster.token(json!({}));
    cluster.options.issuers = vec!["https://other".into()];
    assert_eq!(cluster.verify(&token, &[], objects()), Ok(None));
    assert_eq!(cluster.verify("not-a-jwt", &[], objects()), Ok(None));
}

#[test]
fn discovery_documents_describe_issuer_and_key() {
    let cluster = Cluster::new();
    let tokens = AccountTokens::new(&cluster.options, fake_objects(Vec::new())).unwrap();
    let document = tokens.openid_configuration("10.0.0.1:6443");
    assert_eq!(
        (&document["issuer"], &document["jwks_uri"]),
        (
            &json!("https://issuer"),
            &json!("https://10.0.0.1:6443/openid/v1/jwks")
        )
    );
    assert_eq!(
        document["id_token_signing_alg_values_supported"],
        json!(["ES256"])
    );
    let key = &tokens.jwks()["keys"][0];
    assert_eq!(
        (&key["kty"], &key["crv"], &key["use"]),
        (&json!("EC"), &json!("P-256"), &json!("sig"))
    );
}
