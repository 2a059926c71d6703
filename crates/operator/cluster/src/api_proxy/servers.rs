//! The API servers that the proxy knows, with their health.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::choose::{Candidate, order_servers, parse_address};

/// Time after which the connections to a server that is no longer published are closed: a server
/// that stops completes its requests, and the state of one that hangs is not checked any more.
const DRAIN_TIME: Duration = Duration::from_secs(60);

/// Consecutive failed checks after which a server is lost. One may be a connection that the server
/// closed.
const FAILURES: u32 = 2;

/// The result of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckResult {
    Passed,
    Failed,
}

/// Consecutive failed checks.
#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    /// Time of the first.
    since: Instant,
}

/// The state of one API server. Without a result it is tried like any other: the first check
/// decides.
struct Server {
    /// The failed checks after the last one that passed.
    failures: Option<Failures>,
    /// Begin of the last check that passed.
    passed: Option<Instant>,
    /// The cluster publishes it, or it is that of this machine.
    is_listed: bool,
    /// Ends the connections to it.
    lost: CancellationToken,
}

impl Server {
    fn is_healthy(&self) -> bool {
        self.failures
            .is_none_or(|failures| failures.count < FAILURES)
    }

    fn record_check(&mut self, began: Instant, result: CheckResult) {
        match result {
            CheckResult::Passed => (self.failures, self.passed) = (None, Some(began)),
            CheckResult::Failed => {
                let failures = self.failures.get_or_insert_with(|| Failures {
                    count: 0,
                    since: Instant::now(),
                });
                failures.count = failures.count.saturating_add(1);
            }
        }
    }
}

#[derive(Default)]
struct ServerTable {
    servers: BTreeMap<String, Server>,
    /// Ends the connections to servers that are no longer published, at these times.
    drained: Vec<(Instant, CancellationToken)>,
}

impl ServerTable {
    /// Returns whether to close the connections to the server: it is lost, and another one passed a
    /// check that began after its first failure.
    ///
    /// An earlier check is not enough. A store without a leader fails the checks of all servers
    /// within some seconds, and all clients would connect and list again while the store is slow.
    fn should_close_connections(&self, name: &str) -> bool {
        let lost = self.servers.get(name).filter(|server| !server.is_healthy());
        let Some(failures) = lost.and_then(|server| server.failures) else {
            return false;
        };
        self.servers.values().any(|other| {
            let passed = other.passed.is_some_and(|began| began >= failures.since);
            passed && other.is_healthy()
        })
    }
}

/// The API servers, `HOST:PORT`.
pub(super) struct Servers {
    /// The API server of this machine, which is preferred.
    local: Option<String>,
    /// The API server through which this machine joined; it stays if the list lacks it.
    joined: Option<String>,
    known: Mutex<ServerTable>,
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

    fn with_table<T>(&self, work: impl FnOnce(&mut ServerTable) -> T) -> T {
        // A panic in a critical section leaves a valid map.
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a new list, and drains the connections to servers that are no longer in it.
    pub(super) fn replace(&self, others: &[String]) {
        let listed: BTreeSet<&String> = self.local.iter().chain(others).collect();
        // The server of the join stays known: it is the last resort if the list is outdated.
        let wanted: BTreeSet<&String> = listed.iter().copied().chain(&self.joined).collect();
        self.with_table(|known| {
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
                // A known server keeps its state: a new list says nothing about its health.
                let server = known.servers.entry(name.clone()).or_insert_with(|| Server {
                    failures: None,
                    passed: None,
                    is_listed: true,
                    lost: CancellationToken::new(),
                });
                server.is_listed = listed.contains(name);
            }
        });
    }

