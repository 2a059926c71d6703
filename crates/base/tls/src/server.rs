//! TLS for servers: a certificate that follows its files, and three modes of client authentication.

use crate::followed::Followed;
use crate::offer::Offer;
use crate::pem::{self, TlsError};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    ConfigBuilder, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion, WantsVerifier,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mode of client authentication.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// No certificate is requested.
    None,
    /// A certificate is requested. A client that sends one must have its key. Its issuer is
    /// verified later by `ClientCa::verify`, so that an unknown one gets a 401 instead of a failed
    /// handshake.
    Request,
    /// A certificate signed by a CA in this file is required.
    Require(PathBuf),
}

/// TLS files of a server.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Mode of client authentication.
    pub client_auth: ClientAuth,
    /// ALPN protocols in order of preference.
    pub alpn: Vec<Vec<u8>>,
}

/// Builds a rustls configuration for servers that follows changes of its files.
///
/// # Errors
/// A file can't be read or used. Later changes that can't be used are logged, and the former files
/// remain in use.
pub fn server_config(tls: &ServerTls) -> Result<Arc<ServerConfig>, TlsError> {
    server_config_of(tls, rustls::DEFAULT_VERSIONS)
}

/// Like `server_config`, with these protocol versions.
///
/// # Errors
/// As for `server_config`.
pub fn server_config_of(
    tls: &ServerTls,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ServerConfig>, TlsError> {
    build_server_config(tls, versions, crate::crypto_provider())
}

/// Like `server_config`, with these versions and cipher suites.
///
/// # Errors
/// As for `server_config`.
pub fn server_config_with(tls: &ServerTls, offer: &Offer) -> Result<Arc<ServerConfig>, TlsError> {
    build_server_config(tls, offer.versions, Arc::new(provider_of(offer)))
}

/// Returns a configuration with a self-signed certificate for `names`, which is kept in memory
/// only. No certificate of clients is asked for.
///
/// # Errors
/// A name that can't be in a certificate.
pub fn self_signed_config(
    names: Vec<String>,
    alpn: Vec<Vec<u8>>,
    offer: &Offer,
) -> Result<Arc<ServerConfig>, TlsError> {
    let made =
        rcgen::generate_simple_self_signed(names).map_err(|e| TlsError::Refused(e.to_string()))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = start_builder(offer.versions, Arc::new(provider_of(offer)))?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .map_err(|e| TlsError::Refused(e.to_string()))?;
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

/// Returns a configuration in which `resolver` chooses the certificate of each connection. No
/// certificate of clients is requested.
///
/// # Errors
/// The offer can't be used.
pub fn resolving_config(
    resolver: Arc<dyn ResolvesServerCert>,
    alpn: Vec<Vec<u8>>,
    offer: &Offer,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = start_builder(offer.versions, Arc::new(provider_of(offer)))?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

/// Returns a self-signed certificate for `names` with its key, which is kept in memory only.
///
/// # Errors
/// A name that can't be in a certificate.
pub fn self_signed_key(names: Vec<String>) -> Result<CertifiedKey, TlsError> {
    let made =
        rcgen::generate_simple_self_signed(names).map_err(|e| TlsError::Refused(e.to_string()))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let chain = vec![made.cert.der().clone()];
    CertifiedKey::from_der(chain, key.into(), &crate::crypto_provider())
        .map_err(|e| TlsError::Refused(e.to_string()))
}

/// Returns a certificate chain with its key from PEM text instead of files.
///
/// # Errors
/// A block is missing, or the key is not that of the certificate.
pub fn certified_key_of_pem(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let inline = Path::new("inline data");
    let chain = pem::parse_certificates(chain, inline)?;
    let key = pem::parse_private_key(key, inline)?;
    CertifiedKey::from_der(chain, key, &crate::crypto_provider())
        .map_err(|e| TlsError::Refused(e.to_string()))
}

fn provider_of(offer: &Offer) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: offer.suites.clone(),
        ..(*crate::crypto_provider()).clone()
    }
}

fn start_builder(
    versions: &[&'static SupportedProtocolVersion],
    provider: Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, TlsError> {
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|e| TlsError::Refused(e.to_string()))
}

fn build_server_config(
    tls: &ServerTls,
    versions: &[&'static SupportedProtocolVersion],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = start_builder(versions, provider)?;
    let builder = match &tls.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        // An API server accepts tokens, too, so that a certificate of another CA must not end the
        // handshake. Authentication decides later.
        ClientAuth::Request => {
            builder.with_client_cert_verifier(Arc::new(Possession(crate::crypto_provider())))
        }
        ClientAuth::Require(ca) => {
            builder.with_client_cert_verifier(Arc::new(Required(ClientCa::load(ca)?)))
        }
    };
    let paths = vec![tls.certificate.clone(), tls.key.clone()];
    let certificate = Followed::load(paths, certified_key)?;
    let mut config = builder.with_cert_resolver(Arc::new(Resolver(certificate)));
    config.alpn_protocols.clone_from(&tls.alpn);
    if !matches!(tls.client_auth, ClientAuth::None) {
        disable_resumption(&mut config);
    }
    Ok(Arc::new(config))
}

/// Makes each connection a full handshake. A resumed one takes the client's certificates from the
/// session without their verification, so a client of a CA that was removed would stay trusted.
fn disable_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

fn certified_key(paths: &[PathBuf]) -> Result<CertifiedKey, TlsError> {
    let [certificate, key_file] = paths else {
        return Err(TlsError::Refused("two files expected".into()));
    };
    let chain = pem::parse_certificates(&pem::read_file(certificate)?, certificate)?;
    let key = pem::parse_private_key(&pem::read_file(key_file)?, key_file)?;
    CertifiedKey::from_der(chain, key, &crate::crypto_provider()).map_err(|e| {
        let (certificate, key) = (certificate.display(), key_file.display());
        TlsError::Refused(match e {
            // The most frequent mistake, for which rustls' own text names no file.
            Error::InconsistentKeys(_) => {
                format!("{key} is not the key of the certificate in {certificate}; give both of one pair")
            }
            e => format!("{certificate} with {key}: {e}"),
        })
    })
}

struct Resolver(Followed<CertifiedKey>);

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resolver").field(&self.0.paths()).finish()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current())
    }
}

