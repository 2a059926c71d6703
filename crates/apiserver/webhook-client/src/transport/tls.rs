//! TLS of webhooks: roots, client certificate, and errors in the words of Go.

use super::error::describe_io;
use crate::endpoint::Endpoint;
use base_tls::{
    TlsError, crypto_provider, parse_certificates, parse_private_key, parse_roots, rustls,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// Files with a system's trusted roots, in Go's order.
const SYSTEM_ROOTS: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const NO_ROOTS: &str = "tls: failed to verify certificate: x509: certificate signed by unknown authority (there is no \
                        caBundle, and this machine has no trusted roots)";

/// Builds the configuration for one server. Without a CA bundle, the system's roots are trusted, as
/// documented for `caBundle`.
///
/// # Errors
/// A CA bundle without a certificate, or a client certificate that does not match its key.
pub fn client_config(
    endpoint: &Endpoint,
    identity: Option<(Vec<u8>, Vec<u8>)>,
) -> Result<Arc<ClientConfig>, String> {
    // The errors of the parsers name files, which there are none of.
    let unusable = |_: TlsError| {
        "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
    };
    let refused = |e: rustls::Error| format!("TLS configuration is refused: {e}");
    let inline = Path::new("inline data");
    let verifier: Arc<dyn ServerCertVerifier> = match trusted_roots(endpoint) {
        Some(pem) => {
            let trusted = parse_certificates(&pem, inline).map_err(unusable)?;
            let roots = parse_roots(&pem, inline).map_err(unusable)?;
            Arc::new(BundleVerifier::new(roots, trusted)?)
        }
        None => return Err(NO_ROOTS.to_owned()),
    };
    let builder = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some((chain, key)) => {
            let unusable = |_: TlsError| "the client certificate can't be used".to_owned();
            let chain = parse_certificates(&chain, inline).map_err(unusable)?;
            let key = parse_private_key(&key, inline).map_err(unusable)?;
            builder.with_client_auth_cert(chain, key).map_err(refused)?
        }
        None => builder.with_no_client_auth(),
    };
    // As upstream: connections of HTTP/2 would send all requests to one backend of a Service.
    let protocols: &[&[u8]] = if endpoint.is_local() {
        &[b"h2", b"http/1.1"]
    } else {
        &[b"http/1.1"]
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn trusted_roots(endpoint: &Endpoint) -> Option<Vec<u8>> {
    if endpoint.ca_bundle().is_empty() {
        read_system_roots()
    } else {
        Some(endpoint.ca_bundle().to_vec())
    }
}

/// Verifies like rustls, and also accepts a server certificate that is itself in the bundle. Go
/// does so, and many webhooks have one self-signed certificate that is marked as a CA.
#[derive(Debug)]
struct BundleVerifier {
    chains: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl BundleVerifier {
    fn new(roots: RootCertStore, trusted: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let chains =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto_provider())
                .build()
                .map_err(|e| format!("unable to load root certificates: {e}"))?;
        Ok(BundleVerifier { chains, trusted })
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.chains
                .verify_server_cert(end_entity, intermediates, name, stapled, now);
        // webpki rejects a CA certificate as the server's own (`CaUsedAsEndEntity`), even a trusted
        // one.
        let is_trusted = self.trusted.iter().any(|trusted| trusted == end_entity);
        if verified.is_ok() || !is_trusted {
            return verified;
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        // Trust in the certificate replaces its chain only. Name and validity are checked all the
        // same.
        verify_server_name(&parsed, name)?;
        check_validity(end_entity, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let bad = |problem: CertificateError| rustls::Error::InvalidCertificate(problem);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| bad(CertificateError::BadEncoding))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now) {
        Ok(())
    } else {
        Err(bad(CertificateError::Expired))
    }
}

fn read_system_roots() -> Option<Vec<u8>> {
    // Go reads this variable first.
    let given = std::env::var_os("SSL_CERT_FILE");
    let standard = SYSTEM_ROOTS.iter().map(|path| path.into());
    given
        .into_iter()
        .chain(standard)
        .find_map(|path: std::ffi::OsString| std::fs::read(Path::new(&path)).ok())
}

/// Describes a failed handshake.
pub fn describe_tls(error: &std::io::Error, host: &str) -> String {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let why = match cause {
        Some(rustls::Error::InvalidCertificate(problem)) => match problem {
            // Another authority of the same name has another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "certificate signed by unknown authority".into()
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "certificate has expired or is not yet valid".into()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("certificate is not valid for {host}")
            }
            other => other.to_string(),
        },
        Some(other) => return format!("remote error: tls: {other}"),
        None => return describe_io(error),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn unverified_servers_are_described_in_gos_words() {
        let text = |problem: CertificateError| {
            let error = rustls::Error::InvalidCertificate(problem);
            describe_tls(&std::io::Error::other(error), "h.n.svc")
        };
        for (problem, expect) in [
            (
                CertificateError::UnknownIssuer,
                "certificate signed by unknown authority",
            ),
            (
                CertificateError::Expired,
                "certificate has expired or is not yet valid",
            ),
            (
                CertificateError::NotValidForName,
                "certificate is not valid for h.n.svc",
            ),
        ] {
            let found = text(problem);
            assert_eq!(
                found,
                format!("tls: failed to verify certificate: x509: {expect}")
            );
        }
    }

    #[test]
    fn bundle_of_white_space_does_not_trust_the_roots_of_the_system() {
        // " " and "\n" in base64.
        for bundle in ["IA==", "Cg=="] {
            let config = serde_json::json!({"url": "https://h.example/", "caBundle": bundle});
            let endpoint = Endpoint::parse(&config).unwrap();
            let error = client_config(&endpoint, None).err().unwrap();
            assert!(
                error.starts_with("unable to load root certificates"),
                "{error}"
            );
        }
    }

    /// Verifies a self-signed certificate that is marked as a CA.
    fn verify_own(name: &str, trusted: bool, after: u64) -> Result<(), rustls::Error> {
        let mut params = rcgen::CertificateParams::new(vec!["h.n.svc".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let own = params
            .self_signed(&rcgen::KeyPair::generate().unwrap())
            .unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["h.n.svc".to_owned()]).unwrap();
        let root = if trusted { own.der() } else { other.cert.der() };
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).unwrap();
        let verifier = BundleVerifier::new(roots, vec![root.clone()]).unwrap();
        // 2020-01-01, and a time after it.
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_577_836_800 + after));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(own.der(), &[], &name, &[], now)
            .map(drop)
    }

    #[test]
    fn self_signed_certificate_is_trusted_if_it_is_in_the_bundle() {
        const DAY: u64 = 86_400;
        assert_eq!(verify_own("h.n.svc", true, DAY), Ok(()));
        assert!(
            verify_own("h.n.svc", false, DAY).is_err(),
            "not in the bundle"
        );
        assert!(verify_own("x.n.svc", true, DAY).is_err(), "another name");
        assert!(verify_own("h.n.svc", true, 400 * DAY).is_err(), "expired");
    }
}
