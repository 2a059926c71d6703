//! Proxies from the environment, by the rules of Go's `httpproxy`: `HTTPS_PROXY` and `NO_PROXY`.
//!
//! Services are never reached through a proxy: their addresses are the cluster's.

use super::error::{DialError, describe_io};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use std::net::IpAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum size of a proxy's response.
const MAX_HEAD: usize = 8 * 1024;

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
    authorization: Option<String>,
}

/// The proxy of this process, and the hosts that are reached without it.
#[derive(Clone, Default)]
pub struct ProxyRules {
    /// With the reason why it can't be used.
    proxy: Option<Result<Proxy, String>>,
    direct: Vec<Exception>,
}

#[derive(Clone)]
enum Exception {
    All,
    Network(ipnet::IpNet),
    /// An address or a domain, and a port if one is given.
    Host {
        name: String,
        subdomains_only: bool,
        port: Option<u16>,
    },
}

impl ProxyRules {
    /// Reads the environment.
    pub fn from_environment() -> Self {
        let read = |names: [&str; 2]| {
            let mut values = names
                .into_iter()
                .filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self::parse(
            &read(["HTTPS_PROXY", "https_proxy"]),
            &read(["NO_PROXY", "no_proxy"]),
        )
    }

    fn parse(proxy: &str, direct: &str) -> Self {
        ProxyRules {
            proxy: (!proxy.is_empty()).then(|| parse_proxy(proxy)),
            direct: direct
                .split(',')
                .filter_map(|entry| Exception::parse(entry.trim()))
                .collect(),
        }
    }

    /// Returns the proxy for a host; None for a direct connection.
    ///
    /// # Errors
    /// The proxy of the environment can't be used.
    pub fn find_proxy(&self, host: &str, port: u16) -> Result<Option<Proxy>, String> {
        let address: Option<IpAddr> = host.parse().ok();
        // Go's `httpproxy` never uses a proxy for the machine itself.
        let local = host == "localhost" || address.is_some_and(|ip| ip.is_loopback());
        let direct = || {
            let mut exceptions = self.direct.iter();
            exceptions.any(|exception| exception.matches(host, address, port))
        };
        match &self.proxy {
            Some(_) if local || direct() => Ok(None),
            Some(proxy) => proxy.clone().map(Some),
            None => Ok(None),
        }
    }
}

fn parse_proxy(text: &str) -> Result<Proxy, String> {
    // The text may hold a password, so that no error repeats it.
    let invalid = || "the proxy of HTTPS_PROXY is not a valid URL".to_owned();
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url: Uri = url.parse().map_err(|_| invalid())?;
    // Go also supports TLS and SOCKS to the proxy. Falling back to a direct connection would bypass
    // it.
    if url.scheme_str() != Some("http") {
        return Err("the proxy of HTTPS_PROXY is not an http URL".to_owned());
    }
    let authority = url.authority().ok_or_else(invalid)?;
    let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
    // The URL escapes characters such as `@` that the header has to hold as they are.
    let decode = |user: &str| {
        let decoded = percent_encoding::percent_decode_str(user).collect::<Vec<u8>>();
        format!("Basic {}", STANDARD.encode(decoded))
    };
    let host = authority.host().trim_matches(['[', ']']);
    Ok(Proxy {
        host: host.to_owned(),
        port: authority.port_u16().unwrap_or(80),
        authorization: user.map(decode),
    })
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Exception::All);
        }
        if let Ok(network) = entry.parse() {
            return Some(Exception::Network(network));
        }
        let (name, port) = match entry.rsplit_once(':') {
            // An IPv6 address has several colons.
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                (name, port.parse().ok())
            }
            _ => (entry, None),
        };
        let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
        // As in Go, `*.example.com` and `.example.com` mean subdomains, and `example.com` the
        // domain and its subdomains.
        let bare = name.strip_prefix('*').unwrap_or(&name);
        Some(Exception::Host {
            subdomains_only: bare.starts_with('.'),
            name: bare.trim_start_matches('.').to_owned(),
            port,
        })
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, at: u16) -> bool {
        match self {
            Exception::All => true,
            Exception::Network(network) => address.is_some_and(|ip| network.contains(&ip)),
            Exception::Host {
                name,
                subdomains_only,
                port,
            } => {
                let host = host.to_ascii_lowercase();
                let parent = host.strip_suffix(name.as_str());
                let below = parent.is_some_and(|rest| rest.ends_with('.'));
                let same = host == *name && !subdomains_only;
                // An address has no subdomains: `10.1.2.3` is not below `1.2.3`.
                port.is_none_or(|port| port == at) && (same || below && address.is_none())
            }
        }
    }
}

