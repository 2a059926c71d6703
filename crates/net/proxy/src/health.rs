//! HTTP: the proxy's own health and its metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use base_task::Tasks;
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
    removed: AtomicBool,
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

    /// Sets whether the node may get connections of load balancers.
    pub fn set_eligible(&self, eligible: bool) {
        self.removed.store(!eligible, Ordering::Relaxed);
    }

    /// Whether the rules are as they should be.
    pub fn is_healthy(&self) -> bool {
        self.synced.load(Ordering::Relaxed) && !self.failing.load(Ordering::Relaxed)
    }

    /// `/healthz` is what load balancers ask; `/livez`, which decides on a restart, leaves the node's state out.
    fn answer(&self, for_balancers: bool) -> Response<Full<Bytes>> {
        let eligible = !self.removed.load(Ordering::Relaxed);
        let healthy = self.is_healthy() && (eligible || !for_balancers);
        let time = |seconds| jiff::Timestamp::from_second(seconds).map(|t| t.to_string()).unwrap_or_default();
        let now = jiff::Timestamp::now();
        // As upstream: load balancers take the time of a healthy proxy as that of its last look, not of the last change.
        let updated = if for_balancers && healthy { now.as_second() } else { self.updated.load(Ordering::Relaxed) };
        let mut body = serde_json::json!({ "lastUpdated": time(updated), "currentTime": now.to_string() });
        if for_balancers {
            body["nodeEligible"] = eligible.into();
        }
        json(if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
    }
}

/// A JSON document.
pub(crate) fn json(status: StatusCode, body: &serde_json::Value) -> Response<Full<Bytes>> {
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
            "/healthz" => health.answer(true),
            "/livez" => health.answer(false),
            _ => not_found(),
        };
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let listener = base_serve::bind(address).await?;
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_critical("health", base_serve::serve(listener, base_serve::Options::default(), service, shutdown));
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
    tasks.spawn_critical("metrics", base_serve::serve(listener, base_serve::Options::default(), service, shutdown));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healthz_fails_on_a_node_that_is_removed_and_livez_does_not() {
        let health = Health::default();
        let both = || [health.answer(true).status(), health.answer(false).status()].map(|status| status.as_u16());
        assert_eq!(both(), [503, 503]);
        health.good();
        assert_eq!(both(), [200, 200]);
        health.set_eligible(false);
        assert_eq!(both(), [503, 200]);
        health.bad();
        assert_eq!(both(), [503, 503]);
    }
}
