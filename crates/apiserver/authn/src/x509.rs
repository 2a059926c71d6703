//! Client certificates: CN is the user, the O's are the groups.
//!
//! The TLS layer has proved that the peer holds the key. The chain is verified here against this authenticator's own CA,
//! because TLS accepts the certificates of several (clients and front proxies).

use crate::authn::{OptionsError, read};
use crate::life::CertificateLife;
use crate::secret;
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

const REMEMBERED: usize = 1024;

/// Verifies chains against one CA bundle.
pub struct Verifier {
    inner: Arc<dyn ClientCertVerifier>,
    /// Leaves that were verified, until they expire: the same connection sends the same one with each request.
    known: Mutex<HashMap<[u8; 32], i64>>,
}

impl Verifier {
    /// A verifier for the CA certificates of a PEM file.
    pub fn from_file(path: &PathBuf) -> Result<Self, OptionsError> {
        let bad = |why: String| OptionsError::Content { path: path.clone(), why };
        let pem = read(path)?;
        let mut roots = RootCertStore::empty();
        for certificate in rustls_pemfile::certs(&mut pem.as_slice()) {
            let certificate = certificate.map_err(|e| bad(e.to_string()))?;
            roots.add(certificate).map_err(|e| bad(e.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("it holds no certificate".into()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        Ok(Verifier { inner: inner.map_err(|e| bad(e.to_string()))?, known: Mutex::default() })
    }

    /// Whether a chain (leaf first) leads to the CA, is valid now and may authenticate clients.
    pub fn verify(&self, chain: &[Vec<u8>]) -> bool {
        self.left(chain).is_some()
    }

    /// The seconds for which a good chain's leaf is still valid.
    fn left(&self, chain: &[Vec<u8>]) -> Option<i64> {
        let (leaf, rest) = chain.split_first()?;
        let now = jiff::Timestamp::now().as_second();
        let digest = secret::digest(leaf);
        if let Some(end) = self.known.lock().get(&digest).filter(|end| now <= **end) {
            return Some(end - now);
        }
        let rest: Vec<CertificateDer<'_>> = rest.iter().map(|c| CertificateDer::from(c.as_slice())).collect();
        let leaf = CertificateDer::from(leaf.as_slice());
        if self.inner.verify_client_cert(&leaf, &rest, UnixTime::now()).is_err() {
            return None;
        }
        let end = X509Certificate::from_der(&leaf).map(|(_, c)| c.validity().not_after.timestamp()).unwrap_or(now);
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(digest, end);
        Some(end - now)
    }
}

/// Users by client certificate.
pub struct ClientCertificates {
    verifier: Verifier,
    life: Arc<CertificateLife>,
}

impl ClientCertificates {
    /// Users whose certificates the CA of a PEM file has signed.
    pub fn from_file(path: &PathBuf, life: Arc<CertificateLife>) -> Result<Self, OptionsError> {
        Ok(ClientCertificates { verifier: Verifier::from_file(path)?, life })
    }
}

/// The common name and the organisations of a certificate's subject.
pub fn subject(leaf: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|n| n.as_str().ok()).unwrap_or_default().to_owned();
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    Some((name, groups))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[async_trait::async_trait]
impl Authenticator for ClientCertificates {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        let Some(leaf) = credentials.certificates.first() else { return Ok(None) };
        let Some(left) = self.verifier.left(&credentials.certificates) else {
            let why = "the client certificate is not signed by the client CA, expired or not for clients";
            return Err(AuthnError(why.into()));
        };
        let Some((name, groups)) = subject(leaf) else { return Ok(None) };
        if name.is_empty() {
            return Ok(None);
        }
        self.life.observe(left);
        let id = format!("X509SHA256={}", hex(&secret::digest(leaf)));
        let extra = [("authentication.kubernetes.io/credential-id".to_owned(), vec![id])].into();
        Ok(Some(User { name, groups, extra, uid: String::new() }))
    }
}
