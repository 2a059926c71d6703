//! Listeners: gRPC and HTTP pages for clients, gRPC for peers, HTTP pages for metrics.

use crate::accept::Listener;
use crate::context::{ServerContext, common_name};
use crate::grpc;
use crate::grpc_stream::RequestBody;
use crate::grpc_unary;
use crate::http_pages;
use crate::metrics::Call;
use crate::request_limits::{LimitedBody, MemoryReservation};
use crate::slow_request;
use crate::urls::ServerUrl;
use anyhow::{Context, Result, bail};
use base_serve::Options;
use base_tls::rustls::SupportedProtocolVersion;
use base_tls::{ClientAuth, Offer, ServerTls};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use kv_raft::{Directory, MeteredBody};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;
use tracing::Instrument;

/// A bound port.
pub(crate) struct Port {
    pub listener: TcpListener,
    pub url: String,
    pub secure: bool,
}

/// Binds every URL of a list. A host name is bound on all its addresses.
pub(crate) async fn bind_urls(urls: &[ServerUrl]) -> Result<Vec<Port>> {
    let mut ports = Vec::new();
    for url in urls {
        let (first, others) = url.addresses()?;
        let listener = base_serve::bind_listener(first).await?;
        let port = listener
            .local_addr()
            .context("a port without an address")?
            .port();
        let entry = |listener| Port {
            listener,
            url: url.with_port(port),
            secure: url.secure,
        };
        ports.push(entry(listener));
        for other in others {
            match base_serve::bind_listener(SocketAddr::new(other.ip(), port)).await {
                Ok(listener) => ports.push(entry(listener)),
                // Further addresses are optional: IPv6 may be disabled.
                Err(error) => {
                    tracing::warn!(url = url.text, %error, "not listening on all addresses of the name")
                }
            }
        }
    }
    Ok(ports)
}

/// TLS files of a kind of port, and the prefix of the flags that name them.
pub(crate) struct TlsFiles<'a> {
    /// Prefix of the flags: empty, or `peer-`.
    pub prefix: &'static str,
    pub certificate: Option<&'a Path>,
    pub key: Option<&'a Path>,
    pub ca: Option<&'a Path>,
    /// True if client certificates are required. A CA implies that too.
    pub demand: bool,
    pub offer: Offer,
}

/// Enabled versions of TLS.
pub(crate) type Versions = &'static [&'static SupportedProtocolVersion];

/// Returns the TLS configuration of a port. If a CA is given, clients without a certificate of it
/// are rejected.
pub(crate) fn tls_config(
    files: &TlsFiles<'_>,
) -> Result<Option<Arc<base_tls::rustls::ServerConfig>>> {
    let prefix = files.prefix;
    let client_auth = match files.ca {
        Some(ca) => ClientAuth::Require(ca.to_path_buf()),
        None if files.demand => bail!(
            "--{prefix}client-cert-auth needs the CA that certificates are checked with: give it with --{prefix}trusted-ca-file"
        ),
        None => ClientAuth::None,
    };
    let (certificate, key) = match (files.certificate, files.key) {
        (Some(certificate), Some(key)) => (certificate.to_path_buf(), key.to_path_buf()),
        (None, None) => return Ok(None),
        _ => bail!("--{prefix}cert-file and --{prefix}key-file need each other: give both or none"),
    };
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(base_tls::server_config_with(
        &ServerTls {
            certificate,
            key,
            client_auth,
            alpn,
        },
        &files.offer,
    )?))
}

/// Maximum number of concurrent streams on a peer's connection. Further calls wait at the sender.
const PEER_STREAMS: u32 = 1_000;

