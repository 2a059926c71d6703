//! Tokens of other issuers: what a token, its issuer or a changed configuration must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit_control_plane::{ControlPlane, Options, Reply, WebhookReply, WebhookServer};

/// Longer than the interval in which a file is checked, and than that between two fetches of keys.
const PATIENCE: Duration = Duration::from_secs(60);

struct SigningKey {
    id: &'static str,
    private: EncodingKey,
    public: Value,
}

impl SigningKey {
    fn create(id: &'static str) -> Self {
        base_jwt::install_provider();
        let (scheme, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(scheme, document.as_ref(), &random).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let public = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id,
            "x": encode(x), "y": encode(y)});
        SigningKey {
            id,
            private: EncodingKey::from_ec_der(document.as_ref()),
            public,
        }
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.to_owned());
        encode(&header, claims, &self.private).unwrap()
    }
}

/// The documents that an issuer publishes.
#[derive(Default)]
struct Published {
    url: String,
    keys: Vec<Value>,
}

/// An issuer over TLS on loopback.
struct Issuer {
    server: WebhookServer,
    published: Arc<Mutex<Published>>,
}

impl Issuer {
    async fn start() -> Self {
        let published: Arc<Mutex<Published>> = Arc::default();
        let served = published.clone();
        let server = WebhookServer::start(&[], move |path, _| {
            let published = served.lock().unwrap();
            let url = &published.url;
            match path {
                "/.well-known/openid-configuration" => WebhookReply::json(
                    &json!({"issuer": url, "jwks_uri": format!("{url}/keys?kind=all")}),
                ),
                "/keys" => WebhookReply::json(&json!({"keys": published.keys})),
                _ => WebhookReply {
                    status: 404,
                    headers: Vec::new(),
                    body: Default::default(),
                    delay: Duration::ZERO,
                },
            }
        })
        .await;
        published.lock().unwrap().url = server.url("");
        Issuer { server, published }
    }

    fn url(&self) -> String {
        self.server.url("")
    }

    fn publish(&self, keys: &[&SigningKey]) {
        self.published.lock().unwrap().keys = keys.iter().map(|key| key.public.clone()).collect();
    }

    /// Returns the number of fetches of keys.
    fn count_fetches(&self) -> usize {
        let received = self.server.received();
        let of_keys = received.iter().filter(|r| r.path == "/keys?kind=all");
        of_keys.count()
    }

    fn claims(&self, changes: &Value) -> Value {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let mut claims = json!({"iss": self.url(), "aud": ["other", "cluster"], "sub": "ada",
            "exp": now + 3600, "nbf": now, "roles": ["dev", "ops"], "tenant": "blue", "jti": "7"});
        let changed = changes.as_object().unwrap().clone();
        claims.as_object_mut().unwrap().extend(changed);
        claims
    }

    fn config(&self, user_prefix: &str) -> Value {
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": self.url(), "audiences": ["cluster", "second"],
                    "audienceMatchPolicy": "MatchAny",
                    "certificateAuthority": self.server.authority()},
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": user_prefix},
                    "groups": {"expression": "claims.roles.map(role, 'sso:' + role)"},
                    "uid": {"claim": "jti"},
                    "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}]},
                "claimValidationRules": [
                    {"expression": "claims.tenant in ['blue', 'green']", "message": "tenant"}],
                "userValidationRules": [
                    {"expression": "!user.username.startsWith('system:')", "message": "reserved"}],
            }],
        })
    }
}

fn write_config(path: &Path, config: &Value) {
    // Renamed into place, so that no half of a file is read.
    let next = path.with_extension("next");
    std::fs::write(&next, config.to_string()).unwrap();
    std::fs::rename(next, path).unwrap();
}

async fn identify(plane: &ControlPlane, token: &str) -> Reply {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    plane.bearer(token).post(path, &review).await
}

