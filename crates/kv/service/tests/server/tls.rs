//! TLS: accepted and rejected clients and peers.

use crate::member::{Member, free_port, refusal};
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::{PutRequest, RangeRequest, StatusRequest};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use std::collections::BTreeSet;
use std::path::Path;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// A CA and the certificates that it signed.
pub struct Ca {
    folder: tempfile::TempDir,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    /// Creates a CA and a certificate `server` for this host.
    pub fn new() -> Ca {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test CA");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(folder.path().join("ca.crt"), &pem).unwrap();
        let ca = Ca {
            folder,
            pem,
            issuer: Issuer::new(params, key),
        };
        let (certificate, key) = ca.sign("server");
        std::fs::write(ca.folder.path().join("server.crt"), certificate).unwrap();
        std::fs::write(ca.folder.path().join("server.key"), key).unwrap();
        ca
    }

    /// Returns certificate and key with this common name, for this host.
    pub fn sign(&self, name: &str) -> (String, String) {
        self.sign_for(name, &["localhost", "127.0.0.1"])
    }

    /// Returns certificate and key with this common name, for these hosts.
    pub fn sign_for(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let hosts = hosts
            .iter()
            .map(|&host| host.to_owned())
            .collect::<Vec<_>>();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        (
            params.signed_by(&key, &self.issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    }

    /// Returns the path of one of its files.
    pub fn file(&self, name: &str) -> String {
        let path: &Path = self.folder.path();
        path.join(name).display().to_string()
    }

    fn flags(&self, prefix: &str) -> Vec<String> {
        vec![
            format!("--{prefix}cert-file={}", self.file("server.crt")),
            format!("--{prefix}key-file={}", self.file("server.key")),
        ]
    }

    /// Returns the TLS configuration for calls to peers, with a certificate and key.
    pub fn calls(&self, identity: Option<(String, String)>) -> kv_raft::PeerTls {
        let identity =
            identity.map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes()));
        let ca = Some(self.pem.clone().into_bytes());
        let tls = base_tls::ClientTls {
            ca,
            identity,
            insecure: false,
            alpn: vec![b"h2".to_vec()],
        };
        let calls = kv_raft::PeerTls::default();
        *calls.write() = Some(base_tls::client_config(&tls).unwrap());
        calls
    }

    /// Returns the flags of a peer port with mutual TLS.
    pub fn peers(&self, port: u16) -> Vec<String> {
        let port = format!("--listen-peer-urls=https://127.0.0.1:{port}");
        self.mutual().into_iter().chain([port]).collect()
    }

    /// Returns the flags of members that accept only peers with a certificate.
    pub fn mutual(&self) -> Vec<String> {
        let ca = format!("--peer-trusted-ca-file={}", self.file("ca.crt"));
        self.flags("peer-")
            .into_iter()
            .chain([ca, "--allow-insecure-peers=false".to_owned()])
            .collect()
    }

    /// Returns the TLS configuration of a gRPC client, with a certificate and key.
    pub fn client(&self, (certificate, key): (String, String)) -> ClientTlsConfig {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.pem))
            .domain_name("localhost");
        tls.identity(Identity::from_pem(certificate, key))
    }

    /// Requests the members from a peer port, with a certificate and key.
    async fn ask(
        &self,
        peer: u16,
        identity: Option<(String, String)>,
    ) -> Result<Option<bytes::Bytes>, kv_raft::NodeError> {
        let url = format!("https://127.0.0.1:{peer}");
        kv_raft::RaftNode::call_peer_url(&url, self.calls(identity), 3, bytes::Bytes::new()).await
    }

    /// Returns the flags of a client port with TLS.
    pub fn secure(&self, more: &[String]) -> Vec<String> {
        let port = ["--listen-client-urls=https://127.0.0.1:0".to_owned()];
        port.into_iter()
            .chain(self.flags(""))
            .chain(more.iter().cloned())
            .collect()
    }
}

