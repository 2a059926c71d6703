//! URLs as Go's `net/url` reads and shows them. The `url` crate follows the WHATWG rules, which
//! accept, reject and normalize other texts.

use std::borrow::Cow;

use super::address::parse_address;
use super::error::Error;
use super::percent::{Part, escape, is_valid_encoding, unescape};
use super::quote::quote;

/// Upstream reads no query at all with more parameters than this.
const MAX_PARAMETERS: usize = 10_000;

/// A parsed URL. Bytes are kept decoded beside their encoded form, as Go does, because its
/// comparison and its accessors use one or the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WebAddress {
    scheme: String,
    opaque: String,
    user: Option<UserInfo>,
    host: Vec<u8>,
    omits_host: bool,
    path: Encoded,
    forces_query: bool,
    query: String,
    fragment: Encoded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UserInfo {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

/// Decoded bytes, and the text they came from if it is not the default encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Encoded {
    decoded: Vec<u8>,
    raw: Option<String>,
}

impl Encoded {
    fn parse(text: &str, part: Part) -> Result<Self, Error> {
        let decoded = unescape(text, part)?;
        let raw = (escape(&decoded, part) != text).then(|| text.to_owned());
        Ok(Encoded { decoded, raw })
    }

    fn to_text(&self, part: Part) -> String {
        match &self.raw {
            Some(raw) if !raw.is_empty() && is_valid_encoding(raw, part) => raw.clone(),
            _ => escape(&self.decoded, part),
        }
    }
}

/// Parses an absolute URL or an absolute path for `url()`.
pub(crate) fn parse_url(text: &str) -> Result<WebAddress, Error> {
    check_request_uri(text)?;
    // A fragment is part of the path or query for the first check, and is split off only now.
    let (front, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = parse_reference(front, false).map_err(|e| parse_error(front, &e))?;
    url.fragment = Encoded::parse(fragment, Part::Fragment).map_err(|e| parse_error(text, &e))?;
    Ok(url)
}

/// Checks that a text is an absolute URL or an absolute path, as `isURL()` and the format `uri` do.
pub(crate) fn check_request_uri(text: &str) -> Result<(), Error> {
    parse_reference(text, true)
        .map(drop)
        .map_err(|error| parse_error(text, &error))
}

fn parse_error(text: &str, error: &Error) -> Error {
    Error(format!("parse {}: {error}", quote(text)))
}

fn parse_reference(text: &str, is_request: bool) -> Result<WebAddress, Error> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err(Error::new("net/url: invalid control character in URL"));
    }
    if text.is_empty() && is_request {
        return Err(Error::new("empty url"));
    }
    let mut url = WebAddress::default();
    // The request target of OPTIONS for the whole server (RFC 9112, 3.2.4), as in Go.
    if text == "*" {
        url.path.decoded = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    // Schemes are case-insensitive, and lower case is canonical (RFC 3986, 3.1).
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(r, q)| (r, Some(q)));
    // A bare question mark is part of the text of the URL, although the query is empty.
    url.forces_query = query == Some("");
    url.query = query.unwrap_or_default().to_owned();
    if !rest.starts_with('/') {
        // A scheme without a slash, as in `mailto:a@b`.
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if is_request {
            return Err(Error::new("invalid URI for request"));
        }
        // Else the segment could be confused with a scheme (RFC 3986, 4.2).
        if rest
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return Err(Error::new("first path segment in URL cannot contain colon"));
        }
    }
    // A request target without a scheme is a path, even if it starts with `//`.
    let has_authority = !url.scheme.is_empty() || !is_request && !rest.starts_with("///");
    let path = match rest.strip_prefix("//") {
        Some(tail) if has_authority => {
            let end = tail.find('/').unwrap_or(tail.len());
            let (authority, path) = tail.split_at(end);
            parse_authority(authority, &mut url)?;
            path
        }
        _ => {
            url.omits_host = !url.scheme.is_empty();
            rest
        }
    };
    url.path = Encoded::parse(path, Part::Path)?;
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), Error> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    let starts_with_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
    match end.and_then(|end| text.split_at_checked(end)) {
        Some(("", rest)) if rest.starts_with(':') => Err(Error::new("missing protocol scheme")),
        Some((scheme, rest)) if starts_with_letter && rest.starts_with(':') => {
            Ok((scheme, rest.get(1..).unwrap_or_default()))
        }
        _ => Ok(("", text)),
    }
}

