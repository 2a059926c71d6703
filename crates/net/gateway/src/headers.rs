//! Headers of forwarded messages.
//!
//! Headers of one connection are removed in both directions (RFC 9110, 7.6.1). Headers that name
//! the client are removed from requests, in every spelling, and written by the gateway.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers by which backends recognise the client and its request, besides `X-Forwarded-*`. The
/// gateway is the first proxy that a backend can trust.
const FORWARDING: [&str; 10] = [
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
];
const FORWARDED: &str = "x-forwarded-";

/// Header with the proxies that a request has passed (RFC 8586). `Via` would make common servers
/// send their responses without compression.
const LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// Name of this process in forwarded requests, which detects loops. A backend may be the gateway
/// itself, at an address that does not show it.
#[derive(Debug)]
pub(crate) struct HopMarker(HeaderValue);

impl HopMarker {
    /// Returns a marker that clients don't know.
    pub(crate) fn random() -> Self {
        let name = format!("ironclad-gateway-{:032x}", rand::random::<u128>());
        // Letters and digits are valid in headers.
        Self(HeaderValue::try_from(name).unwrap_or_else(|_| HeaderValue::from_static("gateway")))
    }

    /// Returns whether a request has the marker.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut names = list_tokens(headers, &LOOP);
        names.any(|name| name.as_bytes() == self.0.as_bytes())
    }

    /// Adds the marker.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        headers.append(LOOP, self.0.clone());
    }
}

/// Returns whether a header names the client. Servers that pass headers as variables of the
/// environment take `_` for `-`.
pub(crate) fn is_forwarding(name: &HeaderName) -> bool {
    let name = name.as_str().replace('_', "-");
    name.starts_with(FORWARDED) || FORWARDING.contains(&name.as_str())
}

/// The client's side of a request.
#[derive(Clone, Debug)]
pub(crate) struct ClientSide<'a> {
    pub(crate) address: IpAddr,
    pub(crate) scheme: &'static str,
    pub(crate) port: u16,
    pub(crate) authority: &'a HeaderValue,
}

/// Returns whether the headers are those of a WebSocket handshake. Other upgrades are not
/// forwarded: behind one to HTTP/2, the gateway would not see the requests.
pub(crate) fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let mut options = list_tokens(headers, &header::CONNECTION);
    let upgrade = headers.get(header::UPGRADE);
    options.any(|option| option.eq_ignore_ascii_case("upgrade"))
        && upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn list_tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Removes the headers of one connection. Trailers are forwarded, so that `TE: trailers` remains.
pub(crate) fn remove_connection_headers(headers: &mut HeaderMap) {
    let wants_trailers =
        list_tokens(headers, &header::TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let named: Vec<HeaderName> = list_tokens(headers, &header::CONNECTION)
        .filter_map(|token| HeaderName::try_from(token).ok())
        // A client must not remove headers of the gateway or of the message itself in this way.
        .filter(|name| !is_end_to_end(name))
        .collect();
    let fixed = [
        header::CONNECTION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("http2-settings"),
    ];
    for name in named.iter().chain(&fixed) {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

fn is_end_to_end(name: &HeaderName) -> bool {
    [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::AUTHORIZATION,
        header::COOKIE,
    ]
    .contains(name)
}

/// Replaces the headers that name the client, and joins the parts into which HTTP/2 splits cookies.
pub(crate) fn write_client_headers(headers: &mut HeaderMap, client: &ClientSide<'_>) {
    let untrusted: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_forwarding(name))
        .cloned()
        .collect();
    for name in untrusted {
        headers.remove(name);
    }
    let address = client.address.to_canonical().to_string();
    let values = [
        ("x-forwarded-for", HeaderValue::try_from(address)),
        (
            "x-forwarded-port",
            HeaderValue::try_from(client.port.to_string()),
        ),
        (
            "x-forwarded-proto",
            Ok(HeaderValue::from_static(client.scheme)),
        ),
        ("x-forwarded-host", Ok(client.authority.clone())),
    ];
    for (name, value) in values {
        // Addresses and numbers are valid in headers.
        if let Ok(value) = value {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    // The connection with the client has its own response to it.
    headers.remove(header::EXPECT);
    // Without it no trailers are sent, which could name the client again.
    headers.remove(header::TRAILER);
    join_cookies(headers);
}

fn join_cookies(headers: &mut HeaderMap) {
    let parts: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if parts.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn headers_of_the_connection_are_removed_and_no_others() {
        let mut headers = map(&[
            ("connection", "close, x-hop, authorization, x-forwarded-for"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("proxy-authorization", "Basic x"),
            ("x-hop", "1"),
            ("authorization", "Bearer x"),
            ("x-other", "1"),
        ]);
        remove_connection_headers(&mut headers);
        assert_eq!(names(&headers), ["authorization", "te", "x-other"]);
        assert_eq!(headers["te"], "trailers");
    }

    #[test]
    fn request_that_comes_back_is_recognised() {
        let (own, other) = (HopMarker::random(), HopMarker::random());
        let mut headers = map(&[("cdn-loop", "other; v=1")]);
        assert!(!own.is_in(&headers));
        own.add_to(&mut headers);
        assert!(own.is_in(&headers) && !other.is_in(&headers));
        let listed = format!("other, {}", own.0.to_str().unwrap());
        let listed = HeaderMap::from_iter([(LOOP, HeaderValue::try_from(listed).unwrap())]);
        assert!(own.is_in(&listed));
    }

    #[test]
    fn client_does_not_choose_what_the_backend_reads_of_it() {
        let mut headers = map(&[
            ("x-forwarded-for", "1.2.3.4"),
            ("x_forwarded_for", "1.2.3.4"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
            ("x-forwarded-client-cert", "x"),
            ("x_forwarded_user", "admin"),
            ("x-original-url", "/admin"),
            ("true-client-ip", "1.2.3.4"),
            ("trailer", "x-forwarded-for"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("expect", "100-continue"),
        ]);
        let authority = HeaderValue::from_static("a.com:8080");
        let client = ClientSide {
            address: "::ffff:10.0.0.9".parse().unwrap(),
            scheme: "http",
            port: 8080,
            authority: &authority,
        };
        write_client_headers(&mut headers, &client);
        let want = [
            "cookie",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-proto",
        ];
        assert_eq!(names(&headers), want);
        assert_eq!(headers["x-forwarded-for"], "10.0.0.9");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["cookie"], "a=1; b=2");
    }

    #[test]
    fn only_upgrades_to_websocket_are_recognised() {
        for (connection, upgrade, want) in [
            ("Upgrade", "websocket", true),
            ("keep-alive, Upgrade", "WebSocket", true),
            ("keep-alive", "websocket", false),
            ("Upgrade, HTTP2-Settings", "h2c", false),
            ("Upgrade", "websocket, h2c", false),
        ] {
            let headers = map(&[("connection", connection), ("upgrade", upgrade)]);
            assert_eq!(
                is_websocket_upgrade(&headers),
                want,
                "{connection} {upgrade}"
            );
        }
    }
}
