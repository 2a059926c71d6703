//! TLS for clients: rustls with ring, HTTP/2 by ALPN.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::config::{Config, Source};
use crate::error::{Error, Result};

const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds the rustls configuration from the current content of the files.
pub(crate) fn client_config(config: &Config) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Config(format!("TLS: {error}")))?;
    let builder = if config.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
    } else {
        builder.with_root_certificates(roots(config)?)
    };
    let mut tls = match &config.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = certificates(&identity.certificate, "client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(&identity.key.read()?)
                .map_err(|error| unusable("client key", &identity.key, &error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| unusable("client certificate", &identity.certificate, &error))?
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

fn roots(config: &Config) -> Result<RootCertStore> {
    let system = Source::File(SYSTEM_ROOTS.into());
    let source = config.ca.as_ref().unwrap_or(&system);
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(certificates(source, "certificate authority")?);
    if added == 0 {
        return Err(Error::Config(format!(
            "{} holds no certificate authority",
            place(source)
        )));
    }
    Ok(roots)
}

fn certificates(source: &Source, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(&source.read()?)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(what, source, &error))
}

fn unusable(what: &str, source: &Source, error: &dyn std::fmt::Display) -> Error {
    Error::Config(format!("{} is no usable {what}: {error}", place(source)))
}

fn place(source: &Source) -> String {
    match source {
        Source::Inline(_) => "the inline data".to_owned(),
        Source::File(path) => path.display().to_string(),
    }
}

/// Accepts any server certificate: `insecure-skip-tls-verify`.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
