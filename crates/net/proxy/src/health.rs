//! HTTP endpoints: the proxy's health and its metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use base_serve::ListenError;
use base_task::Tasks;
use base_telemetry::Metrics;
use base_telemetry::prometheus_client::metrics::counter::Counter;
use base_telemetry::prometheus_client::metrics::family::Family as Labelled;
use client::Client;
use component::{Endpoints, Page, json_page, text_page};
use http::{HeaderValue, StatusCode};
use net_nft::Family;
use std::time::Duration;

use crate::settings::CHECK_INTERVAL;

/// Time between two attempts to bind an address that another process has.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// State of the health endpoint.
#[derive(Debug)]
pub struct Health {
    /// Time after which a change that is not applied makes the proxy unhealthy.
    limit: Duration,
    families: Vec<Family>,
    eligible: AtomicBool,
    /// Milliseconds since the epoch; 0 for none.
    updated: AtomicI64,
    /// The start of the oldest sync that has not succeeded yet, in milliseconds; 0 for none.
    queued: AtomicI64,
    healthz: Responses,
    livez: Responses,
}

/// Responses by status code.
type Responses = Labelled<[(&'static str, &'static str); 1], Counter>;

impl Default for Health {
    fn default() -> Self {
        Self::new(2 * CHECK_INTERVAL, Vec::new())
    }
}

impl Health {
    /// Creates the state of a proxy that starts.
    pub fn new(limit: Duration, families: Vec<Family>) -> Self {
        Self {
            limit,
            families,
            eligible: AtomicBool::new(false),
            updated: AtomicI64::new(0),
            queued: AtomicI64::new(0),
            healthz: Responses::default(),
            livez: Responses::default(),
        }
    }

    /// Registers the counters of responses.
    pub fn register(&self, metrics: &Metrics) {
        for (name, responses) in [("healthz", &self.healthz), ("livez", &self.livez)] {
            let name = format!("kubeproxy_proxy_{name}");
            metrics.register(&name, "Responses by status code", responses.clone());
        }
    }

    /// Records that the rules are up to date.
    pub fn record_success(&self) {
        self.updated.store(now_milliseconds(), Ordering::Relaxed);
        self.queued.store(0, Ordering::Relaxed);
    }

    /// Records that a sync begins. If it fails, the time of the first attempt counts.
    pub fn record_queued(&self) {
        self.record_queued_at(now_milliseconds());
    }

    fn record_queued_at(&self, milliseconds: i64) {
        let (order, same) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.queued.compare_exchange(0, milliseconds, order, same);
    }

    /// Sets whether the node may receive connections of load balancers.
    pub fn set_eligible(&self, eligible: bool) {
        self.eligible.store(eligible, Ordering::Relaxed);
    }

    /// Returns whether the rules are installed, and changes are applied in time.
    pub fn is_healthy(&self) -> bool {
        self.updated.load(Ordering::Relaxed) > 0 && self.is_in_time()
    }

    /// Returns whether load balancers may send connections to the node: it is healthy and is not
    /// about to be removed.
    pub fn accepts_load_balancers(&self) -> bool {
        self.is_healthy() && self.eligible.load(Ordering::Relaxed)
    }

    /// Returns whether changes are applied in time; true while the proxy starts.
    fn is_in_time(&self) -> bool {
        let queued = self.queued.load(Ordering::Relaxed);
        let waited = u64::try_from(now_milliseconds() - queued).unwrap_or(0);
        queued == 0
            || self.updated.load(Ordering::Relaxed) == 0
            || Duration::from_millis(waited) < self.limit
    }

    /// Builds the response: `/healthz` for load balancers; `/livez`, which decides on a restart,
    /// ignores the node's state.
    fn build_page(&self, for_balancers: bool) -> Page {
        let eligible = self.eligible.load(Ordering::Relaxed);
        // A restart does not help a node that is being removed, nor a proxy that waits for the API
        // server at its start. So only the load balancers see that.
        let healthy = match for_balancers {
            true => self.accepts_load_balancers(),
            false => self.is_in_time(),
        };
        let now = jiff::Timestamp::now();
        let updated = self.updated.load(Ordering::Relaxed);
        let updated = jiff::Timestamp::from_millisecond(updated).unwrap_or_default();
        // As upstream: the timestamp of a healthy proxy is the current time, not that of the last
        // change.
        let shown = if healthy { now } else { updated };
        let family = serde_json::json!({
            "lastUpdated": updated.to_string(), "healthy": self.is_in_time()
        });
        let families = self.families.iter();
        let status = families.map(|name| (name.api_name().to_owned(), family.clone()));
        let mut body = serde_json::json!({
            "lastUpdated": shown.to_string(),
            "currentTime": now.to_string(),
            "healthy": self.is_in_time(),
            "status": status.collect::<serde_json::Map<_, _>>(),
        });
        if for_balancers {
            body["nodeEligible"] = eligible.into();
        }
        let (status, code) = match healthy {
            true => (StatusCode::OK, "200"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "503"),
        };
        let responses = if for_balancers {
            &self.healthz
        } else {
            &self.livez
        };
        responses.get_or_create(&[("code", code)]).inc();
        let mut page = json_page(status, &body);
        let nosniff = HeaderValue::from_static("nosniff");
        page.headers_mut().insert("x-content-type-options", nosniff);
        page
    }
}

fn now_milliseconds() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn not_found() -> Page {
    json_page(
        StatusCode::NOT_FOUND,
        &serde_json::json!({ "message": "not found" }),
    )
}

