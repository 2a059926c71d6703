//! The allowed clients, and limits of their TCP connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Maximum number of TCP connections: of all clients, and of one address.
const MAX_CONNECTIONS: usize = 256;
const MAX_CONNECTIONS_PER_CLIENT: usize = 16;

/// The clients of the server.
#[derive(Debug)]
pub(crate) struct Clients {
    allowed: Vec<IpNet>,
    connections: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A TCP connection; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connections: Arc<Mutex<HashMap<IpAddr, usize>>>,
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
            connections: Arc::default(),
        }
    }

    /// Returns whether a client is allowed.
    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.allowed.iter().any(|net| net.contains(&client))
    }

    /// Counts a TCP connection; None if the client has reached a limit.
    pub(crate) fn admit(&self, client: IpAddr) -> Option<ConnectionSlot> {
        let client = client.to_canonical();
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let own = connections.get(&client).copied().unwrap_or_default();
        // One pod must not take the connections of all others.
        if own >= MAX_CONNECTIONS_PER_CLIENT
            || connections.values().sum::<usize>() >= MAX_CONNECTIONS
        {
            return None;
        }
        connections.insert(client, own + 1);
        Some(ConnectionSlot {
            connections: self.connections.clone(),
            client,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match connections.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(connections.remove(&self.client)),
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
    fn connections_are_limited_for_each_client_and_in_all() {
        let clients = Clients::new(Vec::new());
        let of_one: Vec<_> = std::iter::from_fn(|| clients.admit(ip("10.0.0.1"))).collect();
        assert_eq!(of_one.len(), MAX_CONNECTIONS_PER_CLIENT);
        assert!(
            clients.admit(ip("::ffff:10.0.0.1")).is_none(),
            "the same client by another spelling"
        );
        let others: Vec<_> = (0..=255)
            .flat_map(|n| [n; 2])
            .filter_map(|n| clients.admit(IpAddr::from([10, 1, 0, n])))
            .collect();
        assert_eq!(of_one.len() + others.len(), MAX_CONNECTIONS);
        drop(of_one);
        assert!(clients.admit(ip("10.0.0.1")).is_some());
    }
}
