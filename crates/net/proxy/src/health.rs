//! HTTP: the proxy's own health, its metrics, and a port for each Service that asks for a health check of its local
//! endpoints.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use base_task::{CancellationToken, Tasks};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

/// What the health endpoint tells.
#[derive(Debug, Default)]
pub struct Health {
    synced: AtomicBool,
    failing: AtomicBool,
    updated: AtomicI64,
}

impl Health {
    /// The rules are as they should be.
    pub fn good(&self) {
        self.updated.store(jiff::Timestamp::now().as_second(), Ordering::Relaxed);
        self.failing.store(false, Ordering::Relaxed);
        self.synced.store(true, Ordering::Relaxed);
    }

    /// A transaction failed.
    pub fn bad(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    fn answer(&self) -> Response<Full<Bytes>> {
        let healthy = self.synced.load(Ordering::Relaxed) && !self.failing.load(Ordering::Relaxed);
        let time = |seconds| jiff::Timestamp::from_second(seconds).map(|t| t.to_string()).unwrap_or_default();
        let body = serde_json::json!({
            "lastUpdated": time(self.updated.load(Ordering::Relaxed)),
            "currentTime": jiff::Timestamp::now().to_string(),
            "nodeEligible": true,
        });
        json(if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
    }
}

fn json(status: StatusCode, body: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn not_found() -> Response<Full<Bytes>> {
    json(StatusCode::NOT_FOUND, &serde_json::json!({ "message": "not found" }))
}

/// Serves `/healthz` and `/livez`.
pub async fn serve_health(
    address: SocketAddr,
    health: Arc<Health>,
    tasks: &Tasks,
) -> Result<(), base_serve::ListenError> {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = match request.uri().path() {
            "/healthz" | "/livez" => health.answer(),
            _ => not_found(),
        };
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let listener = base_serve::bind(address).await?;
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("health", base_serve::serve(listener, base_serve::Options::default(), service, shutdown));
    Ok(())
}

/// Serves `/metrics` and `/proxyMode`.
pub async fn serve_metrics(
    address: SocketAddr,
    metrics: Arc<base_telemetry::Metrics>,
    tasks: &Tasks,
) -> Result<(), base_serve::ListenError> {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = match request.uri().path() {
            "/metrics" => Response::new(Full::new(Bytes::from(metrics.encode()))),
            "/proxyMode" => Response::new(Full::new(Bytes::from_static(b"nftables"))),
            "/healthz" => Response::new(Full::new(Bytes::from_static(b"ok"))),
            _ => not_found(),
        };
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let listener = base_serve::bind(address).await?;
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("metrics", base_serve::serve(listener, base_serve::Options::default(), service, shutdown));
    Ok(())
}

struct Checked {
    service: String,
    local: Arc<AtomicUsize>,
    stop: CancellationToken,
}

/// The health check ports of Services.
pub struct Checks {
    tasks: Tasks,
    open: BTreeMap<u16, Checked>,
}

impl Checks {
    /// None yet.
    pub fn new(tasks: Tasks) -> Self {
        Self { tasks, open: BTreeMap::new() }
    }

    /// Sets what a Service's port tells; nothing closes it.
    pub async fn set(&mut self, service: &str, health: Option<(u16, usize)>) {
        let other = |port: &u16| health.is_none_or(|(wanted, _)| wanted != *port);
        let closed: Vec<u16> =
            self.open.iter().filter(|(port, c)| c.service == service && other(port)).map(|(port, _)| *port).collect();
        for port in closed {
            if let Some(checked) = self.open.remove(&port) {
                checked.stop.cancel();
            }
        }
        let Some((port, local)) = health else { return };
        if let Some(checked) = self.open.get(&port) {
            checked.local.store(local, Ordering::Relaxed);
            return;
        }
        self.open_port(service, port, local).await;
    }

    async fn open_port(&mut self, service: &str, port: u16, count: usize) {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let listener = match base_serve::bind(address).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(service, %error, "health checks of the Service can't be served");
                return;
            }
        };
        let local = Arc::new(AtomicUsize::new(count));
        let stop = self.tasks.shutdown().child_token();
        let (name, shared) = (service.to_owned(), Arc::clone(&local));
        let answer = service_fn(move |_: Request<Incoming>| {
            std::future::ready(Ok::<_, Infallible>(local_health(&name, shared.load(Ordering::Relaxed))))
        });
        let options = base_serve::Options::default();
        self.tasks.spawn("service health check", base_serve::serve(listener, options, answer, stop.clone()));
        self.open.insert(port, Checked { service: service.to_owned(), local, stop });
    }
}

fn local_health(service: &str, local: usize) -> Response<Full<Bytes>> {
    let (namespace, name) = service.split_once('/').unwrap_or(("", service));
    let body = serde_json::json!({
        "service": { "namespace": namespace, "name": name },
        "localEndpoints": local,
        "serviceProxyHealthy": true,
    });
    json(if local > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
}
