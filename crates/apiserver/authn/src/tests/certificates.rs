use super::*;
use crate::life::CertificateLife;
use crate::request_header::{HeaderAuthenticator, RequestHeader};
use crate::x509::ClientCertificates;
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Creates a CA; returns it with its certificate in PEM.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::from_ca_cert_pem(&pem, key).unwrap(), pem)
}

fn leaf(
    issuer: &Issuer<'static, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> Credentials {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params
        .distinguished_name
        .push(DnType::OrganizationName, "dev");
    params.extended_key_usages = vec![usage];
    let certificate = params
        .signed_by(&KeyPair::generate().unwrap(), issuer)
        .unwrap();
    Credentials {
        certificates: vec![certificate.der().to_vec()].into(),
        ..Credentials::default()
    }
}

const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;

fn by_certificate(ca: &str, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
    let directory = tempfile::tempdir().unwrap();
    let path = write_file(directory.path(), "ca.pem", ca);
    let clients =
        ClientCertificates::from_file(&path, Arc::new(CertificateLife::default())).unwrap();
    complete(clients.authenticate(credentials))
}

#[test]
fn subject_of_a_client_certificate_is_user_and_groups() {
    let (issuer, ca) = authority("ca");
    let user = by_certificate(&ca, &leaf(&issuer, "jane", CLIENT))
        .unwrap()
        .unwrap();
    assert_eq!(
        (user.name.as_str(), user.groups),
        ("jane", vec!["dev".to_owned()])
    );
    let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(
        id.starts_with("X509SHA256=") && id.len() == "X509SHA256=".len() + 64,
        "{id}"
    );
}

#[test]
fn certificate_of_another_authority_is_rejected() {
    let (_, ca) = authority("ca");
    let (other, _) = authority("other");
    assert!(by_certificate(&ca, &leaf(&other, "jane", CLIENT)).is_err());
}

#[test]
fn server_certificate_authenticates_no_client() {
    let (issuer, ca) = authority("ca");
    assert!(
        by_certificate(
            &ca,
            &leaf(&issuer, "jane", ExtendedKeyUsagePurpose::ServerAuth)
        )
        .is_err()
    );
}

#[test]
fn certificate_without_common_name_authenticates_nobody() {
    let (issuer, ca) = authority("ca");
    assert_eq!(
        by_certificate(&ca, &leaf(&issuer, "", CLIENT)).unwrap(),
        None
    );
    assert_eq!(by_certificate(&ca, &Credentials::default()).unwrap(), None);
}

/// Authenticates through a front proxy whose certificate has the name `proxy`.
fn by_headers(
    proxy: &Credentials,
    ca: &str,
    allowed: &[&str],
    headers: &[(&str, &str)],
) -> Result<Option<User>, AuthnError> {
    let directory = tempfile::tempdir().unwrap();
    let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let options = RequestHeader {
        client_ca_file: write_file(directory.path(), "ca.pem", ca),
        allowed_names: list(allowed),
        username_headers: list(&["X-Remote-User", "X-User"]),
        group_headers: list(&["X-Remote-Group"]),
        extra_header_prefixes: list(&["X-Remote-Extra-"]),
        uid_headers: list(&["X-Remote-Uid"]),
    };
    let remote_headers = headers
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let credentials = Credentials {
        remote_headers,
        ..proxy.clone()
    };
    complete(
        HeaderAuthenticator::new(options)
            .unwrap()
            .authenticate(&credentials),
    )
}

#[test]
fn front_proxy_passes_user_groups_uid_and_extra() {
    let (issuer, ca) = authority("front");
    let proxy = leaf(&issuer, "proxy", CLIENT);
    let headers = [
        ("x-remote-user", "jane"),
        ("x-remote-group", "a"),
        ("x-remote-group", ""),
        ("x-remote-group", "b"),
        ("x-remote-uid", "7"),
        ("x-remote-extra-example.com%2fteam", "red"),
    ];
    let user = by_headers(&proxy, &ca, &["proxy"], &headers)
        .unwrap()
        .unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
    assert_eq!(user.groups, ["a", "b"]);
    assert_eq!(
        user.extra,
        [("example.com/team".to_owned(), vec!["red".to_owned()])].into()
    );
}

#[test]
fn first_username_header_with_a_value_counts() {
    let (issuer, ca) = authority("front");
    let proxy = leaf(&issuer, "proxy", CLIENT);
    let user = by_headers(
        &proxy,
        &ca,
        &[],
        &[("x-user", "second"), ("x-remote-user", "")],
    )
    .unwrap()
    .unwrap();
    assert_eq!(user.name, "second");
    assert_eq!(
        by_headers(&proxy, &ca, &[], &[("x-remote-group", "a")]).unwrap(),
        None
    );
}

#[test]
fn front_proxy_with_a_name_that_is_not_allowed_is_rejected() {
    let (issuer, ca) = authority("front");
    let proxy = leaf(&issuer, "other", CLIENT);
    assert!(by_headers(&proxy, &ca, &["proxy"], &[("x-remote-user", "jane")]).is_err());
    assert!(
        by_headers(&proxy, &ca, &[], &[("x-remote-user", "jane")])
            .unwrap()
            .is_some()
    );
}

#[test]
fn headers_without_a_certificate_of_the_front_proxies_are_ignored() {
    let (_, ca) = authority("front");
    let (clients, _) = authority("clients");
    let headers = [("x-remote-user", "jane")];
    assert_eq!(
        by_headers(&leaf(&clients, "proxy", CLIENT), &ca, &[], &headers).unwrap(),
        None
    );
    assert_eq!(
        by_headers(&Credentials::default(), &ca, &[], &headers).unwrap(),
        None
    );
}
