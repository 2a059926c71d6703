//! IP addresses and networks in the form that Go's `net/netip` reads, with its messages.
//!
//! Invariant: an address has no zone and is no IPv4-mapped IPv6 address, because two spellings of
//! one address would pass a rule that compares addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::Error;
use super::quote::quote;

/// An address together with whether its text has a zone, as `fe80::1%eth0` has.
pub(crate) struct ParsedAddress {
    pub(crate) address: IpAddr,
    pub(crate) has_zone: bool,
}

/// A network: an address, which may have bits beyond the prefix, and the length of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

impl Network {
    /// Returns whether the address is inside the network. Families never match each other.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                shift(u128::from(own.to_bits() ^ other.to_bits()), 32, self.prefix) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                shift(own.to_bits() ^ other.to_bits(), 128, self.prefix) == 0
            }
            _ => false,
        }
    }

    /// Returns whether the other network is this network or a part of it.
    pub(crate) fn contains_network(&self, other: &Network) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Returns the network with all bits beyond the prefix cleared.
    pub(crate) fn masked(&self) -> Network {
        let address = match self.address {
            IpAddr::V4(own) => {
                let drop = 32_u32.saturating_sub(u32::from(self.prefix));
                let bits = own.to_bits().checked_shr(drop).unwrap_or(0);
                Ipv4Addr::from_bits(bits.checked_shl(drop).unwrap_or(0)).into()
            }
            IpAddr::V6(own) => {
                let drop = 128_u32.saturating_sub(u32::from(self.prefix));
                let bits = own.to_bits().checked_shr(drop).unwrap_or(0);
                Ipv6Addr::from_bits(bits.checked_shl(drop).unwrap_or(0)).into()
            }
        };
        Network {
            address,
            prefix: self.prefix,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn shift(difference: u128, width: u32, prefix: u8) -> u128 {
    difference
        .checked_shr(width.saturating_sub(u32::from(prefix)))
        .unwrap_or(0)
}

/// Parses an address for `ip()` and its relatives.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, Error> {
    let parsed = parse_address(text).map_err(|error| {
        Error(format!(
            "IP Address {} parse error during conversion from string: {error}",
            quote(text)
        ))
    })?;
    if parsed.has_zone {
        return Err(Error(format!(
            "IP address {} with zone value is not allowed",
            quote(text)
        )));
    }
    reject_mapped(parsed.address, text)
}

/// Parses a network for `cidr()` and its relatives.
pub(crate) fn parse_cidr(text: &str) -> Result<Network, Error> {
    let network = parse_network(text).map_err(|message| {
        Error(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({}): \
             {message}",
            quote(text)
        ))
    })?;
    reject_mapped(network.address, text)?;
    Ok(network)
}

fn reject_mapped(address: IpAddr, text: &str) -> Result<IpAddr, Error> {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(Error(format!(
            "IPv4-mapped IPv6 address {} is not allowed",
            quote(text)
        ))),
        _ => Ok(address),
    }
}

fn parse_network(text: &str) -> Result<Network, Error> {
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| Error::new("no '/'"))?;
    let parsed = parse_address(address)?;
    if parsed.has_zone {
        return Err(Error::new("IPv6 zones cannot be present in a prefix"));
    }
    // A sign and leading zeros are no part of a prefix length.
    let starts_badly = bits.len() > 1 && !matches!(bits.as_bytes().first(), Some(b'1'..=b'9'));
    let prefix: i64 = match bits.parse() {
        Ok(prefix) if !starts_badly => prefix,
        _ => return Err(Error(format!("bad bits after slash: {}", quote(bits)))),
    };
    let max = if parsed.address.is_ipv4() { 32 } else { 128 };
    match u8::try_from(prefix) {
        Ok(prefix) if prefix <= max => Ok(Network {
            address: parsed.address,
            prefix,
        }),
        _ => Err(Error::new("prefix length out of range")),
    }
}

/// Parses an address as Go's `netip.ParseAddr` does.
pub(crate) fn parse_address(text: &str) -> Result<ParsedAddress, Error> {
    // The first of these characters decides on the family, and with it on the message.
    match text.bytes().find(|b| matches!(b, b'.' | b':' | b'%')) {
        Some(b'.') => {
            let octets = parse_octets(text, text)?;
            Ok(ParsedAddress {
                address: Ipv4Addr::from(octets).into(),
                has_zone: false,
            })
        }
        Some(b':') => parse_v6(text),
        Some(_) => Err(parse_error(text, "missing IPv6 address", "")),
        None => Err(parse_error(text, "unable to parse IP", "")),
    }
}

fn parse_error(text: &str, message: &str, rest: &str) -> Error {
    let mut full = format!("ParseAddr({}): {message}", quote(text));
    if !rest.is_empty() {
        full.push_str(&format!(" (at {})", quote(rest)));
    }
    Error(full)
}

