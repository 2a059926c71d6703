//! Connections to peers: gRPC over TCP or TLS, one lazily connected channel per member.

use crate::config::{Config, Dial, PeerTls, Wire};
use crate::pb;
use crate::pb::peer_client::PeerClient;
use crate::peer::Directory;
use crate::traffic::{MeteredBody, Traffic};
use crate::trust::PeerTrust;
use base_serve::WriteCoalescer;
use bytes::Bytes;
use futures::FutureExt;
use futures::TryFutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::Service;

/// Maximum size in bytes of a response. It may be large, because the peer has shown a certificate
/// for the called address.
const MAX_ANSWER: usize = 512 << 20;
/// Maximum size in bytes of a request, besides one command. It holds entries (4 MiB and the last
/// one), commands (`forward::BATCH_BYTES` and the last one), or rows of a snapshot (1 MiB and the
/// last one).
const MAX_MESSAGE: usize = 16 << 20;

/// Returns the maximum size of a request if a command has at most `max_command` bytes.
pub(crate) fn message_limit(max_command: usize) -> usize {
    // Twice, because the last entry may be a batch just below its limit plus one command.
    MAX_MESSAGE.saturating_add(max_command.saturating_mul(2))
}

/// Timeout of a new connection with the request that checks it.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(3);
/// Kind of a peer RPC that no member handles; the response says so.
const UNHANDLED_KIND: u32 = u32::MAX;

const CLUSTER: &str = "kvstore-cluster";
const FROM: &str = "kvstore-from";
const TO: &str = "kvstore-to";
/// Metadata key: the caller is not a member yet.
pub(crate) const JOINING: &str = "kvstore-joining";
/// Status message for a caller that was removed.
pub(crate) const REMOVED: &str = "the member has been permanently removed from the cluster";

/// Reasons why a member can't be called.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The member has no address.
    #[error("member {0:x} is not known")]
    Unknown(u64),
    /// The URL is malformed.
    #[error("{0} is not a peer URL")]
    Url(String),
    /// The URL is plain text, so the peer can't prove its membership.
    #[error("{0} is not called: this member calls others with TLS only")]
    Insecure(String),
    /// The member does not respond on a new connection.
    #[error("{0}")]
    Check(String),
}

/// Outcome of the replacement of a channel.
pub type ReplaceOutcome = Result<(), TransportError>;

/// Connection of the gRPC client to one member.
#[derive(Clone)]
pub(crate) struct PeerChannel {
    kind: ChannelKind,
    traffic: Option<Arc<Traffic>>,
}

#[derive(Clone)]
enum ChannelKind {
    Channel(Channel),
    Wire(Wire),
}

impl tower::Service<http::Request<Body>> for PeerChannel {
    type Response = http::Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match &mut self.kind {
            ChannelKind::Channel(channel) => channel.poll_ready(cx).map_err(Into::into),
            ChannelKind::Wire(wire) => wire.poll_ready(cx),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Some(traffic) = self.traffic.clone() else {
            return self.kind.call(request);
        };
        let received = traffic.clone();
        let sent = move |bytes| {
            traffic.sent.fetch_add(bytes, Ordering::Relaxed);
        };
        let response = self
            .kind
            .call(request.map(|body| Body::new(MeteredBody::new(body, sent))));
        let count = move |bytes| {
            received.received.fetch_add(bytes, Ordering::Relaxed);
        };
        response
            .map_ok(|response| response.map(|body| Body::new(MeteredBody::new(body, count))))
            .boxed()
    }
}

impl ChannelKind {
    fn call(
        &mut self,
        request: http::Request<Body>,
    ) -> <PeerChannel as tower::Service<http::Request<Body>>>::Future {
        match self {
            ChannelKind::Channel(channel) => channel.call(request).map_err(Into::into).boxed(),
            ChannelKind::Wire(wire) => wire.call(request),
        }
    }
}

/// Creates and caches channels to peers.
pub(crate) struct Transport {
    pub cluster: u64,
    pub member: u64,
    pub directory: Arc<Directory>,
    pub tls: PeerTls,
    trust: PeerTrust,
    dial: Option<Dial>,
    channels: Mutex<HashMap<u64, CachedChannel>>,
    attempts: Mutex<HashMap<u64, usize>>,
}

/// A channel to a member.
struct CachedChannel {
    url: String,
    /// TLS configuration before the channel was created; new connections may have newer ones.
    tls: Option<Arc<ClientConfig>>,
    channel: PeerChannel,
}

