//! Private keys that sign certificates, in each form in which tools write them.
//!
//! The library of keys reads PKCS#8 only. kubeadm writes the key of an RSA CA in PKCS#1, and
//! OpenSSL writes EC keys in SEC1: both are the content of a PKCS#8 key without its head.

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use yasna::models::ObjectIdentifier;
use yasna::{ASN1Result, DERWriterSeq, Tag};

/// Algorithm of RSA keys (RFC 8017, appendix A.1).
const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
/// Algorithm of EC keys (RFC 5480, section 2.1.1).
const EC: &[u64] = &[1, 2, 840, 10_045, 2, 1];

/// Loads the first private key of a PEM text, in PKCS#8, PKCS#1 or SEC1.
///
/// # Errors
/// There is none, or it can't sign certificates.
pub fn load_signing_key(pem: &str) -> Result<KeyPair, rcgen::Error> {
    let unreadable = || rcgen::Error::CouldNotParseKeyPair;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| unreadable())?;
    let pkcs8 = match &key {
        PrivateKeyDer::Pkcs8(_) => key,
        PrivateKeyDer::Pkcs1(rsa) => wrap(rsa.secret_pkcs1_der(), |algorithm| {
            algorithm
                .next()
                .write_oid(&ObjectIdentifier::from_slice(RSA));
            algorithm.next().write_null();
        }),
        PrivateKeyDer::Sec1(ec) => {
            let content = ec.secret_sec1_der();
            let curve = read_curve(content).map_err(|_| unreadable())?;
            wrap(content, |algorithm| {
                algorithm
                    .next()
                    .write_oid(&ObjectIdentifier::from_slice(EC));
                algorithm.next().write_oid(&curve);
            })
        }
        _ => return Err(unreadable()),
    };
    KeyPair::try_from(&pkcs8)
}

/// Returns a PKCS#8 key (RFC 5208, section 5) of an algorithm.
fn wrap(content: &[u8], algorithm: impl FnOnce(&mut DERWriterSeq<'_>)) -> PrivateKeyDer<'static> {
    let der = yasna::construct_der(|writer| {
        writer.write_sequence(|key| {
            key.next().write_u8(0);
            key.next().write_sequence(algorithm);
            key.next().write_bytes(content);
        });
    });
    PrivatePkcs8KeyDer::from(der).into()
}

/// Returns the curve of an EC key (RFC 5915, section 3).
fn read_curve(content: &[u8]) -> ASN1Result<ObjectIdentifier> {
    yasna::parse_der(content, |reader| {
        reader.read_sequence(|key| {
            key.next().read_u8()?;
            key.next().read_bytes()?;
            let curve = key
                .next()
                .read_tagged(Tag::context(0), |curve| curve.read_oid())?;
            key.read_optional(|public| {
                public.read_tagged(Tag::context(1), |bits| bits.read_der())
            })?;
            Ok(curve)
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use rcgen::PublicKeyData;
    use std::process::Command;

    fn openssl(arguments: &[&str]) -> String {
        let output = Command::new("openssl").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn every_form_of_a_key_is_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let path = path.to_str().unwrap();
        let rsa = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"][..];
        let p256 = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"][..];
        let p384 = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"][..];
        for (algorithm, traditional) in [
            (rsa, "BEGIN RSA PRIVATE KEY"),
            (p256, "BEGIN EC PRIVATE KEY"),
            (p384, "BEGIN EC PRIVATE KEY"),
        ] {
            let pkcs8 = openssl(&[&["genpkey"], algorithm].concat());
            std::fs::write(path, &pkcs8).unwrap();
            let other = openssl(&["pkey", "-in", path, "-traditional"]);
            assert!(other.contains(traditional), "{other}");
            let keys = [pkcs8, other].map(|pem| load_signing_key(&pem).unwrap());
            let [first, second] = keys.map(|key| key.subject_public_key_info());
            assert_eq!(first, second, "{algorithm:?}");
        }
    }

    #[test]
    fn text_without_a_usable_key_is_rejected() {
        let cut = |label: &str, content: &str| {
            format!("-----BEGIN {label}-----\n{content}\n-----END {label}-----\n")
        };
        for pem in [
            String::new(),
            cut("CERTIFICATE", "AAAA"),
            cut("RSA PRIVATE KEY", "AAAA"),
            cut("EC PRIVATE KEY", "MAA="),
            cut("PRIVATE KEY", "MAA="),
        ] {
            assert!(load_signing_key(&pem).is_err(), "{pem}");
        }
    }
}
