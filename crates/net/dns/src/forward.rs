//! Forwards requests to the node's resolvers, one after another, each with a short timeout.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Timeout of one resolver. Two of them fit well into a client's usual five seconds.
const SERVER_TIMEOUT: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 2;
/// Maximum number of concurrent forwarded requests; more are rejected rather than queued.
const MAX_FORWARDED: usize = 512;

/// The upstream resolvers.
#[derive(Debug)]
pub struct Upstreams {
    servers: Vec<SocketAddr>,
    permits: Semaphore,
}

/// Parses the name servers of a resolv.conf. Keeps those on loopback: the server runs in the node's
/// network.
#[must_use]
pub fn parse_name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| {
            rest.split_whitespace()
                .next()?
                .split('%')
                .next()?
                .parse::<IpAddr>()
                .ok()
        })
        .map(|ip| SocketAddr::new(ip, 53))
        // The limit of the C library's resolver.
        .take(3)
        .collect()
}

impl Upstreams {
    /// Creates the set without the server's own address, which would cause a forwarding loop.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>, own: SocketAddr) -> Self {
        let servers = servers
            .into_iter()
            .filter(|server| *server != own)
            .collect();
        Self {
            servers,
            permits: Semaphore::new(MAX_FORWARDED),
        }
    }

    /// Forwards a request and returns the response; None if no resolver responded.
    pub async fn forward_request(&self, request: &[u8], udp: bool) -> Option<Vec<u8>> {
        // Not queued: the client gives up after a few seconds, and its retry would wait behind its
        // own request.
        let _permit = self.permits.try_acquire().ok()?;
        for server in self
            .servers
            .iter()
            .cycle()
            // All servers first, and then once more: a lost packet is more likely than a resolver
            // that is down.
            .take(self.servers.len() * ROUNDS)
        {
            let exchange = async {
                if udp {
                    over_udp(*server, request).await
                } else {
                    over_tcp(*server, request).await
                }
            };
            match timeout(SERVER_TIMEOUT, exchange).await {
                // Responses over UDP were compared when they arrived; over TCP this is the only
                // check of the id.
                Ok(Ok(response)) if response.get(..2) == request.get(..2) => return Some(response),
                Ok(Err(error)) => tracing::debug!(%server, %error, "upstream failed"),
                _ => tracing::debug!(%server, "upstream did not answer in time"),
            }
        }
        None
    }
}

/// Uses a new socket for each request: its port is hard to guess, and the kernel drops responses
/// from other addresses.
async fn over_udp(server: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // A connected socket also gets ICMP errors: a resolver that is down fails at once instead of
    // after the timeout.
    socket.connect(server).await?;
    socket.send(request).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if buffer.get(..2) == request.get(..2) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn over_tcp(server: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(request.len()).map_err(std::io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes(), request].concat())
        .await?;
    let length = stream.read_u16().await?;
    let mut response = vec![0; usize::from(length)];
    stream.read_exact(&mut response).await?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;

    #[test]
    fn name_servers_of_a_resolv_conf_are_parsed() {
        let text =
            "# x\nsearch a.b\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\noptions ndots:1\n";
        let found: Vec<String> = parse_name_servers(text)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, ["192.0.2.1:53", "[fe80::1]:53"]);
    }

    /// Starts a resolver that sends `responses` for each request, with the request's id unless
    /// `forged`.
    async fn start_resolver(forged: bool) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let answer = async move {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let mut response = buffer[..length].to_vec();
                response.push(0xff);
                if forged {
                    let mut other = response.clone();
                    other[0] ^= 1;
                    socket.send_to(&other, peer).await.unwrap();
                }
                socket.send_to(&response, peer).await.unwrap();
            }
        };
        drop(tokio::spawn(answer));
        address
    }

    fn own() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 53))
    }

    /// A packet with another id may come from an attacker who guesses.
    #[tokio::test]
    async fn response_with_another_id_is_ignored() {
        let upstreams = Upstreams::new(vec![start_resolver(true).await], own());
        let response = upstreams.forward_request(&[1, 2, 3], true).await;
        assert_eq!(response, Some(vec![1, 2, 3, 0xff]));
    }

    #[tokio::test]
    async fn next_resolver_is_used_if_one_does_not_listen() {
        let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let dead = closed.local_addr().unwrap();
        drop(closed);
        let upstreams = Upstreams::new(vec![dead, start_resolver(false).await], own());
        let response = upstreams.forward_request(&[1, 2], true).await;
        assert_eq!(response, Some(vec![1, 2, 0xff]));
    }

    #[tokio::test]
    async fn own_address_is_no_upstream() {
        let upstreams = Upstreams::new(vec![own()], own());
        assert_eq!(upstreams.forward_request(&[1, 2], true).await, None);
    }
}
