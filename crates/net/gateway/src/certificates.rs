//! Certificates of hosts: Secrets of the type `kubernetes.io/tls`, chosen by SNI.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base_tls::TlsError;
use base_tls::rustls::server::{ClientHello, ResolvesServerCert};
use base_tls::rustls::sign::CertifiedKey;
use k8s_openapi::api::core::v1::Secret;

use crate::host::normalize_host;
use crate::table::RoutingTable;

/// Identity of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A certificate with its key; the reason if there is none.
pub type Certificate = Result<Arc<CertifiedKey>, String>;

/// Certificates by the Secret that has them.
pub type Certificates = HashMap<SecretKey, Certificate>;

/// Returns the certificate of a Secret.
///
/// # Errors
/// A sentence for the status of the object that names the Secret. It has nothing of the data.
pub fn parse_secret(secret: &Secret) -> Certificate {
    if secret.type_.as_deref() != Some("kubernetes.io/tls") {
        return Err("is not of the type kubernetes.io/tls".to_owned());
    }
    let field = |name: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(name));
        data.map(|bytes| bytes.0.as_slice()).unwrap_or_default()
    };
    base_tls::certified_key_of_pem(field("tls.crt"), field("tls.key"))
        .map(Arc::new)
        // The text of the error has names of fields only.
        .map_err(|error| match error {
            TlsError::Empty { what, .. } => format!("has no {what} in PEM form"),
            _ => "has a key that does not belong to its certificate, or of an unknown type"
                .to_owned(),
        })
}

/// Chooses the certificate of a TLS connection.
pub(crate) struct SniResolver {
    pub(crate) table: Arc<ArcSwap<RoutingTable>>,
    /// For names without a certificate.
    pub(crate) fallback: Arc<CertifiedKey>,
}

impl fmt::Debug for SniResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SniResolver")
    }
}

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that sends no name gets the certificate of all hosts.
        let name = hello
            .server_name()
            .map_or(Some(String::new()), normalize_host);
        let table = self.table.load();
        let found = name.and_then(|name| table.find_certificate(&name));
        Some(found.unwrap_or_else(|| self.fallback.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn secret_without_a_usable_pair_has_a_reason_without_its_data() {
        let pair = |name: &str| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let ((certificate, key), (_, other_key)) = (pair("a"), pair("b"));
        for (kind, certificate, key, want) in [
            (
                "kubernetes.io/tls",
                certificate.as_str(),
                key.as_str(),
                "ok",
            ),
            ("Opaque", &certificate, &key, "is not of the type"),
            ("kubernetes.io/tls", "", &key, "has no certificate"),
            (
                "kubernetes.io/tls",
                &certificate,
                "s3cret",
                "has no private key",
            ),
            (
                "kubernetes.io/tls",
                &certificate,
                &other_key,
                "does not belong",
            ),
        ] {
            let data = [("tls.crt", certificate), ("tls.key", key)]
                .map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec())));
            let secret = Secret {
                type_: Some(kind.to_owned()),
                data: Some(data.into_iter().collect()),
                ..Secret::default()
            };
            let found = parse_secret(&secret).map_or_else(|reason| reason, |_| "ok".to_owned());
            assert!(
                found.contains(want) && !found.contains("s3cret"),
                "{found}: {want}"
            );
        }
    }
}
