//! One port for each Service with `healthCheckNodePort`, on which load balancers check for
//! endpoints on this node. It is open at the addresses of node ports, of the Service's families.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base_task::{CancellationToken, Tasks};
use component::{Page, json_page};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use net_nft::Family;
use nix::sys::socket::{setsockopt, sockopt::Ipv6V6Only};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;

use crate::health::Health;
use crate::service_rules::HealthCheck;

/// Time between two attempts to bind a port: doubling from the first to the last. The first is
/// short, because another Service may release the port in the same sync.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(32);
const BACKLOG: u32 = 128;

struct Listener {
    local: Arc<AtomicUsize>,
    stop: CancellationToken,
}

/// The next attempt to bind a port that was in use.
struct Retry {
    port: u16,
    at: Instant,
    delay: Duration,
}

/// The health check ports of Services.
pub struct Checks {
    tasks: Tasks,
    health: Arc<Health>,
    addresses: Vec<IpAddr>,
    checks: BTreeMap<String, HealthCheck>,
    open: BTreeMap<(String, SocketAddr), Listener>,
    /// Services with a port that could not be bound.
    waiting: BTreeMap<String, Retry>,
}

impl Checks {
    /// Creates an empty set.
    pub fn new(tasks: Tasks, health: Arc<Health>) -> Self {
        Self {
            tasks,
            health,
            addresses: Vec::new(),
            checks: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Replaces the health checks of all Services, and the addresses. The ports of all others are
    /// closed, so that none outlives a failed sync.
    pub fn set_all(&mut self, addresses: Vec<IpAddr>, checks: BTreeMap<String, HealthCheck>) {
        self.addresses = addresses;
        let mut changes: BTreeMap<String, Option<HealthCheck>> = BTreeMap::new();
        changes.extend(self.checks.keys().map(|service| (service.clone(), None)));
        changes.extend(
            checks
                .into_iter()
                .map(|(service, check)| (service, Some(check))),
        );
        self.set(changes);
    }

    /// Sets the health checks of some Services; `None` closes a Service's port.
    pub fn set(&mut self, changes: BTreeMap<String, Option<HealthCheck>>) {
        // Closed before any port is opened: a Service may get the port that another one released.
        for (service, check) in &changes {
            match check {
                Some(check) => self.checks.insert(service.clone(), check.clone()),
                None => self.checks.remove(service),
            };
            // Another port is tried at once. With the same one, the attempts continue as planned:
            // the endpoints of a Service may change all the time.
            let port = check.as_ref().map(|check| check.port);
            if self.waiting.get(service).map(|retry| retry.port) != port {
                self.waiting.remove(service);
            }
            self.close_others(service);
        }
        for service in changes.keys() {
            self.open_missing(service);
        }
    }

    /// Waits for the time of the next attempt to bind ports that were in use.
    pub async fn wait_for_retry(&self) {
        match self.waiting.values().map(|retry| retry.at).min() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Tries again to bind ports that were in use.
    pub fn retry(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (service, retry) in &mut self.waiting {
            if retry.at <= now {
                retry.delay = (retry.delay * 2).min(LAST_RETRY);
                retry.at = now + retry.delay;
                due.push(service.clone());
            }
        }
        for service in due {
            self.open_missing(&service);
        }
    }

    /// Returns the sockets of a Service with the number of local endpoints.
    fn sockets(&self, service: &str) -> BTreeMap<SocketAddr, usize> {
        let Some(check) = self.checks.get(service) else {
            return BTreeMap::new();
        };
        let addresses = self.addresses.iter();
        addresses
            .filter_map(|ip| {
                let local = check.local.get(&Family::of(*ip))?;
                Some((SocketAddr::new(*ip, check.port), local.len()))
            })
            .collect()
    }

    fn close_others(&mut self, service: &str) {
        let sockets = self.sockets(service);
        let first = (service.to_owned(), SocketAddr::from(([0, 0, 0, 0], 0)));
        let own = self.open.range(first..).map(|(key, _)| key);
        let own = own.take_while(|(name, _)| name == service);
        let others = own.filter(|(_, socket)| !sockets.contains_key(socket));
        for key in others.cloned().collect::<Vec<_>>() {
            if let Some(listener) = self.open.remove(&key) {
                listener.stop.cancel();
            }
        }
    }

    fn open_missing(&mut self, service: &str) {
        let mut failure = None;
        for (socket, count) in self.sockets(service) {
            if let Some(listener) = self.open.get(&(service.to_owned(), socket)) {
                listener.local.store(count, Ordering::Relaxed);
                continue;
            }
            match listen_on(socket) {
                Ok(listener) => self.serve(service, socket, listener, count),
                Err(error) => failure = Some((socket, error)),
            }
        }
        let Some((socket, error)) = failure else {
            self.waiting.remove(service);
            return;
        };
        if self.waiting.contains_key(service) {
            return;
        }
        let retry = Retry {
            port: socket.port(),
            at: Instant::now() + FIRST_RETRY,
            delay: FIRST_RETRY,
        };
        self.waiting.insert(service.to_owned(), retry);
        // Logged once, and not at each attempt. The rules of the Service work without the check.
        tracing::error!(service, %socket, %error, "health checks of the Service can't be served; check that no other process has the port and that the address is the node's. Trying again");
    }

    fn serve(&mut self, service: &str, socket: SocketAddr, listener: TcpListener, count: usize) {
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
        let key = (service.to_owned(), socket);
        self.open.insert(key, Listener { local, stop });
    }
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            // The port of the other family has a socket of its own, with another count.
            setsockopt(&socket, Ipv6V6Only, &true)?;
            socket
        }
    };
    // A restarted proxy binds its ports while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn local_health(service: &str, local: usize, healthy: bool) -> Page {
    let (namespace, name) = service.split_once('/').unwrap_or(("", service));
    let body = serde_json::json!({
        "service": { "namespace": namespace, "name": name },
        "localEndpoints": local,
        "serviceProxyHealthy": healthy,
    });
    let status = match local > 0 && healthy {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = json_page(status, &body);
    let headers = response.headers_mut();
    headers.insert("x-load-balancing-endpoint-weight", HeaderValue::from(local));
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
#[path = "health_checks_tests.rs"]
mod tests;
