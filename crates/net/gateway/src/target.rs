//! The target of a request: host and path, refused if they are ambiguous.
//!
//! Servers in sequence that read a request differently are an attack surface: each part of the
//! target must have one meaning only.

use http::header::{HOST, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri, Version};

use crate::host::normalize_host;
use crate::refusal::Refusal;

/// Host of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Host in the form in which it is compared; empty without one.
    pub(crate) host: String,
    /// Host and port as the client sent them.
    pub(crate) authority: HeaderValue,
}

/// Returns the target of a request. `server_name` is the name of its TLS connection.
pub(crate) fn read_target<B>(
    request: &Request<B>,
    server_name: Option<&str>,
) -> Result<Target, Refusal> {
    if request.method() == Method::CONNECT {
        return Err(Refusal::MethodNotAllowed);
    }
    if !is_plain_path(request.uri().path()) {
        return Err(Refusal::BadRequest("the path is not normalized"));
    }
    let target = read_host(request)?;
    // A browser reuses a connection for other hosts of its certificate; with 421 it opens another.
    let is_misdirected = server_name
        .and_then(normalize_host)
        .is_some_and(|name| name != target.host);
    match is_misdirected {
        true => Err(Refusal::Misdirected),
        false => Ok(target),
    }
}

fn read_host<B>(request: &Request<B>) -> Result<Target, Refusal> {
    let mut headers = request.headers().get_all(HOST).iter();
    let header = headers.next();
    if headers.next().is_some() {
        return Err(Refusal::BadRequest("several Host headers"));
    }
    let in_uri = request.uri().authority().map(http::uri::Authority::as_str);
    let authority = match (in_uri, header) {
        (Some(authority), Some(header))
            if !authority.as_bytes().eq_ignore_ascii_case(header.as_bytes()) =>
        {
            return Err(Refusal::BadRequest("two different hosts"));
        }
        (Some(authority), _) => HeaderValue::try_from(authority).ok(),
        (None, Some(header)) => Some(header.clone()),
        // RFC 9112, 3.2: a host is required since HTTP/1.1.
        (None, None) if request.version() < Version::HTTP_11 => {
            return Ok(Target {
                host: String::new(),
                authority: HeaderValue::from_static(""),
            });
        }
        (None, None) => None,
    };
    let bad = Refusal::BadRequest("no valid host");
    let authority = authority.ok_or(bad)?;
    let host = authority
        .to_str()
        .ok()
        .and_then(normalize_host)
        .ok_or(bad)?;
    Ok(Target { host, authority })
}

/// Decodes the characters of a path that need no encoding (RFC 3986, 2.3): `/%61` and `/a` are the
/// same path, and must have the same route.
pub(crate) fn decode_unreserved(uri: &mut Uri) {
    let path = uri.path();
    if !path.contains('%') {
        return;
    }
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let code = after
            .get(..2)
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.map(char::from) {
            Some(plain) if plain.is_ascii_alphanumeric() || "-._~".contains(plain) => {
                decoded.push(plain);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    // Unreserved characters are valid in paths.
    if let Some(changed) = replace_path(uri, &decoded) {
        *uri = changed;
    }
}

/// Returns a URI with another path; `None` if it is not valid.
pub(crate) fn replace_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path = match uri.query() {
        None => PathAndQuery::try_from(path),
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns whether a path has no segment of dots. Backends would resolve it, after the route was
/// chosen by the unresolved path.
fn is_plain_path(path: &str) -> bool {
    let is_dots = |segment: &str| {
        // Some servers remove parameters of segments first.
        let name = segment.split_once(';').map_or(segment, |(name, _)| name);
        matches!(name, "." | "..")
    };
    let has_dots = |path: &str| path.split('/').any(is_dots);
    // A backend may end the path at an encoded zero byte.
    if !path.starts_with('/') || path.contains("%00") {
        return false;
    }
    if !path.contains(['%', '\\']) {
        return !has_dots(path);
    }
    let mut decoded = path.to_ascii_lowercase();
    for (encoded, plain) in [
        ("%3b", ";"),
        ("%2e", "."),
        ("%2f", "/"),
        ("%5c", "/"),
        ("\\", "/"),
    ] {
        decoded = decoded.replace(encoded, plain);
    }
    !has_dots(&decoded)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_with_segments_of_dots_are_refused() {
        for (path, want) in [
            ("/", true),
            ("/a/b.c/..d/e..", true),
            ("/a%20b/%2e%2ex", true),
            ("/a/../b", false),
            ("/a/./b", false),
            ("/..", false),
            ("/a/%2e%2E/b", false),
            ("/a/.%2e", false),
            ("/a%2f..%2fb", false),
            ("/a/..%5cb", false),
            ("/a\\..\\b", false),
            ("/a/..;x/b", false),
            ("/a/..%3Bx/b", false),
            ("/a/b;x..", true),
            ("*", false),
            ("/admin%00", false),
        ] {
            assert_eq!(is_plain_path(path), want, "{path}");
        }
    }

    #[test]
    fn unreserved_characters_are_decoded_and_no_others() {
        for (before, after) in [
            ("/%61dmin?q=%61", "/admin?q=%61"),
            ("/a%2Fb%20c%C3%A4%7e", "/a%2Fb%20c%C3%A4~"),
            ("/%2561", "/%2561"),
            ("/%6", "/%6"),
            ("/%+1", "/%+1"),
            ("https://a.com/%61", "https://a.com/a"),
        ] {
            let mut uri = before.parse().unwrap();
            decode_unreserved(&mut uri);
            assert_eq!(uri.to_string(), after, "{before}");
        }
    }

    type HostCase = (
        Version,
        &'static str,
        &'static [&'static str],
        Option<&'static str>,
        Result<&'static str, Refusal>,
    );

    fn host_cases() -> Vec<HostCase> {
        let bad = |why| Err(Refusal::BadRequest(why));
        vec![
            (Version::HTTP_11, "/", &["A.com:80"], None, Ok("a.com")),
            (
                Version::HTTP_11,
                "/",
                &["a.com"],
                Some("a.com"),
                Ok("a.com"),
            ),
            (
                Version::HTTP_11,
                "/",
                &["b.com"],
                Some("a.com"),
                Err(Refusal::Misdirected),
            ),
            (
                Version::HTTP_11,
                "/",
                &["a.com", "a.com"],
                None,
                bad("several Host headers"),
            ),
            (Version::HTTP_11, "/", &[], None, bad("no valid host")),
            (
                Version::HTTP_11,
                "/",
                &["a.com/x"],
                None,
                bad("no valid host"),
            ),
            (Version::HTTP_10, "/", &[], None, Ok("")),
            (
                Version::HTTP_2,
                "https://a.com/",
                &[],
                Some("a.com"),
                Ok("a.com"),
            ),
            (
                Version::HTTP_2,
                "https://a.com/",
                &["b.com"],
                None,
                bad("two different hosts"),
            ),
            (
                Version::HTTP_11,
                "http://x@a.com/",
                &[],
                None,
                bad("no valid host"),
            ),
        ]
    }

    #[test]
    fn host_has_one_meaning_only() {
        for (version, uri, hosts, name, want) in host_cases() {
            let mut request = Request::builder().version(version).uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let request = request.body(()).unwrap();
            let found = read_target(&request, name).map(|target| target.host);
            assert_eq!(found, want.map(str::to_owned), "{uri} {hosts:?} {name:?}");
        }
    }
}
