//! TLS for clients: trusted roots and client certificates.

use crate::pem::{self, TlsError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// TLS settings of a client as PEM bytes. The caller reads the files, because it knows when to read
/// them again.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Trusted roots. Without any, no server is trusted unless `insecure` is set.
    pub ca: Option<Vec<u8>>,
    /// Certificate chain and key of the client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Accept any server certificate (HTTPS probes; `insecure-skip-tls-verify`).
    pub insecure: bool,
    /// ALPN protocols in order of preference.
    pub alpn: Vec<Vec<u8>>,
}

/// Builds a rustls configuration for clients.
///
/// # Errors
/// PEM data lack certificates or a key, or the key does not match its certificate.
pub fn client_config(tls: &ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let inline = Path::new("inline data");
    let builder = ClientConfig::builder_with_provider(crate::crypto_provider())
        .with_safe_default_protocol_versions()
        .map_err(rejected_config)?;
    let builder = if tls.insecure {
        builder
            .dangerous()
            // HTTPS probes do not verify certificates in Kubernetes; the signature of the handshake
            // is still verified.
            .with_custom_certificate_verifier(Arc::new(AcceptAny(crate::crypto_provider())))
    } else {
        let roots = match &tls.ca {
            Some(ca) => pem::parse_roots(ca, inline)?,
            // Without roots no server is trusted: a forgotten CA must not mean the public ones.
            None => RootCertStore::empty(),
        };
        builder.with_root_certificates(roots)
    };
    let mut config = match &tls.identity {
        Some((chain, key)) => builder
            .with_client_auth_cert(
                pem::parse_certificates(chain, inline)?,
                pem::parse_private_key(key, inline)?,
            )
            .map_err(rejected_config)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols.clone_from(&tls.alpn);
    Ok(Arc::new(config))
}

fn rejected_config(e: Error) -> TlsError {
    TlsError::Refused(e.to_string())
}

/// Accepts every certificate whose key the server holds.
#[derive(Debug)]
pub(crate) struct AcceptAny(pub(crate) Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
