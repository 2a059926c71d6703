//! Assembles and runs the kubelet.

use crate::cgroups::{Cgroups, least_oom_score};
use crate::config::Settings;
use crate::context::{KubeletContext, STARTS_AT_ONCE};
use crate::node::{self, Machine};
use crate::serving::Serving;
use crate::volumes::Objects;
use crate::worker::{Message, Workers};
use crate::{certificates, devices, housekeeping, images, pleg, sources};
use anyhow::Context;
use base_task::{CancellationToken, Tasks};
use base_tls::{ClientAuth, ServerTls};
use client::{Client, Config, Informer, ListParams, events::Recorder};
use component::{Endpoints, SelfSignedError};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use node_devices::Devices;
use node_runtime::Runtime;
use node_server::{Access, AccessOptions, Server};
use parking_lot::RwLock;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

const USER_AGENT: &str = concat!("kubelet/v1.36.2+ironclad.", env!("CARGO_PKG_VERSION"));

/// Runs until `shutdown`. `runtime_endpoint` is a Unix socket (for the simulated runtime, where its
/// server listens).
///
/// The future is boxed, so that its code is compiled here and not once more in the program.
///
/// # Errors
/// The reason why the kubelet can't start, in one sentence with its remedy.
pub fn run(
    settings: Settings,
    runtime_endpoint: &str,
    shutdown: CancellationToken,
) -> BoxFuture<'_, anyhow::Result<()>> {
    Box::pin(run_kubelet(settings, runtime_endpoint, shutdown))
}

async fn run_kubelet(
    settings: Settings,
    runtime_endpoint: &str,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let tasks = Tasks::new(shutdown.clone());
    make_root(&settings)?;
    let runtime = Runtime::new(runtime_endpoint)?;
    // A runtime may start later than the kubelet, for example after a reboot.
    let version = runtime_version(&runtime, &shutdown).await?;
    let client = tokio::select! {
        client = connect_client(&settings) => client?,
        () = shutdown.cancelled() => anyhow::bail!("stopped while waiting for a client certificate"),
    };
    // Bound before anything is started: a second kubelet on this node fails here and touches
    // neither containers nor cgroups.
    let listener = base_serve::bind_listener(settings.serving.address).await?;
    let port = listener.local_addr()?.port();
    if let Some(path) = &settings.serving.port_file {
        base_serve::write_port_file(path, port)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    let health = match settings.serving.healthz {
        Some(address) => Some(base_serve::bind_listener(address).await?),
        None => None,
    };
    // Before the first pod is started: with pull policy Never it would fail without its image.
    if let Some(folder) = &settings.image_archives {
        images::preload_archives(folder, runtime.socket()).await;
    }
    let machine = Machine::observe(
        &settings.node_name,
        &format!("{}://{}", version.runtime_name, version.runtime_version),
    );
    let kubelet = new_context(settings, runtime, &version, client.clone(), &tasks)?;
    kubelet.update_features(
        &kubelet
            .runtime
            .status()
            .await
            .context("the status of the runtime can't be read")?,
    );
    let tls = server_tls(&kubelet.settings)?;
    // The only place that sets it, so the call can't fail.
    let _ = kubelet.serving_certificate.set(tls.certificate.clone());
    start_servers(&kubelet, listener, health, tls)?;
    tracing::info!(
        port,
        node = kubelet.settings.node_name,
        "kubelet is ready to serve"
    );
    start_tasks(&kubelet, client, machine, port);
    // Containers are not stopped. A restarted kubelet recovers them, and an upgrade of the kubelet
    // must not interrupt pods.
    shutdown.cancelled().await;
    tracing::info!("stopping; containers keep running");
    tasks.finish(Duration::from_secs(5)).await?;
    Ok(())
}

/// Returns the client of the API server, after the bootstrap of its certificate; None without a
/// kubeconfig.
async fn connect_client(settings: &Settings) -> anyhow::Result<Option<Client>> {
    let Some(path) = &settings.credentials.kubeconfig else {
        return Ok(None);
    };
    let store = certificates::open_client_store(&settings.credentials.cert_dir);
    if let Some(bootstrap) = &settings.credentials.bootstrap_kubeconfig {
        let node = &settings.node_name;
        certificates::ensure_kubeconfig(path, bootstrap, &store, node, USER_AGENT).await?;
    }
    let in_file = || format!("kubeconfig {}", path.display());
    let mut config = Config::from_kubeconfig(path).with_context(in_file)?;
    if settings.credentials.rotate_certificates {
        config = certificates::adopt_identity(config, &store).with_context(in_file)?;
    }
    Ok(Some(Client::new(config.user_agent(USER_AGENT))))
}

fn make_root(settings: &Settings) -> anyhow::Result<()> {
    for folder in [
        settings.root_dir.clone(),
        settings.root_dir.join("pods"),
        settings.logs_dir.clone(),
    ] {
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("can't create {}", folder.display()))?;
    }
    // Volumes hold Secrets and users' data; other users of the node must not list them.
    let private = std::fs::Permissions::from_mode(0o750);
    std::fs::set_permissions(settings.root_dir.join("pods"), private)
        .context("can't set the mode of the pods' folder")
}

