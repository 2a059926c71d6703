//! Replacement of all CAs and of the key of ServiceAccounts without a restart, with the steps of
//! `docs/operations/certificates.md`.

#![allow(clippy::unwrap_used, missing_docs)]

use base_tls::ClientTls;
use base_tls::rustls::ClientConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use operator_pki::Authority;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of a condition, after which the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ROOT_CA: &str = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CAS: [&str; 3] = ["ca", "front-proxy-ca", "etcd/ca"];
const NEW_NAME: &str = "ironclad-ca-2";

async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    wait_for_value(what, async || condition().await.then_some(())).await;
}

async fn wait_for_value<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            begun.elapsed() < DEADLINE,
            "not within {DEADLINE:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Replaces a file in one step.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(&fresh, path).unwrap();
}

/// The former and the new CAs and key of ServiceAccounts.
struct Rotation {
    plane: ControlPlane,
    new: tempfile::TempDir,
    former: Vec<String>,
    former_public: String,
}

impl Rotation {
    async fn start() -> Self {
        let plane = ControlPlane::start().await;
        plane.start_controllers("*");
        let new = tempfile::tempdir().unwrap();
        for name in CAS {
            std::fs::create_dir_all(new.path().join(name).parent().unwrap()).unwrap();
            // The name of the former one, so that its key decides; of `ca` another one, by which
            // its certificates are recognized.
            let common_name = match name {
                "ca" => NEW_NAME,
                "etcd/ca" => "ironclad-store-ca",
                _ => "ironclad-front-proxy-ca",
            };
            Authority::ensure(new.path(), name, common_name).unwrap();
        }
        operator_pki::ensure_service_account_key(new.path()).unwrap();
        let former = CAS.map(|name| read(&plane.certificate(name))).into();
        let former_public = read(&plane.key("sa").with_extension("pub"));
        Self {
            plane,
            new,
            former,
            former_public,
        }
    }

    fn new_file(&self, name: &str) -> String {
        read(&self.new.path().join(name))
    }

    fn new_ca(&self, name: &str) -> String {
        self.new_file(&format!("{name}.crt"))
    }

    /// Returns a client of the store with the present certificate of the API server. It trusts both
    /// CAs, and resumes its session if the store lets it.
    fn store_client(&self) -> Arc<ClientConfig> {
        let file = |path: std::path::PathBuf| read(&path).into_bytes();
        let name = "apiserver-etcd-client";
        let (certificate, key) = (self.plane.certificate(name), self.plane.key(name));
        let client = base_tls::client_config(&ClientTls {
            ca: Some(format!("{}{}", self.former[2], self.new_ca("etcd/ca")).into()),
            identity: Some((file(certificate), file(key))),
            insecure: false,
            alpn: vec![b"http/1.1".to_vec()],
        });
        client.unwrap()
    }

    /// Returns whether the store accepts a new connection of this client.
    async fn is_accepted_by_store(&self, client: &Arc<ClientConfig>) -> bool {
        let address = self.plane.store_address();
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(client.clone());
        let Ok(mut stream) = connector.connect(address.ip().into(), stream).await else {
            return false;
        };
        let request = b"GET /health HTTP/1.1\r\nhost: store\r\nconnection: close\r\n\r\n";
        let mut response = Vec::new();
        // With TLS 1.3, the server rejects a certificate after the client's handshake.
        stream.write_all(request).await.is_ok()
            && stream.read_to_end(&mut response).await.is_ok()
            && response.starts_with(b"HTTP/1.1 200")
    }

    fn write_public_keys(&self, text: &str) {
        replace(&self.plane.key("sa").with_extension("pub"), text);
    }

    /// Trusts the new CAs and key besides the former ones, which still sign.
    fn trust_both(&self) {
        for (name, former) in CAS.iter().zip(&self.former) {
            let both = format!("{former}{}", self.new_ca(name));
            replace(&self.plane.certificate(name), &both);
        }
        self.write_public_keys(&format!(
            "{}{}",
            self.former_public,
            self.new_file("sa.pub")
        ));
        self.write_kubeconfigs();
    }

    /// Signs with the new CAs and key, and issues all certificates again.
    fn sign_with_new(&self) {
        for (name, former) in CAS.iter().zip(&self.former) {
            let both = format!("{}{former}", self.new_ca(name));
            replace(&self.plane.certificate(name), &both);
            replace(
                &self.plane.key(name),
                &self.new_file(&format!("{name}.key")),
            );
        }
        replace(&self.plane.key("sa"), &self.new_file("sa.key"));
        let renewed = self.plane.renew_certificates();
        for name in [
            "apiserver",
            "controller-manager",
            "etcd/server",
            "front-proxy-client",
        ] {
            assert!(renewed.iter().any(|written| written == name), "{renewed:?}");
        }
        self.write_kubeconfigs();
    }

    fn drop_former(&self) {
        for name in CAS {
            replace(&self.plane.certificate(name), &self.new_ca(name));
        }
        self.write_public_keys(&self.new_file("sa.pub"));
        self.write_kubeconfigs();
    }

