#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
use super::*;
use crate::csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY};
use crate::rules::check_signer_rules;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use rcgen::{BasicConstraints, DnType};
use serde_json::json;
use x509_parser::certificate::X509Certificate;

const NOW: &str = "2026-01-01T00:00:00Z";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns a CA that expires `days` after `NOW`.
fn authority(days: i64) -> Ca {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "first");
    params
        .distinguished_name
        .push(DnType::CustomDnType(vec![2, 5, 4, 10]), "second");
    params.distinguished_name.push(DnType::CommonName, "ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let end = NOW.parse::<Timestamp>().unwrap().as_second() + days * 86400;
    params.not_after = time::OffsetDateTime::from_unix_timestamp(end).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Ca::from_pem(&certificate.pem(), &key.serialize_pem(), YEAR).unwrap()
}

fn request(name: &str, organizations: &[&str], names: &[SanType]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let types = [
        DnType::OrganizationName,
        DnType::CustomDnType(vec![2, 5, 4, 10]),
    ];
    for (organization, kind) in organizations.iter().zip(types) {
        params.distinguished_name.push(kind, *organization);
    }
    params.subject_alt_names = names.to_vec();
    params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap()
}

fn sign(ca: &Ca, pem: &str, usages: &[&str], wanted: Option<Duration>) -> Result<Vec<u8>, CaError> {
    let request = CertificateRequest::from_pem(pem.as_bytes())?;
    let text = ca.sign(&request, usages, wanted, NOW.parse().unwrap())?;
    Ok(x509_parser::pem::parse_x509_pem(text.as_bytes())
        .unwrap()
        .1
        .contents)
}

fn parse(der: &[u8]) -> X509Certificate<'_> {
    use x509_parser::prelude::FromDer;
    X509Certificate::from_der(der).unwrap().1
}

#[test]
fn certificate_has_the_subject_and_the_key_that_were_checked() {
    let ca = authority(3650);
    let pem = request(
        "jane",
        &["developers", "operators"],
        &[SanType::DnsName("jane.example".try_into().unwrap())],
    );
    let wanted = CertificateRequest::from_pem(pem.as_bytes()).unwrap();
    let der = sign(&ca, &pem, &["client auth", "digital signature"], None).unwrap();
    let certificate = parse(&der);
    assert_eq!(certificate.subject().as_raw(), wanted.subject_der);
    assert_eq!(certificate.public_key().raw, wanted.public_key_der);
    let groups: Vec<_> = certificate
        .subject()
        .iter_organization()
        .map(|o| o.as_str().unwrap())
        .collect();
    assert_eq!(groups, ["developers", "operators"]);
    assert_eq!(
        certificate.issuer().as_raw(),
        &ca.name[..],
        "the chain is found by the CA's whole name"
    );
    assert!(!certificate.is_ca());
    assert!(
        certificate
            .extended_key_usage()
            .unwrap()
            .unwrap()
            .value
            .client_auth
    );
    let names = certificate
        .subject_alternative_name()
        .unwrap()
        .unwrap()
        .value;
    assert_eq!(names.general_names.len(), 1);
    let ca_key = rcgen::PublicKeyData::subject_public_key_info(ca.issuer.key());
    let ca_key = x509_parser::prelude::SubjectPublicKeyInfo::from_der(&ca_key);
    use x509_parser::prelude::FromDer;
    assert!(
        certificate
            .verify_signature(Some(&ca_key.unwrap().1))
            .is_ok()
    );
}

/// kubeadm's CAs have RSA keys, in PKCS#1, which have to be converted to PKCS#8. The files are
/// openssl's, whose encoding of the public key must be that of this library. No cluster uses them.
#[test]
fn ca_with_an_rsa_key_signs_and_one_with_the_key_of_another_does_not() {
    let (certificate, key) = (include_str!("rsa/ca.crt"), include_str!("rsa/ca.key"));
    let ca = Ca::from_pem(certificate, key, YEAR).unwrap();
    let der = sign(&ca, &request("jane", &[], &[]), &["client auth"], None).unwrap();
    let (_, block) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).unwrap();
    let parsed = block.parse_x509().unwrap();
    parse(&der)
        .verify_signature(Some(parsed.public_key()))
        .unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    let refused = Ca::from_pem(certificate, &other, YEAR);
    assert!(matches!(refused, Err(CaError::Pair)), "{refused:?}");
}

