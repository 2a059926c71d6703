#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::fs;
use std::os::unix::fs::PermissionsExt;

use x509_parser::prelude::GeneralName;

use super::*;

fn names() -> Names {
    Names {
        domain: "cluster.local".into(),
        service_address: "10.96.0.1".parse().unwrap(),
        extra_dns: vec![],
        addresses: vec!["192.0.2.2".parse().unwrap()],
        server_addresses: Vec::new(),
        nodes: vec![NodeName {
            name: "node-1".into(),
            addresses: vec!["192.0.2.2".parse().unwrap()],
        }],
    }
}

#[test]
fn certificate_of_another_key_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    ensure_pki(dir.path(), &names()).unwrap();
    // As a crash between the two files leaves them.
    fs::copy(dir.path().join("dns.key"), dir.path().join("scheduler.key")).unwrap();
    let (_, written) = ensure_pki(dir.path(), &names()).unwrap();
    assert_eq!(written, ["scheduler"]);
    fs::write(dir.path().join("etcd/peer.key"), "damaged").unwrap();
    let (_, written) = ensure_pki(dir.path(), &names()).unwrap();
    assert_eq!(written, ["etcd/peer"]);
}

#[test]
fn names_of_leaf_certificates_are_those_that_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut written) = ensure_pki(dir.path(), &names()).unwrap();
    written.retain(|name| name != "sa");
    assert_eq!(list_leaf_names(&names()), written);
}

#[test]
fn all_leaf_certificates_are_renewed_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = ensure_pki(dir.path(), &names()).unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join(format!("{name}.crt"))).unwrap();
    let leaves: Vec<_> = first.iter().filter(|name| *name != "sa").collect();
    let before: Vec<_> = leaves.iter().map(|name| read(name)).collect();
    let (ca, key) = (read("ca"), fs::read(dir.path().join("sa.key")).unwrap());
    let (_, written) = write_pki(dir.path(), &names(), Renewal::All).unwrap();
    assert_eq!(written.iter().collect::<Vec<_>>(), leaves);
    for (name, before) in leaves.iter().zip(before) {
        assert_ne!(read(name), before, "{name}");
    }
    assert_eq!(
        (read("ca"), fs::read(dir.path().join("sa.key")).unwrap()),
        (ca, key)
    );
    // Nothing is due.
    assert!(ensure_pki(dir.path(), &names()).unwrap().1.is_empty());
}

#[test]
fn a_second_run_writes_nothing_and_a_new_address_only_what_it_concerns() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = ensure_pki(dir.path(), &names()).unwrap();
    assert!(
        first.contains(&"kubelet-serving-node-1".to_owned()),
        "{first:?}"
    );
    let (pki, second) = ensure_pki(dir.path(), &names()).unwrap();
    assert_eq!(second, Vec::<String>::new());
    let mode = fs::metadata(pki.key("apiserver"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut moved = names();
    moved.addresses = vec!["192.0.2.3".parse().unwrap()];
    let (_, third) = ensure_pki(dir.path(), &moved).unwrap();
    assert_eq!(third, ["apiserver", "etcd/server", "etcd/peer"]);
}

#[test]
fn missing_key_of_a_ca_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    ensure_pki(dir.path(), &names()).unwrap();
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    let error = ensure_pki(dir.path(), &names()).err().unwrap().to_string();
    assert!(error.contains("ca.key is missing"), "{error}");
}

#[test]
fn ca_with_the_key_of_another_one_signs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    ensure_pki(dir.path(), &names()).unwrap();
    let other = fs::read(dir.path().join("front-proxy-ca.key")).unwrap();
    fs::write(dir.path().join("ca.key"), other).unwrap();
    let before = fs::read(dir.path().join("scheduler.crt")).unwrap();
    let error = write_pki(dir.path(), &names(), Renewal::All).err();
    let error = error.unwrap().to_string();
    assert!(error.contains("ca.key is not the key"), "{error}");
    assert_eq!(fs::read(dir.path().join("scheduler.crt")).unwrap(), before);
}

#[test]
fn a_kubeconfig_is_private_and_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    let file = dir.path().join("admin.kubeconfig");
    assert!(
        pki.write_kubeconfig(&file, "admin", "kubernetes-admin", "https://127.0.0.1:6443")
            .unwrap()
    );
    assert!(
        !pki.write_kubeconfig(&file, "admin", "kubernetes-admin", "https://127.0.0.1:6443")
            .unwrap()
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// CVE-2022-3294: the API server presents this certificate to any address that a node names.
#[test]
fn kubelet_client_certificate_is_in_no_group() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    let pem = fs::read(pki.crt("apiserver-kubelet-client")).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
    let certificate = pem.parse_x509().unwrap();
    let subject = certificate.subject();
    assert_eq!(subject.iter_organization().count(), 0, "{subject}");
    let names: Vec<_> = subject
        .iter_common_name()
        .filter_map(|name| name.as_str().ok())
        .collect();
    assert_eq!(names, [KUBELET_CLIENT]);
}

