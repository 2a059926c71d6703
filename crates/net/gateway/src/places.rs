//! Limits of concurrent requests and WebSockets, shared fairly by clients and by the namespaces of
//! backends.
//!
//! Without shares, one party could stop the gateway for all: a client that does not read its
//! responses, or a tenant's backend that does not respond.

use std::net::IpAddr;
use std::sync::Arc;

use base_serve::{FairPlaces, Place, identify_client};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};

/// Maximum number of open WebSockets.
const MAX_WEBSOCKETS: usize = 5_000;

/// Places of requests and WebSockets.
#[derive(Debug)]
pub(crate) struct Places {
    clients: FairPlaces<IpAddr>,
    namespaces: FairPlaces<String>,
    websocket_clients: FairPlaces<IpAddr>,
    websocket_namespaces: FairPlaces<String>,
}

/// A place that a request or a WebSocket uses. Dropping it releases the place.
#[derive(Debug)]
pub(crate) struct RequestPlace {
    _client: Place<IpAddr>,
    _namespace: Place<String>,
}

/// Bytes of a response that occupy the place of their request while they exist.
///
/// A body ends when HTTP/2 has queued its last frame. If the place were released then, a client
/// that does not read could fill the memory with more and more requests.
struct PlacedBytes {
    bytes: Bytes,
    _place: Arc<RequestPlace>,
}

impl AsRef<[u8]> for PlacedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes a part of a body occupy the place until it is sent.
fn place_bytes(bytes: Bytes, place: &Arc<RequestPlace>) -> Bytes {
    let _place = place.clone();
    Bytes::from_owner(PlacedBytes { bytes, _place })
}

/// Makes the head of a response without a body occupy the place until it is sent.
pub(crate) fn place_head(headers: &mut HeaderMap, place: &Arc<RequestPlace>) {
    let Some(value) = headers.values_mut().next() else {
        return;
    };
    let bytes = Bytes::copy_from_slice(value.as_bytes());
    if let Ok(mut placed) = HeaderValue::from_maybe_shared(place_bytes(bytes, place)) {
        // HTTP/2 keeps other values in the table of its compression, and the place with them.
        placed.set_sensitive(true);
        *value = placed;
    }
}

impl Places {
    /// Creates free places, `requests` of them for requests.
    pub(crate) fn new(requests: usize) -> Self {
        Self {
            clients: FairPlaces::new(requests),
            namespaces: FairPlaces::new(requests),
            websocket_clients: FairPlaces::new(MAX_WEBSOCKETS),
            websocket_namespaces: FairPlaces::new(MAX_WEBSOCKETS),
        }
    }

    /// Takes the place of a request to a backend of a namespace.
    pub(crate) fn take_request(&self, client: IpAddr, namespace: &str) -> Option<RequestPlace> {
        take(&self.clients, &self.namespaces, client, namespace)
    }

    /// Takes the place of a WebSocket.
    pub(crate) fn take_websocket(&self, client: IpAddr, namespace: &str) -> Option<RequestPlace> {
        let namespaces = &self.websocket_namespaces;
        take(&self.websocket_clients, namespaces, client, namespace)
    }
}

fn take(
    clients: &FairPlaces<IpAddr>,
    namespaces: &FairPlaces<String>,
    client: IpAddr,
    namespace: &str,
) -> Option<RequestPlace> {
    Some(RequestPlace {
        _client: clients.take(identify_client(client))?,
        _namespace: namespaces.take(namespace.to_owned())?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_client_or_namespace_leaves_places_for_others() {
        let places = Places::new(100);
        let (one, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let fill = |client, namespace: &str| -> Vec<RequestPlace> {
            std::iter::from_fn(|| places.take_request(client, namespace)).collect()
        };
        let of_one = fill(one, "a");
        assert_eq!(of_one.len(), 50);
        assert!(places.take_request(one, "b").is_none());
        assert!(places.take_request(other, "a").is_none());
        assert!(places.take_request(other, "b").is_some());
        assert!(places.take_websocket(one, "a").is_some());
    }

    #[test]
    fn bytes_and_heads_occupy_a_place_until_they_are_dropped() {
        let places = Places::new(2);
        let client = "10.0.0.1".parse().unwrap();
        let take = || places.take_request(client, "a");
        let place = Arc::new(take().unwrap());
        let placed = place_bytes(Bytes::from_static(b"abc"), &place);
        drop(place);
        assert_eq!(placed, "abc");
        let end = placed.slice(2..);
        drop(placed);
        assert!(take().is_none());
        drop(end);
        let place = Arc::new(take().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("1"));
        place_head(&mut headers, &place);
        drop(place);
        assert!(headers["x-a"] == "1" && headers["x-a"].is_sensitive());
        assert!(take().is_none());
        drop(headers);
        assert!(take().is_some());
    }
}
