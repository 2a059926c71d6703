//! Assembles and runs the gateway.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use base_serve::{FairPlaces, Http2Buffers};
use base_task::{CancellationToken, Tasks};
use client::events::Recorder;
use client::{Client, Config, election};
use component::{Check, Endpoints, HttpVersions, host_name};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::compile::OwnTable;
use crate::controller::{Controller, ControllerSettings};
use crate::flags::Flags;
use crate::infrastructure::AllowedAnnotations;
use crate::listener_ports::Ports;
use crate::metrics::Metrics;
use crate::own_ports::{OwnPorts, build_tls, serve_port};
use crate::proxy::{FrontPort, Limits, Proxy, Timeouts};
use crate::status_writer::StatusWriter;
use crate::table::{RoutingTable, Scheme};

/// Concurrent requests of an HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// Buffers of a connection of HTTP/2. Together with the limit of requests they bound the memory
/// that clients and endpoints can fill that do not read.
const BUFFERS: Http2Buffers = Http2Buffers {
    stream_window: 64 * 1024,
    connection_window: 128 * 1024,
    send: 16 * 1024,
};
/// The least `--max-requests`.
const MIN_REQUESTS: usize = 2;
/// Maximum size of a request's headers in bytes.
const MAX_HEADERS: usize = 32 * 1024;
/// Name in the certificate for hosts without one.
const DEFAULT_NAME: &str = "ironclad-gateway.invalid";

/// A gateway with its ports.
pub struct Gateway {
    flags: Flags,
    http: TcpListener,
    https: TcpListener,
}

impl Gateway {
    /// Binds the ports.
    ///
    /// # Errors
    /// A port can't be bound or has two uses, or a limit allows no request.
    pub async fn bind(flags: Flags) -> anyhow::Result<Self> {
        anyhow::ensure!(
            flags.max_requests >= MIN_REQUESTS,
            "--max-requests must be {MIN_REQUESTS} or more: one client gets half of them"
        );
        flags.check_gateway_ports()?;
        let http = base_serve::bind_listener(flags.http_listen).await?;
        let https = base_serve::bind_listener(flags.https_listen).await?;
        Ok(Self { flags, http, https })
    }

    /// Returns the bound addresses of HTTP and HTTPS.
    ///
    /// # Errors
    /// The operating system does not know them.
    pub fn addresses(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.http.local_addr()?, self.https.local_addr()?))
    }

    /// Serves until shutdown, and then finishes open requests.
    ///
    /// # Errors
    /// A flag or file can't be used, or a task failed.
    pub async fn serve(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let tasks = Tasks::new(shutdown);
        let flags = &self.flags;
        let config = Config::from_kubeconfig_or_in_cluster(flags.kubeconfig.as_deref())?;
        let client = Client::new(config.user_agent("ironclad-gateway"));
        let table: Arc<ArcSwap<RoutingTable>> = Arc::default();
        let metrics = Arc::new(Metrics::default());
        let controller = Controller::start(
            &client,
            &tasks,
            controller_settings(flags),
            table.clone(),
            metrics.clone(),
        );
        start_status_writer(&client, flags, &controller, &metrics, &tasks)?;
        start_health(&client, flags, &controller, &metrics, &tasks).await?;
        let own_tables = controller.subscribe_own_tables();
        let run = controller.run_controller(tasks.clone());
        tasks.spawn_critical("controller", run);
        let timeouts = Timeouts {
            response: flags.response_timeout,
            idle: flags.idle_timeout,
            drain: flags.shutdown_delay.saturating_add(flags.drain_timeout),
        };
        // Connections to endpoints may outlive the wait for tasks: their requests do not.
        let transfers = Tasks::new(tasks.shutdown().clone());
        let websockets = Tasks::new(tasks.shutdown().clone());
        let limits = Limits {
            timeouts,
            requests: flags.max_requests,
            body: (flags.max_body_size > 0).then_some(flags.max_body_size),
        };
        let proxy = Arc::new(Proxy::new(limits, metrics, transfers, websockets.clone()));
        tasks.spawn_critical("idle-connections", proxy.connections().close_expired());
        let served = serve_ports(self, &proxy, table, own_tables, &tasks)?;
        served.await;
        // The servers don't wait for them: their connections are no longer HTTP.
        websockets.wait(timeouts.drain).await;
        Ok(tasks.finish(std::time::Duration::from_secs(5)).await?)
    }
}

fn controller_settings(flags: &Flags) -> ControllerSettings {
    ControllerSettings {
        controller: flags.controller_name.clone(),
        ports: listener_ports(flags),
        publish_service: flags.publish_service.clone(),
        gateway_ports: flags.gateway_ports,
        other_listener_ports: flags.gateway_listener_port.clone(),
        gateway_annotations: AllowedAnnotations {
            of_model: flags.gateway_service_annotation.clone(),
            of_gateways: flags.gateway_infrastructure_annotation.clone(),
        },
        publish_addresses: flags.publish_address.clone(),
        endpoint_ranges: flags.endpoint_range.clone(),
        namespace: flags.election.leader_elect_resource_namespace.clone(),
    }
}