pub fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Returns whether a read succeeds, with or without a certificate.
async fn lets_in(port: u16, ca: &Ca, identity: Option<(String, String)>) -> bool {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&ca.pem))
        .domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}"))
        .unwrap()
        .tls_config(tls)
        .unwrap();
    let Ok(channel) = endpoint.connect().await else {
        return false;
    };
    let request = RangeRequest {
        key: "a".into(),
        ..RangeRequest::default()
    };
    KvClient::new(channel).range(request).await.is_ok()
}

#[tokio::test]
async fn client_ca_requires_certificates_of_clients() {
    let (ca, other) = (Ca::new(), Ca::new());
    let flags = ca.secure(&[format!("--trusted-ca-file={}", ca.file("ca.crt"))]);
    let member = Member::start(&words(&flags)).await;
    assert!(
        !lets_in(member.port, &ca, None).await,
        "nobody without a certificate"
    );
    assert!(
        !lets_in(member.port, &ca, Some(other.sign("u"))).await,
        "nobody of another CA"
    );
    assert!(lets_in(member.port, &ca, Some(ca.sign("u"))).await);
    member.stop().await;
}

#[tokio::test]
async fn port_without_a_ca_requires_no_certificate() {
    let ca = Ca::new();
    let member = Member::start(&words(&ca.secure(&[]))).await;
    assert!(lets_in(member.port, &ca, None).await);
    member.stop().await;
}

#[tokio::test]
async fn peer_ca_requires_certificates_of_members() {
    let ca = Ca::new();
    let peer = free_port();
    let member = Member::start(&words(&ca.peers(peer))).await;
    assert!(
        ca.ask(peer, None).await.is_err(),
        "nobody without a certificate"
    );
    assert!(ca.ask(peer, Some(ca.sign("peer"))).await.unwrap().is_some());
    member.stop().await;
}

#[tokio::test]
async fn certificate_authentication_needs_a_ca() {
    let ca = Ca::new();
    let said = refusal(&words(&ca.secure(&["--client-cert-auth".to_owned()]))).await;
    assert!(
        said.contains("--client-cert-auth") && said.contains("--trusted-ca-file"),
        "{said}"
    );
    let mut flags = ca.flags("peer-");
    flags.push("--peer-client-cert-auth".to_owned());
    let said = refusal(&words(&flags)).await;
    assert!(
        said.contains("--peer-client-cert-auth") && said.contains("--peer-trusted-ca-file"),
        "{said}"
    );
}

#[tokio::test]
async fn flags_that_restrict_access_work_or_are_rejected() {
    let ca = Ca::new();
    for flag in [
        "--client-crl-file=/x",
        "--peer-crl-file=/x",
        "--peer-cert-allowed-hostname=x",
        "--client-cert-allowed-hostname=x",
        "--host-whitelist=example.org",
        "--discovery=https://discovery.example/x",
    ] {
        let words = ["kvstore", flag].into_iter().map(std::ffi::OsString::from);
        let said = base_cli::accept_upstream_flags(words, kv_service::UPSTREAM_FLAGS)
            .refusals
            .join("");
        assert!(
            said.contains(flag.split('=').next().unwrap()) && said.contains("not supported"),
            "{said}"
        );
    }
    let said = refusal(&["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"]).await;
    assert!(
        said.contains("--tls-min-version") && said.contains("--tls-max-version"),
        "{said}"
    );
    let said = refusal(&["--peer-cert-allowed-cn=x"]).await;
    assert!(said.contains("--peer-trusted-ca-file"), "{said}");
    let said = refusal(&["--peer-client-cert-file=/x"]).await;
    assert!(said.contains("--peer-client-key-file"), "{said}");
    for (flag, versions) in [
        ("--tls-min-version=TLS1.3", [false, true]),
        ("--tls-max-version=TLS1.2", [true, false]),
    ] {
        let member = Member::start(&words(&ca.secure(&[flag.to_owned()]))).await;
        for (version, wanted) in ["-tls1_2", "-tls1_3"].into_iter().zip(versions) {
            let at = format!("127.0.0.1:{}", member.port);
            let mut client = tokio::process::Command::new("openssl");
            client
                .args(["s_client", "-connect", &at, version])
                .stdin(std::process::Stdio::null());
            assert_eq!(
                client.output().await.unwrap().status.success(),
                wanted,
                "{flag} {version}"
            );
        }
        member.stop().await;
    }
}