fn serve_options(tls: Option<Arc<base_tls::rustls::ServerConfig>>) -> Options {
    Options {
        tls,
        drain: Duration::from_secs(2),
        ..Options::default()
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Serves clients.
pub(crate) async fn serve_clients(
    listener: Listener,
    tls: Option<Arc<base_tls::rustls::ServerConfig>>,
    core: Arc<ServerContext>,
    shutdown: CancellationToken,
) {
    let (routes, memory_budget, connected) = (
        grpc::grpc_routes(&core).prepare(),
        core.memory_budget.clone(),
        core.bounds.connected,
    );
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = client_request(&routes, &core, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    crate::accept::serve_listener(listener, tls, service, memory_budget, connected, shutdown).await;
}

fn client_request(
    routes: &Routes,
    core: &Arc<ServerContext>,
    request: Request<Incoming>,
) -> BoxFuture<'static, Response<Body>> {
    if is_grpc(request.headers()) {
        return grpc_request(routes, core, request);
    }
    let core = core.clone();
    Box::pin(async move {
        http_pages::respond_page(&core, &request)
            .await
            .map(|body| Body::new(body.map_err(|never| match never {})))
    })
}

/// Handles a gRPC call.
pub(crate) fn grpc_request<B: RequestBody>(
    routes: &Routes,
    core: &Arc<ServerContext>,
    request: Request<B>,
) -> BoxFuture<'static, Response<Body>> {
    let login = grpc_unary::bearer_token(request.headers())
        .filter(|_| core.machine.with_auth(|auth| auth.enabled));
    let answer = grpc_answer(routes, core.clone(), request);
    let Some(token) = login else { return answer };
    let core = core.clone();
    Box::pin(async move {
        core.login_applied(&token).await;
        answer.await
    })
}

/// Returns a future of its own for each kind of call. A single future for all kinds would have the
/// size of the largest, and the frequent small ones would be moved at that size.
fn grpc_answer<B: RequestBody>(
    routes: &Routes,
    core: Arc<ServerContext>,
    request: Request<B>,
) -> BoxFuture<'static, Response<Body>> {
    if let Some(method) = grpc_unary::unary_method(&request) {
        return Box::pin(grpc_unary::respond_unary(core, method, request));
    }
    let by_hand = match request.uri().path() {
        _ if grpc_unary::is_compressed(request.headers()) => None,
        grpc::watch::PATH => Some(grpc::watch::handle_watch as StreamHandler<B>),
        grpc::lease::PATH => Some(grpc::lease::keep_alive as StreamHandler<B>),
        _ => None,
    };
    let Some(streamed) = by_hand else {
        return Box::pin(route_request(routes.clone(), core, request));
    };
    Box::pin(async move {
        let end = CallEnd::new(core.clone(), Call::of(request.uri().path()));
        watch_response(
            end,
            streamed(&core, request).unwrap_or_else(Status::into_http),
        )
    })
}

/// Handles a call with tonic's routes.
async fn route_request<B: RequestBody>(
    routes: Routes,
    core: Arc<ServerContext>,
    request: Request<B>,
) -> Response<Body> {
    let end = CallEnd::new(core.clone(), Call::of(request.uri().path()));
    let span = tracing::debug_span!("call", method = request.uri().path());
    let held = MemoryReservation::of(&core, request.extensions());
    let routed =
        routes.oneshot(request.map(|body| Body::new(LimitedBody::new(core.clone(), held, body))));
    // Routing can't fail: an unknown method gets a response as well.
    let (Ok(response), notes) = slow_request::track_phases(routed).instrument(span).await;
    if let Some(call) = end.call.filter(|call| call.is_prompt()) {
        let code = response.headers().get("grpc-status");
        let code = code.map_or(tonic::Code::Ok, |code| {
            tonic::Code::from_bytes(code.as_bytes())
        });
        slow_request::report_slow(&core, call, notes, code, String::new);
    }
    watch_response(end, response)
}

/// Handler of a streaming call.
type StreamHandler<B> = fn(&Arc<ServerContext>, Request<B>) -> Result<Response<Body>, Status>;

fn watch_response(end: CallEnd, response: Response<Body>) -> Response<Body> {
    if let Some(code) = response.headers().get("grpc-status") {
        let code = code.clone();
        end.finish(code.as_bytes());
        return response;
    }
    response.map(|body| Body::new(WatchedBody { body, end }))
}

/// Counts a call when it ends or is cancelled.
struct CallEnd {
    core: Arc<ServerContext>,
    call: Option<Call>,
    began: Instant,
}

impl CallEnd {
    fn new(core: Arc<ServerContext>, call: Call) -> Self {
        core.metrics.started(call);
        CallEnd {
            core,
            call: Some(call),
            began: Instant::now(),
        }
    }

