//! The format `uri`: what Go accepts as the target of an HTTP request.

/// Returns whether the text is an absolute URI or an absolute path.
pub(super) fn is_request_uri(text: &str) -> bool {
    let forbidden = |b: u8| b < 0x20 || b == 0x7f;
    if text.is_empty() || text.bytes().any(forbidden) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else {
        return false;
    };
    // The query is not interpreted.
    let path = rest.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        // A scheme followed by anything else is opaque; without a scheme the text is relative.
        return !scheme.is_empty();
    }
    match path.strip_prefix("//") {
        Some(authority) if !scheme.is_empty() || !path.starts_with("///") => {
            let (authority, path) =
                authority.split_at(authority.find('/').unwrap_or(authority.len()));
            is_authority(authority) && has_valid_escapes(path)
        }
        _ => has_valid_escapes(path),
    }
}

/// Splits off the scheme; an empty one if there is none, `None` if it is malformed.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return None,
            ':' => return Some((text.get(..i)?, text.get(i + 1..)?)),
            _ => break,
        }
    }
    Some(("", text))
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user_char = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    user.chars().all(user_char) && has_valid_escapes(user) && is_host(host)
}

fn is_host(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.rsplit_once(']') else {
            return false;
        };
        let address = address.split('%').next().unwrap_or_default();
        return address.parse::<std::net::Ipv6Addr>().is_ok() && is_optional_port(port);
    }
    let port = host
        .rfind(':')
        .and_then(|at| host.get(at..))
        .unwrap_or_default();
    let name = host.strip_suffix(port).unwrap_or(host);
    let name_char = |c: char| {
        c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii()
    };
    is_optional_port(port) && name.chars().all(name_char) && has_host_escapes(name)
}

fn is_optional_port(port: &str) -> bool {
    port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

// In host names only bytes outside ASCII may be escaped.
fn has_host_escapes(name: &str) -> bool {
    has_valid_escapes(name)
        && name.split('%').skip(1).all(|after| {
            after
                .bytes()
                .next()
                .is_some_and(|b| !(b'0'..=b'7').contains(&b))
        })
}

fn has_valid_escapes(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_hexdigit();
    text.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(hex))
}
