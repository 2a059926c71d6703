//! Exchanges with upstream resolvers, one after another, each with a short timeout.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use nix::net::if_::if_nametoindex;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

use crate::metrics::ResolverMetrics;
use crate::question::{Extension, Question};

const DNS_PORT: u16 = 53;
/// Timeout of one resolver over UDP. Two of them fit well into a client's usual five seconds.
const SERVER_TIMEOUT: Duration = Duration::from_millis(1500);
/// Timeout of a connection to a resolver whose response over UDP was truncated.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
const ROUNDS: usize = 2;
/// Number of requests without a response, one after another, after which a resolver is down. One
/// silent name or one lost packet must not change the resolver of all clients.
const MAX_FAILURES: u32 = 3;
/// Time for which a resolver that is down is asked after the others.
const DOWN_TIME: Duration = Duration::from_secs(10);
/// Larger than the payload that requests announce.
const UDP_BUFFER: usize = 4096;

/// Resolvers that know the same names, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Upstreams {
    servers: Vec<Resolver>,
}

#[derive(Debug)]
struct Resolver {
    address: SocketAddr,
    metrics: Arc<ResolverMetrics>,
    failures: Mutex<Failures>,
}

/// Requests without a response since the last response.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: Option<Instant>,
}

impl Resolver {
    fn is_down(&self, now: Instant) -> bool {
        let failures = self.failures.lock();
        let is_recent = |last: Instant| now.saturating_duration_since(last) < DOWN_TIME;
        failures.count >= MAX_FAILURES && failures.last.is_some_and(is_recent)
    }

    fn record_failure(&self, now: Instant) {
        let mut failures = self.failures.lock();
        failures.count = failures.count.saturating_add(1);
        failures.last = Some(now);
    }
}

/// Metrics of all resolvers. A resolver of several domains has one row.
pub(crate) type Resolvers = BTreeMap<SocketAddr, Arc<ResolverMetrics>>;

/// Parses the name servers of a resolv.conf. Keeps those on loopback: the server runs in the node's
/// network. Omits link-local ones on interfaces that do not exist.
#[must_use]
pub fn parse_name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        if words.next() == Some("nameserver")
            && let Some(server) = words.next().and_then(parse_name_server)
        {
            servers.push(server);
        }
    }
    // The limit of the C library's resolver.
    servers.truncate(3);
    servers
}

