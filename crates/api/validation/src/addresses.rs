//! IP addresses of endpoints and external addresses of Services.

use crate::field::{Errors, Path};
use crate::ip::parse_sloppy_ip;
use std::net::IpAddr;

/// Rejects addresses on which only the node itself or its link listens. An IPv4-mapped IPv6 address
/// is treated as the IPv4 address that a connection to it reaches.
pub(crate) fn validate_endpoint_ip(address: &str, path: &Path<'_>, errors: &mut Errors) {
    // Octets with leading zeros are accepted: Endpoints that older versions stored may contain
    // them.
    let Some(ip) = parse_sloppy_ip(address) else {
        errors.invalid(path, address, "must be a valid IP address");
        return;
    };
    // Cloud metadata services, which hand out credentials of the node, are at 169.254.169.254.
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xffc0 == 0xfe80),
    };
    let link_local_multicast = match ip {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xff0f == 0xff02),
    };
    // A connection to the unspecified address reaches the node from which it is opened.
    if ip.is_unspecified() {
        errors.invalid(path, address, format!("may not be unspecified ({address})"));
    }
    // Through such an endpoint, the proxy of each node would forward clients to processes that
    // listen on localhost only.
    if ip.is_loopback() {
        errors.invalid(
            path,
            address,
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        );
    }
    if link_local {
        errors.invalid(
            path,
            address,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        );
    }
    // Routers don't forward these groups. The message has upstream's prefix `ff02::/10`, although
    // the test is for scope 2 with any flags.
    if link_local_multicast {
        errors.invalid(
            path,
            address,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_address_is_checked_as_the_ipv4_address() {
        for (address, expect) in [
            ("10.0.0.1", 0),
            ("fd00::1", 0),
            ("127.0.0.1", 1),
            ("169.254.169.254", 1),
            ("fe80::1", 1),
            ("10.0.0", 1),
            ("0127.0.0.1", 1),
            ("224.0.0.1", 1),
            ("ff02::1", 1),
            ("::ffff:10.0.0.1", 0),
            ("::ffff:127.0.0.1", 1),
            ("::ffff:169.254.169.254", 1),
            ("::ffff:0.0.0.0", 1),
        ] {
            let mut errors = Errors::default();
            validate_endpoint_ip(address, &Path::ROOT.child("ip"), &mut errors);
            assert_eq!(errors.0.len(), expect, "{address}: {:?}", errors.0);
        }
    }
}
