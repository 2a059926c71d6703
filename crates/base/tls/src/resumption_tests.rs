//! Clients whose CA is removed from the file of a server.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::client::AcceptAny;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection};
use std::time::{Duration, Instant};

/// Certificate of a CA in PEM, and a client with a certificate of it.
struct Ca {
    pem: String,
    leaf: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Ca {
    fn generate() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, ca_key);
        let mut leaf = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
        leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        Ca { pem, leaf, key }
    }

    /// Returns a client that resumes its sessions if the server lets it.
    fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let provider = crate::crypto_provider();
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            .with_client_auth_cert(vec![self.leaf.der().clone()], key.into());
        Arc::new(config.unwrap())
    }
}

/// Files of a server that trusts one CA.
struct ServerFiles(tempfile::TempDir);

impl ServerFiles {
    fn new(ca: &Ca) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let made = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
        files.write("server.crt", &made.cert.pem());
        files.write("server.key", &made.signing_key.serialize_pem());
        files.write("ca.crt", &ca.pem);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn serve(&self, client_auth: ClientAuth) -> Arc<ServerConfig> {
        let tls = ServerTls {
            certificate: self.path("server.crt"),
            key: self.path("server.key"),
            client_auth,
            alpn: Vec::new(),
        };
        server_config(&tls).unwrap()
    }
}

/// Shakes hands in memory, and sends the client what follows: the tickets for its next session.
fn connect(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<ServerConnection, Error> {
    let name = "server".try_into().unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut sent = bytes.as_slice();
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut sent = bytes.as_slice();
        while !sent.is_empty() {
            client.read_tls(&mut sent).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!server.is_handshaking() && !client.is_handshaking());
    Ok(server)
}

/// A resumed session would keep the chain that the former CA has signed.
#[test]
fn client_of_a_removed_ca_does_not_resume_its_session() {
    for version in [&TLS12, &TLS13] {
        let (former, next) = (Ca::generate(), Ca::generate());
        let files = ServerFiles::new(&former);
        let server = files.serve(ClientAuth::Require(files.path("ca.crt")));
        let client = former.client(version);
        connect(&client, &server).unwrap();
        files.write("ca.crt", &next.pem);
        // The file is read once a second. A client without a session shows that it was.
        let end = Instant::now() + Duration::from_secs(60);
        while connect(&next.client(version), &server).is_err() {
            assert!(Instant::now() < end, "the new CA is not in use");
            std::thread::yield_now();
        }
        let rejected = connect(&client, &server);
        assert!(rejected.is_err(), "{version:?}: {rejected:?}");
    }
}

#[test]
fn servers_that_request_certificates_see_them_in_each_handshake() {
    for version in [&TLS12, &TLS13] {
        let ca = Ca::generate();
        let files = ServerFiles::new(&ca);
        for (mode, expect) in [
            (
                ClientAuth::Require(files.path("ca.crt")),
                HandshakeKind::Full,
            ),
            (ClientAuth::Request, HandshakeKind::Full),
            (ClientAuth::None, HandshakeKind::Resumed),
        ] {
            let (server, client) = (files.serve(mode.clone()), ca.client(version));
            connect(&client, &server).unwrap();
            let second = connect(&client, &server).unwrap();
            assert_eq!(
                second.handshake_kind(),
                Some(expect),
                "{mode:?} {version:?}"
            );
        }
    }
}