#[test]
fn certificate_does_not_outlive_its_ca() {
    let now = NOW.parse::<Timestamp>().unwrap().as_second();
    let pem = request("jane", &[], &[]);
    let end = |ca: &Ca, wanted| {
        parse(&sign(ca, &pem, &["client auth"], wanted).unwrap())
            .validity()
            .not_after
            .timestamp()
            - now
    };
    let year = i64::try_from(YEAR.as_secs()).unwrap();
    assert_eq!(end(&authority(3650), None), year - BACKDATE);
    assert_eq!(end(&authority(30), None), 30 * 86400);
    assert_eq!(end(&authority(30), Some(Duration::from_secs(3600))), 3600);
    assert_eq!(end(&authority(30), Some(Duration::from_secs(1))), SHORTEST);
    let expired = sign(&authority(-1), &pem, &["client auth"], None).unwrap_err();
    assert_eq!(expired.to_string(), "the signer has expired");
}

/// Checks and signs a request as the controller does.
fn handle(signer: &str, pem: &str, usages: &[&str]) -> Result<(), CaError> {
    let csr: Csr = serde_json::from_value(
        json!({"spec": {"signerName": signer, "usages": usages, "request": "",
        "username": "system:node:n1"}}),
    )
    .unwrap();
    let request = CertificateRequest::from_pem(pem.as_bytes())?;
    check_signer_rules(&csr, &request)?;
    sign(&authority(30), pem, usages, None).map(drop)
}

#[test]
fn hidden_second_request_is_not_signed() {
    let (evil, good) = (
        request("evil", &["system:masters"], &[]),
        request("good", &["friends"], &[]),
    );
    for text in [
        format!(" {evil}{good}"),
        format!("{good}{evil}"),
        format!("x{evil}{good}"),
    ] {
        assert!(
            matches!(
                handle(CLIENT, &text, &["client auth"]),
                Err(CaError::Request(_))
            ),
            "{text}"
        );
    }
    assert!(handle(CLIENT, &good, &["client auth"]).is_ok());
}

#[test]
fn each_signer_signs_only_its_own_usages_and_names() {
    let host = SanType::DnsName("n1".try_into().unwrap());
    let uri = SanType::URI("https://n1".try_into().unwrap());
    let node = |names: &[SanType]| request("system:node:n1", &["system:nodes"], names);
    let cases = [
        (
            CLIENT,
            node(&[]),
            vec!["client auth", "key encipherment"],
            true,
        ),
        (CLIENT, node(&[]), vec!["client auth", "server auth"], false),
        (CLIENT, node(&[]), vec!["digital signature"], false),
        (
            KUBELET_CLIENT,
            node(&[]),
            vec!["client auth", "digital signature"],
            true,
        ),
        (KUBELET_CLIENT, node(&[]), vec!["client auth"], false),
        (
            KUBELET_CLIENT,
            node(std::slice::from_ref(&host)),
            vec!["client auth", "digital signature"],
            false,
        ),
        (
            KUBELET_CLIENT,
            request("system:node:n1", &["system:nodes", "x"], &[]),
            vec!["client auth", "digital signature"],
            false,
        ),
        (
            KUBELET_SERVING,
            node(std::slice::from_ref(&host)),
            vec!["server auth", "digital signature"],
            true,
        ),
        (
            KUBELET_SERVING,
            node(&[]),
            vec!["server auth", "digital signature"],
            false,
        ),
        (
            KUBELET_SERVING,
            node(&[host.clone(), uri]),
            vec!["server auth", "digital signature"],
            false,
        ),
        (
            KUBELET_SERVING,
            request(
                "system:node:n2",
                &["system:nodes"],
                std::slice::from_ref(&host),
            ),
            vec!["server auth", "digital signature"],
            false,
        ),
        (
            KUBELET_SERVING,
            node(&[host]),
            vec!["client auth", "digital signature"],
            false,
        ),
        (
            LEGACY,
            node(&[]),
            vec!["server auth", "client auth", "s/mime"],
            true,
        ),
        (LEGACY, node(&[]), vec!["time travel"], false),
        ("example.com/other", node(&[]), vec!["client auth"], false),
    ];
    for (signer, pem, usages, expect) in cases {
        let got = handle(signer, &pem, &usages);
        assert_eq!(got.is_ok(), expect, "{signer} {usages:?}: {got:?}");
    }
}