    /// Closes the connections to servers that are no longer published and had time to complete
    /// their requests.
    pub(super) fn close_drained(&self) {
        let now = Instant::now();
        self.with_table(|known| {
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
        self.with_table(|known| known.servers.keys().cloned().collect())
    }

    /// Records that the list came from an API server.
    pub(super) fn set_current(&self) {
        self.is_current.store(true, Ordering::Relaxed);
    }

    /// Returns whether this machine knows the state of the others: its own API server is ready, so
    /// its store has a quorum, and the list is current.
    pub(super) fn has_current_state(&self) -> bool {
        let local = self.local.as_ref();
        let is_ready = |name: &String| {
            self.with_table(|known| {
                let server = known.servers.get(name);
                server.is_some_and(Server::is_healthy)
            })
        };
        self.is_current.load(Ordering::Relaxed) && local.is_some_and(is_ready)
    }

    /// Returns the addresses of the healthy servers.
    pub(super) fn healthy_addresses(&self) -> BTreeSet<IpAddr> {
        self.with_table(|known| {
            let listed = known.servers.iter().filter(|(_, server)| server.is_listed);
            let healthy = listed.filter(|(_, server)| server.is_healthy());
            healthy
                .filter_map(|(name, _)| parse_address(name))
                .collect()
        })
    }

    /// Returns the servers in the order in which a new connection tries them.
    pub(super) fn in_order(&self, number: usize) -> Vec<(String, CancellationToken)> {
        self.with_table(|known| {
            let all: Vec<_> = known
                .servers
                .iter()
                .map(|(name, server)| Candidate {
                    name,
                    is_healthy: server.is_healthy(),
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

    /// Records the result of a health check that began at `began`. The connections to a server that
    /// is lost are closed, since clients would wait for responses of a process that hangs; but not
    /// without another server.
    pub(super) fn record_check(&self, name: &str, began: Instant, result: CheckResult) {
        self.with_table(|known| {
            let Some(server) = known.servers.get_mut(name) else {
                return;
            };
            let was_healthy = server.is_healthy();
            server.record_check(began, result);
            let is_healthy = server.is_healthy();
            if is_healthy != was_healthy {
                tracing::info!(server = name, is_healthy, "API server");
            }
            if known.should_close_connections(name)
                && let Some(server) = known.servers.get_mut(name)
            {
                // Later connections get a fresh token, because the server may recover.
                std::mem::take(&mut server.lost).cancel();
            }
        });
    }
}

#[cfg(test)]
impl Servers {
    /// Records checks that begin now.
    pub(super) fn record_checks(&self, name: &str, results: &[CheckResult]) {
        for result in results {
            self.record_check(name, Instant::now(), *result);
        }
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
        servers.record_checks("z", &[CheckResult::Failed; 2]);
        assert_eq!(order(&servers), "z lb");
        servers.replace(&["lb".to_owned(), "z".to_owned()]);
        assert_eq!(order(&servers), "lb z", "it is one of the list");
    }

    /// Election of a leader of the store: all servers fail their checks, one after the other.
    #[tokio::test(start_paused = true)]
    async fn connections_stay_until_another_server_passes_a_check_after_the_failure() {
        use CheckResult::{Failed, Passed};
        let servers = Servers::new(None, None, &["a".to_owned(), "b".to_owned()]);
        let (_, lost) = servers.in_order(0).swap_remove(0);
        let check = async |name, result| {
            tokio::time::advance(Duration::from_millis(100)).await;
            servers.record_check(name, Instant::now(), result);
            lost.is_cancelled()
        };
        for (name, result, closes) in [
            ("a", Passed, false),
            ("b", Passed, false),
            ("a", Failed, false),
            ("a", Failed, false),
            ("b", Failed, false),
            ("b", Failed, false),
            ("a", Failed, false),
            ("b", Passed, false),
            ("a", Passed, false),
            ("a", Failed, false),
            ("b", Passed, false),
            ("a", Failed, true),
        ] {
            assert_eq!(check(name, result).await, closes, "{name} {result:?}");
        }
    }

    /// The response to a check may be older than the time at which it arrives.
    #[tokio::test(start_paused = true)]
    async fn check_that_began_before_the_failure_says_nothing_about_the_time_after_it() {
        let servers = Servers::new(None, None, &["a".to_owned(), "b".to_owned()]);
        let (_, lost) = servers.in_order(0).swap_remove(0);
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(100)).await;
        servers.record_checks("a", &[CheckResult::Failed; 2]);
        servers.record_check("b", began, CheckResult::Passed);
        servers.record_checks("a", &[CheckResult::Failed]);
        assert!(!lost.is_cancelled());
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
