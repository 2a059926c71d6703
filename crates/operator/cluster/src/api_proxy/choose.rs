//! The order in which a connection tries the API servers.

use std::net::{IpAddr, SocketAddr};

/// An API server, as far as its place in the order depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub name: &'a str,
    pub is_healthy: bool,
    /// The cluster publishes it, or it is that of this machine. The server of the join may be
    /// neither.
    pub is_listed: bool,
}

/// Returns the names of the servers in the order in which a new connection tries them: the local
/// one, the other healthy ones in turn, then those that failed their checks, which may have
/// recovered since, and last the server of the join.
pub(super) fn order_servers(
    servers: &[Candidate<'_>],
    local: Option<&str>,
    number: usize,
) -> Vec<String> {
    let is_local = |name: &str| Some(name) == local;
    let select = |healthy: bool| {
        let listed = servers.iter().filter(|server| server.is_listed);
        let names = listed.filter(|server| server.is_healthy == healthy);
        let names = names.map(|server| server.name);
        let (mut order, mut others): (Vec<&str>, Vec<&str>) =
            names.partition(|name| is_local(name));
        // A remainder of a division by zero would be a panic.
        let length = others.len().max(1);
        // Each connection begins with another server, which spreads the load.
        others.rotate_left(number % length);
        order.append(&mut others);
        order
    };
    let unlisted = servers.iter().filter(|server| !server.is_listed);
    let unlisted: Vec<&str> = unlisted.map(|server| server.name).collect();
    let all = [select(true), select(false), unlisted].concat();
    all.into_iter().map(str::to_owned).collect()
}

/// Returns the address in `HOST:PORT`.
pub(super) fn parse_address(server: &str) -> Option<IpAddr> {
    server
        .parse::<SocketAddr>()
        .ok()
        .map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_server_comes_first_and_failed_ones_last() {
        let order = |servers: &[(&'static str, bool)], local, number| {
            let candidate = |(name, is_healthy): &(&'static str, bool)| Candidate {
                name,
                is_healthy: *is_healthy,
                is_listed: *name != "joined",
            };
            let servers: Vec<_> = servers.iter().map(candidate).collect();
            order_servers(&servers, local, number).join(" ")
        };
        let all = [("a", true), ("b", true), ("c", true)];
        assert_eq!(order(&all, Some("b"), 0), "b a c");
        assert_eq!(order(&all, Some("b"), 1), "b c a");
        assert_eq!(order(&all, None, 0), "a b c");
        assert_eq!(order(&all, None, 5), "c a b");
        let failed = [("a", false), ("b", false), ("c", true)];
        assert_eq!(order(&failed, Some("b"), 0), "c b a");
        assert_eq!(order(&[], Some("b"), 3), "");
        let stale = [("joined", true), ("a", false), ("b", false)];
        assert_eq!(order(&stale, None, 0), "a b joined");
    }

    #[test]
    fn server_with_an_address_is_a_machine() {
        assert_eq!(parse_address("192.0.2.1:6443"), "192.0.2.1".parse().ok());
        assert_eq!(
            parse_address("[2001:db8::1]:6443"),
            "2001:db8::1".parse().ok()
        );
        assert_eq!(parse_address("api.example.com:443"), None);
    }
}
