//! The addresses of a ServiceCIDR.

use ipnet::IpNet;
use std::net::IpAddr;

/// Returns whether API servers allocate the address of the range: neither the network address, nor
/// the broadcast address of IPv4.
///
/// The allocator and the controller that delays the deletion of a range must agree: otherwise a
/// range is deleted while a Service has one of its addresses.
pub fn is_allocatable(range: &IpNet, address: IpAddr) -> bool {
    range.contains(&address)
        && address != range.network()
        && (address.is_ipv6() || address != range.broadcast())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn network_and_broadcast_address_are_not_allocatable() {
        for (range, address, expect) in [
            ("10.0.0.0/29", "10.0.0.0", false),
            ("10.0.0.0/29", "10.0.0.1", true),
            ("10.0.0.0/29", "10.0.0.6", true),
            ("10.0.0.0/29", "10.0.0.7", false),
            ("10.0.0.0/29", "10.0.0.8", false),
            ("10.0.0.0/29", "fd00::1", false),
            ("fd00::/124", "fd00::", false),
            ("fd00::/124", "fd00::1", true),
            ("fd00::/124", "fd00::f", true),
            ("fd00::/124", "fd00::10", false),
        ] {
            let (range, ip) = (range.parse().unwrap(), address.parse().unwrap());
            assert_eq!(is_allocatable(&range, ip), expect, "{address} in {range}");
        }
    }
}
