//! The address of an API server, as users type it.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// `HOST:PORT` of an API server. IPv6 addresses are in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// A text is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address of the API server is HOST:PORT, such as 192.0.2.1:6443 or [2001:db8::1]:6443")]
pub struct InvalidEndpoint;

impl Endpoint {
    /// Returns the host without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{self}")
    }

    /// Parses a URL of an API server, `https://HOST:PORT`; the default port is 443.
    ///
    /// # Errors
    /// The URL has another scheme, a user, or a path.
    pub fn from_url(url: &str) -> Result<Self, InvalidEndpoint> {
        let rest = url.strip_prefix("https://").ok_or(InvalidEndpoint)?;
        let rest = rest.trim_end_matches('/');
        rest.parse().or_else(|_| format!("{rest}:443").parse())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidEndpoint)?;
        let port = port.parse().ok().filter(|port| *port != 0);
        let bracketed = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => address.parse::<Ipv6Addr>().is_ok().then_some(address),
            None => is_host_name(host).then_some(host),
        };
        match (host, port) {
            (Some(host), Some(port)) => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            _ => Err(InvalidEndpoint),
        }
    }
}

/// Returns whether a text has the characters of a DNS name or of an IPv4 address.
fn is_host_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_host_and_a_port() {
        for (text, host) in [
            ("192.0.2.1:6443", Some("192.0.2.1")),
            ("api.example.com:443", Some("api.example.com")),
            ("[2001:db8::1]:6443", Some("2001:db8::1")),
            ("2001:db8::1:6443", None),
            ("[api]:6443", None),
            ("192.0.2.1", None),
            ("192.0.2.1:0", None),
            ("192.0.2.1:65536", None),
            (":6443", None),
            ("https://192.0.2.1:6443", None),
            ("user@192.0.2.1:6443", None),
            ("192.0.2.1/path:6443", None),
            ("", None),
        ] {
            let parsed = text.parse::<Endpoint>().ok();
            assert_eq!(parsed.as_ref().map(Endpoint::host), host, "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.to_string(), text);
            }
        }
    }

    #[test]
    fn url_of_a_server_is_https_without_user_and_path() {
        for (url, expected) in [
            ("https://192.0.2.1:6443", Some("192.0.2.1:6443")),
            ("https://192.0.2.1:6443/", Some("192.0.2.1:6443")),
            ("https://api.example.com", Some("api.example.com:443")),
            ("http://192.0.2.1:6443", None),
            ("https://user@192.0.2.1:6443", None),
            ("https://192.0.2.1:6443/path", None),
        ] {
            let found = Endpoint::from_url(url).ok().map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }
}
