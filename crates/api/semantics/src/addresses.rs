//! IP addresses of hosts.

use std::net::IpAddr;

/// Returns whether an address means another host on each machine, or no single one. An IPv4 address
/// in IPv6 form does: programs differ in what they take it for.
pub fn is_special_address(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    is_local || address.is_loopback() || address.is_unspecified() || address.is_multicast()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn address_of_one_host_is_not_special() {
        for (address, expect) in [
            ("10.0.0.1", false),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("fd00::1", false),
            ("127.0.0.1", true),
            ("0.0.0.0", true),
            ("169.254.169.254", true),
            ("224.0.0.1", true),
            ("255.255.255.255", true),
            ("::1", true),
            ("::", true),
            ("fe80::1", true),
            ("ff02::1", true),
            ("::ffff:10.0.0.1", true),
        ] {
            assert_eq!(
                is_special_address(address.parse().unwrap()),
                expect,
                "{address}"
            );
        }
    }
}
