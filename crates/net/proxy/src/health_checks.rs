//! One port for each Service with `healthCheckNodePort`, on which load balancers check for
//! endpoints on this node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base_task::{CancellationToken, Tasks};
use component::{Page, json_page};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;

use crate::health::Health;

struct CheckedService {
    service: String,
    local: Arc<AtomicUsize>,
    stop: CancellationToken,
}

/// The health check ports of Services.
pub struct Checks {
    tasks: Tasks,
    health: Arc<Health>,
    open: BTreeMap<u16, CheckedService>,
    /// Services whose port is in use by another process, with the port and the number of local
    /// endpoints.
    waiting: BTreeMap<String, (u16, usize)>,
}

impl Checks {
    /// Creates an empty set.
    pub fn new(tasks: Tasks, health: Arc<Health>) -> Self {
        Self {
            tasks,
            health,
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Sets the port and the number of local endpoints of a Service; `None` closes its port.
    pub async fn set(&mut self, service: &str, health: Option<(u16, usize)>) {
        self.waiting.remove(service);
        let other = |port: &u16| health.is_none_or(|(desired, _)| desired != *port);
        let closed: Vec<u16> = self
            .open
            .iter()
            .filter(|(port, c)| c.service == service && other(port))
            .map(|(port, _)| *port)
            .collect();
        // Closed before the new one is opened: a Service may get the port that another Service just
        // released.
        for port in closed {
            if let Some(checked) = self.open.remove(&port) {
                checked.stop.cancel();
            }
        }
        let Some((port, local)) = health else { return };
        match self.open.get(&port) {
            Some(checked) if checked.service == service => {
                checked.local.store(local, Ordering::Relaxed)
            }
            _ => self.open_port(service, port, local).await,
        }
    }

    /// Retries the ports that were in use.
    pub async fn retry(&mut self) {
        for (service, (port, local)) in std::mem::take(&mut self.waiting) {
            self.open_port(&service, port, local).await;
        }
    }

    async fn open_port(&mut self, service: &str, port: u16, count: usize) {
        let listener = match listen_on(port).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(service, %error, "health checks of the Service can't be served yet");
                // The rules of the Service work without the check; a later sync tries the port
                // again.
                self.waiting.insert(service.to_owned(), (port, count));
                return;
            }
        };
        let local = Arc::new(AtomicUsize::new(count));
        let stop = self.tasks.shutdown().child_token();
        let (name, shared, health) = (service.to_owned(), local.clone(), self.health.clone());
        let response = service_fn(move |_: Request<Incoming>| {
            let response = local_health(&name, shared.load(Ordering::Relaxed), health.is_healthy());
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let options = base_serve::Options::default();
        self.tasks.spawn(
            "service health check",
            base_serve::serve_http(listener, options, response, stop.clone()),
        );
        self.open.insert(
            port,
            CheckedService {
                service: service.to_owned(),
                local,
                stop,
            },
        );
    }
}

/// Listens on both families, or on IPv4 if the kernel has no IPv6.
async fn listen_on(port: u16) -> Result<TcpListener, base_serve::ListenError> {
    match base_serve::bind_listener(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Err(base_serve::ListenError::Other { .. }) => {
            base_serve::bind_listener(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
        }
        bound => bound,
    }
}

fn local_health(service: &str, local: usize, healthy: bool) -> Page {
    let (namespace, name) = service.split_once('/').unwrap_or(("", service));
    let body = serde_json::json!({
        "service": { "namespace": namespace, "name": name },
        "localEndpoints": local,
        "serviceProxyHealthy": healthy,
    });
    let mut response = json_page(
        if local > 0 && healthy {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        &body,
    );
    response
        .headers_mut()
        .insert("x-load-balancing-endpoint-weight", HeaderValue::from(local));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn health_check_needs_local_endpoints_and_a_healthy_proxy() {
        for (local, healthy, expect) in [(2, true, 200), (0, true, 503), (2, false, 503)] {
            let response = local_health("ns/web", local, healthy);
            assert_eq!(response.status(), expect, "{local} {healthy}");
            assert_eq!(
                response.headers()["x-load-balancing-endpoint-weight"],
                local.to_string()
            );
        }
    }

    #[tokio::test]
    async fn port_in_use_is_tried_again() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut checks = Checks::new(Tasks::new(CancellationToken::new()), Arc::default());
        checks.set("ns/web", Some((port, 1))).await;
        assert!(checks.open.is_empty());
        drop(taken);
        checks.retry().await;
        assert!(checks.open.contains_key(&port) && checks.waiting.is_empty());
        checks.set("ns/web", None).await;
        assert!(checks.open.is_empty());
    }
}
