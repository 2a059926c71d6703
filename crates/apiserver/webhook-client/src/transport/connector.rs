//! Opens connections: resolution of the Service, TCP, TLS.

use super::error::{CallError, DialError, describe_io};
use super::proxy::{Proxy, open_tunnel};
use super::tls::describe_tls;
use crate::endpoint::Endpoint;
use crate::resolver::{Address, ServiceResolver};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Time for a connection: the longest timeout of a webhook.
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

    /// Returns whether connections may be of HTTP/2, which requests share.
    pub fn offers_http2(&self) -> bool {
        self.endpoint.is_local()
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<TlsStream<TcpStream>, DialError> {
        tokio::time::timeout(CONNECT, self.connect_tls())
            .await
            .unwrap_or_else(|_| Err(DialError("dial tcp: i/o timeout".into())))
    }

    async fn connect_tls(&self) -> Result<TlsStream<TcpStream>, DialError> {
        let stream = self.dial().await?;
        self.tls
            .connect(self.name.clone(), stream)
            .await
            .map_err(|e| DialError(describe_tls(&e, self.endpoint.host())))
    }

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
        // The proxy resolves the host: behind a proxy, this machine often has no DNS for it.
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
    // A name may have addresses of both families, of which this machine reaches one only.
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
