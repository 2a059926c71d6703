//! Forms of IP addresses and CIDR blocks in text.
//!
//! Software disagrees about some spellings: leading zeros are octal for C libraries, and an
//! IPv4-mapped IPv6 address is of either family. Fields reject both, unless the old object has
//! them.

use crate::field::Path;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};

const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Parses an IP address without leading zeros.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// Parses an IP address like old releases, which ignored leading zeros.
pub fn parse_sloppy_ip(text: &str) -> Option<IpAddr> {
    if let Some(ip) = parse_ip(text) {
        return Some(ip.to_canonical());
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = parse_sloppy_number(parts.next()?)?.try_into().ok()?;
    }
    parts
        .next()
        .is_none()
        .then(|| Ipv4Addr::from(octets).into())
}

fn parse_sloppy_number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let significant = text.trim_start_matches('0');
    match significant {
        _ if !digits => None,
        "" => Some(0),
        number => number.parse().ok(),
    }
}

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Returns the problems of an IP address in a field that is older than canonical addresses.
pub fn ip_problems(text: &str) -> Vec<String> {
    match parse_ip(text) {
        Some(ip) if is_mapped(&ip) => vec!["must not be an IPv4-mapped IPv6 address".into()],
        Some(_) => Vec::new(),
        None if parse_sloppy_ip(text).is_some() => vec!["must not have leading 0s".into()],
        None => vec![IP.into()],
    }
}

/// Returns the problems of an IP address that must be in canonical form.
pub fn canonical_ip_problems(text: &str) -> Vec<String> {
    let problems = ip_problems(text);
    match parse_ip(text).map(|ip| ip.to_string()) {
        Some(canonical) if problems.is_empty() && canonical != text => {
            vec![format!("must be in canonical form (\"{canonical}\")")]
        }
        _ => problems,
    }
}

/// Parses a block like old releases: address, with bits below the prefix, and prefix length.
pub fn parse_sloppy_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = parse_sloppy_number(length)?.try_into().ok()?;
    match parse_ip(address) {
        // The length counts the bits of the spelling, the block is one of IPv4.
        Some(ip) if is_mapped(&ip) => IpNet::new(ip.to_canonical(), length.checked_sub(96)?).ok(),
        Some(ip) => IpNet::new(ip, length).ok(),
        None => IpNet::new(parse_sloppy_ip(address)?, length).ok(),
    }
}

/// Returns the problems of a CIDR block in a field that is older than canonical blocks.
pub fn cidr_problems(text: &str) -> Vec<String> {
    let Some(net) = parse_sloppy_cidr(text) else {
        return vec![CIDR.into()];
    };
    let (address, length) = text.split_once('/').unwrap_or_default();
    let problem = match parse_ip(address) {
        None => "must not have leading 0s in IP or prefix length",
        _ if length.len() > 1 && length.starts_with('0') => {
            "must not have leading 0s in IP or prefix length"
        }
        Some(ip) if is_mapped(&ip) => "must not have an IPv4-mapped IPv6 address",
        _ if net.addr() != net.network() => "must not have bits set beyond the prefix length",
        _ => return Vec::new(),
    };
    vec![problem.into()]
}

/// Returns the problems of a CIDR block that must be in canonical form.
pub fn canonical_cidr_problems(text: &str) -> Vec<String> {
    let problems = cidr_problems(text);
    match parse_sloppy_cidr(text).map(|net| net.trunc().to_string()) {
        Some(canonical) if problems.is_empty() && canonical != text => {
            vec![format!("must be in canonical form (\"{canonical}\")")]
        }
        _ => problems,
    }
}

/// Returns the problems of an interface's address with its prefix length, in canonical form.
pub fn interface_address_problems(text: &str) -> Vec<String> {
    match parse_sloppy_cidr(text).map(|net| net.to_string()) {
        None => vec![
            "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".into(),
        ],
        Some(canonical) if canonical != text => {
            vec![format!("must be in canonical form (\"{canonical}\")")]
        }
        Some(_) => Vec::new(),
    }
}

/// Returns whether two addresses or blocks are of different families.
pub fn is_dual_stack(a: &str, b: &str) -> bool {
    a.contains(':') != b.contains(':')
}