fn parse_authority(authority: &str, url: &mut WebAddress) -> Result<(), Error> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    url.host = parse_host(&url.scheme, host)?;
    let Some(user) = user else { return Ok(()) };
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_valid) {
        return Err(Error::new("net/url: invalid userinfo"));
    }
    let (name, password) = match user.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (user, None),
    };
    url.user = Some(UserInfo {
        name: unescape(name, Part::UserInfo)?,
        password: password.map(|p| unescape(p, Part::UserInfo)).transpose()?,
    });
    Ok(())
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, Error> {
    match host.rfind('[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err(Error::new("invalid IP-literal")),
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        // Only web schemes are strict about a second colon: others have addresses of their own.
        let is_web = matches!(scheme, "http" | "https");
        let port = host
            .get(if is_web { first } else { last }..)
            .unwrap_or_default();
        check_port(port)?;
    }
    unescape(host, Part::Host)
}

fn parse_ip_literal(host: &str) -> Result<Vec<u8>, Error> {
    let (name, port) = host
        .get(1..)
        .and_then(|tail| tail.rsplit_once(']'))
        .ok_or_else(|| Error::new("missing ']' in host"))?;
    check_port(port)?;
    let port = unescape(port, Part::Host)?;
    // The zone of an IPv6 address follows an encoded percent sign (RFC 6874).
    let (address, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
    let mut address = unescape(address, Part::Host)?;
    if !zone.is_empty() {
        address.extend(unescape(zone, Part::Zone)?);
    }
    let parsed = parse_address(&String::from_utf8_lossy(&address))
        .map_err(|error| Error(format!("invalid host: {error}")))?;
    // Brackets are for IPv6 addresses only (RFC 3986, 3.2.2).
    if parsed.address.is_ipv4() {
        return Err(Error::new("invalid IP-literal"));
    }
    Ok([b"[", address.as_slice(), b"]", port.as_slice()].concat())
}

fn check_port(port: &str) -> Result<(), Error> {
    if is_optional_port(port.as_bytes()) {
        Ok(())
    } else {
        Err(Error(format!("invalid port {} after host", quote(port))))
    }
}

fn is_optional_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

impl WebAddress {
    /// Returns the scheme in lower case, or nothing.
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns host and port. Bytes that are no UTF-8 are replaced, because a value is text.
    pub(crate) fn host(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.host)
    }

    /// Returns the host without port and without the brackets of an IPv6 address.
    pub(crate) fn hostname(&self) -> Cow<'_, str> {
        let (host, _) = self.split_port();
        let inner = host.strip_prefix(b"[").and_then(|h| h.strip_suffix(b"]"));
        String::from_utf8_lossy(inner.unwrap_or(host))
    }

    /// Returns the port, or nothing.
    pub(crate) fn port(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.split_port().1)
    }

    fn split_port(&self) -> (&[u8], &[u8]) {
        let colon = self.host.iter().rposition(|byte| *byte == b':');
        match colon.and_then(|at| self.host.split_at_checked(at)) {
            Some((host, port)) if is_optional_port(port) => {
                (host, port.get(1..).unwrap_or_default())
            }
            _ => (&self.host, &[]),
        }
    }

    /// Returns the path in its encoded form.
    pub(crate) fn escaped_path(&self) -> String {
        // Go does not encode the request target of OPTIONS.
        if self.path.decoded == b"*" && self.path.raw.is_none() {
            return "*".to_owned();
        }
        self.path.to_text(Part::Path)
    }

    /// Returns the parameters of the query in the order of their first occurrence. Malformed
    /// parameters are left out, as upstream leaves them out.
    pub(crate) fn parameters(&self) -> Vec<(String, Vec<String>)> {
        let mut found: indexmap::IndexMap<String, Vec<String>> = indexmap::IndexMap::new();
        if self.query.matches('&').count() >= MAX_PARAMETERS {
            return Vec::new();
        }
        for pair in self.query.split('&') {
            // Go rejects semicolons, because some readers take them for separators of parameters.
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(key), Ok(value)) = (unescape(key, Part::Query), unescape(value, Part::Query))
            {
                let key = String::from_utf8_lossy(&key).into_owned();
                let value = String::from_utf8_lossy(&value).into_owned();
                found.entry(key).or_default().push(value);
            }
        }
        found.into_iter().collect()
    }

    fn push_authority(&self, text: &mut String) {
        let has_host = !self.host.is_empty() || self.user.is_some();
        if !has_host && (self.scheme.is_empty() || self.omits_host) {
            return;
        }
        if has_host || !self.path.decoded.is_empty() {
            text.push_str("//");
        }
        if let Some(user) = &self.user {
            text.push_str(&escape(&user.name, Part::UserInfo));
            if let Some(password) = &user.password {
                text.push(':');
                text.push_str(&escape(password, Part::UserInfo));
            }
            text.push('@');
        }
        text.push_str(&escape(&self.host, Part::Host));
    }
}

