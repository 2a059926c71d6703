//! Formats of addresses and names of hosts.

use crate::pattern::compile_fixed;
use regex::bytes::Regex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

/// Parses an address, with leading zeros in parts of IPv4 as Go did before 1.17.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (prefix, last) = match text.rfind(':') {
        Some(colon) => text.split_at(colon + 1),
        None => ("", text),
    };
    let parts: Vec<&str> = last.split('.').collect();
    let number = |part: &&str| {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u8>().ok()).flatten()
    };
    let octets: Option<Vec<u8>> = parts.iter().map(number).collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    format!("{prefix}{}", Ipv4Addr::from(octets)).parse().ok()
}

pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && parse_ip(text).is_some()
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<IpAddr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else {
        return false;
    };
    let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    match parse_ip(address) {
        Some(address) if digits => prefix
            .parse()
            .is_ok_and(|n| ipnet::IpNet::new(address, n).is_ok()),
        _ => false,
    }
}

/// Returns whether the text is a MAC address of 6, 8 or 20 bytes in one of the forms of Go.
pub(super) fn is_mac(text: &str) -> bool {
    let hex = |group: &str| group.bytes().all(|b| b.is_ascii_hexdigit());
    let separated = match (text.as_bytes().get(2), text.as_bytes().get(4)) {
        (Some(b':'), _) => Some((':', 2)),
        (Some(b'-'), _) => Some(('-', 2)),
        (_, Some(b'.')) => Some(('.', 4)),
        _ => None,
    };
    let Some((separator, digits)) = separated else {
        return matches!(text.len(), 12 | 16 | 40) && hex(text);
    };
    let bytes = text.split(separator).count() * digits / 2;
    matches!(bytes, 6 | 8 | 20) && text.split(separator).all(|g| g.len() == digits && hex(g))
}

/// Returns whether the text is a host name; letters and symbols of all scripts are allowed. A name
/// of several labels ends with one of two or more letters. A single one has a dash only as its
/// second character.
pub(super) fn is_hostname(text: &str) -> bool {
    let sized = text.len() <= 255 && text.split('.').all(|label| label.len() <= 63);
    let Some((labels, last)) = text.rsplit_once('.') else {
        let rest = text.strip_prefix(is_letter_or_symbol);
        let rest = rest.map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        return sized && rest.is_some_and(|rest| rest.chars().all(is_letter_or_symbol));
    };
    let is_label = |label: &str| {
        let inner = |c: char| c == '-' || is_letter_or_symbol(c);
        let edges = [label.chars().next(), label.chars().next_back()];
        label.chars().all(inner) && edges.iter().all(|c| c.is_some_and(is_letter_or_symbol))
    };
    let letters = last
        .chars()
        .all(|c| c.is_ascii_alphabetic() || is_letter(c));
    sized && labels.split('.').all(is_label) && letters && last.chars().count() >= 2
}

fn is_letter(c: char) -> bool {
    static FORM: OnceLock<Option<Regex>> = OnceLock::new();
    !c.is_ascii() && matches_char(&FORM, r"^\p{L}$", c)
}

fn is_letter_or_symbol(c: char) -> bool {
    static FORM: OnceLock<Option<Regex>> = OnceLock::new();
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || "$+<=>^`|~".contains(c),
        false => matches_char(&FORM, r"^[\p{S}\p{L}]$", c),
    }
}

fn matches_char(form: &OnceLock<Option<Regex>>, pattern: &str, c: char) -> bool {
    let form = form.get_or_init(|| compile_fixed(pattern));
    form.as_ref()
        .is_some_and(|form| form.is_match(c.encode_utf8(&mut [0; 4]).as_bytes()))
}

/// Returns whether the text is an address of RFC 5322, perhaps with a display name.
pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    match text
        .strip_suffix('>')
        .and_then(|rest| rest.rsplit_once('<'))
    {
        Some((name, address)) => is_phrase(name.trim_matches([' ', '\t'])) && is_mailbox(address),
        None => is_mailbox(text),
    }
}

fn is_mailbox(address: &str) -> bool {
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let literal = domain
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let known_domain = match literal {
        Some(literal) => literal
            .strip_prefix("IPv6:")
            .unwrap_or(literal)
            .parse::<IpAddr>()
            .is_ok(),
        None => is_dot_atom(domain),
    };
    (is_dot_atom(local) || is_quoted(local)) && known_domain
}

fn is_dot_atom(text: &str) -> bool {
    !text.is_empty()
        && text
            .split('.')
            .all(|atom| !atom.is_empty() && atom.chars().all(is_atom_char))
}

fn is_atom_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

fn is_quoted(text: &str) -> bool {
    let Some(inside) = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return false;
    };
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        let good = match c {
            '\\' => chars.next().is_some_and(|c| !c.is_ascii_control()),
            '"' => false,
            c => !c.is_ascii_control() || c == '\t',
        };
        if !good {
            return false;
        }
    }
    !inside.is_empty()
}

// A display name: quoted, or words.
fn is_phrase(text: &str) -> bool {
    let word = |c: char| is_atom_char(c) || matches!(c, ' ' | '\t' | '.');
    text.is_empty() || is_quoted(text) || text.chars().all(word)
}