/// Warns about an address whose spelling is ambiguous or not canonical.
pub fn ip_warning(path: &Path<'_>, text: &str) -> Option<String> {
    let preferred = parse_sloppy_ip(text)?;
    match parse_ip(text) {
        Some(ip) if !is_mapped(&ip) => (ip.is_ipv6() && ip.to_string() != text).then(|| {
            format!(
                "{path}: IPv6 address \"{text}\" should be in RFC 5952 canonical format (\"{ip}\")"
            )
        }),
        _ => Some(format!(
            "{path}: non-standard IP address \"{text}\" is invalid: use \"{preferred}\""
        )),
    }
}

/// Warns about a block whose spelling is ambiguous or not canonical.
pub fn cidr_warnings(path: &Path<'_>, text: &str) -> Vec<String> {
    let Some(net) = parse_sloppy_cidr(text) else {
        return Vec::new();
    };
    let block = net.trunc();
    let mut warnings = Vec::new();
    if net.addr() != block.addr() {
        let single = IpNet::from(net.addr());
        warnings.push(format!("{path}: CIDR value \"{text}\" is ambiguous in this context (should be \"{block}\" or \"{single}\"?)"));
    }
    let problems = cidr_problems(text);
    if problems
        .iter()
        .any(|p| p.contains("leading") || p.contains("mapped"))
    {
        warnings.push(format!(
            "{path}: non-standard CIDR value \"{text}\" is invalid: use \"{block}\""
        ));
    }
    if warnings.is_empty() && net.addr().is_ipv6() && net.to_string() != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value \"{text}\" should be in RFC 5952 canonical format (\"{net}\")"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_addresses_have_a_problem() {
        for (text, problem) in [
            ("10.0.0.1", ""),
            ("fd00:0::1", ""),
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("1.2.3", "must be a valid IP address"),
            ("1.2.3.256", "must be a valid IP address"),
            ("", "must be a valid IP address"),
        ] {
            let found = ip_problems(text).join(";");
            assert!(
                found.starts_with(problem) && found.is_empty() == problem.is_empty(),
                "{text}: {found}"
            );
        }
    }

    #[test]
    fn ambiguous_blocks_have_a_problem() {
        for (text, problem) in [
            ("10.0.0.0/8", ""),
            ("fd00::/64", ""),
            ("10.0.0.0/08", "must not have leading 0s"),
            ("010.0.0.0/8", "must not have leading 0s"),
            ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped"),
            ("10.0.0.1/8", "must not have bits set"),
            ("10.0.0.0", "must be a valid CIDR"),
            ("10.0.0.0/33", "must be a valid CIDR"),
        ] {
            let found = cidr_problems(text).join(";");
            assert!(
                found.starts_with(problem) && found.is_empty() == problem.is_empty(),
                "{text}: {found}"
            );
        }
    }

    #[test]
    fn canonical_form_is_named() {
        assert_eq!(
            canonical_ip_problems("FD00::1"),
            ["must be in canonical form (\"fd00::1\")"]
        );
        assert_eq!(
            canonical_cidr_problems("fd00:0::/64"),
            ["must be in canonical form (\"fd00::/64\")"]
        );
        assert_eq!(
            interface_address_problems("fd00:0::1/64"),
            ["must be in canonical form (\"fd00::1/64\")"]
        );
        assert!(interface_address_problems("10.1.2.3/8").is_empty());
    }

    #[test]
    fn warnings_name_the_preferred_form() {
        let path = Path::ROOT.child("ip");
        for (text, warning) in [
            ("10.0.0.1", None),
            (
                "FD00::1",
                Some(
                    "ip: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
                ),
            ),
            (
                "010.0.0.1",
                Some("ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""),
            ),
            (
                "::ffff:1.2.3.4",
                Some("ip: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\""),
            ),
        ] {
            assert_eq!(ip_warning(&path, text).as_deref(), warning, "{text}");
        }
        assert_eq!(
            cidr_warnings(&path, "10.0.0.1/8"),
            [
                "ip: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
            ]
        );
        assert_eq!(cidr_warnings(&path, "fd00:0::/64").len(), 1);
    }
}
