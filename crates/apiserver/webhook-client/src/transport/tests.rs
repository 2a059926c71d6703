#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::*;
use crate::endpoint::ServiceName;
use crate::kubeconfig::Kubeconfig;
use crate::resolver::Address;
use base_task::CancellationToken;
use base_tls::crypto_provider;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

struct NoServices;

impl ServiceResolver for NoServices {
    fn resolve_service(&self, _: &ServiceName) -> Result<Address, String> {
        Err("no services".to_owned())
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn create_authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate and its key, as PEM and DER.
fn issue(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

/// Starts a server that requires a client certificate, and responds with the number of the
/// connection and the certificate; returns its port.
async fn start_server(authority: &Authority) -> u16 {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider());
    let (own, key) = issue(authority, "localhost");
    let config = ServerConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for connection in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let client = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                let body = format!("{connection} {}", STANDARD.encode(client));
                let mut request = vec![0; 4096];
                // A request is smaller than one record of TLS.
                while stream
                    .read(&mut request)
                    .await
                    .is_ok_and(|length| length > 0)
                {
                    let response = format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(response.as_bytes()).await.unwrap();
                }
            });
        }
    });
    port
}

fn write_pair(folder: &Path, certificate: &str, key: &str) {
    std::fs::write(folder.join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.join("tls.key"), key).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_client_certificate_is_used_after_the_interval() {
    let authority = create_authority();
    let port = start_server(&authority).await;
    let folder = tempfile::tempdir().unwrap();
    let pairs = [issue(&authority, "first"), issue(&authority, "second")];
    let (first, second) = (&pairs[0], &pairs[1]);
    write_pair(folder.path(), &first.0.pem(), &first.1.serialize_pem());
    let kubeconfig = folder.path().join("webhooks.kubeconfig");
    let user = json!({"client-certificate": "tls.crt", "client-key": "tls.key"});
    let users = json!({"users": [{"name": "*", "user": user}]});
    std::fs::write(&kubeconfig, users.to_string()).unwrap();
    let transport = Transport::new(
        Tasks::new(CancellationToken::new()),
        Arc::new(NoServices),
        Kubeconfig::read_file(&kubeconfig)
            .and_then(|found| found.credentials())
            .unwrap(),
    );
    let endpoint = Endpoint::parse(&json!({"url": format!("https://localhost:{port}/"),
        "caBundle": STANDARD.encode(authority.pem())}));
    let endpoint = endpoint.unwrap();
    let call = async || {
        let body = Bytes::from_static(b"{}");
        let reply = transport.post_json(&endpoint, body, Duration::from_secs(10));
        String::from_utf8(reply.await.unwrap().to_vec()).unwrap()
    };
    let expect = |connection: u32, pair: &(rcgen::Certificate, KeyPair)| {
        format!("{connection} {}", STANDARD.encode(pair.0.der()))
    };
    assert_eq!(call().await, expect(1, first));
    assert_eq!(call().await, expect(1, first), "the files are the same");
    let pass_interval = || tokio::time::sleep(IDENTITY_INTERVAL);
    write_pair(folder.path(), &second.0.pem(), &first.1.serialize_pem());
    pass_interval().await;
    assert_eq!(call().await, expect(1, first), "the key does not match");
    std::fs::remove_file(folder.path().join("tls.key")).unwrap();
    pass_interval().await;
    assert_eq!(call().await, expect(1, first), "the key is missing");
    write_pair(folder.path(), &second.0.pem(), &second.1.serialize_pem());
    pass_interval().await;
    assert_eq!(call().await, expect(2, second));
    assert_eq!(call().await, expect(2, second));
}