    fn write_kubeconfigs(&self) {
        self.plane.kubeconfig("controller-manager");
    }

    /// Waits until the published CA is this one.
    async fn wait_for_root_ca(&self, admin: &Caller, expected: &str) {
        wait_for("the published CA", async || {
            let Ok(reply) = admin.send(http::Method::GET, ROOT_CA, &[], "").await else {
                return false;
            };
            reply.status == 200 && reply.json()["data"]["ca.crt"] == expected
        })
        .await;
    }

    /// Returns the certificate and the key of a user, signed through the API.
    async fn request_certificate(&self, admin: &Caller, name: &str) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let object = json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
        admin.post(REQUESTS, &object).await.expect_success();
        let path = format!("{REQUESTS}/{name}");
        let mut csr = admin.get(&path).await.json();
        csr["status"] = json!({"conditions": [{"type": "Approved", "status": "True",
            "reason": "Test", "message": ""}]});
        let reply = admin.put(&format!("{path}/approval"), &csr).await;
        reply.expect_success();
        let certificate = wait_for_value("the certificate is signed", async || {
            let csr = admin.get(&path).await.json();
            STANDARD.decode(csr["status"]["certificate"].as_str()?).ok()
        })
        .await;
        (certificate, key.serialize_pem().into_bytes())
    }

    /// Returns certificate and key of a user, signed by the new CA.
    async fn request_new_certificate(&self, admin: &Caller) -> (Vec<u8>, Vec<u8>) {
        let mut attempt = 0;
        wait_for_value("the new CA signs", async || {
            attempt += 1;
            let name = format!("after-{attempt}");
            let (certificate, key) = self.request_certificate(admin, &name).await;
            let summary = operator_pki::summarize_certificate(&certificate);
            let is_new = summary.is_some_and(|found| found.issuer == NEW_NAME);
            is_new.then_some((certificate, key))
        })
        .await
    }

    /// Returns the token of a new Secret of the ServiceAccount `default`.
    async fn request_token(&self, admin: &Caller, name: &str) -> String {
        let secret = json!({"metadata": {"name": name, "annotations":
            {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token"});
        admin.post(SECRETS, &secret).await.expect_success();
        wait_for_value("the token Secret is filled", async || {
            let secret = admin.get(&format!("{SECRETS}/{name}")).await.json();
            let token = STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
            String::from_utf8(token).ok()
        })
        .await
    }
}

/// Returns the user that the API server sees; None if it rejects the credentials.
async fn find_user(caller: &Caller) -> Option<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let reply = caller.post(path, &review).await;
    match reply.status {
        201 => {
            let user: Value = reply.json()["status"]["userInfo"]["username"].take();
            Some(user.as_str().unwrap_or_default().to_owned())
        }
        status => {
            assert_eq!(status, 401, "{}", reply.text());
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cas_and_the_key_of_service_accounts_are_replaced_without_a_restart() {
    let rotation = Rotation::start().await;
    let plane = &rotation.plane;
    let (former, new) = (rotation.former[0].clone(), rotation.new_ca("ca"));
    let admin = plane.admin();
    rotation.wait_for_root_ca(&admin, &former).await;
    let (certificate, key) = rotation.request_certificate(&admin, "before").await;
    let token = rotation.request_token(&admin, "before").await;
    let early_store_client = rotation.store_client();
    // Before the last step, these clients trust both CAs.
    rotation.trust_both();
    assert_eq!(
        plane.renew_certificates(),
        Vec::<String>::new(),
        "nothing is due"
    );
    let early = plane.with_certificate(certificate, key);
    let early_token = plane.bearer(&token);
    rotation
        .wait_for_root_ca(&admin, &format!("{former}{new}"))
        .await;
    rotation.sign_with_new();
    let admin = plane.admin();
    rotation
        .wait_for_root_ca(&admin, &format!("{new}{former}"))
        .await;
    // The controller manager signs, and writes, with what it read again.
    let (certificate, key) = rotation.request_new_certificate(&admin).await;
    let token = rotation.request_token(&admin, "after").await;
    assert_eq!(find_user(&early).await.as_deref(), Some("before"));
    assert!(find_user(&early_token).await.is_some());
    assert!(rotation.is_accepted_by_store(&early_store_client).await);
    rotation.drop_former();
    // These trust the new CA only.
    let admin = plane.admin();
    rotation.wait_for_root_ca(&admin, &new).await;
    let late = plane.with_certificate(certificate, key);
    let user = find_user(&late).await.unwrap_or_default();
    assert!(user.starts_with("after-"), "{user}");
    assert!(find_user(&plane.bearer(&token)).await.is_some());
    for (case, former) in [("certificate", &early), ("token", &early_token)] {
        wait_for(case, async || find_user(former).await.is_none()).await;
    }
    wait_for("the former store CA is rejected", async || {
        !rotation.is_accepted_by_store(&early_store_client).await
    })
    .await;
    let late_store_client = rotation.store_client();
    assert!(rotation.is_accepted_by_store(&late_store_client).await);
    // A write through the store.
    rotation.request_token(&admin, "last").await;
}
