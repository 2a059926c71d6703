//! Opens connections: resolution of the Service, TCP, TLS.

use super::error::{CallError, DialError, describe_io};
use super::proxy::{Proxy, open_tunnel};
use super::tls::describe_tls;
use crate::endpoint::Endpoint;
use crate::resolver::{Address, ServiceResolver};
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Time for a connection, also if the request that caused it has given up: the longest timeout of a
/// webhook.
const CONNECT: Duration = Duration::from_secs(30);

/// The way to one server.
pub struct Route {
    endpoint: Endpoint,
    name: ServerName<'static>,
    tls: TlsConnector,
    resolver: Arc<dyn ServiceResolver>,
    proxy: Option<Proxy>,
}

impl Route {
    pub fn new(
        endpoint: &Endpoint,
        tls: Arc<ClientConfig>,
        resolver: Arc<dyn ServiceResolver>,
        proxy: Option<Proxy>,
    ) -> Result<Self, CallError> {
        let name = ServerName::try_from(endpoint.host().to_owned())
            .map_err(|_| CallError::Config(format!("invalid host {:?}", endpoint.host())))?;
        Ok(Route {
            endpoint: endpoint.clone(),
            name,
            tls: TlsConnector::from(tls),
            resolver,
            proxy,
        })
    }

    async fn connect(&self) -> Result<TlsIo, DialError> {
        let stream = self.dial().await?;
        let stream = self
            .tls
            .connect(self.name.clone(), stream)
            .await
            .map_err(|e| DialError(describe_tls(&e, self.endpoint.host())))?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(TlsIo {
            io: TokioIo::new(stream),
            http2,
        })
    }
}

impl Route {
    async fn dial(&self) -> Result<TcpStream, DialError> {
        let address = |host: &str, port: u16| Address {
            host: host.to_owned(),
            port,
        };
        if let Some(service) = self.endpoint.service() {
            // At each connection, because the address of a Service may change.
            return dial_tcp(&self.resolver.resolve_service(service).map_err(DialError)?).await;
        }
        let Some(proxy) = &self.proxy else {
            return dial_tcp(&address(self.endpoint.host(), self.endpoint.port())).await;
        };
        let mut stream = dial_tcp(&address(&proxy.host, proxy.port)).await?;
        open_tunnel(&mut stream, proxy, &self.endpoint.host_port()).await?;
        Ok(stream)
    }
}

async fn dial_tcp(address: &Address) -> Result<TcpStream, DialError> {
    let Address { host, port } = address;
    let found = tokio::net::lookup_host((host.as_str(), *port))
        .await
        .map_err(|_| DialError(format!("dial tcp: lookup {host}: no such host")))?;
    let mut last = DialError(format!("dial tcp: lookup {host}: no such host"));
    for address in found {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A review is one short message that waits for its response.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = DialError(format!("dial tcp {address}: {}", describe_io(&error))),
        }
    }
    Err(last)
}

/// Connects to one server, for the pool.
#[derive(Clone)]
pub struct Connector(pub Arc<Route>);

impl tower::Service<Uri> for Connector {
    type Response = TlsIo;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<TlsIo, DialError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let route = self.0.clone();
        Box::pin(async move {
            tokio::time::timeout(CONNECT, route.connect())
                .await
                .unwrap_or_else(|_| Err(DialError("dial tcp: i/o timeout".into())))
        })
    }
}

/// A TLS connection that tells the pool its protocol.
pub struct TlsIo {
    io: TokioIo<TlsStream<TcpStream>>,
    http2: bool,
}

impl Connection for TlsIo {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.http2 {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl Read for TlsIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for TlsIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}