/// CA that verifies client certificates; follows its file.
pub struct ClientCa(Followed<Arc<dyn ClientCertVerifier>>);

impl ClientCa {
    /// Reads the CA file.
    ///
    /// # Errors
    /// Reading the file fails, or it contains no certificate.
    pub fn load(path: &Path) -> Result<Self, TlsError> {
        Followed::load(vec![path.into()], |paths| {
            let [path] = paths else {
                return Err(TlsError::Refused("one file expected".into()));
            };
            let roots = Arc::new(pem::parse_roots(&pem::read_file(path)?, path)?);
            // Built again with each change of the file: a CA can be rotated by putting both
            // certificates into it.
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, crate::crypto_provider())
                    .build();
            verifier.map_err(|e| TlsError::Refused(format!("{}: {e}", path.display())))
        })
        .map(ClientCa)
    }

    /// Returns whether a chain (DER, leaf first) is valid now for client authentication and leads
    /// to this CA.
    pub fn verify(&self, chain: &[Vec<u8>]) -> bool {
        let chain: Vec<CertificateDer<'_>> = chain
            .iter()
            .map(|c| CertificateDer::from(c.as_slice()))
            .collect();
        let Some((leaf, intermediates)) = chain.split_first() else {
            return false;
        };
        self.0
            .current()
            .verify_client_cert(leaf, intermediates, UnixTime::now())
            .is_ok()
    }
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientCa").field(&self.0.paths()).finish()
    }
}

/// Requests a certificate and verifies only that the peer has its key.
#[derive(Debug)]
struct Possession(Arc<rustls::crypto::CryptoProvider>);

/// Requires a certificate of the CA.
#[derive(Debug)]
struct Required(ClientCa);

macro_rules! signatures {
    ($provider:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
            let algorithms = &$provider(self).signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
            let algorithms = &$provider(self).signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            $provider(self)
                .signature_verification_algorithms
                .supported_schemes()
        }

        // No hints: Go clients send their certificate only if its issuer is among the hints, and
        // the CA file may change later.
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }
    };
}

impl ClientCertVerifier for Possession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures!(|s: &Possession| s.0.clone());
}

impl ClientCertVerifier for Required {
    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0
            .0
            .current()
            .verify_client_cert(leaf, intermediates, now)
    }

    signatures!(|_: &Required| crate::crypto_provider());
}

#[cfg(test)]
#[path = "resumption_tests.rs"]
mod resumption_tests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Writes a self-signed pair and returns its certificate and key file.
    fn write_pair(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let (certificate, key) = (
            folder.join(format!("{name}.crt")),
            folder.join(format!("{name}.key")),
        );
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (certificate, key)
    }

    fn config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
        server_config(&ServerTls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_auth: ClientAuth::None,
            alpn: vec![b"h2".to_vec()],
        })
    }

    #[test]
    fn key_of_another_certificate_is_an_error_that_names_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (
            write_pair(folder.path(), "a"),
            write_pair(folder.path(), "b"),
        );
        assert_eq!(config(&a.0, &a.1).unwrap().alpn_protocols, [b"h2"]);
        let problem = config(&a.0, &b.1).unwrap_err().to_string();
        assert!(
            problem.contains("b.key") && problem.contains("a.crt"),
            "{problem}"
        );
    }

    #[test]
    fn certificate_of_another_authority_does_not_verify() {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let ca_certificate = authority.clone().self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(authority, ca_key);
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, ca_certificate.pem()).unwrap();
        let ca = ClientCa::load(&file).unwrap();
        let leaf_key = rcgen::KeyPair::generate().unwrap();
        let mut leaf = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
        leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let own = leaf.clone().signed_by(&leaf_key, &issuer).unwrap();
        let foreign = leaf.self_signed(&leaf_key).unwrap();
        assert!(ca.verify(&[own.der().to_vec()]));
        assert!(!ca.verify(&[foreign.der().to_vec()]));
        assert!(!ca.verify(&[]) && !ca.verify(&[b"no certificate".to_vec()]));
    }
}