/// Waits until a token has this status.
async fn wait_for_status(plane: &ControlPlane, token: &str, status: u16) -> Reply {
    let begun = Instant::now();
    loop {
        let reply = identify(plane, token).await;
        if reply.status == status {
            return reply;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Issues a token of a ServiceAccount: other authenticators get the tokens of other issuers.
async fn identify_account(plane: &ControlPlane) {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    plane
        .admin()
        .post(accounts, &account)
        .await
        .expect_success();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let path = format!("{accounts}/bot/token");
    let issued = plane.admin().post(&path, &request).await.expect_success();
    let token = issued.json()["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let reply = identify(plane, &token).await.expect_success().json();
    let name = &reply["status"]["userInfo"]["username"];
    assert_eq!(*name, "system:serviceaccount:default:bot");
}

fn encode_json(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

async fn start_plane(config: &Path) -> ControlPlane {
    let flag = format!("--authentication-config={}", config.display());
    ControlPlane::start_with_flags(&[&flag]).await
}

/// Only a token that the issuer has signed for this cluster, which is valid now and satisfies the
/// rules, is a user.
#[tokio::test(flavor = "multi_thread")]
async fn forged_or_foreign_token_is_no_user() {
    let begun = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authentication.json");
    let (issuer, key) = (Issuer::start().await, SigningKey::create("one"));
    issuer.publish(&[&key]);
    write_config(&config, &issuer.config("sso:"));
    let plane = start_plane(&config).await;
    let good = key.sign(&issuer.claims(&json!({})));
    let user = identify(&plane, &good).await.expect_success().json();
    let user = &user["status"]["userInfo"];
    assert_eq!(
        *user,
        json!({"username": "sso:ada", "uid": "7",
            "groups": ["sso:dev", "sso:ops", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7"],
                "example.com/tenant": ["blue"]}})
    );
    let payload = good.split('.').nth(1).unwrap();
    let unsigned = format!("{}.{payload}.", encode_json(&json!({"alg": "none"})));
    let secret = EncodingKey::from_secret(key.public.to_string().as_bytes());
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("one".to_owned());
    let hmac = encode(&header, &issuer.claims(&json!({})), &secret).unwrap();
    let mut tampered = good.clone();
    tampered.replace_range(good.len() - 4.., "AAAA");
    let changed = |changes: Value| key.sign(&issuer.claims(&changes));
    for (case, token) in [
        ("other audience", changed(json!({"aud": "other"}))),
        ("no audience", changed(json!({"aud": null}))),
        ("expired", changed(json!({"exp": 1_000_000_000}))),
        ("no expiration", changed(json!({"exp": null}))),
        ("not yet valid", changed(json!({"nbf": 99_999_999_999_u64}))),
        (
            "other issuer",
            changed(json!({"iss": "https://other.example.com"})),
        ),
        ("none", unsigned),
        ("public key as secret", hmac),
        ("tampered", tampered),
        (
            "unknown key",
            SigningKey::create("two").sign(&issuer.claims(&json!({}))),
        ),
        (
            "key of the same name",
            SigningKey::create("one").sign(&issuer.claims(&json!({}))),
        ),
        ("claim rule", changed(json!({"tenant": "red"}))),
        ("claim without a value", changed(json!({"sub": ""}))),
        ("no claim", changed(json!({"sub": null}))),
    ] {
        let reply = identify(&plane, &token).await;
        assert_eq!(reply.status, 401, "{case}: {}", reply.text());
        assert!(!reply.text().contains("oidc"), "{case}: {}", reply.text());
    }
    identify(&plane, &good).await.expect_success();
    identify_account(&plane).await;
    // Forged tokens cause few requests to the issuer: one in 5 s.
    let most = 3 + begun.elapsed().as_secs() / 5;
    let fetches = issuer.count_fetches();
    assert!(fetches as u64 <= most, "{fetches} of {most}");
    let metrics = plane.admin().get("/metrics").await.text();
    for name in [
        "apiserver_authentication_jwt_authenticator_latency_seconds_count{result=\"success\"",
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{jwt_issuer_hash=\"sha256:",
        "apiserver_authentication_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(name), "{name}");
    }
}

/// A rotated key works without a restart, and so does a changed configuration. One that can't be
/// used changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn rotated_key_and_changed_configuration_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authentication.json");
    let (issuer, old) = (Issuer::start().await, SigningKey::create("old"));
    write_config(&config, &issuer.config("sso:"));
    let plane = start_plane(&config).await;
    let token = |key: &SigningKey, sub: &str| key.sign(&issuer.claims(&json!({"sub": sub})));
    // The server has started although the issuer has no keys yet.
    identify(&plane, &token(&old, "ada"))
        .await
        .expect_status(401);
    issuer.publish(&[&old]);
    wait_for_status(&plane, &token(&old, "ada"), 201).await;
    let new = SigningKey::create("new");
    issuer.publish(&[&new]);
    wait_for_status(&plane, &token(&new, "ada"), 201).await;
    identify(&plane, &token(&old, "ada"))
        .await
        .expect_status(401);

    let mut broken = issuer.config("");
    broken["jwt"][0]["claimValidationRule"] = json!([]);
    write_config(&config, &broken);
    let failed = "automatic_reloads_total{status=\"failure\"";
    let begun = Instant::now();
    while !plane.admin().get("/metrics").await.text().contains(failed) {
        identify(&plane, &token(&new, "ada")).await.expect_success();
        assert!(begun.elapsed() < PATIENCE, "the change was not noticed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let reply = identify(&plane, &token(&new, "ada")).await.expect_success();
    assert_eq!(reply.json()["status"]["userInfo"]["username"], "sso:ada");

    write_config(&config, &issuer.config(""));
    // Without the prefix, the rule about users refuses names of the system.
    wait_for_status(&plane, &token(&new, "system:admin"), 401).await;
    let reply = identify(&plane, &token(&new, "ada")).await.expect_success();
    assert_eq!(reply.json()["status"]["userInfo"]["username"], "ada");
    write_config(
        &config,
        &json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}),
    );
    wait_for_status(&plane, &token(&new, "ada"), 401).await;
}

/// A server with another certificate than the configured CA's is not believed.
#[tokio::test(flavor = "multi_thread")]
async fn issuer_with_an_unverified_certificate_has_no_keys() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authentication.json");
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let key = SigningKey::create("one");
    issuer.publish(&[&key]);
    let mut written = issuer.config("sso:");
    written["jwt"][0]["issuer"]["certificateAuthority"] = other.server.authority().into();
    write_config(&config, &written);
    let plane = start_plane(&config).await;
    let token = key.sign(&issuer.claims(&json!({})));
    identify(&plane, &token).await.expect_status(401);
    assert!(issuer.server.received().is_empty());
}

/// The flags describe one issuer too, and are refused beside a file.
#[tokio::test(flavor = "multi_thread")]
async fn issuer_of_the_flags_needs_its_required_claim() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, key) = (Issuer::start().await, SigningKey::create("one"));
    issuer.publish(&[&key]);
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, issuer.server.authority()).unwrap();
    let plane = ControlPlane::start_with_flags(&[
        &format!("--oidc-issuer-url={}", issuer.url()),
        "--oidc-client-id=cluster",
        &format!("--oidc-ca-file={}", ca.display()),
        "--oidc-groups-claim=roles",
        "--oidc-groups-prefix=g:",
        "--oidc-required-claim=tenant=blue",
        "--oidc-signing-algs=ES256",
    ])
    .await;
    let good = key.sign(&issuer.claims(&json!({})));
    let user = identify(&plane, &good).await.expect_success().json();
    let user = &user["status"]["userInfo"];
    assert_eq!(user["username"], format!("{}#ada", issuer.url()));
    assert_eq!(
        user["groups"],
        json!(["g:dev", "g:ops", "system:authenticated"])
    );
    let other = key.sign(&issuer.claims(&json!({"tenant": "red"})));
    identify(&plane, &other).await.expect_status(401);

    let config = folder.path().join("authentication.json");
    write_config(&config, &issuer.config("sso:"));
    let both = Options {
        api_server: vec![
            format!("--authentication-config={}", config.display()),
            "--oidc-issuer-url=https://issuer.example.com".to_owned(),
            "--oidc-client-id=cluster".to_owned(),
        ],
        ..Options::default()
    };
    let error = ControlPlane::try_start(&both).await.err();
    assert!(error.is_some(), "a file and flags together are refused");
}