/// Opens a tunnel to a host through a connection to the proxy.
///
/// # Errors
/// The proxy rejects the host, or closes the connection.
pub async fn open_tunnel(
    stream: &mut TcpStream,
    proxy: &Proxy,
    target: &str,
) -> Result<(), DialError> {
    let broken = |e: std::io::Error| DialError(format!("proxyconnect tcp: {}", describe_io(&e)));
    let authorization = proxy.authorization.as_ref().map_or(String::new(), |value| {
        format!("Proxy-Authorization: {value}\r\n")
    });
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    // Byte by byte: what follows the head belongs to TLS.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(DialError(
                "proxyconnect tcp: the response is too large".into(),
            ));
        }
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(DialError(format!(
            "proxyconnect tcp: the proxy responded with {line:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_proxied(direct: &str, host: &str, port: u16) -> bool {
        let rules = ProxyRules::parse("http://proxy.example:3128", direct);
        rules.find_proxy(host, port).unwrap().is_some()
    }

    #[test]
    fn exceptions_follow_gos_rules() {
        for (direct, host, port, expect) in [
            ("", "a.example", 443, true),
            ("*", "a.example", 443, false),
            ("a.example", "a.example", 443, false),
            ("a.example", "b.a.example", 443, false),
            ("a.example", "ba.example", 443, true),
            (".a.example", "a.example", 443, true),
            (".a.example", "b.a.example", 443, false),
            ("*.a.example", "b.a.example", 443, false),
            ("A.Example", "a.example", 443, false),
            ("a.example:8443", "a.example", 443, true),
            ("a.example:8443", "a.example", 8443, false),
            ("10.0.0.0/8, b.example", "10.1.2.3", 443, false),
            ("10.0.0.0/8, b.example", "b.example", 443, false),
            ("10.0.0.0/8", "11.1.2.3", 443, true),
            ("192.0.2.1", "192.0.2.1", 443, false),
            ("2001:db8::1", "2001:db8::1", 443, false),
            ("", "localhost", 443, false),
            ("", "127.0.0.1", 443, false),
            ("", "::1", 443, false),
        ] {
            assert_eq!(is_proxied(direct, host, port), expect, "{direct} {host}");
        }
    }

    #[test]
    fn proxy_is_parsed_with_its_credentials() {
        let find = |text: &str| ProxyRules::parse(text, "").find_proxy("a.example", 443);
        let proxy = find("http://user:p%40ss@proxy.example:3128")
            .unwrap()
            .unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.example", 3128));
        assert_eq!(
            proxy.authorization,
            Some(format!("Basic {}", STANDARD.encode("user:p@ss")))
        );
        let bare = find("proxy.example").unwrap().unwrap();
        assert_eq!((bare.port, bare.authorization), (80, None));
        assert!(find("").unwrap().is_none());
    }

    #[test]
    fn unusable_proxy_is_an_error_without_its_password() {
        for text in [
            "socks5://u:secret@h:1",
            "https://u:secret@h",
            "http://u:secret@h:x:y",
        ] {
            let error = ProxyRules::parse(text, "").find_proxy("a.example", 443);
            assert!(error.is_err_and(|why| !why.contains("secret")), "{text}");
        }
    }

    async fn tunnel(response: &'static [u8]) -> (Result<(), String>, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let proxy = Proxy {
            host: "proxy.example".into(),
            port: 3128,
            authorization: Some("Basic eA==".into()),
        };
        server.write_all(response).await.unwrap();
        let opened = open_tunnel(&mut client, &proxy, "a.example:443").await;
        let mut request = vec![0; 1024];
        let length = server.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        (opened.map_err(|e| e.to_string()), request)
    }

    #[tokio::test]
    async fn tunnel_is_opened_to_the_host_of_the_webhook() {
        let (opened, request) = tunnel(b"HTTP/1.1 200 OK\r\n\r\nTLS").await;
        assert_eq!(opened, Ok(()));
        assert_eq!(
            request,
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn tunnel_that_the_proxy_rejects_is_an_error() {
        let (opened, _) = tunnel(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
        assert!(opened.is_err_and(|why| why.contains("403 Forbidden")));
        let endless = Box::leak(vec![b'x'; 2 * MAX_HEAD].into_boxed_slice());
        let (opened, _) = tunnel(endless).await;
        assert!(opened.is_err_and(|why| why.contains("too large")));
    }
}