impl std::fmt::Display for WebAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.push_str(&self.scheme);
            text.push(':');
        }
        if self.opaque.is_empty() {
            self.push_authority(&mut text);
            let path = self.escaped_path();
            // Without the slash the path would become part of the host.
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                text.push('/');
            }
            text.push_str(&path);
        } else {
            text.push_str(&self.opaque);
        }
        if self.forces_query || !self.query.is_empty() {
            text.push('?');
            text.push_str(&self.query);
        }
        if !self.fragment.decoded.is_empty() {
            text.push('#');
            text.push_str(&self.fragment.to_text(Part::Fragment));
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_of_a_url_are_read() {
        let url = parse_url("HTTPS://us%65r:p%40ss@[::1]:80/a%20b/c d?k=1&k=%32&x#f%20g").unwrap();
        assert_eq!(url.scheme(), "https");
        assert_eq!(url.host(), "[::1]:80");
        assert_eq!(url.hostname(), "::1");
        assert_eq!(url.port(), "80");
        assert_eq!(url.escaped_path(), "/a%20b/c%20d");
        let k = ("k".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        assert_eq!(url.parameters(), [k, ("x".to_owned(), vec![String::new()])]);
        assert_eq!(
            url.to_string(),
            "https://user:p%40ss@[::1]:80/a%20b/c%20d?k=1&k=%32&x#f%20g"
        );
    }

    #[test]
    fn absolute_paths_and_opaque_urls_are_read() {
        for (text, shown) in [
            ("/path", "/path"),
            ("/a b", "/a%20b"),
            ("/a%2Fb", "/a%2Fb"),
            ("*", "*"),
            ("mailto:a@b", "mailto:a@b"),
            ("file:///etc", "file:///etc"),
            ("file:/etc", "file:/etc"),
            ("http://a?", "http://a?"),
            ("http://a?b?c", "http://a?b?c"),
            ("https:://kubernetes.io/", "https:://kubernetes.io/"),
        ] {
            assert_eq!(parse_url(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn bad_urls_have_the_messages_of_net_url() {
        for (text, message) in [
            ("", "empty url"),
            ("../relative-path", "invalid URI for request"),
            (":a", "missing protocol scheme"),
            (
                "http://a\u{7f}",
                "net/url: invalid control character in URL",
            ),
            ("https://a:b:c/", "invalid port \":b:c\" after host"),
            ("tcp://a:1:c/", "invalid port \":c\" after host"),
            ("http://[::1", "missing ']' in host"),
            ("http://a[::1]", "invalid IP-literal"),
            ("http://[1.2.3.4]", "invalid IP-literal"),
            ("http://a b/", "invalid character \" \" in host name"),
            ("http://a/%zz", "invalid URL escape \"%zz\""),
            ("http://us er@a/", "net/url: invalid userinfo"),
        ] {
            let error = parse_url(text).err().map(|error| error.0);
            let expected = format!("parse {}: {message}", quote(text));
            assert_eq!(error, Some(expected), "{text}");
        }
    }

    #[test]
    fn malformed_parameters_are_left_out() {
        let url = parse_url("http://a/?a;b=1&%zz=2&=3&c=%zz&d+e=f+g").unwrap();
        let names: Vec<String> = url.parameters().into_iter().map(|(k, _)| k).collect();
        assert_eq!(names, ["", "d e"]);
        let many = format!("http://a/?{}", "a&".repeat(MAX_PARAMETERS));
        assert!(parse_url(&many).unwrap().parameters().is_empty());
    }
}
