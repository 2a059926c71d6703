//! Connections to other members: gRPC over TCP or TLS, one channel a member, made when it is needed.

use crate::gather::Gathering;
use crate::node::Config;
use crate::pb::peer_client::PeerClient;
use crate::peer::Directory;
use crate::traffic::{Metered, Traffic};
use crate::trust::PeerTrust;
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

/// TLS towards other members; replaced when its files change.
pub type PeerTls = Arc<RwLock<Option<Arc<rustls::ClientConfig>>>>;

/// Bytes of an answer that is read. Who answers has shown a certificate for the address that was called.
const MAX_ANSWER: usize = 512 << 20;
/// Bytes of a message that is read from a caller, besides one command: entries (4 MiB and the last one), commands
/// (`forward::BATCH_BYTES` and the last one), or rows of a snapshot (1 MiB and the last one).
const MAX_MESSAGE: usize = 16 << 20;

/// Returns how large a caller's message may be when a command may have this many bytes.
pub(crate) fn message_limit(max_command: usize) -> usize {
    // The last entry may be a batch of commands that is full but for one.
    MAX_MESSAGE.saturating_add(max_command.saturating_mul(2))
}

const CLUSTER: &str = "kvstore-cluster";
const FROM: &str = "kvstore-from";
const TO: &str = "kvstore-to";
/// The caller is no member yet.
pub(crate) const JOINING: &str = "kvstore-joining";
/// What a refusal says when the caller was removed.
pub(crate) const REMOVED: &str = "the member has been permanently removed from the cluster";

/// Why a member can't be called.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No address.
    #[error("member {0:x} is not known")]
    Unknown(u64),
    /// A URL that is none.
    #[error("{0} is not a peer URL")]
    Url(String),
    /// Nothing would prove that a member is there.
    #[error("{0} is not called: this member calls others with TLS only")]
    Insecure(String),
}

/// How a member at a URL is reached in a simulation: calls go in, answers come out.
pub type Dial = Arc<dyn Fn(&str) -> Wire + Send + Sync>;
/// A way for calls.
pub type Wire = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Body>, tower::BoxError>;

/// What calls to a member go through.
#[derive(Clone)]
pub(crate) struct Line {
    way: Way,
    traffic: Option<Arc<Traffic>>,
}

#[derive(Clone)]
enum Way {
    Channel(Channel),
    Wire(Wire),
}

impl tower::Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match &mut self.way {
            Way::Channel(channel) => channel.poll_ready(cx).map_err(Into::into),
            Way::Wire(wire) => wire.poll_ready(cx),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Some(traffic) = self.traffic.clone() else { return self.way.call(request) };
        let received = traffic.clone();
        let sent = move |bytes| {
            traffic.sent.fetch_add(bytes, Ordering::Relaxed);
        };
        let answer = self.way.call(request.map(|body| Body::new(Metered::new(body, sent))));
        let count = move |bytes| {
            received.received.fetch_add(bytes, Ordering::Relaxed);
        };
        answer.map_ok(|answer| answer.map(|body| Body::new(Metered::new(body, count)))).boxed()
    }
}

impl Way {
    fn call(&mut self, request: http::Request<Body>) -> <Line as tower::Service<http::Request<Body>>>::Future {
        match self {
            Way::Channel(channel) => channel.call(request).map_err(Into::into).boxed(),
            Way::Wire(wire) => wire.call(request),
        }
    }
}

/// Makes and keeps channels.
pub(crate) struct Transport {
    pub cluster: u64,
    pub member: u64,
    pub directory: Arc<Directory>,
    pub tls: PeerTls,
    trust: PeerTrust,
    dial: Option<Dial>,
    channels: Mutex<HashMap<u64, (String, Line)>>,
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

    /// A client of a member, and the metadata to send along.
    pub fn client(&self, id: u64) -> Result<PeerClient<Line>, TransportError> {
        let urls = self.directory.address(id).unwrap_or_default();
        let attempt = self.attempts.lock().get(&id).copied().unwrap_or_default();
        let url = urls.get(attempt % urls.len().max(1)).ok_or(TransportError::Unknown(id))?;
        let mut channels = self.channels.lock();
        if let Some((known, channel)) = channels.get(&id)
            && known == url
        {
            return Ok(wrap(channel.clone()));
        }
        if !self.trust.admits_url(url) {
            return Err(TransportError::Insecure(url.clone()));
        }
        let way = match &self.dial {
            Some(dial) => Way::Wire(dial(url)),
            None => Way::Channel(connect(url, self.tls.clone())?),
        };
        let channel = Line { way, traffic: self.directory.traffic(id) };
        channels.insert(id, (url.clone(), channel.clone()));
        Ok(wrap(channel))
    }

    /// A client of somebody at a URL who is not known yet.
    pub fn client_at(url: &str, tls: PeerTls) -> Result<PeerClient<Line>, TransportError> {
        connect(url, tls).map(|channel| wrap(Line { way: Way::Channel(channel), traffic: None }))
    }

    /// A call failed: the next one tries another of the member's URLs.
    pub fn failed(&self, id: u64) {
        self.directory.failed(id);
        *self.attempts.lock().entry(id).or_default() += 1;
    }

    pub fn request<T>(&self, to: u64, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        sign(request.metadata_mut(), self.cluster, self.member, to);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }
}

fn wrap(channel: Line) -> PeerClient<Line> {
    PeerClient::new(channel).max_decoding_message_size(MAX_ANSWER)
}

/// Names cluster, sender and receiver.
pub(crate) fn sign(metadata: &mut MetadataMap, cluster: u64, from: u64, to: u64) {
    for (key, value) in [(CLUSTER, cluster), (FROM, from), (TO, to)] {
        // Hexadecimal digits are valid metadata.
        if let Ok(value) = MetadataValue::try_from(format!("{value:x}")) {
            metadata.insert(key, value);
        }
    }
}

/// Who a call says it is from; nothing is checked.
pub fn sender(headers: &http::HeaderMap) -> Option<u64> {
    u64::from_str_radix(headers.get(FROM)?.to_str().ok()?, 16).ok()
}

/// Who calls, if it is for this member of this cluster.
pub(crate) fn check(metadata: &MetadataMap, cluster: u64, member: u64) -> Result<u64, Status> {
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
        return Err(Status::failed_precondition(format!("member ID mismatch: this is {member:x}, not {to:x}")));
    }
    number(FROM)
}

fn connect(url: &str, tls: PeerTls) -> Result<Channel, TransportError> {
    let bad = || TransportError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let secure = uri.scheme_str() == Some("https");
    let authority = uri.authority().ok_or_else(bad)?.clone();
    // TLS is done by the connector, so that it can change; tonic itself sees plain text.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .map_err(|_| bad())?
        .connect_timeout(Duration::from_secs(2))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(5))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20);
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(2380));
    let connector = tower::service_fn(move |_: Uri| {
        let (host, address, tls) = (host.clone(), address.clone(), tls.clone());
        async move { open(&host, &address, secure, &tls).await.map(TokioIo::new) }
    });
    Ok(endpoint.connect_with_connector_lazy(connector))
}

async fn open(host: &str, address: &str, secure: bool, tls: &PeerTls) -> io::Result<Box<dyn Io>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if !secure {
        return Ok(Box::new(Gathering::new(stream)));
    }
    let config = tls.read().clone().ok_or_else(|| io::Error::other("no peer certificates are configured"))?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
    Ok(Box::new(Gathering::new(stream)))
}
