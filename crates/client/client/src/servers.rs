//! The API servers of a client. A connection is opened to one of them: to the last one that
//! accepted a connection, at first that of the configuration, and to the next ones if it fails,
//! does not respond, or is not ready.
//!
//! The credentials are sent to a server only after its certificate was verified for its own host.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri};

use crate::error::{Error, Result};

/// Maximum number of API servers of a client.
pub const MAX_SERVERS: usize = 32;
/// Time after which a connection to the next server is opened beside the one that is attempted:
/// the delay of RFC 8305. With [`MAX_SERVERS`], all are attempted within the timeout.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// The address of an API server.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    /// The URL, for messages.
    pub(crate) url: String,
    scheme: Scheme,
    authority: Authority,
    /// Path before that of each request; empty for API servers without a proxy before them.
    prefix: String,
}

impl ServerAddress {
    /// Parses a URL.
    ///
    /// # Errors
    /// The text is no URL of HTTP or HTTPS.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let bad = || Error::Config(format!("{url:?} is not an address of a server"));
        let parts = url.parse::<Uri>().map_err(|_| bad())?.into_parts();
        let scheme = parts.scheme.ok_or_else(bad)?;
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err(bad());
        }
        let path = parts.path_and_query;
        let prefix = path.as_ref().map_or("", PathAndQuery::path);
        Ok(Self {
            url: url.to_owned(),
            scheme,
            authority: parts.authority.ok_or_else(bad)?,
            prefix: prefix.trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        let standard = if self.is_secure() { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(standard)
    }

    /// Returns whether connections use TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns the URL of a path on this server.
    pub(crate) fn url_of(&self, path: &PathAndQuery) -> Result<Uri> {
        let path = match self.prefix.as_str() {
            "" => Ok(path.clone()),
            prefix => PathAndQuery::try_from(format!("{prefix}{path}")),
        };
        let invalid = |error: &dyn std::fmt::Display| Error::Config(error.to_string());
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone());
        let path = path.map_err(|error| invalid(&error))?;
        uri.path_and_query(path)
            .build()
            .map_err(|error| invalid(&error))
    }

    /// Makes this server the target of a request to a path.
    pub(crate) fn address_request<B>(&self, request: &mut Request<B>) -> Result<()> {
        let root = PathAndQuery::from_static("/");
        *request.uri_mut() = self.url_of(request.uri().path_and_query().unwrap_or(&root))?;
        Ok(())
    }
}

/// Checks further servers of a cluster.
///
/// # Errors
/// There are more than [`MAX_SERVERS`], one is no URL, or has no TLS unlike `server`: the client
/// would send its token unencrypted.
pub(crate) fn check_servers(server: &str, further: &[String]) -> Result<(), String> {
    if further.len() >= MAX_SERVERS {
        return Err(format!("it has more than {MAX_SERVERS} servers"));
    }
    let parse = |url: &str| ServerAddress::parse(url).map_err(|error| error.to_string());
    let is_secure = parse(server)?.is_secure();
    for url in further {
        if parse(url)?.is_secure() != is_secure {
            return Err(format!("{url} and {server} differ in their scheme"));
        }
    }
    Ok(())
}

/// The API servers, in the order of the configuration.
pub(crate) struct Servers {
    urls: Vec<String>,
    /// Index of the last server that accepted a connection.
    preferred: AtomicUsize,
}

impl Servers {
    /// Returns the servers of a list, `server` first. They are those of another cluster if the list
    /// lacks it.
    pub(crate) fn new(server: &str, list: &[String]) -> Self {
        let first = list.iter().position(|url| url == server);
        let urls = match first {
            Some(_) => list.to_owned(),
            None => vec![server.to_owned()],
        };
        Self {
            urls,
            preferred: AtomicUsize::new(first.unwrap_or_default()),
        }
    }

    /// Returns whether there is another server to use.
    pub(crate) fn are_several(&self) -> bool {
        self.urls.len() > 1
    }

    /// Returns the URLs, for messages.
    pub(crate) fn describe(&self) -> String {
        self.urls.join(", ")
    }

