//! Connections to peers: gRPC over TCP or TLS, one lazily connected channel per member.

use crate::node::Config;
use crate::pb::peer_client::PeerClient;
use crate::peer::Directory;
use crate::traffic::{MeteredBody, Traffic};
use crate::trust::PeerTrust;
use crate::write_coalescing::WriteCoalescer;
use futures::FutureExt;
use futures::TryFutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, RwLock};
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

/// TLS client configuration for peers. It is replaced when its files change.
pub type PeerTls = Arc<RwLock<Option<Arc<rustls::ClientConfig>>>>;

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
}

/// Connects to a peer URL in a simulation.
pub type Dial = Arc<dyn Fn(&str) -> Wire + Send + Sync>;
/// A simulated connection that carries calls.
pub type Wire =
    tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Body>, tower::BoxError>;

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
        let answer = self
            .kind
            .call(request.map(|body| Body::new(MeteredBody::new(body, sent))));
        let count = move |bytes| {
            received.received.fetch_add(bytes, Ordering::Relaxed);
        };
        answer
            .map_ok(|answer| answer.map(|body| Body::new(MeteredBody::new(body, count))))
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
    channels: Mutex<HashMap<u64, (String, PeerChannel)>>,
    attempts: Mutex<HashMap<u64, usize>>,
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
        if let Some((known, channel)) = channels.get(&id)
            && known == url
        {
            return Ok(new_peer_client(channel.clone()));
        }
        if !self.trust.admits_url(url) {
            return Err(TransportError::Insecure(url.clone()));
        }
        let kind = match &self.dial {
            Some(dial) => ChannelKind::Wire(dial(url)),
            None => ChannelKind::Channel(connect_channel(url, self.tls.clone())?),
        };
        let channel = PeerChannel {
            kind,
            traffic: self.directory.traffic(id),
        };
        channels.insert(id, (url.clone(), channel.clone()));
        Ok(new_peer_client(channel))
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
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(5))
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
