//! The order in which a connection tries the API servers.

use std::net::{IpAddr, SocketAddr};

/// Returns the names of the servers in the order in which a new connection tries them: the local one, the
/// other healthy ones in turn, and last those that failed their checks, which may have recovered since.
pub(super) fn order_servers(
    servers: &[(&str, bool)],
    local: Option<&str>,
    number: usize,
) -> Vec<String> {
    let is_local = |name: &str| Some(name) == local;
    let select = |healthy: bool| {
        let mut names: Vec<&str> = servers
            .iter()
            .filter(|(name, is_healthy)| *is_healthy == healthy && !is_local(name))
            .map(|(name, _)| *name)
            .collect();
        let length = names.len().max(1);
        names.rotate_left(number % length);
        let own = servers
            .iter()
            .filter(|(name, is_healthy)| *is_healthy == healthy && is_local(name));
        let mut order: Vec<&str> = own.map(|(name, _)| *name).collect();
        order.append(&mut names);
        order
    };
    let all = [select(true), select(false)].concat();
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
        let order = |servers: &[(&str, bool)], local, number| {
            order_servers(servers, local, number).join(" ")
        };
        let all = [("a", true), ("b", true), ("c", true)];
        assert_eq!(order(&all, Some("b"), 0), "b a c");
        assert_eq!(order(&all, Some("b"), 1), "b c a");
        assert_eq!(order(&all, None, 0), "a b c");
        assert_eq!(order(&all, None, 5), "c a b");
        let failed = [("a", false), ("b", false), ("c", true)];
        assert_eq!(order(&failed, Some("b"), 0), "c b a");
        assert_eq!(order(&[], Some("b"), 3), "");
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