/// Parses four decimal fields. `text` is the whole address, for the message.
fn parse_octets(text: &str, fields: &str) -> Result<[u8; 4], Error> {
    let fail = |message: &str, rest: &str| Err(parse_error(text, message, rest));
    let mut octets = [0_u8; 4];
    let mut done = 0;
    let mut value: Option<u8> = None;
    for (at, byte) in fields.bytes().enumerate() {
        let rest = fields.get(at..).unwrap_or_default();
        match (byte, value) {
            // Some readers take a leading zero for octal, so the text could mean two addresses.
            (b'0'..=b'9', Some(0)) => {
                return fail("IPv4 field has octet with leading zero", "");
            }
            (b'0'..=b'9', _) => {
                let longer = value.unwrap_or(0).checked_mul(10);
                value = longer.and_then(|v| v.checked_add(byte - b'0'));
                if value.is_none() {
                    return fail("IPv4 field has value >255", "");
                }
            }
            // A dot at the end of the text would leave the next field empty.
            (b'.', Some(octet)) if rest.len() > 1 => {
                if done == 3 {
                    return fail("IPv4 address too long", "");
                }
                if let Some(slot) = octets.get_mut(done) {
                    *slot = octet;
                }
                done += 1;
                value = None;
            }
            (b'.', _) => return fail("IPv4 field must have at least one digit", rest),
            _ => return fail("unexpected character", rest),
        }
    }
    if done < 3 {
        return fail("IPv4 address too short", "");
    }
    // The loop has rejected a text that ends with a dot, so there is a value.
    octets[3] = value.unwrap_or(0);
    Ok(octets)
}

/// Groups of an IPv6 address that have been read.
#[derive(Default)]
struct Groups {
    before: Vec<u16>,
    /// Groups after `::`.
    after: Option<Vec<u16>>,
}

impl Groups {
    fn count(&self) -> usize {
        self.before.len() + self.after.as_ref().map_or(0, Vec::len)
    }

    fn push(&mut self, group: u16) {
        self.after.as_mut().unwrap_or(&mut self.before).push(group);
    }

    fn to_address(&self) -> Ipv6Addr {
        let mut segments = [0_u16; 8];
        for (slot, group) in segments.iter_mut().zip(&self.before) {
            *slot = *group;
        }
        // These groups are aligned to the end, and zeros fill the gap.
        let after = self.after.iter().flatten();
        for (slot, group) in segments.iter_mut().rev().zip(after.rev()) {
            *slot = *group;
        }
        Ipv6Addr::from(segments)
    }
}

fn parse_v6(text: &str) -> Result<ParsedAddress, Error> {
    let (body, has_zone) = match text.split_once('%') {
        Some((_, "")) => return Err(parse_error(text, "zone must be a non-empty string", "")),
        Some((body, _)) => (body, true),
        None => (text, false),
    };
    let mut groups = Groups::default();
    let mut rest = body;
    if let Some(tail) = body.strip_prefix("::") {
        groups.after = Some(Vec::new());
        rest = tail;
    }
    // The address `::` has no group at all.
    if groups.after.is_none() || !rest.is_empty() {
        rest = parse_groups(text, rest, &mut groups)?;
    }
    if !rest.is_empty() {
        return Err(parse_error(text, "trailing garbage after address", rest));
    }
    match (groups.count(), &groups.after) {
        (..8, None) => Err(parse_error(text, "address string too short", "")),
        (8.., Some(_)) => {
            let message = "the :: must expand to at least one field of zeros";
            Err(parse_error(text, message, ""))
        }
        _ => Ok(ParsedAddress {
            address: groups.to_address().into(),
            has_zone,
        }),
    }
}

