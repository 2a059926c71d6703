//! HTTP endpoints: the proxy's health and its metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use base_serve::ListenError;
use base_task::Tasks;
use component::{Endpoints, Page, json_page, text_page};
use http::StatusCode;
use std::time::Duration;

/// Time between two attempts to bind an address that another process has.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// State of the health endpoint.
#[derive(Debug, Default)]
pub struct Health {
    synced: AtomicBool,
    failing: AtomicBool,
    removed: AtomicBool,
    updated: AtomicI64,
}

impl Health {
    /// Records that the rules are up to date.
    pub fn record_success(&self) {
        self.updated
            .store(jiff::Timestamp::now().as_second(), Ordering::Relaxed);
        self.failing.store(false, Ordering::Relaxed);
        self.synced.store(true, Ordering::Relaxed);
    }

    /// Records a failed transaction.
    pub fn record_failure(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Sets whether the node may receive connections of load balancers.
    pub fn set_eligible(&self, eligible: bool) {
        self.removed.store(!eligible, Ordering::Relaxed);
    }

    /// Returns whether the rules are up to date.
    pub fn is_healthy(&self) -> bool {
        self.synced.load(Ordering::Relaxed) && !self.failing.load(Ordering::Relaxed)
    }

    /// Builds the response: `/healthz` for load balancers; `/livez`, which decides on a restart,
    /// ignores the node's state.
    fn build_page(&self, for_balancers: bool) -> Page {
        let eligible = !self.removed.load(Ordering::Relaxed);
        // A restart does not help a node that is being removed, so only the load balancers see
        // that.
        let healthy = self.is_healthy() && (eligible || !for_balancers);
        let time = |seconds| {
            jiff::Timestamp::from_second(seconds)
                .map(|t| t.to_string())
                .unwrap_or_default()
        };
        let now = jiff::Timestamp::now();
        // As upstream: for load balancers the timestamp of a healthy proxy is the current time, not
        // that of the last change.
        let updated = if for_balancers && healthy {
            now.as_second()
        } else {
            self.updated.load(Ordering::Relaxed)
        };
        let mut body =
            serde_json::json!({ "lastUpdated": time(updated), "currentTime": now.to_string() });
        if for_balancers {
            body["nodeEligible"] = eligible.into();
        }
        json_page(
            if healthy {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            },
            &body,
        )
    }
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
    metrics: Arc<base_telemetry::Metrics>,
    hard_fail: bool,
    tasks: &Tasks,
) -> Result<(), ListenError> {
    let endpoints = Endpoints::new()
        .with_metrics(move || metrics.encode())
        .with_page("/proxyMode", || text_page(StatusCode::OK, "nftables"))
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
        assert_eq!(both(), [503, 503]);
        health.record_success();
        assert_eq!(both(), [200, 200]);
        health.set_eligible(false);
        assert_eq!(both(), [503, 200]);
        health.record_failure();
        assert_eq!(both(), [503, 503]);
    }
}
