//! Client certificates, service-account tokens, reviews, and CertificateSigningRequests.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use integration_tests::{Components, Http2Client, ReplyExt, Test, pod_with, wait_for};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

const SIGNING_REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

async fn read_user_info(client: &Http2Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    client.post(path, &review).await.expect_status(201).json()["status"]["userInfo"].take()
}

async fn create_account(test: &Test, name: &str) {
    let account = json!({"metadata": {"name": name}});
    test.create(&test.core("serviceaccounts"), &account).await;
}

/// Requests a token of the account `robot`.
async fn request_token(test: &Test, spec: Value) -> integration_tests::Reply {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    test.admin
        .post(&test.core("serviceaccounts/robot/token"), &request)
        .await
}

async fn create_token(test: &Test, spec: Value) -> String {
    let request = request_token(test, spec).await.expect_status(201).json();
    request["status"]["token"].as_str().unwrap().to_owned()
}

async fn connect_with_token(test: &Test, token: &str) -> Http2Client {
    test.connect(&test.plane().bearer(token)).await
}

fn claims_of(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

async fn review_token(test: &Test, spec: Value) -> Value {
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    test.create(path, &review).await["status"].take()
}

fn signing_request(name: &str, user: &str, group: &str, signer: &str) -> Value {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, user);
    parameters
        .distinguished_name
        .push(DnType::OrganizationName, group);
    let request = parameters
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap();
    json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(request.pem().unwrap()),
        "signerName": signer, "usages": ["client auth"]}})
}

/// Adds a condition to a CertificateSigningRequest.
async fn set_condition(test: &Test, name: &str, kind: &str) -> integration_tests::Reply {
    let mut object = test.read(&format!("{SIGNING_REQUESTS}/{name}")).await;
    let mut conditions = object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions
        .push(json!({"type": kind, "status": "True", "reason": "Test", "message": "by the test"}));
    object["status"]["conditions"] = json!(conditions);
    test.admin
        .put(&format!("{SIGNING_REQUESTS}/{name}/approval"), &object)
        .await
}

#[tokio::test]
async fn certificate_is_a_user_in_its_groups() {
    let test = start().await;
    let caller = test.plane().user(&test.name("jane"), Some("devs"));
    let info = read_user_info(&test.connect(&caller).await).await;
    assert_eq!(info["username"], test.name("jane"));
    assert_eq!(info["groups"], json!(["devs", "system:authenticated"]));
}

#[tokio::test]
async fn client_without_credentials_is_anonymous() {
    let test = start().await;
    let client = test.connect(&test.plane().anonymous()).await;
    client.get("/livez").await.expect_status(200);
    client.get("/version").await.expect_status(200);
    client.get("/api/v1/namespaces").await.expect_failure(
        403,
        "Forbidden",
        "namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \"\" at \
         the cluster scope",
    );
}

#[tokio::test]
async fn malformed_token_is_unauthorized() {
    let test = start().await;
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.";
    for token in ["nonsense", "a.b.c", unsigned, &"x".repeat(5000)] {
        let client = connect_with_token(&test, token).await;
        let reply = client.get("/version").await;
        reply.expect_failure(401, "Unauthorized", "Unauthorized");
    }
}

#[tokio::test]
async fn token_of_an_account_is_its_user() {
    let test = start().await;
    create_account(&test, "robot").await;
    let token = create_token(&test, json!({"expirationSeconds": 600})).await;
    let claims = claims_of(&token);
    let user = format!("system:serviceaccount:{}:robot", test.namespace);
    assert_eq!(claims["sub"], user);
    assert_eq!(claims["iss"], "https://kubernetes.default.svc");
    assert_eq!(claims["kubernetes.io"]["namespace"], test.namespace);
    assert_eq!(claims["kubernetes.io"]["serviceaccount"]["name"], "robot");
    assert_eq!(
        claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
        600
    );
    let info = read_user_info(&connect_with_token(&test, &token).await).await;
    assert_eq!(info["username"], user);
    assert_eq!(
        info["groups"],
        json!([
            "system:serviceaccounts",
            format!("system:serviceaccounts:{}", test.namespace),
            "system:authenticated"
        ])
    );
    assert_eq!(
        info["extra"]["authentication.kubernetes.io/credential-id"],
        json!([format!("JTI={}", claims["jti"].as_str().unwrap())])
    );
}