/// Retries for some time, because the runtime is often started at the same moment.
async fn runtime_version(
    runtime: &Runtime,
    shutdown: &CancellationToken,
) -> anyhow::Result<node_runtime::v1::VersionResponse> {
    let mut last = String::new();
    for turn in 0..150u32 {
        match runtime.version().await {
            Ok(version) => return Ok(version),
            Err(e) if e.is_unimplemented() => {
                anyhow::bail!(
                    "the runtime at {} does not speak CRI v1; containerd 1.6 or newer does",
                    runtime.socket().display()
                );
            }
            Err(e) => last = e.to_string(),
        }
        // Silent for the first two seconds: runtime and kubelet are usually started at the same
        // moment.
        if turn == 10 {
            tracing::warn!(socket = %runtime.socket().display(), "waiting for the container runtime");
        }
        tokio::select! {
            () = shutdown.cancelled() => anyhow::bail!("stopped while waiting for the runtime"),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
    anyhow::bail!(
        "no container runtime answers at {}: start it, or name another with --container-runtime-endpoint ({last})",
        runtime.socket().display()
    )
}

/// Builds the context that every part of the kubelet shares.
pub(crate) fn new_context(
    settings: Settings,
    runtime: Runtime,
    version: &node_runtime::v1::VersionResponse,
    client: Option<Client>,
    tasks: &Tasks,
) -> anyhow::Result<Arc<KubeletContext>> {
    let workers: Arc<Workers> = Arc::default();
    // A changed ConfigMap or Secret wakes only the workers of the pods that use it.
    let changed = {
        let workers = workers.clone();
        Arc::new(move |uid: &str| {
            workers.send(uid, Message::Refresh);
        })
    };
    let cgroups = Cgroups::new(settings.cgroup_root.as_deref(), settings.pod_pids)
        .context("can't make the pods' cgroups: run as root with a writable /sys/fs/cgroup, or with --simulated")?;
    let capacity = node::measure_capacity(&settings);
    let devices = Devices::open(&settings.root_dir.join("prepared_claims.json"))?;
    let services = client
        .as_ref()
        .map(|c| Informer::<Service>::new(c.api(), ListParams::new()).spawn(tasks));
    Ok(Arc::new(KubeletContext {
        recorder: match &client {
            Some(client) => Recorder::new(client.clone(), "kubelet", settings.node_name.clone()),
            None => Recorder::disconnected(),
        },
        objects: Objects::new(client.clone(), tasks.clone(), changed),
        runtime_name: version.runtime_name.clone(),
        allocatable: node::compute_allocatable(&capacity, &settings.reserved),
        capacity,
        ips: settings.node_ips.iter().map(ToString::to_string).collect(),
        least_oom_score: least_oom_score(),
        starts: Semaphore::new(STARTS_AT_ONCE),
        tasks: tasks.clone(),
        settings,
        runtime,
        client,
        services,
        cgroups,
        devices,
        workers,
        features: RwLock::default(),
        static_pod_removed: Notify::new(),
        serving_certificate: OnceLock::new(),
    }))
}

fn start_servers(
    kubelet: &Arc<KubeletContext>,
    listener: tokio::net::TcpListener,
    health: Option<tokio::net::TcpListener>,
    tls: ServerTls,
) -> anyhow::Result<()> {
    let options = AccessOptions {
        client_ca: kubelet.settings.serving.client_ca.clone(),
        anonymous: kubelet.settings.serving.anonymous,
        tokens: kubelet.settings.serving.webhook_tokens,
        authorize: kubelet.settings.serving.webhook_authorization,
        answer_lifetimes: kubelet.settings.serving.answer_lifetimes,
        node: kubelet.settings.node_name.clone(),
    };
    let access = Access::new(options, kubelet.client.clone()).context("client CA")?;
    let server = Server::new(
        access,
        Arc::new(Serving::new(kubelet.clone())),
        kubelet.tasks.clone(),
        kubelet.settings.serving.debugging,
    );
    let tls = base_tls::server_config_with(&tls, &kubelet.settings.serving.offer)
        .context("server certificate")?;
    let options = base_serve::Options {
        tls: Some(tls),
        // Streams of exec and logs never end by themselves, so the shutdown does not wait for them.
        drain: Duration::from_secs(1),
        ..base_serve::Options::default()
    };
    let shutdown = kubelet.tasks.shutdown().clone();
    kubelet
        .tasks
        .spawn_critical("server", server.serve(listener, options, shutdown));
    if let Some(listener) = health {
        let options = base_serve::Options {
            drain: Duration::from_millis(100),
            ..base_serve::Options::default()
        };
        let endpoints = Endpoints::new().with_health(Vec::new());
        endpoints.serve_pages("health server", listener, options, &kubelet.tasks);
    }
    Ok(())
}

fn start_tasks(kubelet: &Arc<KubeletContext>, client: Option<Client>, machine: Machine, port: u16) {
    if let Some(client) = &client {
        start_renewals(kubelet, client);
    }
    let pods = client
        .as_ref()
        .map(|client| sources::api::follow_pods(kubelet, client));
    if let Some(pods) = pods.clone() {
        let workers = kubelet.workers.clone();
        let shutdown = kubelet.tasks.shutdown().clone();
        kubelet.tasks.spawn("pending resizes", async move {
            let synced = shutdown.run_until_cancelled(pods.wait_until_synced());
            if synced.await.is_some() {
                workers.allow_resizes();
            }
        });
    }
    if let (Some(client), true) = (client, kubelet.settings.register) {
        kubelet.tasks.spawn_critical(
            "node status",
            node::keep_registered(
                kubelet.clone(),
                client,
                machine,
                port,
                Arc::new(Notify::new()),
            ),
        );
    }
    if let Some(folder) = kubelet.settings.static_pods.clone() {
        kubelet.tasks.spawn_critical(
            "static pods",
            sources::files::follow_manifests(kubelet.clone(), folder),
        );
    }
    kubelet.tasks.spawn_critical(
        "plugins of devices",
        devices::follow_plugins(kubelet.clone()),
    );
    kubelet
        .tasks
        .spawn_critical("runtime events", pleg::follow_runtime(kubelet.clone()));
    kubelet.tasks.spawn_critical(
        "housekeeping",
        housekeeping::run_housekeeping(kubelet.clone()),
    );
    let keeper = kubelet.clone();
    kubelet.tasks.spawn_critical("orphans", async move {
        let shutdown = keeper.tasks.shutdown().clone();
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = async {
                if let Some(pods) = &pods {
                    pods.wait_until_synced().await;
                }
                // Static pods have no list that could sync: their workers register within this
                // time.
                tokio::time::sleep(Duration::from_secs(2)).await;
            } => {}
        }
        housekeeping::run_orphan_collection(keeper).await;
    });
}

/// Starts the renewal of the node's certificates.
fn start_renewals(kubelet: &Arc<KubeletContext>, client: &Client) {
    let settings = &kubelet.settings;
    let (node, shutdown) = (&settings.node_name, kubelet.tasks.shutdown());
    if settings.credentials.rotate_certificates && client.config().identity.is_some() {
        kubelet.tasks.spawn_critical(
            "client certificate",
            certificates::keep_client_certificate(
                client.clone(),
                certificates::open_client_store(&settings.credentials.cert_dir),
                node.clone(),
                settings.credentials.bootstrap_kubeconfig.is_some(),
                shutdown.clone(),
            ),
        );
    }
    if requests_serving_certificate(settings) {
        kubelet.tasks.spawn_critical(
            "serving certificate",
            certificates::keep_serving_certificate(
                client.clone(),
                certificates::open_serving_store(&settings.credentials.cert_dir),
                node.clone(),
                settings.node_ips.clone(),
                shutdown.clone(),
            ),
        );
    }
}

/// Returns whether the serving certificate comes from the cluster: not if a file gives it, or
/// without a cluster.
fn requests_serving_certificate(settings: &Settings) -> bool {
    settings.credentials.server_tls_bootstrap
        && settings.serving.tls.is_none()
        && settings.credentials.kubeconfig.is_some()
}

/// Loads the given certificate, the one from the cluster, or a self-signed one that is kept for the
/// next start.
fn server_tls(settings: &Settings) -> anyhow::Result<ServerTls> {
    let (certificate, key) = match &settings.serving.tls {
        Some(pair) => pair.clone(),
        None if requests_serving_certificate(settings) => {
            let store = certificates::open_serving_store(&settings.credentials.cert_dir);
            certificates::ensure_self_signed_pair(&store, own_names(settings))?;
            (store.current_path(), store.current_path())
        }
        None => ensure_own_certificate(settings)?,
    };
    // kubectl upgrades HTTP/1.1 connections to SPDY and WebSocket; HTTP/2 has no such upgrade.
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(ServerTls {
        certificate,
        key,
        // Not required: clients with a bearer token have no certificate.
        client_auth: ClientAuth::Request,
        alpn,
    })
}

fn ensure_own_certificate(settings: &Settings) -> Result<(PathBuf, PathBuf), SelfSignedError> {
    component::self_signed_pair(
        &settings.credentials.cert_dir,
        "kubelet",
        own_names(settings),
    )
}

/// Returns the names of this node's server.
fn own_names(settings: &Settings) -> Vec<String> {
    settings
        .node_ips
        .iter()
        .map(IpAddr::to_string)
        .chain([settings.node_name.clone(), "localhost".into()])
        .collect()
}
