//! The WebSocket handshake: protocol selection and response (RFC 6455, section 4).

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The protocol of a client's WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Messages of numbered channels that can be closed one by one.
    Channels,
    /// The bytes of a SPDY connection for port-forwarding.
    Tunnel,
}

impl Protocol {
    /// Returns the WebSocket subprotocol.
    #[must_use]
    pub fn subprotocol(self) -> &'static str {
        match self {
            Self::Channels => "v5.channel.k8s.io",
            Self::Tunnel => "SPDY/3.1+portforward.k8s.io",
        }
    }

    /// Returns the value of `X-Stream-Protocol-Version` for the kubelet.
    #[must_use]
    pub fn kubelet_protocol(self) -> &'static str {
        match self {
            // SPDY closes single streams by itself, so that the kubelet needs no v5.
            Self::Channels => "v4.channel.k8s.io",
            Self::Tunnel => "portforward.k8s.io",
        }
    }
}

/// The encoding of one stream for a client that only reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Binary messages; no subprotocol was offered.
    Plain,
    /// Binary messages.
    Binary,
    /// Text messages in base64.
    Base64,
}

impl Reader {
    /// Returns the WebSocket subprotocol, if any.
    #[must_use]
    pub fn subprotocol(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Binary => Some("binary.k8s.io"),
            Self::Base64 => Some("base64.binary.k8s.io"),
        }
    }
}

/// Returns the encoding that a WebSocket's client requests for a stream; None if this is no
/// WebSocket, or one that offers only other subprotocols.
#[must_use]
pub fn choose_reader(headers: &HeaderMap) -> Option<Reader> {
    let offered = offered_protocols(headers)?;
    if offered.is_empty() {
        return Some(Reader::Plain);
    }
    let known = |name: &&str| {
        [Reader::Binary, Reader::Base64]
            .into_iter()
            .find(|reader| reader.subprotocol() == Some(*name))
    };
    offered.iter().find_map(known)
}

/// Returns the subprotocols that a WebSocket's client offers, in its order; None if this is no
/// WebSocket.
fn offered_protocols(headers: &HeaderMap) -> Option<Vec<&str>> {
    let upgrade = headers.get(UPGRADE)?.to_str().ok()?;
    // Header values of protocols are case-insensitive (RFC 6455, 4.2.1).
    if !upgrade.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let values = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    Some(
        values
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect(),
    )
}

/// Returns the protocol of a WebSocket request that must be translated; None for those that
/// kubelets support.
#[must_use]
pub fn choose_protocol(headers: &HeaderMap) -> Option<Protocol> {
    let offered = offered_protocols(headers)?;
    // Older versions of the protocol pass through to the kubelet unchanged.
    [Protocol::Channels, Protocol::Tunnel]
        .into_iter()
        .find(|protocol| offered.contains(&protocol.subprotocol()))
}

/// Returns status and headers of the response that accepts the WebSocket; None if the request lacks
/// its key.
#[must_use]
pub fn accept_upgrade(
    headers: &HeaderMap,
    protocol: Option<&'static str>,
) -> Option<(StatusCode, HeaderMap)> {
    let key = derive_accept_key(headers.get(SEC_WEBSOCKET_KEY)?.as_bytes());
    let mut response = HeaderMap::new();
    response.insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&key).ok()?);
    // RFC 6455: a client must fail the handshake for a subprotocol that it did not offer.
    if let Some(name) = protocol {
        response.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Some((StatusCode::SWITCHING_PROTOCOLS, response))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn request(upgrade: &'static str, protocols: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
        for protocol in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        headers
    }

    #[test]
    fn only_what_kubelets_do_not_speak_is_chosen() {
        for (upgrade, protocols, want) in [
            (
                "websocket",
                &["v5.channel.k8s.io"][..],
                Some(Protocol::Channels),
            ),
            (
                "WebSocket",
                &["v4.channel.k8s.io, v5.channel.k8s.io"],
                Some(Protocol::Channels),
            ),
            (
                "websocket",
                &[
                    "base64url.bearer.authorization.k8s.io.eA",
                    "v5.channel.k8s.io",
                ],
                Some(Protocol::Channels),
            ),
            (
                "websocket",
                &["SPDY/3.1+portforward.k8s.io"],
                Some(Protocol::Tunnel),
            ),
            ("websocket", &["v4.channel.k8s.io"], None),
            ("websocket", &[], None),
            ("SPDY/3.1", &["v5.channel.k8s.io"], None),
        ] {
            assert_eq!(
                choose_protocol(&request(upgrade, protocols)),
                want,
                "{upgrade} {protocols:?}"
            );
        }
    }

    #[test]
    fn the_accepting_answer_is_that_of_the_rfc() {
        let mut headers = request("websocket", &["v5.channel.k8s.io"]);
        assert!(
            accept_upgrade(&headers, Some(Protocol::Channels.subprotocol())).is_none(),
            "no key"
        );
        headers.insert(
            SEC_WEBSOCKET_KEY,
            HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="),
        );
        let (status, response) =
            accept_upgrade(&headers, Some(Protocol::Channels.subprotocol())).unwrap();
        assert_eq!(status, StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(
            response.get(SEC_WEBSOCKET_ACCEPT).unwrap(),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(
            response.get(SEC_WEBSOCKET_PROTOCOL).unwrap(),
            "v5.channel.k8s.io"
        );
    }
    #[test]
    fn first_known_form_of_a_reader_is_chosen() {
        for (upgrade, protocols, want) in [
            (
                "websocket",
                &["base64.binary.k8s.io, binary.k8s.io"][..],
                Some(Reader::Base64),
            ),
            ("WebSocket", &["x", "binary.k8s.io"], Some(Reader::Binary)),
            ("websocket", &[], Some(Reader::Plain)),
            ("websocket", &["v4.channel.k8s.io"], None),
            ("SPDY/3.1", &["binary.k8s.io"], None),
        ] {
            assert_eq!(
                choose_reader(&request(upgrade, protocols)),
                want,
                "{upgrade} {protocols:?}"
            );
        }
        let mut headers = request("websocket", &[]);
        headers.insert(
            SEC_WEBSOCKET_KEY,
            HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="),
        );
        let (_, response) = accept_upgrade(&headers, Reader::Plain.subprotocol()).unwrap();
        assert!(!response.contains_key(SEC_WEBSOCKET_PROTOCOL));
    }
}