#[tokio::test]
async fn common_name_of_a_member_is_checked() {
    let ca = Ca::new();
    let peer = free_port();
    let mut flags = ca.peers(peer);
    flags.push("--peer-cert-allowed-cn=another,member".to_owned());
    let member = Member::start(&words(&flags)).await;
    for (name, wanted) in [("member", true), ("other", false)] {
        let answer = ca.ask(peer, Some(ca.sign(name))).await;
        assert_eq!(answer.is_ok(), wanted, "{name}: {answer:?}");
    }
    member.stop().await;
}

#[tokio::test]
async fn only_listed_suites_of_tls_1_2_are_offered() {
    let ca = Ca::new();
    // The test's certificates have keys of elliptic curves. A suite that no port offers is no
    // mistake.
    let listed =
        "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_CBC_SHA";
    let member = Member::start(&words(&ca.secure(&[listed.to_owned()]))).await;
    let at = format!("127.0.0.1:{}", member.port);
    for (choice, wanted) in [
        (
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"][..],
            true,
        ),
        (
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            false,
        ),
        (&["-tls1_3"], true),
    ] {
        let mut client = tokio::process::Command::new("openssl");
        client
            .args(["s_client", "-connect", &at])
            .args(choice)
            .stdin(std::process::Stdio::null());
        assert_eq!(
            client.output().await.unwrap().status.success(),
            wanted,
            "{choice:?}"
        );
    }
    member.stop().await;
    let said = refusal(&words(&ca.secure(&["--cipher-suites=ROT13".to_owned()]))).await;
    assert!(
        said.contains("--cipher-suites") && said.contains("ROT13"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn members_call_each_other_with_the_certificate_for_calls() {
    let ca = Ca::new();
    let (certificate, key) = ca.sign("caller");
    std::fs::write(ca.file("caller.crt"), certificate).unwrap();
    std::fs::write(ca.file("caller.key"), key).unwrap();
    let calls = [
        format!("--peer-client-cert-file={}", ca.file("caller.crt")),
        format!("--peer-client-key-file={}", ca.file("caller.key")),
        // The certificates of the peer ports have another name.
        "--peer-cert-allowed-cn=caller".to_owned(),
    ];
    let flags = [ca.mutual(), calls.to_vec()].concat();
    let members = Member::three(&words(&flags)).await;
    for member in members {
        member.stop().await;
    }
}

/// Returns the local ports of established connections to these ports, of IPv4.
fn connected_ports(peers: &[u16]) -> BTreeSet<u16> {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16);
    let connections = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_one = words[3] == ESTABLISHED && peers.contains(&port(words[2]).unwrap());
        is_one.then(|| port(words[1]).unwrap())
    });
    connections.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_replace_their_connections_when_the_certificates_change() {
    const LATEST: std::time::Duration = std::time::Duration::from_secs(60);
    let ca = Ca::new();
    // A busy machine may hold up heartbeats, and the leader has to stay.
    let mut flags = ca.mutual();
    flags.push("--election-timeout=3000".to_owned());
    let members = Member::three(&words(&flags)).await;
    let peers: Vec<u16> = members.iter().map(|member| member.peer).collect();
    let before = connected_ports(&peers);
    // Each pair of members has one in each direction at least as soon as it is used.
    assert!(before.len() >= 2, "{before:?}");
    let channel = members[0].channel().await;
    let term = async || {
        let mut maintenance = MaintenanceClient::new(channel.clone());
        let status = maintenance.status(StatusRequest::default()).await;
        status.unwrap().into_inner().raft_term
    };
    let first_term = term().await;
    let (certificate, key) = ca.sign("server");
    std::fs::write(ca.file("server.crt"), certificate).unwrap();
    std::fs::write(ca.file("server.key"), key).unwrap();
    let replaced = async {
        while !before.is_disjoint(&connected_ports(&peers)) {
            let put = PutRequest {
                key: "a".into(),
                ..PutRequest::default()
            };
            KvClient::new(channel.clone()).put(put).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(LATEST, replaced).await;
    assert!(waited.is_ok(), "{before:?} {:?}", connected_ports(&peers));
    assert!(!connected_ports(&peers).is_empty());
    assert_eq!(term().await, first_term, "the leader stays");
    for member in members {
        member.stop().await;
    }
}

#[tokio::test]
async fn stalled_handshake_is_closed_at_its_deadline() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const LATEST: std::time::Duration = std::time::Duration::from_secs(60);
    let (ca, peer) = (Ca::new(), free_port());
    let flags = [ca.secure(&[]), ca.peers(peer)].concat();
    let member = Member::start(&words(&flags)).await;
    // No bytes, and the head of a record that never arrives.
    let begun = [
        (member.port, &[][..]),
        (member.port, b"\x16\x03\x01\x10\0"),
        (peer, b""),
        (peer, b"\x16\x03\x01\x10\0"),
    ];
    let ended = begun.map(|(port, bytes)| async move {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        // An error also means that the connection has ended.
        let read = tokio::time::timeout(LATEST, stream.read_to_end(&mut rest)).await;
        assert!(
            read.is_ok(),
            "{port} {bytes:?}: the connection is still open"
        );
    });
    futures::future::join_all(ended).await;
    assert!(lets_in(member.port, &ca, None).await, "others are served");
    member.stop().await;
}

#[tokio::test]
async fn member_does_not_start_with_files_of_tls_that_can_not_be_used() {
    let ca = Ca::new();
    let (certificate, key) = (ca.file("server.crt"), ca.file("server.key"));
    let other = Ca::new().sign("other").1;
    std::fs::write(ca.file("other.key"), other).unwrap();
    std::fs::write(ca.file("empty.pem"), "").unwrap();
    for (prefix, listen) in [
        ("", "--listen-client-urls=https://127.0.0.1:0"),
        ("peer-", "--listen-peer-urls=https://127.0.0.1:0"),
    ] {
        let flag = |name: &str, file: &str| format!("--{prefix}{name}={file}");
        let ca_file = ca.file("ca.crt");
        for (certificate, key, authority, told) in [
            (
                ca.file("none.crt"),
                key.clone(),
                ca_file.clone(),
                "none.crt",
            ),
            (
                certificate.clone(),
                ca.file("none.key"),
                ca_file.clone(),
                "none.key",
            ),
            (
                ca.file("empty.pem"),
                key.clone(),
                ca_file.clone(),
                "empty.pem",
            ),
            (
                certificate.clone(),
                ca.file("empty.pem"),
                ca_file.clone(),
                "empty.pem",
            ),
            (
                certificate.clone(),
                key.clone(),
                ca.file("none.ca"),
                "none.ca",
            ),
            (
                certificate.clone(),
                key.clone(),
                ca.file("empty.pem"),
                "empty.pem",
            ),
            (
                certificate.clone(),
                ca.file("other.key"),
                ca_file.clone(),
                "key",
            ),
        ] {
            let flags = [
                listen.to_owned(),
                flag("cert-file", &certificate),
                flag("key-file", &key),
                flag("trusted-ca-file", &authority),
            ];
            let said = refusal(&words(&flags)).await;
            assert!(said.contains(told), "{prefix} {told}: {said}");
        }
    }
}
