//! The allowed clients, and limits of what each of them uses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use parking_lot::Mutex;

/// Limits of TCP connections.
const CONNECTIONS: Limit = Limit {
    total: 256,
    per_client: 16,
};
/// Limits of requests that wait for upstream resolvers. One pod whose names never resolve leaves
/// three quarters of the questions (`MAX_QUESTIONS`) to the others.
const QUESTIONS: Limit = Limit {
    total: 1024,
    per_client: 128,
};

/// The clients of the server.
#[derive(Debug)]
pub(crate) struct Clients {
    allowed: Vec<IpNet>,
    connections: Slots,
    questions: Slots,
}

/// Maximum numbers of something that clients use.
#[derive(Debug, Clone, Copy)]
struct Limit {
    total: usize,
    per_client: usize,
}

/// Counts what clients use.
#[derive(Debug)]
struct Slots {
    limit: Limit,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// One use, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    used: Arc<Mutex<Used>>,
    client: IpAddr,
}

impl Clients {
    /// Allows these ranges. An empty list allows private and loopback addresses, where pods and
    /// nodes usually are: a server that responds to the whole Internet can be abused for
    /// amplification attacks.
    pub(crate) fn new(allowed: Vec<IpNet>) -> Self {
        let allowed = if allowed.is_empty() {
            private_networks()
        } else {
            allowed
        };
        Self {
            allowed,
            connections: Slots::new(CONNECTIONS),
            questions: Slots::new(QUESTIONS),
        }
    }

    /// Returns whether a client is allowed.
    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.allowed.iter().any(|net| net.contains(&client))
    }

    /// Counts a TCP connection; None if the client has reached a limit.
    pub(crate) fn admit_connection(&self, client: IpAddr) -> Option<Slot> {
        self.connections.admit(client)
    }

    /// Counts a request that waits for an upstream resolver; None if the client has reached a
    /// limit.
    pub(crate) fn admit_question(&self, client: IpAddr) -> Option<Slot> {
        self.questions.admit(client)
    }
}

impl Slots {
    fn new(limit: Limit) -> Self {
        Self {
            limit,
            used: Arc::default(),
        }
    }

    fn admit(&self, client: IpAddr) -> Option<Slot> {
        let client = client.to_canonical();
        let mut used = self.used.lock();
        let own = used.by_client.get(&client).copied().unwrap_or_default();
        // One pod must not take the places of all others.
        if own >= self.limit.per_client || used.total >= self.limit.total {
            return None;
        }
        used.total += 1;
        used.by_client.insert(client, own + 1);
        Some(Slot {
            used: self.used.clone(),
            client,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut used = self.used.lock();
        used.total = used.total.saturating_sub(1);
        match used.by_client.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(used.by_client.remove(&self.client)),
        }
    }
}

/// Returns the default ranges: RFC 1918, RFC 6598, RFC 3927, RFC 4193 and loopback.
fn private_networks() -> Vec<IpNet> {
    let v4 = [
        ([10, 0, 0, 0], 8),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
        ([100, 64, 0, 0], 10),
    ];
    let local = [([169, 254, 0, 0], 16), ([127, 0, 0, 0], 8)];
    let v4 = v4
        .into_iter()
        .chain(local)
        .filter_map(|(ip, length)| Ipv4Net::new(Ipv4Addr::from(ip), length).ok());
    let v6 = [
        (Ipv6Addr::LOCALHOST, 128),
        (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    ]
    .into_iter()
    .chain([(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)])
    .filter_map(|(ip, length)| Ipv6Net::new(ip, length).ok());
    v4.map(IpNet::V4).chain(v6.map(IpNet::V6)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn server_without_ranges_is_no_open_resolver() {
        let clients = Clients::new(Vec::new());
        for (address, expect) in [
            ("10.244.0.9", true),
            ("192.168.1.2", true),
            ("100.64.0.1", true),
            ("127.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("fd00::1", true),
            ("8.8.8.8", false),
            ("::ffff:8.8.8.8", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(clients.allows(ip(address)), expect, "{address}");
        }
        let chosen = Clients::new(vec!["203.0.113.0/24".parse().unwrap()]);
        assert!(chosen.allows(ip("203.0.113.7")) && !chosen.allows(ip("10.0.0.1")));
    }

    #[test]
    fn slots_are_limited_for_each_client_and_in_all() {
        let limit = Limit {
            total: 64,
            per_client: 16,
        };
        let slots = Slots::new(limit);
        let of_one: Vec<_> = std::iter::from_fn(|| slots.admit(ip("10.0.0.1"))).collect();
        assert_eq!(of_one.len(), limit.per_client);
        assert!(
            slots.admit(ip("::ffff:10.0.0.1")).is_none(),
            "the same client by another spelling"
        );
        let others: Vec<_> = (0..=255)
            .filter_map(|n| slots.admit(IpAddr::from([10, 1, 0, n])))
            .collect();
        assert_eq!(of_one.len() + others.len(), limit.total);
        drop(of_one);
        assert!(slots.admit(ip("10.0.0.1")).is_some());
        drop(others);
        assert_eq!(slots.used.lock().total, 0);
        assert!(slots.used.lock().by_client.is_empty());
    }
}
