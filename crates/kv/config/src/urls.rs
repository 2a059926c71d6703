//! Parses URLs in flags.

use anyhow::{Context, Result, bail};
use std::net::{SocketAddr, ToSocketAddrs};

/// An `http` or `https` URL with a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// The text as given.
    pub text: String,
    /// True for `https`.
    pub secure: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; 0 lets the kernel pick one.
    pub port: u16,
}

impl ServerUrl {
    /// Returns the address to listen on, preferably IPv4, and the other addresses of the host name.
    pub fn addresses(&self) -> Result<(SocketAddr, Vec<SocketAddr>)> {
        let target = (self.host.as_str(), self.port);
        // Blocks for DNS, which is fine at the start only.
        let found = target
            .to_socket_addrs()
            .with_context(|| format!("{} can't be resolved", self.text))?;
        let mut others: Vec<SocketAddr> = found.collect();
        // IPv4 sorts first. A stable choice: the first address decides which port the kernel picks.
        others.sort();
        others.dedup();
        let mut others = others.into_iter();
        let first = others
            .next()
            .with_context(|| format!("{} has no address", self.text))?;
        Ok((first, others.collect()))
    }

    /// Returns the URL with the bound port.
    pub fn with_port(&self, port: u16) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        // An IPv6 address needs brackets, or its last group would be read as the port.
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        format!("{scheme}://{host}:{port}")
    }
}

/// Parses a comma-separated list. `flag` is used in the error text.
pub fn parse_urls(flag: &str, list: &str) -> Result<Vec<ServerUrl>> {
    list.split(',')
        .filter(|url| !url.is_empty())
        .map(|text| parse_one(flag, text))
        .collect()
}

fn parse_one(flag: &str, text: &str) -> Result<ServerUrl> {
    let wrong = || format!("--{flag}: {text:?} is not a URL like http://127.0.0.1:2379");
    let url = url::Url::parse(text).with_context(wrong)?;
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => bail!(wrong()),
    };
    let host = url
        .host_str()
        .with_context(wrong)?
        .trim_matches(['[', ']'])
        .to_owned();
    // `Url::port` omits the default port of a scheme, and etcd requires that it is written.
    let explicit = text
        .rsplit(':')
        .next()
        .and_then(|port| port.trim_end_matches('/').parse().ok());
    let port = url.port().or(explicit).with_context(wrong)?;
    Ok(ServerUrl {
        // Members compare URLs as texts.
        text: text.trim_end_matches('/').to_owned(),
        secure,
        host,
        port,
    })
}

/// Parses `name=url,name=url`. Returns the peer URLs of each name, in the order of the list.
pub fn parse_cluster(list: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut members: Vec<(String, Vec<String>)> = Vec::new();
    for item in list.split(',').filter(|item| !item.is_empty()) {
        let (name, url) = item
            .split_once('=')
            .with_context(|| format!("--initial-cluster: {item:?} is not NAME=URL"))?;
        let [url] = &parse_urls("initial-cluster", url)?[..] else {
            bail!("--initial-cluster: {item:?} is not NAME=URL")
        };
        match members.iter_mut().find(|(known, _)| known == name) {
            Some((_, urls)) => urls.push(url.text.clone()),
            None => members.push((name.to_owned(), vec![url.text.clone()])),
        }
    }
    // In one order, because flags of different members list the same cluster differently.
    for (_, urls) in &mut members {
        urls.sort();
    }
    members.sort();
    Ok(members)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_are_checked_and_named() {
        let urls = parse_urls("x", "http://127.0.0.1:0,https://[::1]:2379").unwrap();
        assert_eq!(
            (urls[0].secure, urls[0].port, urls[1].secure),
            (false, 0, true)
        );
        assert_eq!(urls[1].with_port(7), "https://[::1]:7");
        for wrong in [
            "not-a-url",
            "http://127.0.0.1:notaport",
            "ftp://h:1",
            "http://h",
        ] {
            assert!(
                format!("{:#}", parse_urls("x", wrong).unwrap_err()).contains(wrong),
                "{wrong}"
            );
        }
        let members = parse_cluster("b=http://h:2,a=http://h:1,b=http://h:0").unwrap();
        assert_eq!(
            members[1],
            ("b".into(), vec!["http://h:0".into(), "http://h:2".into()])
        );
    }

    #[test]
    fn port_of_a_url_is_required_but_may_be_the_default_of_its_scheme() {
        for (text, expect) in [
            ("http://h:80", Some(80)),
            ("https://h:443/", Some(443)),
            ("http://h:0", Some(0)),
            ("http://h", None),
            ("http://h:65536", None),
        ] {
            let port = parse_urls("x", text).ok().map(|urls| urls[0].port);
            assert_eq!(port, expect, "{text}");
        }
    }

    #[test]
    fn url_is_advertised_without_a_trailing_slash() {
        assert_eq!(
            parse_urls("x", "http://h:1/").unwrap()[0].text,
            "http://h:1"
        );
    }

    #[test]
    fn address_of_a_number_is_itself() {
        let (first, others) = parse_urls("x", "http://127.0.0.1:7").unwrap()[0]
            .addresses()
            .unwrap();
        assert_eq!(
            (first.to_string().as_str(), others.len()),
            ("127.0.0.1:7", 0)
        );
    }
}
