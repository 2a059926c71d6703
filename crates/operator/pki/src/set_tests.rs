#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::os::unix::fs::PermissionsExt;

use super::*;

fn names() -> Names {
    Names {
        domain: "cluster.local".into(),
        service_address: "10.96.0.1".parse().unwrap(),
        extra_dns: vec![],
        addresses: vec!["192.0.2.2".parse().unwrap()],
        nodes: vec![NodeName {
            name: "node-1".into(),
            addresses: vec!["192.0.2.2".parse().unwrap()],
        }],
    }
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
    let mode = std::fs::metadata(pki.key("apiserver"))
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
    std::fs::remove_file(dir.path().join("ca.key")).unwrap();
    let error = ensure_pki(dir.path(), &names()).err().unwrap().to_string();
    assert!(error.contains("ca.key is missing"), "{error}");
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
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// CVE-2022-3294: the API server presents this certificate to any address that a node names.
#[test]
fn kubelet_client_certificate_is_in_no_group() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = ensure_pki(dir.path(), &names()).unwrap();
    let pem = std::fs::read(pki.crt("apiserver-kubelet-client")).unwrap();
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