impl CachedChannel {
    fn is_outdated(&self, current: Option<&Arc<ClientConfig>>) -> bool {
        let is_same = match (&self.tls, current) {
            (Some(used), Some(current)) => Arc::ptr_eq(used, current),
            (None, None) => true,
            _ => false,
        };
        !is_same && self.url.starts_with("https://")
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Transport {
    pub fn new(config: &Config, directory: Arc<Directory>) -> Self {
        let (channels, attempts) = Default::default();
        let (tls, dial) = (config.tls.clone(), config.dial.clone());
        Transport {
            cluster: config.cluster,
            member: config.member,
            directory,
            tls,
            trust: config.trust,
            dial,
            channels,
            attempts,
        }
    }

    /// Returns a client for a member.
    pub fn peer_client(&self, id: u64) -> Result<PeerClient<PeerChannel>, TransportError> {
        let urls = self.directory.peer_urls(id).unwrap_or_default();
        let attempt = self.attempts.lock().get(&id).copied().unwrap_or_default();
        let url = urls
            .get(attempt % urls.len().max(1))
            .ok_or(TransportError::Unknown(id))?;
        let mut channels = self.channels.lock();
        if let Some(known) = channels.get(&id)
            // A member may move. A channel to its former URL would try that one for ever.
            && known.url == *url
        {
            return Ok(new_peer_client(known.channel.clone()));
        }
        if !self.trust.admits_url(url) {
            return Err(TransportError::Insecure(url.clone()));
        }
        let made = self.create_channel(id, url)?;
        let channel = made.channel.clone();
        channels.insert(id, made);
        Ok(new_peer_client(channel))
    }

    fn create_channel(&self, id: u64, url: &str) -> Result<CachedChannel, TransportError> {
        let tls = self.tls.read().clone();
        let kind = match &self.dial {
            Some(dial) => ChannelKind::Wire(dial(url)),
            None => ChannelKind::Channel(connect_channel(url, self.tls.clone())?),
        };
        Ok(CachedChannel {
            url: url.to_owned(),
            tls,
            channel: PeerChannel {
                kind,
                traffic: self.directory.traffic(id),
            },
        })
    }

    /// Replaces the channels that are older than the TLS configuration. A channel is replaced when
    /// its member has responded on the new one; calls that run end on the former one.
    pub async fn replace_outdated_channels(&self) -> Vec<(u64, ReplaceOutcome)> {
        let outdated = self.list_outdated_channels();
        let replace = outdated.into_iter().map(|(id, url)| async move {
            let made = self.connect_checked(id, &url).await;
            let outcome = made.map(|made| {
                let mut channels = self.channels.lock();
                // The member may have moved meanwhile.
                if let Some(known) = channels.get_mut(&id)
                    && known.url == made.url
                {
                    *known = made;
                }
            });
            (id, outcome)
        });
        futures::future::join_all(replace).await
    }

    fn list_outdated_channels(&self) -> Vec<(u64, String)> {
        let current = self.tls.read().clone();
        let mut channels = self.channels.lock();
        channels.retain(|id, _| self.directory.is_known(*id));
        let outdated = channels
            .iter()
            .filter(|(_, known)| known.is_outdated(current.as_ref()));
        outdated
            .map(|(id, known)| (*id, known.url.clone()))
            .collect()
    }

    /// Creates a channel on which the member responds. With TLS 1.3 a handshake ends before the
    /// member has verified the certificate of the caller.
    async fn connect_checked(&self, id: u64, url: &str) -> Result<CachedChannel, TransportError> {
        let made = self.create_channel(id, url)?;
        let message = pb::ServiceRequest {
            kind: UNHANDLED_KIND,
            body: Bytes::new(),
        };
        let request = self.build_request(id, message, Some(REPLACE_TIMEOUT));
        let mut client = new_peer_client(made.channel.clone());
        let response = tokio::time::timeout(REPLACE_TIMEOUT, client.call_service(request)).await;
        match response {
            Ok(Ok(_)) => Ok(made),
            Ok(Err(status)) => Err(TransportError::Check(status.message().to_owned())),
            Err(_) => Err(TransportError::Check("no response in time".to_owned())),
        }
    }

    /// Returns a client for a URL whose member is not known yet.
    pub fn peer_client_at(
        url: &str,
        tls: PeerTls,
    ) -> Result<PeerClient<PeerChannel>, TransportError> {
        connect_channel(url, tls).map(|channel| {
            new_peer_client(PeerChannel {
                kind: ChannelKind::Channel(channel),
                traffic: None,
            })
        })
    }

    /// Records a failed call. The next call uses another of the member's URLs.
    pub fn record_failure(&self, id: u64) {
        self.directory.record_failure(id);
        *self.attempts.lock().entry(id).or_default() += 1;
    }

    pub fn build_request<T>(&self, to: u64, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        sign_metadata(request.metadata_mut(), self.cluster, self.member, to);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }
}

fn new_peer_client(channel: PeerChannel) -> PeerClient<PeerChannel> {
    PeerClient::new(channel).max_decoding_message_size(MAX_ANSWER)
}

/// Adds cluster, sender and receiver to the metadata of a request.
pub(crate) fn sign_metadata(metadata: &mut MetadataMap, cluster: u64, from: u64, to: u64) {
    for (key, value) in [(CLUSTER, cluster), (FROM, from), (TO, to)] {
        // Hexadecimal digits are always valid metadata.
        if let Ok(value) = MetadataValue::try_from(format!("{value:x}")) {
            metadata.insert(key, value);
        }
    }
}

/// Returns the sender that a request claims. The claim is not verified.
pub fn claimed_sender(headers: &http::HeaderMap) -> Option<u64> {
    u64::from_str_radix(headers.get(FROM)?.to_str().ok()?, 16).ok()
}

/// Returns the sender if the request is for this member of this cluster.
pub(crate) fn check_metadata(
    metadata: &MetadataMap,
    cluster: u64,
    member: u64,
) -> Result<u64, Status> {
    let number = |key| {
        let text = metadata.get(key).and_then(|value| value.to_str().ok());
        text.and_then(|text| u64::from_str_radix(text, 16).ok())
            .ok_or_else(|| Status::invalid_argument("not a call from a member"))
    };
    if number(CLUSTER)? != cluster {
        return Err(Status::failed_precondition("cluster ID mismatch"));
    }
    let to = number(TO)?;
    // 0 is a caller that does not know whom it calls, such as a member that joins.
    if to != 0 && to != member {
        return Err(Status::failed_precondition(format!(
            "member ID mismatch: this is {member:x}, not {to:x}"
        )));
    }
    number(FROM)
}

fn connect_channel(url: &str, tls: PeerTls) -> Result<Channel, TransportError> {
    let bad = || TransportError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let secure = uri.scheme_str() == Some("https");
    let authority = uri.authority().ok_or_else(bad)?.clone();
    // The connector does TLS, so that its configuration can change at run time. tonic sees plain
    // text.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .map_err(|_| bad())?
        .connect_timeout(Duration::from_secs(2))
        .tcp_nodelay(true)
        // A host that lost its power closes no connection. Without pings, calls would wait for
        // their full timeouts.
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(5))
        // HTTP/2's default of 64 KiB would cost one round trip per 64 KiB of entries.
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20);
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let address = format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(2380)
    );
    let connector = tower::service_fn(move |_: Uri| {
        let (host, address, tls) = (host.clone(), address.clone(), tls.clone());
        async move {
            open_stream(&host, &address, secure, &tls)
                .await
                .map(TokioIo::new)
        }
    });
    Ok(endpoint.connect_with_connector_lazy(connector))
}