/// Parses an address with an optional scope, which is the name or the number of an interface.
fn parse_name_server(text: &str) -> Option<SocketAddr> {
    let Some((address, scope)) = text.split_once('%') else {
        return Some(SocketAddr::new(text.parse().ok()?, DNS_PORT));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    // Other addresses are reached by their routes.
    if !address.is_unicast_link_local() {
        return Some(SocketAddr::new(address.into(), DNS_PORT));
    }
    // Without its scope, the kernel rejects each request to the address.
    let number = scope.parse().or_else(|_| if_nametoindex(scope));
    if let Err(error) = &number {
        tracing::warn!(
            server = text,
            %error,
            "the interface of a name server does not exist, so this server is not used; correct \
             resolv.conf or create the interface"
        );
    }
    Some(SocketAddrV6::new(address, DNS_PORT, 0, number.ok()?).into())
}

impl Upstreams {
    /// Creates the set without the server's own address, which would cause a forwarding loop.
    pub(crate) fn new(servers: Vec<SocketAddr>, own: SocketAddr, known: &mut Resolvers) -> Self {
        let servers = servers
            .into_iter()
            .filter(|server| !is_own_address(*server, own))
            .map(|address| Resolver {
                address,
                metrics: known.entry(address).or_default().clone(),
                failures: Mutex::default(),
            })
            .collect();
        Self { servers }
    }

    /// Asks one resolver after another and returns the first answer. Without one, returns the first
    /// failure of a resolver; None if none responded.
    pub(crate) async fn ask(&self, question: &Question) -> Option<Message> {
        let now = Instant::now();
        let (down, up): (Vec<_>, Vec<_>) =
            self.servers.iter().partition(|server| server.is_down(now));
        let mut failure = None;
        // All servers first, and then once more: a lost packet is more likely than a resolver that
        // is down.
        for _ in 0..ROUNDS {
            for resolver in up.iter().chain(&down) {
                let Some(response) = resolver.request(question).await else {
                    continue;
                };
                match response.metadata.response_code {
                    // Another resolver may reach servers that this one does not, or allow this
                    // client.
                    ResponseCode::ServFail | ResponseCode::Refused => {
                        failure.get_or_insert(response);
                    }
                    _ => return Some(response),
                }
            }
            if failure.is_some() {
                break;
            }
        }
        failure
    }
}

impl Resolver {
    async fn request(&self, question: &Question) -> Option<Message> {
        let (server, started) = (self.address, Instant::now());
        match exchange(server, question).await {
            Ok(response) => {
                self.failures.lock().count = 0;
                let code = response.metadata.response_code;
                self.metrics.count_response(code, started);
                Some(response)
            }
            Err(error) => {
                tracing::debug!(%server, %error, "upstream failed");
                self.record_failure(Instant::now());
                None
            }
        }
    }
}

fn is_own_address(server: SocketAddr, own: SocketAddr) -> bool {
    let reaches_all = own.ip().is_unspecified() && server.ip().is_loopback();
    server == own || (reaches_all && server.port() == own.port())
}

/// Asks a resolver over UDP, and over TCP if the response does not fit.
async fn exchange(server: SocketAddr, question: &Question) -> io::Result<Message> {
    let mut response = ask_with_timeout(server, question, Extension::Edns).await?;
    // RFC 6891, section 7: a resolver without EDNS responds with FORMERR and no OPT record.
    if response.metadata.response_code == ResponseCode::FormErr && response.edns.is_none() {
        response = ask_with_timeout(server, question, Extension::Plain).await?;
    }
    if !response.metadata.truncation {
        return Ok(response);
    }
    match timeout(CONNECTION_TIMEOUT, ask_over_tcp(server, question)).await {
        Ok(Ok(complete)) => Ok(complete),
        // A part of the records is more than none.
        _ => Ok(response),
    }
}

async fn ask_with_timeout(
    server: SocketAddr,
    question: &Question,
    extension: Extension,
) -> io::Result<Message> {
    timeout(SERVER_TIMEOUT, ask_over_udp(server, question, extension)).await?
}

/// Uses a new socket for each request: its port is hard to guess, and the kernel drops responses
/// from other addresses.
async fn ask_over_udp(
    server: SocketAddr,
    question: &Question,
    extension: Extension,
) -> io::Result<Message> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let request = question.build_request(extension);
    let bytes = request.to_vec().map_err(io::Error::other)?;
    let socket = UdpSocket::bind((any, 0)).await?;
    // A connected socket also gets ICMP errors: a resolver that is down fails at once instead of
    // after the timeout.
    socket.connect(server).await?;
    socket.send(&bytes).await?;
    let mut buffer = vec![0; UDP_BUFFER];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let received = buffer.get(..length).unwrap_or_default();
        // Forged responses are ignored: the resolver's one may still arrive. Those with another ID
        // are not even parsed.
        if received.get(..2) != bytes.get(..2) {
            continue;
        }
        if let Ok(response) = Message::from_vec(received)
            && question.is_answered_by(request.metadata.id, &response)
        {
            return Ok(response);
        }
    }
}

async fn ask_over_tcp(server: SocketAddr, question: &Question) -> io::Result<Message> {
    let request = question.build_request(Extension::Edns);
    let bytes = request.to_vec().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], &bytes].concat())
        .await?;
    let length = stream.read_u16().await?;
    let mut response = vec![0; usize::from(length)];
    stream.read_exact(&mut response).await?;
    let response = Message::from_vec(&response).map_err(io::Error::other)?;
    if !question.is_answered_by(request.metadata.id, &response) {
        return Err(io::Error::other("the response belongs to another request"));
    }
    Ok(response)
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
