#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base_tls::{ClientAuth, ServerTls, server_config};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use hyper::service::service_fn;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A CA, and a server that requires its certificates.
struct Cluster {
    folder: tempfile::TempDir,
    ca: String,
    issuer: Issuer<'static, KeyPair>,
    server: String,
    control: Arc<Control>,
}

/// Behaviour of the server, and events that tests wait for.
#[derive(Default)]
struct Control {
    /// Certificate whose requests have the response 401.
    rejected: parking_lot::Mutex<Option<String>>,
    /// Connections get no handshake.
    hangs: AtomicBool,
    /// The server is not ready: all responses have the status 503.
    unready: AtomicBool,
    /// Requests without a token have the response 401.
    needs_token: AtomicBool,
    /// Requests with another token than this one have the response 401.
    accepted_token: parking_lot::Mutex<Option<&'static str>>,
    /// Requests get no response.
    silent: AtomicBool,
    connected: Notify,
    /// Number of connections.
    connections: AtomicUsize,
    /// A request has arrived that gets no response.
    opened: Notify,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap().pem();
        let mut cluster = Self {
            folder,
            ca,
            issuer: Issuer::new(params, key),
            server: String::new(),
            control: Arc::default(),
        };
        std::fs::write(cluster.file("ca.crt"), &cluster.ca).unwrap();
        cluster.write_pair("server");
        cluster.server = cluster.start_server(&cluster.control).await;
        cluster
    }

    /// Starts a server; returns its URL.
    async fn start_server(&self, control: &Arc<Control>) -> String {
        let tls = ServerTls {
            certificate: self.file("server.crt"),
            key: self.file("server.key"),
            client_auth: ClientAuth::Require(self.file("ca.crt")),
            alpn: vec![b"h2".to_vec()],
        };
        let acceptor = TlsAcceptor::from(server_config(&tls).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(serve_certificates(listener, acceptor, control.clone()));
        server
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes `NAME.crt` and `NAME.key`.
    fn write_pair(&self, name: &str) -> String {
        let (certificate, key) = self.sign(name);
        replace(&self.file(&format!("{name}.crt")), &certificate);
        replace(&self.file(&format!("{name}.key")), &key);
        certificate
    }

    /// Writes a kubeconfig that embeds the pair.
    fn write_kubeconfig(&self, (certificate, key): &(String, String)) {
        let [ca, certificate, key] =
            [&self.ca, certificate, key].map(|pem| STANDARD.encode(pem.as_bytes()));
        let text = format!(
            "current-context: c\nclusters: [{{name: k, cluster: {{server: '{}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: u, user: {{client-certificate-data: {certificate}, client-key-data: {key}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n",
            self.server
        );
        replace(&self.file("kubeconfig"), &text);
    }

    fn connect(&self, config: Config) -> Arc<Transport> {
        let config = Arc::new(config);
        let tls = ClientTlsFiles::new(config.clone()).check_every(Duration::ZERO);
        Arc::new(Transport::with_tls(config, tls))
    }

    fn kubeconfig(&self) -> Config {
        Config::from_kubeconfig(self.file("kubeconfig")).unwrap()
    }
}

/// Writes a file with another inode, so that a write within the same tick of the clock is noticed.
fn replace(path: &Path, text: &str) {
    base_tls::write_file_atomically(path, text.as_bytes(), 0o600).unwrap();
}

/// Responds to each request with the certificate of the connection, in hexadecimal. The response to
/// `/open` has no end.
async fn serve_certificates(listener: TcpListener, acceptor: TlsAcceptor, control: Arc<Control>) {
    let mut hanging = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        control.connected.notify_one();
        control.connections.fetch_add(1, Ordering::Relaxed);
        if control.hangs.load(Ordering::Relaxed) {
            hanging.push(stream);
            continue;
        }
        let Ok(stream) = acceptor.accept(stream).await else {
            continue;
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap();
        let leaf = STANDARD.encode(&chain[0]);
        let control = control.clone();
        let respond = service_fn(move |request: Request<Incoming>| {
            let mut response = Response::new(Full::new(Bytes::from(leaf.clone())));
            let authority = request.uri().authority().unwrap().as_str();
            let authority = authority.parse().unwrap();
            response.headers_mut().insert("authority", authority);
            if control.rejected.lock().as_ref() == Some(&leaf) {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            if control.unready.load(Ordering::Relaxed) {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            let token = request.headers().get(header::AUTHORIZATION);
            let needs_token = control.needs_token.load(Ordering::Relaxed);
            let is_accepted = match (token, *control.accepted_token.lock()) {
                (None, _) => !needs_token,
                (Some(_), None) => true,
                (Some(token), Some(accepted)) => token == &format!("Bearer {accepted}"),
            };
            if !is_accepted {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            let has_response =
                request.uri().path() != "/open" && !control.silent.load(Ordering::Relaxed);
            let control = control.clone();
            async move {
                if !has_response {
                    control.opened.notify_one();
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        tokio::spawn(
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), respond),
        );
    }
}

async fn request(transport: &Arc<Transport>) -> Response<Incoming> {
    let uri = format!("{}/", transport.config.server);
    let request = Request::get(uri).body(Full::default()).unwrap();
    let response = transport.send_request(request, "GET /").await;
    response.map_err(|failure| failure.error).unwrap()
}

/// Returns the certificate that the server sees.
async fn seen(transport: &Arc<Transport>) -> String {
    let response = request(transport).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn leaf(pem: &str) -> String {
    let found = base_tls::parse_certificates(pem.as_bytes(), Path::new("test")).unwrap();
    STANDARD.encode(&found[0])
}

#[tokio::test]
async fn renewed_certificate_in_a_kubeconfig_or_in_files_is_presented_by_the_next_request() {
    let cluster = Cluster::start().await;
    cluster.write_kubeconfig(&cluster.sign("a"));
    cluster.write_pair("b");
    let source = |name: &str| crate::Source::File(cluster.file(name));
    let in_files = Config::builder(&cluster.server)
        .with_ca(source("ca.crt"))
        .with_identity(source("b.crt"), source("b.key"));
    let embedded = cluster.connect(cluster.kubeconfig());
    let in_files = cluster.connect(in_files);
    let first = (seen(&embedded).await, seen(&in_files).await);
    assert_eq!(seen(&embedded).await, first.0);
    let renewed = cluster.sign("a");
    cluster.write_kubeconfig(&renewed);
    assert_eq!(seen(&embedded).await, leaf(&renewed.0));
    assert_eq!(seen(&in_files).await, first.1, "its files have not changed");
    let renewed = cluster.write_pair("b");
    assert_eq!(seen(&in_files).await, leaf(&renewed));
}

/// The file of the key is written after that of the certificate, or is damaged.
#[tokio::test]
async fn pair_that_cannot_be_used_leaves_the_former_one_in_use() {
    let cluster = Cluster::start().await;
    let good = cluster.sign("a");
    cluster.write_kubeconfig(&good);
    let transport = cluster.connect(cluster.kubeconfig());
    assert_eq!(seen(&transport).await, leaf(&good.0));
    let other = cluster.sign("a");
    for (case, pair) in [
        ("half", (other.0.clone(), good.1.clone())),
        ("damaged", (other.0.clone(), "no key".to_owned())),
    ] {
        cluster.write_kubeconfig(&pair);
        assert_eq!(seen(&transport).await, leaf(&good.0), "{case}");
    }
    replace(&cluster.file("kubeconfig"), "{}");
    assert_eq!(seen(&transport).await, leaf(&good.0), "no context");
}

#[tokio::test]
async fn request_in_progress_is_not_ended_by_a_renewal() {
    let cluster = Cluster::start().await;
    cluster.write_kubeconfig(&cluster.sign("a"));
    let transport = cluster.connect(cluster.kubeconfig());
    seen(&transport).await;
    let uri = format!("{}/open", cluster.server);
    let request = Request::get(uri).body(Full::default()).unwrap();
    let (sent, mut opened) = (transport.clone(), transport.subscribe_connections());
    let open = tokio::spawn(async move { sent.send_request(request, "GET /open").await.is_ok() });
    cluster.control.opened.notified().await;
    opened.mark_unchanged();
    cluster.write_kubeconfig(&cluster.sign("a"));
    seen(&transport).await;
    assert!(
        opened.has_changed().unwrap(),
        "there is a second connection"
    );
    assert!(!open.is_finished());
    open.abort();
}

/// By a response, or by the end of the connection after the client's part of the handshake.
#[tokio::test]
async fn certificate_that_the_server_rejects_leaves_the_former_one_in_use() {
    let foreign = Cluster::start().await.sign("a");
    for (case, foreign) in [("401", None), ("another CA's", Some(foreign))] {
        let cluster = Cluster::start().await;
        let good = cluster.sign("a");
        cluster.write_kubeconfig(&good);
        let transport = cluster.connect(cluster.kubeconfig());
        assert_eq!(seen(&transport).await, leaf(&good.0), "{case}");
        cluster.control.connected.notified().await;
        let pair = foreign.unwrap_or_else(|| {
            let pair = cluster.sign("a");
            *cluster.control.rejected.lock() = Some(leaf(&pair.0));
            pair
        });
        cluster.write_kubeconfig(&pair);
        assert_eq!(seen(&transport).await, leaf(&good.0), "{case}");
        cluster.control.connected.notified().await;
        assert_eq!(seen(&transport).await, leaf(&good.0), "{case}, again");
    }
}

#[tokio::test]
async fn cancelled_request_leaves_the_former_connection_in_use() {
    let cluster = Cluster::start().await;
    let first = cluster.sign("a");
    cluster.write_kubeconfig(&first);
    let transport = cluster.connect(cluster.kubeconfig());
    seen(&transport).await;
    cluster.control.connected.notified().await;
    cluster.write_kubeconfig(&cluster.sign("a"));
    cluster.control.hangs.store(true, Ordering::Relaxed);
    tokio::select! {
        _ = seen(&transport) => panic!("the request waits for the new connection"),
        () = cluster.control.connected.notified() => {}
    }
    cluster.control.hangs.store(false, Ordering::Relaxed);
    let response = request(&transport).await;
    // A watch on this connection is one on the former certificate.
    let tls = response.extensions().get::<Arc<ConnectionTls>>();
    assert!(transport.has_new_tls(tls.map(Arc::as_ref)));
    assert_eq!(seen(&transport).await, leaf(&first.0));
}

/// The certificate of the server is one for its address only.
#[tokio::test]
async fn server_is_verified_for_its_own_host_and_the_next_one_used() {
    let cluster = Cluster::start().await;
    cluster.write_pair("a");
    let other_name = cluster.server.replace("127.0.0.1", "localhost");
    let source = |name: &str| crate::Source::File(cluster.file(name));
    let config = |server: &str, further: &[&str]| {
        let further = further.iter().map(|&url| url.to_owned()).collect();
        Config::builder(server)
            .with_ca(source("ca.crt"))
            .with_identity(source("a.crt"), source("a.key"))
            .with_further_servers(further)
            .unwrap()
    };
    let transport = cluster.connect(config(&other_name, &[]));
    let request = || Request::get("/").body(Full::default()).unwrap();
    let refused = transport.send_request(request(), "GET /").await;
    let refused = refused.map_err(|failure| failure.error).unwrap_err();
    assert!(
        matches!(&refused, Error::Connect { server, .. } if *server == other_name),
        "{refused}"
    );
    // Nothing listens at the first one.
    let closed = "https://127.0.0.1:1";
    let transport = cluster.connect(config(closed, &[&other_name, &cluster.server]));
    let response = transport.send_request(request(), "GET /").await;
    let response = response.map_err(|failure| failure.error).unwrap();
    let authority = response.headers()["authority"].to_str().unwrap();
    assert_eq!(format!("https://{authority}"), cluster.server);
}

/// Two servers of a cluster, which accept connections all the time, and a client.
struct ServerPair {
    cluster: Cluster,
    first: String,
    second: String,
    of_second: Arc<Control>,
    transport: Arc<Transport>,
}

impl ServerPair {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        cluster.write_pair("a");
        replace(&cluster.file("token"), "old");
        let of_second = Arc::<Control>::default();
        let first = cluster.server.clone();
        let second = cluster.start_server(&of_second).await;
        let source = |name: &str| crate::Source::File(cluster.file(name));
        let config = Config::builder(&first)
            .with_ca(source("ca.crt"))
            .with_identity(source("a.crt"), source("a.key"))
            .with_token(source("token"))
            .with_further_servers(vec![second.clone()])
            .unwrap();
        let transport = cluster.connect(config);
        Self {
            cluster,
            first,
            second,
            of_second,
            transport,
        }
    }

    /// Sends a request. Returns the server that responds, and the status.
    async fn send(&self) -> (String, StatusCode) {
        let request = Request::get("/").body(Full::default()).unwrap();
        let response = self.transport.send_request(request, "GET /").await;
        let response = response.map_err(|failure| failure.error).unwrap();
        let authority = response.headers()["authority"].to_str().unwrap();
        (format!("https://{authority}"), response.status())
    }

    /// Permits the next check, which is due after 10 s otherwise.
    async fn permit_check(&self) {
        self.transport.shared.lock().await.examined = None;
    }
}

fn set_ready(control: &Control, is_ready: bool) {
    control.unready.store(!is_ready, Ordering::Relaxed);
}

const FAILED: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

#[tokio::test]
async fn server_that_is_not_ready_is_left_for_one_that_is() {
    let pair = ServerPair::start().await;
    let (of_first, of_second) = (&pair.cluster.control, &pair.of_second);
    let (first, second) = (pair.first.clone(), pair.second.clone());
    set_ready(of_first, false);
    assert_eq!(pair.send().await, (second.clone(), StatusCode::OK));
    set_ready(of_first, true);
    set_ready(of_second, false);
    let connections = of_second.connections.load(Ordering::Relaxed);
    // The request that gets the failure is not repeated; the next one goes to the other server.
    assert_eq!(pair.send().await, (second, FAILED));
    assert_eq!(pair.send().await, (first.clone(), StatusCode::OK));
    let after = of_second.connections.load(Ordering::Relaxed);
    assert_eq!(after, connections, "the server that failed is not tried");
    // Without a ready server, the open connection stays in use.
    set_ready(of_first, false);
    pair.permit_check().await;
    for _ in 0..2 {
        assert_eq!(pair.send().await, (first.clone(), FAILED));
    }
}

/// As with `--anonymous-auth=false`.
#[tokio::test]
async fn server_that_requires_credentials_is_left_if_it_is_not_ready() {
    let pair = ServerPair::start().await;
    for control in [&pair.cluster.control, &pair.of_second] {
        control.needs_token.store(true, Ordering::Relaxed);
    }
    set_ready(&pair.cluster.control, false);
    // The certificate of this request would do, but the server has the token in its place.
    let (server, _) = pair.send().await;
    assert_eq!(server, pair.second);
}

/// As those of a server whose caches are empty.
#[tokio::test]
async fn server_that_rejects_the_token_is_left_if_it_is_not_ready() {
    for (needs_token, is_left) in [(false, true), (true, false)] {
        let pair = ServerPair::start().await;
        let of_first = &pair.cluster.control;
        of_first.needs_token.store(needs_token, Ordering::Relaxed);
        *of_first.accepted_token.lock() = Some("another");
        set_ready(of_first, false);
        let (server, _) = pair.send().await;
        assert_eq!(
            server == pair.second,
            is_left,
            "needs a token: {needs_token}"
        );
    }
}

#[tokio::test]
async fn token_that_was_replaced_in_its_file_is_sent_by_the_next_check() {
    let pair = ServerPair::start().await;
    for control in [&pair.cluster.control, &pair.of_second] {
        control.needs_token.store(true, Ordering::Relaxed);
        *control.accepted_token.lock() = Some("new");
    }
    set_ready(&pair.cluster.control, false);
    assert_eq!(pair.send().await.0, pair.first, "its readiness is unknown");
    replace(&pair.cluster.file("token"), "new");
    pair.transport.forget_connection().await;
    assert_eq!(pair.send().await.0, pair.second);
}

#[tokio::test]
async fn check_of_a_server_continues_after_its_request_was_cancelled() {
    let pair = ServerPair::start().await;
    let of_first = &pair.cluster.control;
    assert_eq!(pair.send().await, (pair.first.clone(), StatusCode::OK));
    set_ready(of_first, false);
    assert_eq!(pair.send().await, (pair.first.clone(), FAILED));
    of_first.silent.store(true, Ordering::Relaxed);
    tokio::select! {
        _ = pair.send() => panic!("the request waits for the check"),
        () = of_first.opened.notified() => {}
    }
    of_first.silent.store(false, Ordering::Relaxed);
    // The next check is due in 10 s, so this is the result of the first one.
    assert_eq!(pair.send().await, (pair.second.clone(), StatusCode::OK));
}

#[tokio::test]
async fn renewed_certificate_is_presented_to_a_server_that_is_not_ready_if_the_other_hangs() {
    let mut pair = ServerPair::start().await;
    // The half of it that is waited for a ready server, and the half for the other one.
    Arc::get_mut(&mut pair.transport).unwrap().replace_timeout = Duration::from_secs(8);
    assert_eq!(pair.send().await.0, pair.first);
    set_ready(&pair.of_second, false);
    pair.cluster.control.hangs.store(true, Ordering::Relaxed);
    let renewed = pair.cluster.write_pair("a");
    assert_eq!(seen(&pair.transport).await, leaf(&renewed));
}

/// A file that another program replaced must not make the client anonymous, or trust others.
#[test]
fn kubeconfig_with_another_content_than_certificates_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let write = |cluster: &str, user: &str| {
        let text = format!(
            "current-context: c\nclusters: [{{name: k, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        std::fs::write(&path, text).unwrap();
    };
    let ca = "server: 'https://h', certificate-authority-data: YWJj";
    let pair = "client-certificate-data: YWJj, client-key-data: YWJj";
    write(ca, pair);
    let config = Config::from_kubeconfig(&path).unwrap();
    assert!(crate::kubeconfig::read_sources(&config).is_ok());
    let overridden = Config {
        server: "https://other".to_owned(),
        ..config.clone()
    };
    assert!(crate::kubeconfig::read_sources(&overridden).is_ok());
    let with = |row: &str, field: &str| format!("{row}, {field}");
    for (cluster, user, want) in [
        (
            "server: 'https://h'".to_owned(),
            pair.to_owned(),
            "certificate authority",
        ),
        (ca.to_owned(), "token: t".to_owned(), "client certificate"),
        (ca.replace("//h", "//i"), pair.to_owned(), "another server"),
        (
            with(ca, "tls-server-name: n"),
            pair.to_owned(),
            "in another way",
        ),
        (
            with(ca, "insecure-skip-tls-verify: true"),
            pair.to_owned(),
            "in another way",
        ),
        (ca.to_owned(), with(pair, "token: t"), "another token"),
        (ca.to_owned(), with(pair, "as: u"), "another user"),
    ] {
        write(&cluster, &user);
        let refused = crate::kubeconfig::read_sources(&config).unwrap_err();
        assert!(refused.to_string().contains(want), "{refused}");
    }
}
