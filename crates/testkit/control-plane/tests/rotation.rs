//! Files that change while the control plane runs.

#![allow(clippy::unwrap_used, missing_docs)]

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use serde_json::json;
use std::time::{Duration, Instant, SystemTime};
use testkit_control_plane::{Caller, ControlPlane};
use tokio::task::JoinSet;

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

/// Files are checked at most once a second.
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
    let deadline = Instant::now() + Duration::from_secs(60);
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

/// Returns the name of a certificate's subject.
fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// Returns the client of a user with a certificate of this CA.
fn sign_user(
    plane: &ControlPlane,
    issuer: &Issuer<'_, KeyPair>,
    user: &str,
    end: SystemTime,
) -> Caller {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(user);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_after = end.into();
    let certificate = params.signed_by(&key, issuer).unwrap().pem();
    plane.with_certificate(certificate.into_bytes(), key.serialize_pem().into_bytes())
}

/// A connection that stays open: the server has verified its certificate when it began.
struct OpenConnection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

impl OpenConnection {
    async fn open(caller: &Caller) -> Self {
        let stream = caller.connect().await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        OpenConnection {
            sender,
            _driver: driver,
        }
    }

    /// Returns the status of a request that every authenticated user may send.
    async fn review(&mut self) -> StatusCode {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("host", "x")
            .header("content-type", "application/json")
            .body(Full::from(review.to_string()))
            .unwrap();
        // The task of the connection may not have seen the end of the previous response.
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status
    }

    async fn wait_until_refused(&mut self, case: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.review().await != StatusCode::UNAUTHORIZED {
            assert!(Instant::now() < deadline, "still accepted: {case}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Verified certificates are remembered, but not longer than the CA that signed them.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_a_replaced_ca_are_refused_on_open_connections() {
    let plane = ControlPlane::start().await;
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = subject("another CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap().pem();
    let later = SystemTime::now() + Duration::from_secs(3600);
    // Before the file changes: these clients trust the server's certificate by the old one.
    let new = sign_user(&plane, &Issuer::new(params, key), "jane", later);
    let mut old = OpenConnection::open(&plane.user("jane", None)).await;
    for _ in 0..2 {
        assert_eq!(old.review().await, StatusCode::CREATED);
    }

    std::fs::write(plane.certificate("ca"), ca).unwrap();
    old.wait_until_refused("the CA was replaced").await;
    assert_eq!(review(&new).await, 201);
}

/// Verified certificates are remembered, but not longer than they are valid.
#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_is_refused_on_an_open_connection() {
    let plane = ControlPlane::start().await;
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let key = KeyPair::from_pem(&read(plane.key("ca"))).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read(plane.certificate("ca")), key).unwrap();
    let end = SystemTime::now() + Duration::from_secs(15);
    let mut connection = OpenConnection::open(&sign_user(&plane, &issuer, "jane", end)).await;
    for _ in 0..2 {
        assert_eq!(connection.review().await, StatusCode::CREATED);
    }
    connection.wait_until_refused("it has expired").await;
}