/// Reads groups into `groups` and returns what follows the eighth.
fn parse_groups<'a>(text: &str, mut rest: &'a str, groups: &mut Groups) -> Result<&'a str, Error> {
    let fail = |message: &str, rest: &str| Err(parse_error(text, message, rest));
    while groups.count() < 8 {
        let len = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if len > 4 {
            return fail("each group must have 4 or less digits", rest);
        }
        if len == 0 {
            let message = "each colon-separated field must have at least one digit";
            return fail(message, rest);
        }
        let (digits, tail) = rest.split_at_checked(len).unwrap_or((rest, ""));
        // The last 32 bits may be written as an IPv4 address (RFC 4291, 2.2).
        if tail.starts_with('.') {
            // Six groups come before the IPv4 address, unless `::` stands for some of them.
            if groups.after.is_none() && groups.count() != 6 {
                let message =
                    "embedded IPv4 address must replace the final 2 fields of the address";
                return fail(message, rest);
            }
            if groups.count() > 6 {
                let message =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return fail(message, rest);
            }
            let [a, b, c, d] = parse_octets(text, rest)?;
            groups.push(u16::from_be_bytes([a, b]));
            groups.push(u16::from_be_bytes([c, d]));
            return Ok("");
        }
        groups.push(u16::from_str_radix(digits, 16).unwrap_or_default());
        if tail.is_empty() {
            return Ok("");
        }
        let Some(next) = tail.strip_prefix(':') else {
            return fail("unexpected character, want colon", tail);
        };
        if next.is_empty() {
            return fail("colon must be followed by more characters", tail);
        }
        rest = next;
        if let Some(after) = next.strip_prefix(':') {
            // With two of them the number of zeros of each would be ambiguous.
            if groups.after.is_some() {
                return fail("multiple :: in address", next);
            }
            groups.after = Some(Vec::new());
            rest = after;
            if rest.is_empty() {
                return Ok("");
            }
        }
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_in_canonical_form() {
        for (text, canonical) in [
            ("1.2.3.4", "1.2.3.4"),
            ("::", "::"),
            ("::1", "::1"),
            ("1::", "1::"),
            ("2001:DB8:0:0:0:0:0:68", "2001:db8::68"),
            ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
            ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
            ("::1.2.3.4", "::102:304"),
            ("1::7:8", "1::7:8"),
        ] {
            assert_eq!(parse_ip(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn bad_addresses_have_the_messages_of_netip() {
        for (text, message) in [
            ("", "unable to parse IP"),
            ("1", "unable to parse IP"),
            ("%a", "missing IPv6 address"),
            ("1.2.3", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1.2.3.256", "IPv4 field has value >255"),
            ("1.2.3.04", "IPv4 field has octet with leading zero"),
            (
                "1..2.3",
                "IPv4 field must have at least one digit (at \".2.3\")",
            ),
            (
                "1.2.3.",
                "IPv4 field must have at least one digit (at \".\")",
            ),
            ("1.a.2.3", "unexpected character (at \"a.2.3\")"),
            ("1:2", "address string too short"),
            (
                "1:2:3:4:5:6:7:8:9",
                "trailing garbage after address (at \"9\")",
            ),
            (
                "1:2:3:4:5:6:7::8",
                "the :: must expand to at least one field of zeros",
            ),
            ("1::2::3", "multiple :: in address (at \":3\")"),
            (
                "::12345",
                "each group must have 4 or less digits (at \"12345\")",
            ),
            (
                "1:g",
                "each colon-separated field must have at least one digit (at \"g\")",
            ),
            ("1:2g", "unexpected character, want colon (at \"g\")"),
            ("1:", "colon must be followed by more characters (at \":\")"),
            ("::1%", "zone must be a non-empty string"),
        ] {
            let error = parse_address(text).err().map(|error| error.0);
            let expected = format!("ParseAddr({}): {message}", quote(text));
            assert_eq!(error, Some(expected), "{text}");
        }
    }

    #[test]
    fn zones_and_mapped_addresses_are_rejected() {
        assert_eq!(
            parse_ip("fe80::1%eth0"),
            Err(Error::new(
                "IP address \"fe80::1%eth0\" with zone value is not allowed"
            ))
        );
        assert_eq!(
            parse_ip("::ffff:1.2.3.4"),
            Err(Error::new(
                "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"
            ))
        );
        assert!(parse_cidr("::ffff:1.2.3.4/100").is_err());
    }

    #[test]
    fn bad_networks_are_rejected() {
        for (text, message) in [
            ("1.2.3.4", "no '/'"),
            ("1.2.3.4/", "bad bits after slash: \"\""),
            ("1.2.3.4/+8", "bad bits after slash: \"+8\""),
            ("1.2.3.4/08", "bad bits after slash: \"08\""),
            ("1.2.3.4/33", "prefix length out of range"),
            ("::/129", "prefix length out of range"),
            ("fe80::1%a/64", "IPv6 zones cannot be present in a prefix"),
            ("x/8", "ParseAddr(\"x\"): unable to parse IP"),
        ] {
            let error = parse_network(text).err().map(|error| error.0);
            assert_eq!(error.as_deref(), Some(message), "{text}");
        }
    }

    #[test]
    fn network_contains_its_addresses_and_smaller_networks() {
        let network = |text: &str| parse_cidr(text).unwrap();
        let ip = |text: &str| parse_ip(text).unwrap();
        assert!(network("10.0.0.0/8").contains(ip("10.255.0.1")));
        assert!(!network("10.0.0.0/8").contains(ip("11.0.0.0")));
        assert!(network("0.0.0.0/0").contains(ip("11.0.0.0")));
        assert!(network("1.2.3.4/32").contains(ip("1.2.3.4")));
        assert!(network("::/0").contains(ip("ffff::")));
        assert!(!network("::/0").contains(ip("1.2.3.4")));
        assert!(network("10.0.0.0/8").contains_network(&network("10.1.0.0/16")));
        assert!(!network("10.1.0.0/16").contains_network(&network("10.0.0.0/8")));
        assert_eq!(network("10.1.2.3/8").masked().to_string(), "10.0.0.0/8");
        assert_eq!(network("10.1.2.3/0").masked().to_string(), "0.0.0.0/0");
        assert_eq!(network("fe80::1/128").masked().to_string(), "fe80::1/128");
        assert_eq!(network("fe80::1/0").masked().to_string(), "::/0");
    }
}
