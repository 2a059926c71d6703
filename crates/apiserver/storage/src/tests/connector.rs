//! Connections to members with TLS.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base_tls::rustls::ServerConfig;
use base_tls::{ClientAuth, ServerTls, server_config};
use parking_lot::Mutex;
use proto_etcd::etcdserverpb as pb;
use testkit_etcd::FakeEtcd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tonic::transport::Channel;

use crate::StoreConfig;

/// Writes a self-signed certificate for the loopback address and its key; returns the DER form.
pub(super) fn write_pair(certificate: &Path, key: &Path) -> Vec<u8> {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(certificate, pair.cert.pem()).unwrap();
    fs::write(key, pair.signing_key.serialize_pem()).unwrap();
    pair.cert.der().to_vec()
}

/// Files of a member and its client.
pub(super) struct Files(pub(super) tempfile::TempDir);

impl Files {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces all files; returns the certificate of the client. The server's certificate is its
    /// own CA.
    pub(super) fn replace(&self) -> Vec<u8> {
        write_pair(&self.path("ca.crt"), &self.path("server.key"));
        write_pair(&self.path("client.crt"), &self.path("client.key"))
    }

    pub(super) fn server_config(&self, alpn: &[u8]) -> Arc<ServerConfig> {
        let tls = ServerTls {
            certificate: self.path("ca.crt"),
            key: self.path("server.key"),
            client_auth: ClientAuth::Request,
            alpn: vec![alpn.to_vec()],
        };
        server_config(&tls).unwrap()
    }

    pub(super) fn store_config(&self, address: SocketAddr) -> StoreConfig {
        StoreConfig {
            servers: vec![format!("https://{address}")],
            ca_file: Some(self.path("ca.crt")),
            cert_file: Some(self.path("client.crt")),
            key_file: Some(self.path("client.key")),
        }
    }
}

/// Terminates TLS before an etcd.
pub(super) struct TlsMember {
    pub(super) address: SocketAddr,
    pub(super) config: Arc<Mutex<Arc<ServerConfig>>>,
    /// Certificates of the clients, in order.
    pub(super) seen: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    /// Number of open connections.
    open: watch::Sender<usize>,
    /// Number of failed handshakes.
    refused: watch::Sender<usize>,
}

impl TlsMember {
    pub(super) async fn start(etcd: &FakeEtcd, config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Self {
            address: listener.local_addr().unwrap(),
            config: Arc::new(Mutex::new(config)),
            seen: Arc::default(),
            connections: Arc::default(),
            open: watch::Sender::new(0),
            refused: watch::Sender::new(0),
        };
        let target = etcd.url().strip_prefix("http://").unwrap().to_owned();
        let (config, seen) = (member.config.clone(), member.seen.clone());
        let connections = member.connections.clone();
        let (open, refused) = (member.open.clone(), member.refused.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(config.lock().clone());
                let (seen, target) = (seen.clone(), target.clone());
                let (open, refused) = (open.clone(), refused.clone());
                let connection = tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        refused.send_modify(|count| *count += 1);
                        return;
                    };
                    open.send_modify(|count| *count += 1);
                    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                    seen.lock().extend(shown.iter().map(|c| c.to_vec()));
                    let mut etcd = TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut etcd).await;
                    open.send_modify(|count| *count -= 1);
                });
                connections.lock().push(connection.abort_handle());
            }
        });
        member
    }

    pub(super) async fn wait_until_open(&self, count: usize) {
        let mut open = self.open.subscribe();
        let wait = open.wait_for(|open| *open == count);
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{} open connections", *self.open.borrow());
    }

    /// Waits for so many failed handshakes.
    pub(super) async fn wait_until_refused(&self, count: usize) {
        let mut refused = self.refused.subscribe();
        let wait = refused.wait_for(|refused| *refused >= count);
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{} refused", *self.refused.borrow());
    }

    fn close_connections(&self) {
        for connection in self.connections.lock().drain(..) {
            connection.abort();
        }
    }
}

async fn read_key(channel: &Channel) -> Result<(), tonic::Status> {
    let request = pb::RangeRequest {
        key: "a".into(),
        ..Default::default()
    };
    let mut client = pb::kv_client::KvClient::new(channel.clone());
    client.range(request).await.map(drop)
}

/// Returns the channel of a client that looks at its files for each connection.
fn connect(config: &StoreConfig) -> Channel {
    let tls = config.load_tls().unwrap().check_every(Duration::ZERO);
    let mut channels = config.connect_members(&Arc::new(tls)).unwrap();
    channels.remove(0).1
}

#[tokio::test]
async fn new_connections_use_the_changed_files() {
    let (etcd, files) = (FakeEtcd::start().await, Files(tempfile::tempdir().unwrap()));
    let first = files.replace();
    let member = TlsMember::start(&etcd, files.server_config(b"h2")).await;
    let channel = connect(&files.store_config(member.address));
    read_key(&channel).await.unwrap();
    let second = files.replace();
    // An open connection stays.
    read_key(&channel).await.unwrap();
    assert_eq!(member.seen.lock().as_slice(), std::slice::from_ref(&first));
    *member.config.lock() = files.server_config(b"h2");
    member.close_connections();
    // The first request may still be sent on the connection that was closed.
    let again = match read_key(&channel).await {
        Err(_) => read_key(&channel).await,
        done => done,
    };
    again.unwrap();
    assert_eq!(*member.seen.lock(), [first, second]);
}

#[tokio::test]
async fn member_must_have_a_trusted_certificate_and_http2() {
    let (etcd, files) = (FakeEtcd::start().await, Files(tempfile::tempdir().unwrap()));
    let other = Files(tempfile::tempdir().unwrap());
    files.replace();
    other.replace();
    for (case, member, expect) in [
        ("trusted", files.server_config(b"h2"), true),
        ("no HTTP/2", files.server_config(b"http/1.1"), false),
        ("another CA", other.server_config(b"h2"), false),
    ] {
        let member = TlsMember::start(&etcd, member).await;
        let channel = connect(&files.store_config(member.address));
        assert_eq!(read_key(&channel).await.is_ok(), expect, "{case}");
    }
}
