//! Checks of what the API server returns, before a key is used with it.

use api_meta::CertificateRequest;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use rcgen::{KeyPair, PublicKeyData as _};
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::parse_x509_pem;
use x509_parser::x509::X509Name;

use super::desired::{DesiredCertificate, NODES_GROUP};

/// Checks that a request that exists already is the one that would have been created: as upstream,
/// for the same key, subject and signer. Another client may have created it under this name.
pub(super) fn check_request(found: &Csr, created: &Csr) -> Result<(), &'static str> {
    let parse = |csr: &Csr| CertificateRequest::from_pem(&csr.spec.request.0);
    let (Ok(found_request), Ok(request)) = (parse(found), parse(created)) else {
        return Err("the request that exists can't be read");
    };
    if found_request.public_key_der != request.public_key_der {
        return Err("the request that exists is for another key");
    }
    if found_request.subject != request.subject {
        return Err("the request that exists is for another subject");
    }
    if found.spec.signer_name != created.spec.signer_name {
        return Err("the request that exists is for another signer");
    }
    Ok(())
}

/// Checks that a certificate is for the key and valid, and a client certificate for the node:
/// another one would make every connection fail.
pub(super) fn check_certificate(
    pem: &str,
    key: &KeyPair,
    desired: &DesiredCertificate,
    now: Timestamp,
) -> Result<(), &'static str> {
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| "it is no PEM")?;
    let certificate = block.parse_x509().map_err(|_| "it is no certificate")?;
    if certificate.public_key().raw != key.subject_public_key_info() {
        return Err("it is for another key");
    }
    if certificate.validity().not_after.timestamp() <= now.as_second() {
        return Err("it has expired");
    }
    // Clients verify the addresses of a serving certificate, and its signer may omit the subject.
    if desired.addresses.is_none() && !is_for_node(&certificate, &desired.user()) {
        return Err("it is for another user");
    }
    Ok(())
}

fn is_for_node(certificate: &X509Certificate<'_>, user: &str) -> bool {
    let subject: &X509Name<'_> = certificate.subject();
    let is_user = subject
        .iter_common_name()
        .last()
        .is_some_and(|name| name.as_str() == Ok(user));
    let is_node = subject
        .iter_organization()
        .any(|group| group.as_str() == Ok(NODES_GROUP));
    is_user && is_node
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType};

    fn desired(node: &str, addresses: Option<&str>) -> DesiredCertificate {
        DesiredCertificate {
            node: node.to_owned(),
            addresses: addresses.map(|address| vec![address.parse().unwrap()]),
        }
    }

    #[test]
    fn existing_request_is_adopted_only_if_it_is_the_same() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let object = |node: &str, key: &KeyPair| desired(node, None).to_object(key).unwrap();
        let created = object("n1", &key);
        let mut signed_otherwise = created.clone();
        signed_otherwise.spec.signer_name = "example.com/other".to_owned();
        let mut malformed = created.clone();
        malformed.spec.request.0.clear();
        // A signature differs each time.
        assert_eq!(check_request(&object("n1", &key), &created), Ok(()));
        for (found, reason) in [
            (object("n1", &other), "another key"),
            (object("n2", &key), "another subject"),
            (signed_otherwise, "another signer"),
            (malformed, "can't be read"),
        ] {
            let error = check_request(&found, &created).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn certificate_must_be_valid_and_for_the_key_and_node() {
        let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let pem = |key: &KeyPair, group: &str, user: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            let names = &mut params.distinguished_name;
            names.push(DnType::OrganizationName, group);
            names.push(DnType::CommonName, user);
            let end: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            params.not_after = std::time::SystemTime::from(end).into();
            params.self_signed(key).unwrap().pem()
        };
        let good = pem(&own, NODES_GROUP, "system:node:n1");
        let (client, serving) = (desired("n1", None), desired("n1", Some("192.0.2.2")));
        let (before, end) = ("2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z");
        for (pem, desired, now, expected) in [
            (good.clone(), &client, before, Ok(())),
            (good.clone(), &client, end, Err("it has expired")),
            (good.clone(), &serving, end, Err("it has expired")),
            (
                pem(&other, NODES_GROUP, "system:node:n1"),
                &client,
                before,
                Err("it is for another key"),
            ),
            (
                pem(&own, NODES_GROUP, "system:node:n2"),
                &client,
                before,
                Err("it is for another user"),
            ),
            (
                pem(&own, "devs", "system:node:n1"),
                &client,
                before,
                Err("it is for another user"),
            ),
            (pem(&own, "devs", "n1"), &serving, before, Ok(())),
            (
                "no certificate".to_owned(),
                &client,
                before,
                Err("it is no PEM"),
            ),
        ] {
            let found = check_certificate(&pem, &own, desired, now.parse().unwrap());
            assert_eq!(found, expected, "{now} {pem}");
        }
    }
}