/// Returns the ports of listeners, at which clients reach the gateway.
fn listener_ports(flags: &Flags) -> Ports {
    Ports {
        http: flags.http_port,
        https: flags.https_port,
    }
}

fn start_status_writer(
    client: &Client,
    flags: &Flags,
    controller: &Controller,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let writer = StatusWriter {
        client: client.clone(),
        controller: flags.controller_name.clone(),
        namespace: flags.election.leader_elect_resource_namespace.clone(),
        findings: controller.subscribe_findings(),
        recorder: Recorder::new(client.clone(), "ironclad-gateway", host_name()),
        metrics: metrics.clone(),
    };
    let stop = tasks.shutdown().clone();
    let Some(lease) = flags.election.leader_config()? else {
        tasks.spawn_critical("status-writer", writer.write_until(stop));
        return Ok(());
    };
    let client = client.clone();
    tasks.spawn_critical("status-writer", async move {
        let lead = |term| writer.clone().write_until(term);
        election::run_leader_election(&client, lease, stop, lead).await;
    });
    Ok(())
}

async fn start_health(
    client: &Client,
    flags: &Flags,
    controller: &Controller,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let (ready, stopping) = (controller.readiness(), tasks.shutdown().clone());
    let checks = vec![
        Check::new("informer-sync", "not all have synced", move || {
            ready.load(Ordering::Acquire)
        }),
        Check::new("shutdown", "the process ends", move || {
            !stopping.is_cancelled()
        }),
    ];
    let metrics = metrics.clone();
    let access = flags.access.build_access(client, "ironclad-gateway")?;
    let open = flags.access.authorization_always_allow_paths.clone();
    let endpoints = Endpoints::new()
        .with_health(checks)
        .with_metrics(move || metrics.encode())
        .with_protection(access, open);
    // Ends with the process, so that the readiness of a draining gateway can be read.
    let serving = Tasks::new(CancellationToken::new());
    Ok(flags
        .serving
        .start_server(endpoints, HttpVersions::All, &serving)
        .await?)
}

/// Starts the servers of all ports. The returned future ends after the drain.
fn serve_ports(
    gateway: Gateway,
    proxy: &Arc<Proxy>,
    table: Arc<ArcSwap<RoutingTable>>,
    own_tables: watch::Receiver<Vec<OwnTable>>,
    tasks: &Tasks,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let Gateway { flags, http, https } = gateway;
    let fallback = Arc::new(base_tls::self_signed_key(vec![DEFAULT_NAME.to_owned()])?);
    let options = server_options(&flags);
    let encrypted = base_serve::Options {
        tls: Some(build_tls(table.clone(), fallback.clone())?),
        ..options.clone()
    };
    let accepting = CancellationToken::new();
    let own = flags.gateway_ports.map(|range| OwnPorts {
        address: flags.http_listen.ip(),
        range,
        options: options.clone(),
        places: FairPlaces::new(flags.max_connections),
        clients: FairPlaces::new(flags.max_connections),
        fallback,
        proxy: proxy.clone(),
    });
    let own = own.map(|own| own.follow_tables(own_tables, accepting.clone()));
    let serve = |listener, options, scheme, port| {
        let table = table.clone();
        let front = FrontPort {
            scheme,
            port,
            table,
        };
        serve_port(listener, options, proxy.clone(), front, accepting.clone())
    };
    let plain = serve(http, options, Scheme::Http, flags.http_port);
    let secure = serve(https, encrypted, Scheme::Https, flags.https_port);
    let (shutdown, delay, stop) = (tasks.shutdown().clone(), flags.shutdown_delay, accepting);
    tracing::info!(http = %flags.http_listen, https = %flags.https_listen, "serving requests");
    Ok(async move {
        let end = async {
            shutdown.cancelled().await;
            // Clients and load balancers learn of the shutdown from the readiness.
            tokio::time::sleep(delay).await;
            stop.cancel();
        };
        let own = async {
            if let Some(own) = own {
                own.await;
            }
        };
        tokio::join!(plain, secure, own, end);
    })
}

fn server_options(flags: &Flags) -> base_serve::Options {
    base_serve::Options {
        deadline: flags.header_timeout,
        max_header_bytes: MAX_HEADERS,
        max_streams: MAX_STREAMS,
        buffers: BUFFERS,
        max_connections: flags.max_connections,
        share_connections: true,
        idle: Some(flags.header_timeout),
        drain: flags.drain_timeout,
        ..base_serve::Options::default()
    }
}

/// Runs the gateway with the flags of a command line.
///
/// # Errors
/// As for [`Gateway::bind`] and [`Gateway::serve`].
pub async fn run(flags: Flags, shutdown: CancellationToken) -> anyhow::Result<()> {
    Gateway::bind(flags).await?.serve(shutdown).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[tokio::test]
    async fn limit_that_allows_no_request_is_refused() {
        for (limit, is_bound) in [(0, false), (1, false), (2, true)] {
            let flags = Flags::try_parse_from([
                "ironclad-gateway",
                "--http-listen=127.0.0.1:0",
                "--https-listen=127.0.0.1:0",
                &format!("--max-requests={limit}"),
            ]);
            let bound = Gateway::bind(flags.unwrap()).await;
            assert_eq!(bound.is_ok(), is_bound, "{limit}");
        }
    }
}
