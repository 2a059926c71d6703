//! Connections of the load generator: requests as bytes, and responses of which only the length is
//! kept, so that the client costs little beside the server.

use anyhow::{Context, bail};
use base_task::{CancellationToken, Tasks};
use base_tls::{ClientTls, client_config};
use bytes::Bytes;
use client::{Config, Source};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Concurrent clients of a loaded server.
pub const CLIENTS: usize = 64;

/// Windows of Go's HTTP/2 client, which client-go uses.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A request.
#[derive(Clone)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Call {
    /// Creates a GET request that accepts a media type.
    pub fn get(path: impl Into<String>, accept: &'static str) -> Self {
        let accept = HeaderValue::from_static(accept);
        Call {
            method: Method::GET,
            path: path.into(),
            headers: HeaderMap::from_iter([(header::ACCEPT, accept)]),
            body: Bytes::new(),
        }
    }

    /// Sets the method and a body; responses come in the same media type as those of GET.
    pub fn with_body(mut self, method: Method, content_type: &'static str, body: Bytes) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        self.headers.insert(header::CONTENT_TYPE, content_type);
        (self.method, self.body) = (method, body);
        self
    }

    /// Accepts gzip, as client-go does.
    pub fn with_gzip(mut self) -> Self {
        let gzip = HeaderValue::from_static("gzip");
        self.headers.insert(header::ACCEPT_ENCODING, gzip);
        self
    }
}

/// An HTTP/2 connection over TLS; clones share it.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    server: String,
}

impl Connection {
    /// Connects to the server of a kubeconfig with a client certificate. `tasks` drives the
    /// connection.
    pub async fn open(config: &Config, tasks: &Tasks) -> anyhow::Result<Self> {
        let uri: Uri = config.server.parse()?;
        let host = uri.host().context("no host in the kubeconfig")?;
        let port = uri.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let read = |source: &Source| source.read_bytes();
        let identity = match &config.identity {
            Some(identity) => Some((read(&identity.certificate)?, read(&identity.key)?)),
            None => None,
        };
        let tls = client_config(&ClientTls {
            ca: config.ca.as_ref().map(read).transpose()?,
            identity,
            insecure: config.insecure,
            alpn: vec![b"h2".to_vec()],
        })?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        tasks.spawn_isolated("connection", async move {
            if let Err(error) = connection.await {
                eprintln!("a connection ended: {error}");
            }
        });
        let server = config.server.clone();
        Ok(Self { sender, server })
    }

    /// Opens several connections.
    pub async fn open_many(config: &Config, count: usize) -> anyhow::Result<Vec<Self>> {
        let tasks = Tasks::new(CancellationToken::new());
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(Self::open(config, &tasks).await?);
        }
        Ok(all)
    }

    /// Sends a request; fails unless the response is a success.
    pub async fn send(&self, call: Call) -> anyhow::Result<Response<Incoming>> {
        let what = format!("{} {}", call.method, call.path);
        let mut request = Request::new(Full::new(call.body));
        *request.uri_mut() = format!("{}{}", self.server, call.path).parse()?;
        *request.method_mut() = call.method;
        *request.headers_mut() = call.headers;
        let response = self.sender.clone().send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        bail!("{what}: {status} {}", String::from_utf8_lossy(&body))
    }

    /// Sends a request and reads the response; returns its length.
    pub async fn read(&self, call: Call) -> anyhow::Result<usize> {
        let mut body = self.send(call).await?.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(length)
    }
}