#[tokio::test]
async fn token_with_a_changed_claim_is_unauthorized() {
    let test = start().await;
    create_account(&test, "robot").await;
    let token = create_token(&test, json!({})).await;
    let mut claims = claims_of(&token);
    claims["sub"] = json!("system:serviceaccount:kube-system:default");
    let parts: Vec<&str> = token.split('.').collect();
    let forged = format!(
        "{}.{}.{}",
        parts[0],
        URL_SAFE_NO_PAD.encode(claims.to_string()),
        parts[2]
    );
    let client = connect_with_token(&test, &forged).await;
    client
        .get("/version")
        .await
        .expect_reason(401, "Unauthorized");
}

#[tokio::test]
async fn token_of_another_audience_is_unauthorized() {
    let test = start().await;
    create_account(&test, "robot").await;
    let token = create_token(&test, json!({"audiences": ["https://other.example"]})).await;
    assert_eq!(claims_of(&token)["aud"], json!(["https://other.example"]));
    let client = connect_with_token(&test, &token).await;
    client.get("/api").await.expect_reason(401, "Unauthorized");
    let status = review_token(&test, json!({"token": token})).await;
    assert_ne!(status["authenticated"], true);
    let spec = json!({"token": token, "audiences": ["https://other.example", "x"]});
    let status = review_token(&test, spec).await;
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["https://other.example"]))
    );
}

#[tokio::test]
async fn review_of_a_malformed_token_has_an_error() {
    let test = start().await;
    let status = review_token(&test, json!({"token": "nonsense"})).await;
    assert_ne!(status["authenticated"], true);
    assert!(status["error"].is_string(), "{status}");
}

#[tokio::test]
async fn token_lasts_at_least_ten_minutes() {
    let test = start().await;
    create_account(&test, "robot").await;
    let reply = request_token(&test, json!({"expirationSeconds": 60})).await;
    let status = reply.expect_causes(&[("spec.expirationSeconds", "FieldValueInvalid")]);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.ends_with("may not specify a duration less than 10 minutes"),
        "{message}"
    );
}

#[tokio::test]
async fn token_of_an_absent_account_is_not_found() {
    let test = start().await;
    let reply = request_token(&test, json!({})).await;
    reply.expect_failure(404, "NotFound", "serviceaccounts \"robot\" not found");
}

#[tokio::test]
async fn token_ends_with_its_account() {
    let test = start().await;
    create_account(&test, "robot").await;
    let token = create_token(&test, json!({})).await;
    let client = connect_with_token(&test, &token).await;
    client.get("/version").await.expect_status(200);
    test.admin
        .delete(&test.core("serviceaccounts/robot"))
        .await
        .expect_status(200);
    // The new account has another uid.
    create_account(&test, "robot").await;
    wait_for("the token is rejected", async || {
        client.get("/version").await.status == 401
    })
    .await;
}

#[tokio::test]
async fn token_ends_with_its_pod() {
    let test = start().await;
    create_account(&test, "robot").await;
    let pod = pod_with("p", &json!({"serviceAccountName": "robot"}));
    let pod = test.create(&test.core("pods"), &pod).await;
    let uid = &pod["metadata"]["uid"];
    let bound = |name: &str, uid: &Value| json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}});
    let token = create_token(&test, bound("p", uid)).await;
    assert_eq!(
        claims_of(&token)["kubernetes.io"]["pod"],
        json!({"name": "p", "uid": uid})
    );
    let client = connect_with_token(&test, &token).await;
    let info = read_user_info(&client).await;
    assert_eq!(
        info["extra"]["authentication.kubernetes.io/pod-name"],
        json!(["p"])
    );
    request_token(&test, bound("p", &json!("0")))
        .await
        .expect_reason(409, "Conflict");
    request_token(&test, bound("none", uid))
        .await
        .expect_reason(404, "NotFound");
    test.admin
        .delete(&test.core("pods/p"))
        .await
        .expect_status(200);
    wait_for("the token is rejected", async || {
        client.get("/version").await.status == 401
    })
    .await;
}

