//! Checks that a certificate or a public key belongs to a private key.

use base_tls::load_signing_key;
use rcgen::{KeyPair, PublicKeyData};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns whether the certificate is that of the private key. A crash between the two files leaves
/// an old certificate beside a new key.
pub(crate) fn belongs_to_key(certificate: &str, key: &str) -> bool {
    let Ok(pair) = load_signing_key(key) else {
        return false;
    };
    let der = pem_to_der(certificate).unwrap_or_default();
    X509Certificate::from_der(&der).is_ok_and(|(_, certificate)| {
        // Both are the DER of SubjectPublicKeyInfo (RFC 5280, section 4.1).
        certificate.public_key().raw == pair.subject_public_key_info()
    })
}

/// Returns whether the public keys of a PEM text include that of the private key. A private or
/// public key in PKCS#1, as kubeadm writes it, is accepted without a comparison.
pub(crate) fn includes_key(public: &str, key: &str) -> bool {
    let blocks = |text: &str| -> Vec<x509_parser::pem::Pem> {
        let blocks = x509_parser::pem::Pem::iter_from_buffer(text.as_bytes());
        blocks.flatten().collect()
    };
    let publics = blocks(public);
    let are_public = publics
        .iter()
        .all(|block| block.label.ends_with("PUBLIC KEY"));
    if publics.is_empty() || !are_public {
        return false;
    }
    match KeyPair::from_pem(key) {
        Ok(pair) => {
            let own = pair.subject_public_key_info();
            let mut all = publics.iter();
            all.any(|block| block.contents == own || block.label == "RSA PUBLIC KEY")
        }
        Err(_) => blocks(key)
            .iter()
            .any(|block| block.label == "RSA PRIVATE KEY"),
    }
}

/// Returns the content of the first block of a PEM text.
pub(crate) fn pem_to_der(pem: &str) -> Option<Vec<u8>> {
    x509_parser::pem::parse_x509_pem(pem.as_bytes())
        .ok()
        .map(|(_, pem)| pem.contents)
}