    fn finish(mut self, code: &[u8]) {
        self.count(code);
    }

    fn count(&mut self, code: &[u8]) {
        if let Some(call) = self.call.take() {
            self.core
                .metrics
                .handled(call, tonic::Code::from_bytes(code), self.began.elapsed());
        }
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        self.count(b"1");
    }
}

/// A response body that counts bytes and records the status of the call.
struct WatchedBody {
    body: Body,
    end: CallEnd,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let frame = task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    let sent = &self.end.core.metrics.sent;
                    sent.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                if let Some(code) = frame
                    .trailers_ref()
                    .and_then(|trailers| trailers.get("grpc-status"))
                {
                    let code = code.clone();
                    self.end.count(code.as_bytes());
                }
            }
            Some(Err(_)) => self.end.count(b"2"),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// Serves HTTP pages only.
pub(crate) async fn serve_pages(
    port: Port,
    tls: Option<Arc<base_tls::rustls::ServerConfig>>,
    core: Arc<ServerContext>,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let core = core.clone();
        async move { Ok::<_, Infallible>(http_pages::respond_page(&core, &request).await) }
    });
    base_serve::serve_http(
        port.listener,
        serve_options(tls.filter(|_| port.secure)),
        service,
        shutdown,
    )
    .await;
}

/// Routes and directory that a peer port serves with.
#[derive(Clone)]
pub(crate) struct PeerSide {
    pub routes: Routes,
    pub directory: Arc<Directory>,
}

/// Serves peers as soon as the routes are set.
pub(crate) async fn serve_peers(
    port: Port,
    tls: Option<Arc<base_tls::rustls::ServerConfig>>,
    side: Arc<OnceLock<PeerSide>>,
    allowed: Option<String>,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let named = allowed
            .as_ref()
            .is_none_or(|names| has_common_name(&request, names));
        let side = side.get().cloned();
        async move { Ok::<_, Infallible>(peer_request(named, side, request).await) }
    });
    let options = Options {
        max_streams: PEER_STREAMS,
        ..serve_options(tls.filter(|_| port.secure))
    };
    base_serve::serve_http(port.listener, options, service, shutdown).await;
}

/// Returns whether a peer's certificate has one of these common names.
fn has_common_name(request: &Request<Incoming>, names: &str) -> bool {
    let certificate = request
        .extensions()
        .get::<base_serve::Peer>()
        .and_then(|peer| peer.certificates.first());
    certificate
        .and_then(|certificate| common_name(certificate))
        .is_some_and(|shown| names.split(',').any(|name| name.trim() == shown))
}

async fn peer_request(
    named: bool,
    side: Option<PeerSide>,
    request: Request<Incoming>,
) -> Response<Body> {
    let plain = |code, text: &'static str| {
        let mut response = Response::new(Body::new(
            Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}),
        ));
        *response.status_mut() = code;
        response
    };
    match side {
        _ if !named => plain(
            StatusCode::FORBIDDEN,
            "the certificate has another name than --peer-cert-allowed-cn\n",
        ),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Some(_) if !is_grpc(request.headers()) => {
            plain(StatusCode::NOT_FOUND, "404 page not found\n")
        }
        Some(side) => answer_peer(side, request).await,
    }
}

/// Handles a call of a peer and counts its bytes if the peer is known.
async fn answer_peer(side: PeerSide, request: Request<Incoming>) -> Response<Body> {
    let sender = kv_raft::claimed_sender(request.headers());
    let Some(traffic) = sender.and_then(|sender| side.directory.traffic(sender)) else {
        let Ok(response) = side.routes.oneshot(request.map(Body::new)).await;
        return response;
    };
    let sent = traffic.clone();
    let count = move |bytes| {
        traffic.received.fetch_add(bytes, Ordering::Relaxed);
    };
    let request = request.map(|body| Body::new(MeteredBody::new(body, count)));
    // Routing can't fail.
    let Ok(response) = side.routes.oneshot(request).await;
    response.map(|body| {
        Body::new(MeteredBody::new(body, move |bytes| {
            sent.sent.fetch_add(bytes, Ordering::Relaxed);
        }))
    })
}
