//! TLS of webhooks: roots, client certificate, and errors in the words of Go.

use super::error::describe_io;
use crate::endpoint::Endpoint;
use base_tls::{ClientTls, rustls};
use rustls::{CertificateError, ClientConfig};
use std::path::Path;
use std::sync::Arc;

/// Where systems keep their trusted roots, in Go's order.
const SYSTEM_ROOTS: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Builds the configuration for one server. Without a CA bundle, the system's roots are trusted, as
/// documented for `caBundle`.
///
/// # Errors
/// A CA bundle without a certificate, or a client certificate that does not match its key.
pub fn client_config(
    endpoint: &Endpoint,
    identity: Option<(Vec<u8>, Vec<u8>)>,
) -> Result<Arc<ClientConfig>, String> {
    let ca = if endpoint.ca_bundle().is_empty() {
        read_system_roots()
    } else {
        Some(endpoint.ca_bundle().to_vec())
    };
    // As upstream: connections of HTTP/2 would send all requests to one backend of a Service.
    let alpn: &[&[u8]] = if endpoint.is_local() {
        &[b"h2", b"http/1.1"]
    } else {
        &[b"http/1.1"]
    };
    base_tls::client_config(&ClientTls {
        ca,
        identity,
        insecure: false,
        alpn: alpn.iter().map(|protocol| protocol.to_vec()).collect(),
    })
    .map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned())
}

fn read_system_roots() -> Option<Vec<u8>> {
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
            CertificateError::UnknownIssuer => "certificate signed by unknown authority".into(),
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
}
