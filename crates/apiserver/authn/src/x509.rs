//! Client certificates: CN is the user, each O is a group.
//!
//! The TLS layer has proved that the peer holds the key. The chain is verified here against this
//! authenticator's own CA, because TLS accepts certificates of several CAs (clients and front
//! proxies).

use crate::life::CertificateLife;
use crate::options_error::OptionsError;
use crate::secret;
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use base_tls::{Followed, TlsError};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

// Clients that open many connections, for example kubelets, send the same chain each time.
const REMEMBERED: usize = 1024;

/// Verifies chains against one CA bundle, which is reloaded with its file.
pub struct Verifier(Followed<Roots>);

/// The CA bundle as loaded. A reload starts with an empty cache of verified leaves, because a CA
/// may have been removed.
struct Roots {
    inner: Arc<dyn ClientCertVerifier>,
    /// Verified leaves: a connection sends the same leaf with each request.
    known: Mutex<HashMap<[u8; 32], Leaf>>,
}

/// The certificate of a client, verified.
#[derive(Clone)]
struct Leaf {
    /// Expiration, in seconds since 1970.
    end: i64,
    /// Parsed once: a request needs only a copy.
    user: Option<Arc<User>>,
}

impl Leaf {
    fn parse(leaf: &[u8], digest: &[u8], now: i64) -> Self {
        let end = X509Certificate::from_der(leaf)
            .map(|(_, c)| c.validity().not_after.timestamp())
            .unwrap_or(now);
        Leaf {
            end,
            user: certificate_user(leaf, digest).map(Arc::new),
        }
    }
}

impl Roots {
    fn read_roots(path: &Path) -> Result<Self, TlsError> {
        let roots = base_tls::parse_roots(&base_tls::read_file(path)?, path)?;
        // An explicit provider: the process-wide default may not be installed in tests and tools.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        let refused =
            |e: VerifierBuilderError| TlsError::Refused(format!("{}: {e}", path.display()));
        Ok(Roots {
            inner: inner.map_err(refused)?,
            known: Mutex::default(),
        })
    }

    /// Returns the leaf of a chain that is valid at `now`.
    fn verify_chain(&self, chain: &[Vec<u8>], now: i64) -> Option<Leaf> {
        let (leaf, rest) = chain.split_first()?;
        let digest = secret::digest_secret(leaf);
        // The chain needs no second verification while its leaf is valid; signatures cost the most
        // here.
        if let Some(known) = self
            .known
            .lock()
            .get(&digest)
            .filter(|leaf| now <= leaf.end)
        {
            return Some(known.clone());
        }
        let rest: Vec<CertificateDer<'_>> = rest
            .iter()
            .map(|c| CertificateDer::from(c.as_slice()))
            .collect();
        let certificate = CertificateDer::from(leaf.as_slice());
        self.inner
            .verify_client_cert(&certificate, &rest, UnixTime::now())
            .ok()?;
        let verified = Leaf::parse(leaf, &digest, now);
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(digest, verified.clone());
        Some(verified)
    }
}

impl Verifier {
    /// Creates a verifier for the CA certificates of a PEM file.
    pub fn from_file(path: &Path) -> Result<Self, OptionsError> {
        let make = |paths: &[PathBuf]| match paths {
            [path] => Roots::read_roots(path),
            _ => Err(TlsError::Refused("one file expected".into())),
        };
        Ok(Verifier(Followed::load(vec![path.to_owned()], make)?))
    }

    /// Returns whether a chain (leaf first) leads to the CA, is valid now and may authenticate
    /// clients.
    pub fn is_valid_chain(&self, chain: &[Vec<u8>]) -> bool {
        self.verify_chain(chain, jiff::Timestamp::now().as_second())
            .is_some()
    }

    fn verify_chain(&self, chain: &[Vec<u8>], now: i64) -> Option<Leaf> {
        self.0.current().verify_chain(chain, now)
    }
}

/// Authenticates by client certificate.
pub struct ClientCertificates {
    verifier: Verifier,
    life: Arc<CertificateLife>,
}

impl ClientCertificates {
    /// Creates an authenticator for certificates signed by the CA of a PEM file.
    pub fn from_file(path: &Path, life: Arc<CertificateLife>) -> Result<Self, OptionsError> {
        Ok(ClientCertificates {
            verifier: Verifier::from_file(path)?,
            life,
        })
    }
}

/// Returns the common name (the last one, as Go's `crypto/x509` does) and the organizations of a
/// certificate's subject.
pub fn certificate_subject(leaf: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject
        .iter_common_name()
        // With several common names the last one counts, as Go's parser reads a subject.
        .last()
        .and_then(|n| n.as_str().ok())
        .unwrap_or_default()
        .to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some((name, groups))
}

/// Returns the user that a certificate names, or `None` if it has no common name.
fn certificate_user(leaf: &[u8], digest: &[u8]) -> Option<User> {
    let (name, groups) = certificate_subject(leaf).filter(|(name, _)| !name.is_empty())?;
    let id = format!("X509SHA256={}", hex_digits(digest));
    let extra = [(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![id],
    )]
    .into();
    Some(User {
        name,
        groups,
        extra,
        uid: String::new(),
    })
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[async_trait::async_trait]
impl Authenticator for ClientCertificates {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        if credentials.certificates.is_empty() {
            return Ok(None);
        }
        let now = jiff::Timestamp::now().as_second();
        let Some(leaf) = self.verifier.verify_chain(&credentials.certificates, now) else {
            let why =
                "the client certificate is not signed by the client CA, expired or not for clients";
            return Err(AuthnError(why.into()));
        };
        let Some(user) = leaf.user else {
            return Ok(None);
        };
        // Operators see from this metric that certificates of clients are about to expire.
        self.life.observe_remaining(leaf.end - now);
        Ok(Some(User::clone(&user)))
    }
}
