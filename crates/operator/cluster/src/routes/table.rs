//! The kernel's routing table. The routes of this module have a protocol number of their own, so
//! that those of other programs are never touched.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::command::run_command;
use crate::error::Result;

/// Protocol number of the routes. The kernel does not interpret it; iproute2's `rt_protos` has no
/// program with this one.
const PROTOCOL: &str = "119";

/// Changes the routes to `desired`. `source` is the address from which this machine itself sends to
/// pods: one of its pods' range, for which the other machines have a route. Returns the failures.
pub(super) fn apply_routes(
    desired: &BTreeMap<Ipv4Net, Ipv4Addr>,
    source: Ipv4Addr,
) -> Result<Vec<String>> {
    let present = parse_routes(&run_command(
        "ip",
        &["-4", "route", "show", "proto", PROTOCOL],
    )?);
    let mut failures = Vec::new();
    let mut run = |args: &[&str]| {
        if let Err(error) = run_command("ip", args) {
            failures.push(error.to_string());
        }
    };
    for range in present.keys().filter(|range| !desired.contains_key(range)) {
        let range = range.to_string();
        run(&["-4", "route", "delete", &range, "proto", PROTOCOL]);
    }
    let source = source.to_string();
    for (range, gateway) in desired {
        if present.get(range) == Some(gateway) {
            continue;
        }
        let (range, gateway) = (range.to_string(), gateway.to_string());
        run(&[
            "-4", "route", "replace", &range, "via", &gateway, "proto", PROTOCOL, "src", &source,
        ]);
    }
    Ok(failures)
}

/// Removes all routes of this module.
pub(crate) fn remove_routes() -> Result<()> {
    run_command("ip", &["-4", "route", "flush", "proto", PROTOCOL]).map(drop)
}

/// Reads a listing of `ip route`: destination and gateway of each route.
fn parse_routes(listing: &str) -> BTreeMap<Ipv4Net, Ipv4Addr> {
    let parse_line = |line: &str| {
        let mut words = line.split_whitespace();
        let destination = words.next()?;
        let range = destination.parse::<Ipv4Net>();
        // A single address is listed without a prefix length.
        let range = range
            .or_else(|_| destination.parse::<Ipv4Addr>().map(Ipv4Net::from))
            .ok()?;
        let gateway = words.skip_while(|word| *word != "via").nth(1)?;
        Some((range, gateway.parse().ok()?))
    };
    listing.lines().filter_map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn listing_of_the_kernel_is_read() {
        let found = parse_routes(
            "10.244.1.0/24 via 192.0.2.2 dev eth0 src 10.244.0.1 \n198.18.7.2 via 192.0.2.9 dev eth0 \n\
             10.244.9.0/24 dev eth1 scope link \ndefault via 192.0.2.1 dev eth0\n",
        );
        let found: Vec<_> = found
            .iter()
            .map(|(range, via)| format!("{range} {via}"))
            .collect();
        assert_eq!(
            found,
            ["10.244.1.0/24 192.0.2.2", "198.18.7.2/32 192.0.2.9"]
        );
    }
}
