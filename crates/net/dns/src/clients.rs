//! The allowed clients, and limits of what each of them uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::slots::{Limit, Slot, Slots};

/// Limits of TCP connections.
const CONNECTIONS: Limit = Limit {
    total: 256,
    per_client: 16,
};
/// Limits of requests that wait for upstream resolvers.
const REQUESTS: Limit = Limit {
    total: 1024,
    per_client: 128,
};

/// The clients of the server.
#[derive(Debug)]
pub(crate) struct Clients {
    allowed: Vec<IpNet>,
    connections: Slots,
    requests: Slots,
}

impl Clients {
    /// Allows these ranges. An empty list allows private and loopback addresses, where pods and
    /// nodes usually are. A server that responds to the whole Internet can be abused for
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
            requests: Slots::new(REQUESTS),
        }
    }

    /// Returns whether a client is in an allowed range.
    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.allowed.iter().any(|net| net.contains(&client))
    }

    /// Counts a TCP connection; None if the client has its share. It must be closed when the slot
    /// ends.
    pub(crate) fn admit_connection(&self, client: IpAddr) -> Option<Slot> {
        self.connections.admit(client)
    }

    /// Counts a request that waits for an upstream resolver; None if the client has its share. The
    /// request must be rejected when the slot ends.
    pub(crate) fn admit_request(&self, client: IpAddr) -> Option<Slot> {
        self.requests.admit(client)
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
}
