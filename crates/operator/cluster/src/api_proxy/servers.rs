//! The API servers that the proxy knows, with their health.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::choose::{Candidate, order_servers, parse_address};

/// Time after which the connections to a server that is no longer published are closed: a server that stops
/// completes its requests, and the state of one that hangs is not checked any more.
const DRAIN_TIME: Duration = Duration::from_secs(60);

/// The state of one API server.
struct Server {
    /// Answers to its health checks.
    is_healthy: bool,
    /// The cluster publishes it, or it is that of this machine.
    is_listed: bool,
    /// Ends the connections to it.
    lost: CancellationToken,
}

#[derive(Default)]
struct Known {
    servers: BTreeMap<String, Server>,
    /// Ends the connections to servers that are no longer published, at these times.
    drained: Vec<(Instant, CancellationToken)>,
}

/// The API servers, `HOST:PORT`.
pub(super) struct Servers {
    /// That of this machine, which is preferred.
    local: Option<String>,
    /// That through which this machine joined, which is known also if the list does not have it.
    joined: Option<String>,
    known: Mutex<Known>,
    /// The list came from an API server, not from a file.
    is_current: AtomicBool,
}

impl Servers {
    pub(super) fn new(local: Option<String>, joined: Option<String>, others: &[String]) -> Self {
        let servers = Self {
            local,
            joined,
            known: Mutex::default(),
            is_current: AtomicBool::new(false),
        };
        servers.replace(others);
        servers
    }

    fn with_known<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        // A panic in a critical section leaves a valid map.
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list.
    pub(super) fn replace(&self, others: &[String]) {
        let listed: BTreeSet<&String> = self.local.iter().chain(others).collect();
        let wanted: BTreeSet<&String> = listed.iter().copied().chain(&self.joined).collect();
        self.with_known(|known| {
            let end = Instant::now() + DRAIN_TIME;
            let removed: Vec<String> = known
                .servers
                .keys()
                .filter(|server| !wanted.contains(server))
                .cloned()
                .collect();
            let removed = removed.iter().filter_map(|name| known.servers.remove(name));
            known
                .drained
                .extend(removed.map(|server| (end, server.lost)));
            for name in wanted {
                let server = known.servers.entry(name.clone()).or_insert_with(|| Server {
                    // The first check decides; until then it is tried like any other.
                    is_healthy: true,
                    is_listed: true,
                    lost: CancellationToken::new(),
                });
                server.is_listed = listed.contains(name);
            }
        });
    }

    /// Closes the connections to servers that are no longer published and had time to complete their requests.
    pub(super) fn close_drained(&self) {
        let now = Instant::now();
        self.with_known(|known| {
            known.drained.retain(|(end, lost)| {
                let stays = *end > now;
                if !stays {
                    lost.cancel();
                }
                stays
            });
        });
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.with_known(|known| known.servers.keys().cloned().collect())
    }

    /// Records that the list came from an API server.
    pub(super) fn set_current(&self) {
        self.is_current.store(true, Ordering::Relaxed);
    }

    /// Returns whether this machine knows the state of the others: its own API server is ready, so its store has a
    /// quorum, and the list is current.
    pub(super) fn has_current_state(&self) -> bool {
        let local = self.local.as_ref();
        let is_ready = |name: &String| {
            self.with_known(|known| {
                let server = known.servers.get(name);
                server.is_some_and(|server| server.is_healthy)
            })
        };
        self.is_current.load(Ordering::Relaxed) && local.is_some_and(is_ready)
    }

    /// Returns the addresses of the healthy servers.
    pub(super) fn healthy_addresses(&self) -> BTreeSet<IpAddr> {
        self.with_known(|known| {
            let listed = known.servers.iter().filter(|(_, server)| server.is_listed);
            let healthy = listed.filter(|(_, server)| server.is_healthy);
            healthy
                .filter_map(|(name, _)| parse_address(name))
                .collect()
        })
    }

    /// Returns the servers in the order in which a new connection tries them.
    pub(super) fn in_order(&self, number: usize) -> Vec<(String, CancellationToken)> {
        self.with_known(|known| {
            let all: Vec<_> = known
                .servers
                .iter()
                .map(|(name, server)| Candidate {
                    name,
                    is_healthy: server.is_healthy,
                    is_listed: server.is_listed,
                })
                .collect();
            let order = order_servers(&all, self.local.as_deref(), number);
            let token = |name: &String| Some(known.servers.get(name)?.lost.clone());
            let order = order.into_iter();
            order
                .filter_map(|name| Some((name.clone(), token(&name)?)))
                .collect()
        })
    }

    /// Records the result of a health check. The connections to a server that is lost are closed, since
    /// clients would wait for responses of a process that hangs; but not without another server.
    pub(super) fn set_health(&self, name: &str, is_healthy: bool) {
        self.with_known(|known| {
            let has_other = known
                .servers
                .iter()
                .any(|(other, server)| other != name && server.is_healthy);
            let Some(server) = known.servers.get_mut(name) else {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn order(servers: &Servers) -> String {
        let order = servers.in_order(0).into_iter();
        order.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn server_of_the_join_stays_known_behind_those_of_the_list() {
        let servers = Servers::new(None, Some("lb".into()), &[]);
        assert_eq!(order(&servers), "lb");
        servers.replace(&["z".to_owned()]);
        assert_eq!(order(&servers), "z lb");
        servers.set_health("z", false);
        assert_eq!(order(&servers), "z lb");
        servers.replace(&["lb".to_owned(), "z".to_owned()]);
        assert_eq!(order(&servers), "lb z", "it is one of the list");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_to_a_removed_server_are_closed_after_its_requests() {
        let servers = Servers::new(None, None, &["a".to_owned(), "b".to_owned()]);
        let (_, lost) = servers.in_order(0).swap_remove(0);
        servers.replace(&["b".to_owned()]);
        servers.close_drained();
        assert!(!lost.is_cancelled(), "requests are completed");
        tokio::time::advance(DRAIN_TIME).await;
        servers.close_drained();
        assert!(lost.is_cancelled());
        assert_eq!(order(&servers), "b");
    }
}