#[tokio::test]
async fn key_of_tokens_is_published() {
    let test = start().await;
    create_account(&test, "robot").await;
    let token = create_token(&test, json!({})).await;
    let header = URL_SAFE_NO_PAD
        .decode(token.split('.').next().unwrap())
        .unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    let document = test.read("/.well-known/openid-configuration").await;
    assert_eq!(document["issuer"], "https://kubernetes.default.svc");
    assert_eq!(document["response_types_supported"], json!(["id_token"]));
    let keys = test
        .admin
        .get_as("/openid/v1/jwks", "*/*")
        .await
        .expect_status(200);
    assert!(
        keys.header("content-type")
            .starts_with("application/jwk-set+json")
    );
    let keys = keys.json();
    let ids: Vec<&Value> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| &key["kid"])
        .collect();
    assert!(ids.contains(&&header["kid"]), "{keys}");
}

#[tokio::test]
async fn signing_request_records_its_requester() {
    let test = start().await;
    let name = test.name("csr");
    let mut request = signing_request(&name, "user", "group", "example.com/signer");
    request["spec"]["username"] = json!("forged");
    request["spec"]["groups"] = json!(["forged"]);
    let created = test.create(SIGNING_REQUESTS, &request).await;
    assert_eq!(created["spec"]["username"], "kubernetes-admin");
    assert_eq!(
        created["spec"]["groups"],
        json!(["system:masters", "system:authenticated"])
    );
}

#[tokio::test]
async fn signing_request_is_approved_or_denied_once() {
    let test = start().await;
    let name = test.name("csr");
    let request = signing_request(&name, "user", "group", "example.com/signer");
    test.create(SIGNING_REQUESTS, &request).await;
    let approved = set_condition(&test, &name, "Approved")
        .await
        .expect_status(200)
        .json();
    let condition = &approved["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Approved"), &json!("True"))
    );
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string());
    set_condition(&test, &name, "Denied")
        .await
        .expect_reason(422, "Invalid");
    let mut removed = test.read(&format!("{SIGNING_REQUESTS}/{name}")).await;
    removed["status"] = json!({});
    let path = format!("{SIGNING_REQUESTS}/{name}/approval");
    test.admin
        .put(&path, &removed)
        .await
        .expect_reason(422, "Invalid");
}

#[tokio::test]
async fn certificate_in_a_status_has_to_be_pem() {
    let test = start().await;
    let name = test.name("csr");
    let request = signing_request(&name, "user", "group", "example.com/signer");
    test.create(SIGNING_REQUESTS, &request).await;
    let patch = json!({"status": {"certificate": STANDARD.encode("not pem")}});
    let path = format!("{SIGNING_REQUESTS}/{name}/status");
    let status = test
        .admin
        .merge_patch(&path, &patch)
        .await
        .expect_reason(422, "Invalid");
    assert_eq!(
        status["details"]["causes"][0]["field"],
        "status.certificate"
    );
}

#[tokio::test]
async fn client_certificate_for_system_masters_is_forbidden() {
    let test = start().await;
    let name = test.name("csr");
    let signer = "kubernetes.io/kube-apiserver-client";
    let request = signing_request(&name, "user", "system:masters", signer);
    test.admin.post(SIGNING_REQUESTS, &request).await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "certificatesigningrequests.certificates.k8s.io \"{name}\" is forbidden: use of {signer} signer with \
             system:masters group is not allowed"
        ),
    );
}

#[tokio::test]
async fn approval_needs_the_right_to_the_signer() {
    let test = start().await;
    let (user, client) = test.connect_user("approver").await;
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["update", "get"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"]});
    test.plane().grant(&user, "", json!([rule])).await;
    let name = test.name("csr");
    let request = signing_request(&name, "user", "group", "example.com/signer");
    test.create(SIGNING_REQUESTS, &request).await;
    let one = format!("{SIGNING_REQUESTS}/{name}");
    wait_for("the grant is effective", async || {
        client.get(&one).await.status == 200
    })
    .await;
    let mut object = test.read(&one).await;
    object["status"] =
        json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]});
    client.put(&format!("{one}/approval"), &object).await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "certificatesigningrequests.certificates.k8s.io \"{name}\" is forbidden: user not permitted to approve \
             requests with signerName \"example.com/signer\""
        ),
    );
}
