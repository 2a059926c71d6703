//! The API servers that the proxy knows, with their health.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::choose::{order_servers, parse_address};

/// The state of one API server.
struct Server {
    /// Answers to its health checks.
    is_healthy: bool,
    /// Ends the connections to it.
    lost: CancellationToken,
}

/// The API servers, `HOST:PORT`.
pub(super) struct Servers {
    /// That of this machine, which is preferred.
    local: Option<String>,
    known: Mutex<BTreeMap<String, Server>>,
    /// The list came from an API server, not from a file.
    is_current: AtomicBool,
}

impl Servers {
    pub(super) fn new(local: Option<String>, others: &[String]) -> Self {
        let servers = Self {
            local,
            known: Mutex::default(),
            is_current: AtomicBool::new(false),
        };
        servers.replace(others);
        servers
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Server>) -> T) -> T {
        // A panic in a critical section leaves a valid map.
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list. Connections to servers that are no longer on it stay: a server that stops
    /// completes its requests.
    pub(super) fn replace(&self, others: &[String]) {
        let wanted: Vec<&String> = self.local.iter().chain(others).collect();
        self.with(|known| {
            known.retain(|server, _| wanted.contains(&server));
            for server in wanted {
                known.entry(server.clone()).or_insert_with(|| Server {
                    // The first check decides; until then it is tried like any other.
                    is_healthy: true,
                    lost: CancellationToken::new(),
                });
            }
        });
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.with(|known| known.keys().cloned().collect())
    }

    /// Records that the list came from an API server.
    pub(super) fn set_current(&self) {
        self.is_current.store(true, Ordering::Relaxed);
    }

    /// Returns whether this machine may judge about the others: its own API server is ready, so its store has a
    /// quorum, and the list is current.
    pub(super) fn may_judge(&self) -> bool {
        let local = self.local.as_ref();
        let is_ready = |name: &String| {
            self.with(|known| known.get(name).is_some_and(|server| server.is_healthy))
        };
        self.is_current.load(Ordering::Relaxed) && local.is_some_and(is_ready)
    }

    /// Returns the addresses of the healthy servers.
    pub(super) fn healthy_addresses(&self) -> BTreeSet<IpAddr> {
        self.with(|known| {
            let healthy = known.iter().filter(|(_, server)| server.is_healthy);
            healthy
                .filter_map(|(name, _)| parse_address(name))
                .collect()
        })
    }

    /// Returns the servers in the order in which a new connection tries them.
    pub(super) fn in_order(&self, number: usize) -> Vec<(String, CancellationToken)> {
        self.with(|known| {
            let all = known
                .iter()
                .map(|(name, server)| (name.as_str(), server.is_healthy));
            let order = order_servers(&all.collect::<Vec<_>>(), self.local.as_deref(), number);
            let token = |name: &String| Some(known.get(name)?.lost.clone());
            let order = order.into_iter();
            order
                .filter_map(|name| Some((name.clone(), token(&name)?)))
                .collect()
        })
    }

    /// Records the result of a health check. The connections to a server that is lost are closed, since
    /// clients would wait for responses of a process that hangs; but not without another server.
    pub(super) fn set_health(&self, name: &str, is_healthy: bool) {
        self.with(|known| {
            let has_other = known
                .iter()
                .any(|(other, server)| other != name && server.is_healthy);
            let Some(server) = known.get_mut(name) else {
                return;
            };
            if server.is_healthy != is_healthy {
                tracing::info!(server = name, is_healthy, "API server");
            }
            server.is_healthy = is_healthy;
            if !is_healthy && has_other {
                std::mem::take(&mut server.lost).cancel();
            }
        });
    }
}