fn parse<T>(
    path: &Path,
    read: impl FnOnce(&x509_parser::certificate::X509Certificate<'_>) -> T,
) -> T {
    let pem = fs::read(path).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
    read(&pem.parse_x509().unwrap())
}

/// A CA that replaces a lost one must replace all certificates of the old one.
#[test]
fn certificate_of_another_ca_is_issued_again() {
    let dir = tempfile::tempdir().unwrap();
    ensure_pki(dir.path(), &names()).unwrap();
    for file in ["front-proxy-ca.crt", "front-proxy-ca.key"] {
        fs::remove_file(dir.path().join(file)).unwrap();
    }
    let (_, written) = ensure_pki(dir.path(), &names()).unwrap();
    assert_eq!(written, ["front-proxy-client"]);
}

#[test]
fn damaged_certificate_is_issued_again() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    fs::write(pki.crt("scheduler"), "no certificate").unwrap();
    fs::remove_file(pki.key("admin")).unwrap();
    let (_, written) = ensure_pki(dir.path(), &names()).unwrap();
    assert_eq!(written, ["admin", "scheduler"]);
}

#[test]
fn api_server_certificate_has_every_name_of_the_api_server() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    let found = parse(&pki.crt("apiserver"), |certificate| {
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(bytes) => {
                let numbers: Vec<_> = bytes.iter().map(ToString::to_string).collect();
                numbers.join(".")
            }
            other => other.to_string(),
        };
        names
            .value
            .general_names
            .iter()
            .map(text)
            .collect::<Vec<_>>()
    });
    for name in [
        "kubernetes",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "10.96.0.1",
        "127.0.0.1",
        "192.0.2.2",
    ] {
        assert!(
            found.iter().any(|n| n == name),
            "{name} is not in {found:?}"
        );
    }
}

/// Members of the store connect to each other, so their certificate is for both sides.
#[test]
fn key_usage_of_a_certificate_is_that_of_its_role() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    for (name, server, client) in [
        ("apiserver", true, false),
        ("admin", false, true),
        ("etcd/server", true, true),
        ("etcd/peer", true, true),
        ("kubelet-serving-node-1", true, false),
        ("kubelet-node-1", false, true),
    ] {
        let found = parse(&pki.crt(name), |certificate| {
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            (usage.server_auth, usage.client_auth)
        });
        assert_eq!(found, (server, client), "{name}");
    }
}

/// The Node authorizer knows a kubelet by this user and group.
#[test]
fn kubelet_certificate_is_that_of_its_node() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    let subject = parse(&pki.crt("kubelet-node-1"), |c| c.subject().to_string());
    assert_eq!(subject, "O=system:nodes, CN=system:node:node-1");
}

#[test]
fn public_key_of_service_accounts_is_restored_from_the_private_one() {
    let dir = tempfile::tempdir().unwrap();
    assert!(ensure_service_account_key(dir.path()).unwrap());
    let public = dir.path().join("sa.pub");
    let before = fs::read(&public).unwrap();
    fs::remove_file(&public).unwrap();
    assert!(!ensure_service_account_key(dir.path()).unwrap());
    assert_eq!(fs::read(&public).unwrap(), before);
    let mode = |name: &str| {
        let file = fs::metadata(dir.path().join(name)).unwrap();
        file.permissions().mode() & 0o777
    };
    assert_eq!((mode("sa.key"), mode("sa.pub")), (0o600, 0o644));
}

#[test]
fn end_of_a_certificate_is_a_year_after_its_issue() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    let pem = fs::read(pki.crt("admin")).unwrap();
    let left = crate::summarize_certificate(&pem).unwrap().expiration - now();
    assert!((364 * 86400..=365 * 86400).contains(&left), "{left}");
    let key = fs::read(pki.key("admin")).unwrap();
    assert_eq!(crate::summarize_certificate(&key), None);
    assert_eq!(crate::summarize_certificate(b""), None);
}

#[test]
fn hosts_of_the_api_server_are_in_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let names = Names {
        extra_dns: vec!["n1".into()],
        ..names()
    };
    ensure_pki(dir.path(), &names).unwrap();
    let pem = fs::read(dir.path().join("apiserver.crt")).unwrap();
    let hosts = crate::list_certificate_hosts(&pem);
    for expected in ["n1", "kubernetes.default.svc", "localhost", "127.0.0.1"] {
        assert!(hosts.iter().any(|host| host == expected), "{hosts:?}");
    }
    assert!(crate::list_certificate_hosts(b"").is_empty());
}

fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
