//! Limits of the endpoints that the backends of a namespace have together.
//!
//! A Service may have hundreds of ports, each with all of its endpoints.

use std::collections::HashMap;

use crate::backend::{BackendSet, PortName, ResolvedEndpoints};

/// Maximum number of endpoints of a namespace's backends, and of all. An endpoint counts once for
/// each port.
const MAX_ENDPOINTS_OF_NAMESPACE: usize = 50_000;
const MAX_ENDPOINTS: usize = 1_000_000;

/// Endpoints that are used.
#[derive(Debug, Default)]
pub(crate) struct EndpointBudget {
    of_service: HashMap<String, usize>,
    of_namespace: HashMap<String, usize>,
    total: usize,
    /// True if endpoints of a Service were not used for lack of room.
    is_short: bool,
}

impl EndpointBudget {
    /// Sets the endpoints of the backends of a Service (`namespace/name`), as far as its namespace
    /// has room. Returns whether endpoints of others that had no room may have some now.
    pub(crate) fn set_endpoints(
        &mut self,
        backends: &BackendSet,
        service_key: &str,
        resolve: impl Fn(&PortName) -> ResolvedEndpoints,
    ) -> bool {
        let was_short = self.is_short;
        let before = self.of_service.get(service_key).copied();
        self.release(service_key);
        let namespace = find_namespace(service_key);
        let used = self.of_namespace.get(namespace).copied();
        let room = MAX_ENDPOINTS_OF_NAMESPACE.saturating_sub(used.unwrap_or_default());
        let room = room.min(MAX_ENDPOINTS.saturating_sub(self.total));
        let mut rest = room;
        for (port, backend) in backends.list_backends(service_key) {
            let mut resolved = match rest {
                0 => ResolvedEndpoints::default(),
                _ => resolve(port),
            };
            if rest < resolved.endpoints.len() || rest == 0 {
                resolved.endpoints.truncate(rest);
                backend.warn_once(service_key, "the endpoints of its namespace are too many");
                self.is_short = true;
            }
            rest -= resolved.endpoints.len();
            backend.set_endpoints(service_key, resolved);
        }
        self.take(service_key, room - rest);
        let has_room = was_short && before.is_some_and(|before| before > room - rest);
        if has_room {
            // All Services are set again, which shows whether room is short.
            self.is_short = false;
        }
        has_room
    }

    /// Releases the endpoints of Services without backends.
    pub(crate) fn retain_services(&mut self, backends: &BackendSet) {
        let known = self.of_service.keys();
        let is_unused = |key: &&String| backends.list_backends(key).next().is_none();
        let unused: Vec<String> = known.filter(is_unused).cloned().collect();
        for key in unused {
            self.release(&key);
        }
    }

    fn take(&mut self, service_key: &str, count: usize) {
        if count == 0 {
            return;
        }
        self.of_service.insert(service_key.to_owned(), count);
        let namespace = find_namespace(service_key).to_owned();
        *self.of_namespace.entry(namespace).or_default() += count;
        self.total += count;
    }

    fn release(&mut self, service_key: &str) {
        let count = self.of_service.remove(service_key).unwrap_or_default();
        let namespace = find_namespace(service_key);
        if let Some(used) = self.of_namespace.get_mut(namespace) {
            *used = used.saturating_sub(count);
            if *used == 0 {
                self.of_namespace.remove(namespace);
            }
        }
        self.total = self.total.saturating_sub(count);
    }
}

fn find_namespace(service_key: &str) -> &str {
    service_key.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::backend::{BackendKey, NextBackends};
    use std::net::SocketAddr;

    /// Returns a set with a Service of each name, with this number of ports.
    fn backends(services: &[(&str, i32)]) -> BackendSet {
        let mut next = NextBackends::default();
        for (key, ports) in services {
            let (namespace, service) = key.split_once('/').unwrap();
            for port in 1..=*ports {
                let (namespace, service) = (namespace.to_owned(), service.to_owned());
                let port = PortName::Number(port);
                let key = BackendKey {
                    namespace,
                    service,
                    port,
                };
                next.intern(key).unwrap();
            }
        }
        next.finish()
    }

    fn count(set: &BackendSet, service: &str) -> usize {
        let all = set.list_backends(service);
        all.map(|(_, backend)| backend.count_endpoints()).sum()
    }

    #[test]
    fn endpoints_of_a_namespace_are_limited_and_returned() {
        let resolve = |_: &PortName| ResolvedEndpoints {
            endpoints: (0..5000)
                .map(|n: u32| SocketAddr::new(std::net::Ipv4Addr::from(n).into(), 1))
                .collect(),
            ..ResolvedEndpoints::default()
        };
        let set = backends(&[("a/large", 100), ("a/small", 1), ("b/small", 1)]);
        let mut budget = EndpointBudget::default();
        for key in ["a/large", "a/small", "b/small"] {
            budget.set_endpoints(&set, key, resolve);
        }
        let counts = ["a/large", "a/small", "b/small"].map(|key| count(&set, key));
        assert_eq!(counts, [MAX_ENDPOINTS_OF_NAMESPACE, 0, 5000]);
        // Endpoints that a Service no longer has are room for others.
        let none = |_: &PortName| ResolvedEndpoints::default();
        assert!(!budget.set_endpoints(&set, "a/small", none));
        assert!(budget.set_endpoints(&set, "a/large", none));
        assert!(!budget.set_endpoints(&set, "a/small", resolve));
        assert_eq!(count(&set, "a/small"), 5000);
        budget.set_endpoints(&set, "a/small", none);
        // Again, and with a port less.
        budget.set_endpoints(&set, "a/large", resolve);
        assert_eq!(count(&set, "a/large"), MAX_ENDPOINTS_OF_NAMESPACE);
        let set = backends(&[("a/small", 1), ("b/small", 1)]);
        budget.retain_services(&set);
        budget.set_endpoints(&set, "a/small", resolve);
        assert_eq!((count(&set, "a/small"), budget.total), (5000, 10_000));
    }
}