/// Serves `/healthz` and `/livez`.
///
/// # Errors
/// The address can't be bound, and `hard_fail` is set.
pub async fn serve_health(
    address: SocketAddr,
    health: Arc<Health>,
    hard_fail: bool,
    tasks: &Tasks,
) -> Result<(), ListenError> {
    let for_balancers = health.clone();
    let endpoints = Endpoints::new()
        .with_page("/healthz", move || for_balancers.build_page(true))
        .with_page("/livez", move || health.build_page(false))
        .with_fallback(not_found);
    serve_once_bound("health", address, endpoints, hard_fail, tasks).await
}

/// Serves `/metrics`, `/proxyMode`, `/statusz` and `/flagz`. As in upstream, without credentials:
/// the address is a local one unless it is set.
///
/// # Errors
/// The address can't be bound, and `hard_fail` is set.
pub async fn serve_metrics(
    address: SocketAddr,
    client: &Client,
    metrics: Arc<base_telemetry::Metrics>,
    mode: &'static str,
    hard_fail: bool,
    tasks: &Tasks,
) -> Result<(), ListenError> {
    let endpoints = Endpoints::new()
        .with_client_metrics(client, move || metrics.encode())
        .with_page("/proxyMode", move || text_page(StatusCode::OK, mode))
        .with_page("/healthz", || text_page(StatusCode::OK, "ok"))
        .with_zpages("kube-proxy", component::flag_values())
        .with_fallback(not_found);
    serve_once_bound("metrics", address, endpoints, hard_fail, tasks).await
}

/// Serves pages, once the address is free. A pod in the node's network may have bound it: that must
/// not stop the rules of Services and NetworkPolicies from following the API.
async fn serve_once_bound(
    name: &'static str,
    address: SocketAddr,
    endpoints: Endpoints,
    hard_fail: bool,
    tasks: &Tasks,
) -> Result<(), ListenError> {
    let options = base_serve::Options::default;
    let error = match base_serve::bind_listener(address).await {
        Ok(listener) => {
            endpoints.serve_pages(name, listener, options(), tasks);
            return Ok(());
        }
        Err(error) if hard_fail => return Err(error),
        Err(error) => error,
    };
    tracing::error!(%error, "pages ({name}) are not served; stop the process that has the port. Trying again every second");
    let inner = tasks.clone();
    tasks.spawn("bind", async move {
        let bound = async {
            loop {
                tokio::time::sleep(RETRY_DELAY).await;
                if let Ok(listener) = base_serve::bind_listener(address).await {
                    return listener;
                }
            }
        };
        tokio::select! {
            listener = bound => endpoints.serve_pages(name, listener, options(), &inner),
            () = inner.shutdown().cancelled() => {}
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_task::CancellationToken;
    use tokio::net::{TcpListener, TcpStream};

    /// A pod in the node's network could take the port while kube-proxy restarts, and stop the
    /// enforcement of NetworkPolicies.
    #[tokio::test]
    async fn port_that_is_taken_is_served_once_it_is_free() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let tasks = Tasks::new(CancellationToken::new());
        let serve = |hard_fail| serve_health(address, Arc::default(), hard_fail, &tasks);
        assert!(serve(true).await.is_err());
        serve(false).await.unwrap();
        assert!(tasks.failure().is_none());
        drop(taken);
        let served = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), served)
            .await
            .unwrap();
    }

    #[test]
    fn healthz_fails_on_a_node_that_is_removed_and_livez_does_not() {
        let health = Health::default();
        let both = || {
            [
                health.build_page(true).status(),
                health.build_page(false).status(),
            ]
            .map(|status| status.as_u16())
        };
        assert_eq!(both(), [503, 200], "at the start");
        health.record_success();
        assert_eq!(both(), [503, 200], "without a Node");
        health.set_eligible(true);
        assert_eq!(both(), [200, 200]);
        health.set_eligible(false);
        assert_eq!(both(), [503, 200]);
        let metrics = Metrics::new();
        health.register(&metrics);
        let page = metrics.encode();
        for line in [
            "healthz_total{code=\"503\"} 3",
            "livez_total{code=\"200\"} 4",
        ] {
            assert!(page.contains(&format!("kubeproxy_proxy_{line}")), "{page}");
        }
    }

    #[test]
    fn change_that_is_not_applied_in_time_is_unhealthy() {
        let health = Health::default();
        for (started, ago, expect) in [(false, 90, true), (true, 50, true), (true, 70, false)] {
            health.queued.store(0, Ordering::Relaxed);
            if started {
                health.record_success();
            }
            health.record_queued_at(now_milliseconds() - ago * 1000);
            health.record_queued();
            assert_eq!(health.is_in_time(), expect, "{started} {ago}");
        }
        health.record_success();
        assert!(health.is_in_time() && health.is_healthy());
    }

    #[tokio::test]
    async fn pages_have_upstreams_fields() {
        use http_body_util::BodyExt;
        let health = Health::new(CHECK_INTERVAL, vec![Family::V4, Family::V6]);
        health.record_success();
        let page = health.build_page(true);
        assert_eq!(page.headers()["x-content-type-options"], "nosniff");
        let bytes = page.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(body["healthy"], true);
        assert_eq!(body["nodeEligible"], false);
        for family in ["IPv4", "IPv6"] {
            assert_eq!(body["status"][family]["healthy"], true, "{body}");
            assert_eq!(body["lastUpdated"], body["status"][family]["lastUpdated"]);
        }
    }
}