async fn open_stream(
    host: &str,
    address: &str,
    secure: bool,
    tls: &PeerTls,
) -> io::Result<Box<dyn Io>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if !secure {
        return Ok(Box::new(WriteCoalescer::new(stream)));
    }
    let config = tls
        .read()
        .clone()
        .ok_or_else(|| io::Error::other("no peer certificates are configured"))?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, stream)
        .await?;
    Ok(Box::new(WriteCoalescer::new(stream)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns a transport that records the URLs it calls.
    fn transport(trust: PeerTrust) -> (Transport, Arc<Mutex<Vec<String>>>) {
        let called = Arc::new(Mutex::new(Vec::new()));
        let calls = called.clone();
        let dial: Dial = Arc::new(move |url| {
            calls.lock().push(url.to_owned());
            Wire::new(tower::service_fn(|_: http::Request<Body>| async {
                Err::<http::Response<Body>, tower::BoxError>("not connected".into())
            }))
        });
        let config = Config {
            cluster: 5,
            member: 1,
            heartbeat: Duration::from_millis(100),
            election_timeout: Duration::from_secs(1),
            snapshot_entries: 100,
            kept_entries: 100,
            spool: std::path::PathBuf::new(),
            tls: Arc::default(),
            trust,
            max_command: 1 << 20,
            dial: Some(dial),
            sync_micros: Arc::default(),
            clock: crate::Clock::new(|| Duration::ZERO),
        };
        (Transport::new(&config, Directory::new()), called)
    }

    #[test]
    fn metadata_is_checked_for_cluster_and_receiver() {
        for (cluster, to, expect) in [
            (5, 1, Ok(3)),
            (5, 0, Ok(3)),
            (6, 1, Err("cluster ID mismatch")),
            (5, 2, Err("member ID mismatch: this is 1, not 2")),
        ] {
            let mut metadata = MetadataMap::new();
            sign_metadata(&mut metadata, cluster, 3, to);
            let found = check_metadata(&metadata, 5, 1);
            let found = found.as_ref().copied().map_err(Status::message);
            assert_eq!(found, expect, "cluster {cluster}, to {to}");
        }
    }

    #[test]
    fn call_without_metadata_is_not_from_a_member() {
        let mut metadata = MetadataMap::new();
        for (key, value) in [(CLUSTER, "5"), (FROM, "not hexadecimal"), (TO, "1")] {
            let status = check_metadata(&metadata, 5, 1).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "before {key}");
            metadata.insert(key, value.parse().unwrap());
        }
        assert!(check_metadata(&metadata, 5, 1).is_err());
        assert_eq!(claimed_sender(&metadata.into_headers()), None);
    }

    #[test]
    fn claimed_sender_is_that_of_the_metadata() {
        let mut metadata = MetadataMap::new();
        sign_metadata(&mut metadata, 5, 0xabc, 1);
        assert_eq!(claimed_sender(&metadata.into_headers()), Some(0xabc));
    }

    #[test]
    fn message_limit_leaves_room_for_two_commands() {
        for (max_command, expect) in [(0, 16 << 20), (1 << 20, 18 << 20), (usize::MAX, usize::MAX)]
        {
            assert_eq!(message_limit(max_command), expect, "{max_command}");
        }
    }

    #[test]
    fn unknown_member_is_not_called() {
        let (transport, _) = transport(PeerTrust::Unverified);
        let error = transport.peer_client(0xab).err().unwrap();
        assert_eq!(error.to_string(), "member ab is not known");
    }

    #[test]
    fn plain_text_url_is_not_called_if_members_must_prove_themselves() {
        for (trust, url, called) in [
            (PeerTrust::Certificate, "http://m2:2380", false),
            (PeerTrust::Certificate, "https://m2:2380", true),
            (PeerTrust::Unverified, "http://m2:2380", true),
        ] {
            let (transport, calls) = transport(trust);
            transport
                .directory
                .replace_addresses([(2, vec![url.to_owned()])].into());
            assert_eq!(transport.peer_client(2).is_ok(), called, "{trust:?} {url}");
            assert_eq!(calls.lock().len(), usize::from(called), "{trust:?} {url}");
        }
    }

    #[test]
    fn failed_call_moves_on_to_the_next_url_of_the_member() {
        let (transport, called) = transport(PeerTrust::Unverified);
        let urls = ["http://a:1", "http://b:1"].map(str::to_owned).to_vec();
        transport.directory.replace_addresses([(2, urls)].into());
        for _ in 0..2 {
            transport.peer_client(2).unwrap();
        }
        transport.record_failure(2);
        transport.peer_client(2).unwrap();
        transport.record_failure(2);
        transport.peer_client(2).unwrap();
        assert_eq!(*called.lock(), ["http://a:1", "http://b:1", "http://a:1"]);
    }

    /// Returns a TLS configuration that nothing is connected with.
    fn tls_config() -> Option<Arc<ClientConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let roots = builder.with_root_certificates(rustls::RootCertStore::empty());
        Some(Arc::new(roots.with_no_client_auth()))
    }

    #[tokio::test]
    async fn channel_stays_if_the_member_does_not_respond_on_a_new_one() {
        let (transport, called) = transport(PeerTrust::Certificate);
        *transport.tls.write() = tls_config();
        let urls = vec!["https://m2:2380".to_owned()];
        transport.directory.replace_addresses([(2, urls)].into());
        transport.peer_client(2).unwrap();
        assert!(transport.replace_outdated_channels().await.is_empty());
        *transport.tls.write() = tls_config();
        // No connection of this transport carries anything.
        for attempts in [1, 2] {
            let outcomes = transport.replace_outdated_channels().await;
            assert!(matches!(&outcomes[..], [(2, Err(_))]), "{outcomes:?}");
            assert_eq!(called.lock().len(), 1 + attempts);
        }
        transport.peer_client(2).unwrap();
        assert_eq!(called.lock().len(), 3, "the former channel is in use");
    }

    #[tokio::test]
    async fn channel_of_a_removed_member_is_not_replaced() {
        let (transport, called) = transport(PeerTrust::Certificate);
        let urls = vec!["https://m2:2380".to_owned()];
        transport.directory.replace_addresses([(2, urls)].into());
        transport.peer_client(2).unwrap();
        transport.directory.replace_addresses(HashMap::new());
        *transport.tls.write() = tls_config();
        assert!(transport.replace_outdated_channels().await.is_empty());
        assert_eq!(called.lock().len(), 1);
    }
}
