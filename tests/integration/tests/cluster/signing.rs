//! Certificates and tokens that controllers issue, and ClusterRoles that they aggregate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{Components, ReplyExt, Test, has_condition};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

async fn start() -> Test {
    Test::start(Components::All).await
}

/// Creates a CertificateSigningRequest for a user in a group; returns its path and the key in PEM.
async fn create_request(test: &Test, user: &str, group: &str, signer: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, user);
    parameters
        .distinguished_name
        .push(DnType::OrganizationName, group);
    let request = parameters.serialize_request(&key).unwrap().pem().unwrap();
    let name = test.name("csr");
    let object = json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(request),
        "signerName": signer, "usages": ["client auth"], "expirationSeconds": 3600}});
    test.create(REQUESTS, &object).await;
    (format!("{REQUESTS}/{name}"), key.serialize_pem())
}

async fn set_condition(test: &Test, path: &str, kind: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": "Test"});
    let patch = json!({"status": {"conditions": [condition]}});
    let path = format!("{path}/approval");
    test.admin
        .merge_patch(&path, &patch)
        .await
        .expect_status(200);
}

fn certificate_of(request: &Value) -> Option<Vec<u8>> {
    STANDARD
        .decode(request["status"]["certificate"].as_str()?)
        .ok()
}

#[tokio::test]
async fn approved_request_is_signed_and_authenticates() {
    let test = start().await;
    let user = test.name("jane");
    let (path, key) = create_request(&test, &user, "devs", CLIENT).await;
    set_condition(&test, &path, "Approved").await;
    let request = test
        .wait_until(&path, "signed", |request| certificate_of(request).is_some())
        .await;
    let certificate = certificate_of(&request).unwrap();
    let caller = test.plane().with_certificate(certificate, key.into_bytes());
    let client = test.connect(&caller).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reply = client
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await;
    let info = reply.expect_status(201).json()["status"]["userInfo"].take();
    assert_eq!(info["username"], user);
    assert_eq!(info["groups"], json!(["devs", "system:authenticated"]));
    client.get("/api/v1/nodes").await.expect_failure(
        403,
        "Forbidden",
        &format!("nodes is forbidden: User \"{user}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"),
    );
}

#[tokio::test]
async fn denied_request_is_not_signed() {
    let test = start().await;
    let (denied, _) = create_request(&test, "jane", "devs", CLIENT).await;
    set_condition(&test, &denied, "Denied").await;
    // Another request is signed meanwhile.
    let other = test.create_namespace(&json!({})).await;
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::default();
    parameters
        .distinguished_name
        .push(DnType::CommonName, "joe");
    let request = parameters.serialize_request(&key).unwrap().pem().unwrap();
    let object = json!({"metadata": {"name": format!("csr-{other}")}, "spec": {"request": STANDARD.encode(request),
        "signerName": CLIENT, "usages": ["client auth"]}});
    test.create(REQUESTS, &object).await;
    let path = format!("{REQUESTS}/csr-{other}");
    set_condition(&test, &path, "Approved").await;
    test.wait_until(&path, "signed", |request| certificate_of(request).is_some())
        .await;
    assert_eq!(certificate_of(&test.read(&denied).await), None);
}

#[tokio::test]
async fn request_outside_of_the_signers_rules_fails() {
    let test = start().await;
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let (path, _) = create_request(&test, "jane", "devs", signer).await;
    set_condition(&test, &path, "Approved").await;
    let request = test
        .wait_until(&path, "failed", |request| has_condition(request, "Failed"))
        .await;
    assert_eq!(certificate_of(&request), None);
    let conditions = request["status"]["conditions"].as_array().unwrap();
    let failed = conditions.iter().find(|c| c["type"] == "Failed").unwrap();
    assert_eq!(failed["reason"], "SignerValidationFailure");
}

#[tokio::test]
async fn token_secret_gets_a_token_of_its_account() {
    let test = start().await;
    let account = json!({"metadata": {"name": "robot"}});
    test.create(&test.core("serviceaccounts"), &account).await;
    let secret = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    test.create(&test.core("secrets"), &secret).await;
    let secret = test
        .wait_until(&test.core("secrets/token"), "filled", |secret| {
            secret["data"]["token"].is_string()
        })
        .await;
    let decode = |key: &str| {
        STANDARD
            .decode(secret["data"][key].as_str().unwrap())
            .unwrap()
    };
    assert_eq!(decode("namespace"), test.namespace.as_bytes());
    assert!(decode("ca.crt").starts_with(b"-----BEGIN CERTIFICATE-----"));
    let token = String::from_utf8(decode("token")).unwrap();
    let client = test.connect(&test.plane().bearer(&token)).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reply = client
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await;
    assert_eq!(
        reply.expect_status(201).json()["status"]["userInfo"]["username"],
        format!("system:serviceaccount:{}:robot", test.namespace)
    );
}

#[tokio::test]
async fn cluster_role_aggregates_the_rules_of_others() {
    let test = start().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (whole, part) = (test.name("whole"), test.name("part"));
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": part, "labels": {"part-of": whole}}, "rules": rules});
    test.create(path, &role).await;
    let role = json!({"metadata": {"name": whole}, "rules": [], "aggregationRule":
        {"clusterRoleSelectors": [{"matchLabels": {"part-of": whole}}]}});
    test.create(path, &role).await;
    test.wait_until(&format!("{path}/{whole}"), "aggregated", |role| {
        role["rules"] == rules
    })
    .await;
    test.wait_until(&format!("{path}/view"), "aggregated", |role| {
        role["rules"]
            .as_array()
            .is_some_and(|rules| !rules.is_empty())
    })
    .await;
}
