//! Listeners: gRPC and HTTP pages for clients, gRPC for peers, HTTP pages for metrics.

use crate::http_pages;
use anyhow::{Context, Result};
use base_serve::Options;
use base_tls::rustls::ServerConfig;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use kv_config::ServerUrl;
use kv_raft::{Directory, MeteredBody};
use kv_rpc::{ServerContext, common_name, grpc_request, grpc_routes};
use kv_transport::{ConnectionOptions, Listener, is_grpc, serve_listener};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

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

/// Maximum number of concurrent streams on a peer's connection. Further calls wait at the sender.
const PEER_STREAMS: u32 = 1_000;

fn serve_options(tls: Option<Arc<ServerConfig>>) -> Options {
    Options {
        tls,
        drain: Duration::from_secs(2),
        ..Options::default()
    }
}

/// Serves clients.
pub(crate) async fn serve_clients(
    listener: Listener,
    tls: Option<Arc<ServerConfig>>,
    connected: ConnectionOptions,
    core: Arc<ServerContext>,
    shutdown: CancellationToken,
) {
    let routes = grpc_routes(&core).prepare();
    let memory_budget = core.traffic.memory_budget().clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = client_request(&routes, &core, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    serve_listener(listener, tls, service, memory_budget, connected, shutdown).await;
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

/// Serves HTTP pages only.
pub(crate) async fn serve_pages(
    port: Port,
    tls: Option<Arc<ServerConfig>>,
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
    tls: Option<Arc<ServerConfig>>,
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
        // The first certificate is the peer's own, the others are its chain.
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
        // Bound before the member can serve, so that a wrong address ends the start at once.
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
    // A member that is joining is not in the directory, so its bytes are not counted.
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
