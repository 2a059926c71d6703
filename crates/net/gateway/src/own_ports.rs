//! Servers of Gateways with addresses of their own, each with two ports and a routing table.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base_serve::{FairPlaces, ServerShare};
use base_task::{CancellationToken, Tasks};
use base_tls::rustls::ServerConfig;
use base_tls::rustls::sign::CertifiedKey;
use base_tls::{Offer, TlsError};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::certificates::SniResolver;
use crate::compile::OwnTable;
use crate::placement::Slot;
use crate::port_range::PortRange;
use crate::proxy::{FrontPort, Proxy};
use crate::table::{RoutingTable, Scheme};

/// Time after which a port that could not be bound is tried again. The server of an earlier Gateway
/// may have it for a moment.
const RETRY: Duration = Duration::from_millis(100);
/// Failed attempts after which a warning is logged.
const WARN_AFTER: u32 = 20;

/// Serves requests of one port until `stop`.
pub(crate) async fn serve_port(
    listener: TcpListener,
    options: base_serve::Options,
    proxy: Arc<Proxy>,
    front: FrontPort,
    stop: CancellationToken,
) {
    let front = Arc::new(front);
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, front) = (proxy.clone(), front.clone());
        async move { Ok::<_, Infallible>(proxy.respond(&front, request).await) }
    });
    base_serve::serve_http(listener, options, service, stop).await;
}

/// Returns a configuration of TLS with the certificates of a routing table.
///
/// # Errors
/// The configuration can't be used.
pub(crate) fn build_tls(
    table: Arc<ArcSwap<RoutingTable>>,
    fallback: Arc<CertifiedKey>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let resolver = Arc::new(SniResolver { table, fallback });
    base_tls::resolving_config(resolver, protocols, &Offer::default())
}

/// Starts and stops the servers of Gateways with addresses of their own.
pub(crate) struct OwnPorts {
    pub(crate) address: IpAddr,
    pub(crate) range: PortRange,
    pub(crate) options: base_serve::Options,
    /// Connections of all servers together. A Gateway has as many as are free.
    pub(crate) places: FairPlaces<u16>,
    /// The same by client.
    pub(crate) clients: FairPlaces<IpAddr>,
    /// For names without a certificate.
    pub(crate) fallback: Arc<CertifiedKey>,
    pub(crate) proxy: Arc<Proxy>,
}

/// The servers of a Gateway.
struct GatewayServers {
    gateway: String,
    table: Arc<ArcSwap<RoutingTable>>,
    servers: HashMap<Scheme, PortServer>,
}

/// The server of a port.
struct PortServer {
    /// Port at which clients reach it.
    port: u16,
    stop: CancellationToken,
}

impl GatewayServers {
    fn stop(&self) {
        // Connections that are still open get no requests of another Gateway.
        self.table.store(Arc::default());
        for server in self.servers.values() {
            server.stop.cancel();
        }
    }
}

impl OwnPorts {
    /// Follows the tables until `stop`, and then lets open requests finish.
    pub(crate) async fn follow_tables(
        self,
        mut tables: watch::Receiver<Vec<OwnTable>>,
        stop: CancellationToken,
    ) {
        let tasks = Tasks::new(stop.clone());
        let mut servers = HashMap::new();
        loop {
            let current = tables.borrow_and_update().clone();
            self.update_servers(&mut servers, &current, &tasks);
            tokio::select! {
                () = stop.cancelled() => break,
                changed = tables.changed() => if changed.is_err() { break },
            }
        }
        // The controller ends before the ports are closed, which the last tables still serve.
        stop.cancelled().await;
        tasks.wait(self.options.drain.saturating_add(RETRY)).await;
    }

    fn update_servers(
        &self,
        servers: &mut HashMap<Slot, GatewayServers>,
        tables: &[OwnTable],
        tasks: &Tasks,
    ) {
        servers.retain(|slot, server| {
            let mut same = tables.iter().filter(|own| own.slot == *slot);
            let is_current = same.any(|own| own.gateway == server.gateway);
            if !is_current {
                server.stop();
            }
            is_current
        });
        for own in tables {
            let gateway = servers.entry(own.slot).or_insert_with(|| GatewayServers {
                gateway: own.gateway.clone(),
                table: Arc::default(),
                servers: HashMap::new(),
            });
            gateway.table.store(own.table.clone());
            for scheme in [Scheme::Http, Scheme::Https] {
                if let Err(error) = self.update_port(gateway, own, scheme, tasks) {
                    tracing::error!(slot = own.slot, %error, "can't serve a Gateway");
                }
            }
        }
    }

    /// Starts the server of a port, again if clients reach it at another one. The connections of
    /// the former one finish their requests.
    fn update_port(
        &self,
        gateway: &mut GatewayServers,
        own: &OwnTable,
        scheme: Scheme,
        tasks: &Tasks,
    ) -> Result<(), TlsError> {
        let port = own.ports.port_of(scheme);
        let known = gateway.servers.get(&scheme);
        if known.is_some_and(|server| server.port == port) {
            return Ok(());
        }
        if let Some(former) = gateway.servers.remove(&scheme) {
            former.stop.cancel();
        }
        let front = FrontPort {
            scheme,
            port,
            table: gateway.table.clone(),
        };
        let stop = self.start_server(own.slot, front, tasks)?;
        gateway.servers.insert(scheme, PortServer { port, stop });
        Ok(())
    }

    /// Starts a server, and returns what stops it.
    fn start_server(
        &self,
        slot: Slot,
        front: FrontPort,
        tasks: &Tasks,
    ) -> Result<CancellationToken, TlsError> {
        let tls = match front.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(build_tls(front.table.clone(), self.fallback.clone())?),
        };
        let options = base_serve::Options {
            // Half of what the Gateway can have, so that one port leaves some to the other.
            max_connections: self.options.max_connections.div_ceil(4),
            server_share: Some(ServerShare {
                places: self.places.clone(),
                clients: self.clients.clone(),
                server: slot,
            }),
            tls,
            ..self.options.clone()
        };
        let target = self.range.ports_of(slot).port_of(front.scheme);
        let address = (self.address, target);
        let stop = tasks.shutdown().child_token();
        let (proxy, stopped) = (self.proxy.clone(), stop.clone());
        tasks.spawn_isolated("gateway-port", async move {
            if let Some(listener) = bind_port(address, &stopped).await {
                serve_port(listener, options, proxy, front, stopped).await;
            }
        });
        Ok(stop)
    }
}

/// Binds a port; `None` after `stop`.
async fn bind_port(address: (IpAddr, u16), stop: &CancellationToken) -> Option<TcpListener> {
    let mut attempts = 0_u32;
    loop {
        match base_serve::bind_listener(address.into()).await {
            Ok(listener) => return Some(listener),
            Err(error) => {
                attempts = attempts.saturating_add(1);
                if attempts == WARN_AFTER {
                    tracing::warn!(%error, "can't bind a port of --gateway-ports; trying again");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

#[cfg(test)]
#[path = "own_ports_tests.rs"]
mod tests;
