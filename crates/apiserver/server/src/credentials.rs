//! Takes the credentials out of a request's headers, so that no later stage can forward them to a
//! backend.

use crate::base64url;
use crate::context::Context;
use apiserver_request::Credentials;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// WebSocket subprotocol that carries a token, for browsers, which can't set headers.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Prefix of front-proxy headers that always count as credentials, whether the flags name them or
/// not.
const STANDARD: &str = "x-remote-";

/// Names of the headers in which a front proxy sends the user, from the flags
/// `--requestheader-*-headers`.
#[derive(Clone, Debug, Default)]
pub struct IdentityHeaders {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl IdentityHeaders {
    /// Selects headers with these names, and those that start with one of `prefixes`.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a String>, prefixes: &[String]) -> Self {
        let lower = |name: &String| name.to_ascii_lowercase();
        let mut prefixes: Vec<String> = prefixes
            .iter()
            .map(lower)
            .filter(|prefix| !prefix.is_empty())
            .collect();
        // A backend behind this server may trust these headers, even if this server does not use
        // them.
        prefixes.push(STANDARD.to_owned());
        IdentityHeaders {
            names: names.into_iter().map(lower).collect(),
            prefixes,
        }
    }

    fn contains(&self, header: &HeaderName) -> bool {
        // Backends that read headers as CGI variables take `x_remote_user` for `x-remote-user`.
        let dashed = header.as_str().replace('_', "-");
        if dashed.starts_with(STANDARD) {
            return true;
        }
        let header = header.as_str();
        self.names.iter().any(|name| name == header)
            || self.prefixes.iter().any(|p| header.starts_with(p.as_str()))
    }
}

/// Removes the credentials from a request's headers and returns them.
pub fn take_credentials(context: &mut Context, identity: &IdentityHeaders) -> Credentials {
    let certificates = context
        .peer
        .as_ref()
        .map(|peer| peer.certificates.clone())
        .unwrap_or_default();
    let protocol_token = take_protocol_token(&mut context.headers);
    // Both are removed, whichever is used: no backend may see either.
    let bearer = take_bearer(&mut context.headers).or(protocol_token);
    // Taken from every request: authentication decides whether the peer's certificate is that of a
    // front proxy.
    let remote_headers = take_all(&mut context.headers, |name| identity.contains(name));
    Credentials {
        certificates,
        bearer,
        remote_headers,
        warnings: context.warnings.clone(),
    }
}

/// Removes the headers that `is_taken` selects and returns their names and values.
pub fn take_all(
    headers: &mut HeaderMap,
    is_taken: impl Fn(&HeaderName) -> bool,
) -> Vec<(String, String)> {
    // Names may have any characters. An empty text would be no user, or another one.
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let selected = headers.iter().filter(|(name, _)| is_taken(name));
    let taken: Vec<(String, String)> = selected
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect();
    for (name, _) in &taken {
        headers.remove(name.as_str());
    }
    taken
}

fn take_bearer(headers: &mut HeaderMap) -> Option<String> {
    // Removed even if it is no bearer token: Basic credentials must not reach a backend either.
    let value = headers.remove(AUTHORIZATION)?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Removes tokens among the offered subprotocols, at any position, and returns the first one of a
/// WebSocket request.
fn take_protocol_token(headers: &mut HeaderMap) -> Option<String> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let values: Vec<String> = values
        .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        .collect();
    let offered = values
        .iter()
        .flat_map(|value| value.split(','))
        .map(str::trim);
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        offered.partition(|protocol| protocol.starts_with(BEARER_PROTOCOL));
    let encoded = tokens.first()?.strip_prefix(BEARER_PROTOCOL)?;
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    // The remaining protocols are negotiated with the backend, which must not see the token.
    if let (false, Ok(rest)) = (others.is_empty(), HeaderValue::from_str(&others.join(", "))) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    }
    let is_websocket = headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let token = base64url::decode_unpadded(encoded).and_then(|bytes| String::from_utf8(bytes).ok());
    // Other requests can set the Authorization header, so that the token is no credential there.
    token.filter(|_| is_websocket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            })
    }

    #[test]
    fn token_among_subprotocols_is_removed_wherever_it_stands() {
        const TOKEN: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
        for (protocols, rest) in [
            (
                &["v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"][..],
                Some("v4.channel.k8s.io"),
            ),
            (
                &[TOKEN, "v5.channel.k8s.io,v4.channel.k8s.io"],
                Some("v5.channel.k8s.io, v4.channel.k8s.io"),
            ),
            (
                &["a", "b,base64url.bearer.authorization.k8s.io.c2VjcmV0 ,c"],
                Some("a, b, c"),
            ),
            (&[TOKEN], None),
        ] {
            let mut headers = headers(&[("upgrade", "WebSocket")]);
            for protocol in protocols {
                headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
            }
            assert_eq!(
                take_protocol_token(&mut headers).as_deref(),
                Some("secret"),
                "{protocols:?}"
            );
            let left: Vec<&str> = headers
                .get_all(SEC_WEBSOCKET_PROTOCOL)
                .iter()
                .map(|v| v.to_str().unwrap())
                .collect();
            assert_eq!(left, rest.into_iter().collect::<Vec<_>>(), "{protocols:?}");
        }
    }

    #[test]
    fn token_among_subprotocols_counts_for_websockets_only() {
        let mut headers = headers(&[(
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.c2VjcmV0",
        )]);
        assert_eq!(take_protocol_token(&mut headers), None);
        assert!(headers.is_empty());
    }

    #[test]
    fn identity_headers_of_the_flags_are_taken() {
        let identity = IdentityHeaders::new(&["X-User".to_owned()], &["X-Extra-".to_owned()]);
        let mut headers = headers(&[
            ("x-user", "u"),
            ("x-extra-scopes", "a"),
            ("x-extra-scopes", "b"),
            ("x-remote-group", "g"),
            ("x_remote_user", "u"),
            ("x-remote_group", "g"),
            ("accept", "*/*"),
        ]);
        headers.append(
            "x-user",
            HeaderValue::from_bytes("jürgen".as_bytes()).unwrap(),
        );
        let taken = take_all(&mut headers, |name| identity.contains(name));
        assert_eq!(taken.len(), 7, "{taken:?}");
        assert!(taken.contains(&("x-user".to_owned(), "jürgen".to_owned())));
        assert!(taken.contains(&("x-extra-scopes".to_owned(), "b".to_owned())));
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn authorization_is_taken_whatever_its_scheme() {
        for (value, expect) in [
            ("Bearer t", Some("t")),
            ("bearer  t ", Some("t")),
            ("Basic dTpw", None),
        ] {
            let mut headers = headers(&[("authorization", value)]);
            assert_eq!(take_bearer(&mut headers).as_deref(), expect, "{value}");
            assert!(headers.is_empty());
        }
    }
}
