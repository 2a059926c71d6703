//! Warnings about forms of IP addresses that programs read differently.

use crate::field::{Path, go_quote};
use std::net::{IpAddr, Ipv4Addr};

/// Warns about an address that has another form than the usual one.
pub(super) fn warn_about_address(address: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let shown = go_quote(address);
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) => {
            if let Some(v4) = v6.to_ipv4_mapped() {
                warnings.push(format!(
                    "{path}: non-standard IP address {shown} is invalid: use \"{v4}\""
                ));
            } else if v6.to_string() != address {
                warnings.push(format!(
                    "{path}: IPv6 address {shown} should be in RFC 5952 canonical format (\"{v6}\")"
                ));
            }
        }
        Ok(IpAddr::V4(_)) => {}
        Err(_) => {
            if let Some(v4) = parse_with_zeros(address) {
                warnings.push(format!(
                    "{path}: non-standard IP address {shown} is invalid: use \"{v4}\""
                ));
            }
        }
    }
}

/// Parses an IPv4 address whose numbers may have leading zeros, as decimal numbers.
fn parse_with_zeros(address: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u8> = address
        .split('.')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    <[u8; 4]>::try_from(parts).ok().map(Ipv4Addr::from)
}
