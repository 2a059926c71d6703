//! A client with one identity. Paths, headers and bodies are sent exactly as given.

use crate::Reply;
use base_tls::rustls::ClientConfig;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout of a request, after which the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client of a TLS server on loopback. Each request has a connection of its own.
#[derive(Clone)]
pub struct Caller {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    headers: Vec<(String, String)>,
    receive_buffer: Option<u32>,
}

impl Caller {
    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the headers that are sent with every request.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    pub(crate) fn new(address: SocketAddr, tls: Arc<ClientConfig>) -> Self {
        Self {
            address,
            tls,
            headers: Vec::new(),
            receive_buffer: None,
        }
    }

    /// Returns a client that sends this header with every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns a client with the same identity for another server that the cluster's CA signed.
    #[must_use]
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Returns a client that offers these protocols (ALPN) to the server, such as `h2`. Only
    /// [`Caller::connect`] is of use then: [`Caller::send`] speaks HTTP/1.1.
    #[must_use]
    pub fn with_protocols(mut self, protocols: &[&str]) -> Self {
        let mut tls = ClientConfig::clone(&self.tls);
        tls.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        self.tls = Arc::new(tls);
        self
    }

    /// Returns a client whose sockets buffer about this many received bytes. The default of some
    /// MiB takes most responses that the client does not read.
    #[must_use]
    pub fn with_receive_buffer(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Opens a TLS connection, for tests that speak to the server in bytes.
    ///
    /// # Errors
    /// The connection or the handshake failed.
    pub async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = match self.address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(bytes) = self.receive_buffer {
            // Before the connection begins: its window is announced then.
            socket.set_recv_buffer_size(bytes)?;
        }
        let stream = socket.connect(self.address).await?;
        let name = ServerName::from(self.address.ip());
        TlsConnector::from(self.tls.clone())
            .connect(name, stream)
            .await
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// The server closed the connection, took longer than 60 s, or the path or a header can't be
    /// sent.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Reply> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string());
        let own = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            request = request.header(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
        let request = request.body(Full::new(body.into()))?;
        tokio::time::timeout(DEADLINE, self.exchange(request)).await?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Reply> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends with this exchange.
        let mut driver = JoinSet::new();
        driver.spawn(connection.with_upgrades());
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        // The body of an upgraded connection does not end.
        let body = if parts.status == http::StatusCode::SWITCHING_PROTOCOLS {
            Bytes::new()
        } else {
            body.collect().await?.to_bytes()
        };
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    #[track_caller]
    fn sent(result: anyhow::Result<Reply>, what: &str) -> Reply {
        result.unwrap_or_else(|error| panic!("{what}: {error:#}"))
    }

    /// Sends GET.
    ///
    /// # Panics
    /// If there is no response, like the following methods.
    pub async fn get(&self, path: &str) -> Reply {
        Self::sent(self.send(Method::GET, path, &[], "").await, path)
    }

    /// Sends POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send_json(Method::POST, path, "application/json", body)
            .await
    }

    /// Sends PUT with a JSON body.
    pub async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send_json(Method::PUT, path, "application/json", body)
            .await
    }

    /// Sends a JSON merge patch.
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Reply {
        self.send_json(Method::PATCH, path, "application/merge-patch+json", patch)
            .await
    }

    /// Sends a JSON Patch.
    pub async fn json_patch(&self, path: &str, patch: &Value) -> Reply {
        self.send_json(Method::PATCH, path, "application/json-patch+json", patch)
            .await
    }

    /// Sends a server-side apply; the query is the caller's.
    pub async fn apply(&self, path: &str, object: &Value) -> Reply {
        self.send_json(Method::PATCH, path, "application/apply-patch+yaml", object)
            .await
    }

    /// Sends DELETE.
    pub async fn delete(&self, path: &str) -> Reply {
        Self::sent(self.send(Method::DELETE, path, &[], "").await, path)
    }

    /// Sends a body of this type.
    pub async fn send_json(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Reply {
        let sent = self
            .send(
                method,
                path,
                &[("content-type", content_type)],
                body.to_string(),
            )
            .await;
        Self::sent(sent, path)
    }
}