    /// Returns the indices in the order in which a connection tries the servers.
    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, first) = (self.urls.len(), self.preferred.load(Ordering::Relaxed));
        let others = (0..count).filter(move |index| *index != first);
        std::iter::once(first).chain(others)
    }

    /// Connects to the first server with which `connect` succeeds, except the one with the URL
    /// `skipped`. The next one is attempted after a failure, or after [`NEXT_AFTER`].
    ///
    /// # Errors
    /// The only failure, or one with those of all servers.
    pub(crate) async fn connect_first<T, Fut>(
        &self,
        skipped: Option<&str>,
        connect: impl Fn(ServerAddress) -> Fut,
    ) -> Result<T>
    where
        Fut: Future<Output = Result<T>>,
    {
        let attempt = async |index: usize| {
            let url = self.urls.get(index).map_or("", String::as_str);
            (index, connect_to(url, &connect).await)
        };
        let is_tried = |index: &usize| {
            skipped.is_none() || self.urls.get(*index).map(String::as_str) != skipped
        };
        let mut waiting = self.in_order().filter(is_tried);
        let mut attempts = FuturesUnordered::new();
        let mut failures = Vec::new();
        attempts.extend(waiting.next().map(&attempt));
        loop {
            let delay = pin!(tokio::time::sleep(NEXT_AFTER));
            tokio::select! {
                ended = attempts.next() => match ended {
                    Some((index, Ok(made))) => {
                        self.preferred.store(index, Ordering::Relaxed);
                        return Ok(made);
                    }
                    Some((_, Err(error))) => failures.push(error),
                    None => return Err(self.join_failures(failures)),
                },
                () = delay => {}
            }
            attempts.extend(waiting.next().map(&attempt));
        }
    }

    fn join_failures(&self, mut failures: Vec<Error>) -> Error {
        // The same for all servers, such as a file that can't be read.
        let common = failures.iter().position(|e| matches!(e, Error::Config(_)));
        let only = (failures.len() == 1).then_some(0);
        if let Some(index) = common.or(only) {
            return failures.swap_remove(index);
        }
        let texts: Vec<_> = failures.iter().map(Error::to_string).collect();
        Error::Connect {
            server: self.describe(),
            source: texts.join("; ").into(),
        }
    }
}

async fn connect_to<T, Fut>(url: &str, connect: &impl Fn(ServerAddress) -> Fut) -> Result<T>
where
    Fut: Future<Output = Result<T>>,
{
    connect(ServerAddress::parse(url)?).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::time::Instant;

    use super::*;

    fn servers(further: &[&str]) -> Servers {
        let all = ["https://a"].iter().chain(further);
        let all: Vec<_> = all.map(|&url| url.to_owned()).collect();
        Servers::new("https://a", &all)
    }

    #[test]
    fn requests_have_the_authority_and_the_prefix_of_their_server() {
        for (server, host, port, expected) in [
            ("https://a", "a", 443, "https://a/api?watch=1"),
            ("http://a/", "a", 80, "http://a/api?watch=1"),
            (
                "https://[fd00::1]:6443",
                "fd00::1",
                6443,
                "https://[fd00::1]:6443/api?watch=1",
            ),
            (
                "https://a:1/k8s/c1",
                "a",
                1,
                "https://a:1/k8s/c1/api?watch=1",
            ),
        ] {
            let address = ServerAddress::parse(server).unwrap();
            assert_eq!((address.host(), address.port()), (host, port));
            let mut request = Request::get("/api?watch=1").body(()).unwrap();
            address.address_request(&mut request).unwrap();
            assert_eq!(request.uri(), expected);
        }
        for bad in ["", "a", "/a", "ftp://a", "https://"] {
            assert!(ServerAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn list_without_the_server_is_that_of_another_one() {
        let list = ["https://a".to_owned(), "https://b".to_owned()];
        for (server, expected) in [
            ("https://a", "https://a, https://b"),
            ("https://c", "https://c"),
        ] {
            assert_eq!(Servers::new(server, &list).describe(), expected);
        }
    }

    /// Connects to each server as `outcome` says: after a time, or never.
    async fn connect(
        servers: &Servers,
        outcome: impl Fn(&str) -> (u64, bool),
    ) -> (Result<String>, u128) {
        let began = Instant::now();
        let made = servers.connect_first(None, |server| {
            let (milliseconds, succeeds) = outcome(server.host());
            async move {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                match succeeds {
                    true => Ok(server.url.clone()),
                    false => Err(Error::Connect {
                        server: server.url.clone(),
                        source: "refused".into(),
                    }),
                }
            }
        });
        let made = made.await;
        (made, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn next_server_is_tried_after_a_failure_or_a_delay_and_first_the_next_time() {
        let servers = servers(&["https://b", "https://c"]);
        let (made, time) = connect(&servers, |_| (10, true)).await;
        assert_eq!((made.unwrap().as_str(), time / 10), ("https://a", 1));
        // The first one hangs, and the second one refuses.
        let lost = |host: &str| match host {
            "a" => (60_000, true),
            "b" => (0, false),
            _ => (10, true),
        };
        let (made, time) = connect(&servers, lost).await;
        assert_eq!((made.unwrap().as_str(), time / 10), ("https://c", 26));
        let (made, time) = connect(&servers, lost).await;
        assert_eq!((made.unwrap().as_str(), time / 10), ("https://c", 1));
        // A slow one is not given up.
        let slow = |host: &str| (if host == "c" { 400 } else { 60_000 }, true);
        assert_eq!(connect(&servers, slow).await.0.unwrap(), "https://c");
    }

    #[tokio::test(start_paused = true)]
    async fn error_names_all_servers_or_the_defect_that_they_share() {
        let all = servers(&["https://b"]);
        let error = connect(&all, |_| (0, false)).await.0.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot connect to https://a, https://b: cannot connect to https://a: refused; \
             cannot connect to https://b: refused"
        );
        let error = connect(&servers(&[]), |_| (0, false)).await.0.unwrap_err();
        assert_eq!(error.to_string(), "cannot connect to https://a: refused");
        let missing = all.connect_first(None, async |_| {
            Err::<(), _>(Error::Config("no file".into()))
        });
        assert_eq!(missing.await.unwrap_err().to_string(), "no file");
    }
}
