//! The agent: an informer of the nodes and the kernel's notifications start a sync.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base_task::Tasks;
use client::{Client, Event, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::Node;
use net_link::{ChangeMonitor, Netlink, PublicKey};
use net_nft::TableWatch;
use tokio::sync::{Notify, watch};

use crate::conflist::remove_conflist;
use crate::identity::remove_identity;
use crate::kernel::remove_devices;
use crate::peers::{KEY_ANNOTATION, NodeEntry};
use crate::publisher::publish_keys;
use crate::settings::NodeSettings;
use crate::sync::NodeNetwork;

/// Changes within this time are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// Pause after a change of the kernel: each pod changes devices.
const KERNEL_DELAY: Duration = Duration::from_secs(1);
/// Pause after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Pause after the kernel refused entries of single nodes: a node that was taken over can cause it.
const ENTRY_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Interval of checks of what the kernel does not notify of: the rules on some kernels, and the
/// peers of WireGuard.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Keeps the node's network equal to the Node objects until shutdown. Everything stays.
/// `publisher` writes the node's own object, with the backend `wireguard` only.
///
/// # Errors
/// The kernel does not notify of changes, or `nft` can't be used.
pub async fn run_agent(
    client: Client,
    publisher: Client,
    settings: NodeSettings,
    tasks: Tasks,
) -> io::Result<()> {
    // First: whatever fails, pods must not start with the configuration of another backend.
    let network = NodeNetwork::new(settings.clone());
    network.remove_foreign_conflist()?;
    net_nft::check_nft().await.map_err(io::Error::other)?;
    let monitor = ChangeMonitor::open()?;
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    let nodes = Informer::new(client.api::<Node>(), ListParams::new())
        .transform(strip_node)
        .on_event(move |event| {
            if changes_network(&event) {
                notify.notify_one();
            }
        })
        .spawn(&tasks);
    let (unpublished, receiver) = watch::channel(None);
    let publishes = publish_keys(publisher, settings.node_name.clone(), receiver);
    let stop = tasks.shutdown().clone();
    tasks.spawn("key publisher", async move {
        stop.run_until_cancelled(publishes).await;
    });
    // A name for the life of the process, as the watch needs it.
    let table: &'static str = settings.table().leak();
    let mut agent = Agent {
        watch: TableWatch::open(table, CHECK_INTERVAL),
        network,
        nodes,
        unpublished,
        has_host_ports: false,
        reported: BTreeSet::new(),
    };
    let shutdown = tasks.shutdown().clone();
    tokio::select! {
        ended = agent.follow_changes(&changed, monitor) => ended,
        () = shutdown.cancelled() => Ok(()),
    }
}

/// Removes what an agent with the settings made, and the host ports of its pods.
///
/// # Errors
/// The kernel, `nft` or the directory refuses it.
pub async fn remove_network(settings: &NodeSettings) -> io::Result<()> {
    // First: the runtime must not start pods meanwhile.
    remove_conflist(&settings.conf_dir)?;
    base_task::blocking(|| {
        let mut netlink = Netlink::open().map_err(io::Error::other)?;
        remove_devices(&mut netlink, settings).map_err(io::Error::other)
    })?;
    let removed = net_cni::remove_host_ports(&settings.bridge).await;
    removed.map_err(io::Error::other)?;
    base_task::blocking(|| remove_identity(&settings.private_key_path()))?;
    for family in net_nft::supported_families() {
        let deleted = net_nft::delete_table(family, &settings.table()).await;
        deleted.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Removes the parts of a Node that the network does not depend on: they are longer than the rest.
fn strip_node(node: &mut Node) {
    node.metadata.managed_fields = None;
    let annotations = node.metadata.annotations.take().unwrap_or_default();
    let key = annotations
        .into_iter()
        .find(|(name, _)| name == KEY_ANNOTATION);
    node.metadata.annotations = key.map(|entry| [entry].into());
    node.metadata.labels = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        status.conditions = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

/// Returns whether the network depends on the change: kubelets change other parts all the time.
fn changes_network(event: &Event<Node>) -> bool {
    match event {
        Event::Applied {
            old: Some(old),
            new,
        } => NodeEntry::read(old) != NodeEntry::read(new),
        _ => true,
    }
}

struct Agent {
    network: NodeNetwork,
    nodes: Store<Node>,
    /// The key that has to be published.
    unpublished: watch::Sender<Option<PublicKey>>,
    watch: TableWatch,
    /// The host ports were installed since another program changed the rules.
    has_host_ports: bool,
    /// Problems that were logged, as long as they last.
    reported: BTreeSet<String>,
}

impl Agent {
    async fn follow_changes(
        &mut self,
        changed: &Notify,
        mut monitor: ChangeMonitor,
    ) -> io::Result<()> {
        self.wait_for_nodes().await;
        loop {
            let retry = self.sync().await;
            // A sync's own changes are among the notifications: the next one finds no difference.
            tokio::select! {
                () = changed.notified() => tokio::time::sleep(BATCH_DELAY).await,
                change = monitor.wait_for_change() => {
                    change?;
                    tokio::time::sleep(KERNEL_DELAY).await;
                    self.network.mark_kernel();
                }
                _ = self.watch.wait_for_work() => {
                    self.network.mark_rules();
                    // Programs that remove the rules of others remove all.
                    self.has_host_ports = false;
                }
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
                () = tokio::time::sleep(CHECK_INTERVAL), if self.network.is_encrypted() => {
                    self.network.mark_kernel();
                }
            }
        }
    }

    /// Waits until the nodes are known. Meanwhile, nothing is sent unencrypted that must not be.
    async fn wait_for_nodes(&mut self) {
        loop {
            let problems = BTreeSet::from_iter(self.ensure_drops().await);
            let is_failed = !problems.is_empty();
            self.report(problems);
            tokio::select! {
                () = self.nodes.wait_until_synced() => return,
                _ = self.watch.wait_for_work() => self.network.mark_rules(),
                () = tokio::time::sleep(RETRY_DELAY), if is_failed => {}
            }
        }
    }

    /// Makes one sync. Returns the time after which it is tried again.
    async fn sync(&mut self) -> Option<Duration> {
        let nodes = self.nodes.list();
        let watch = &mut self.watch;
        let apply = |rules: String| async move { watch.apply(&rules).await };
        let synced = self.network.sync(&nodes, apply).await;
        let key = self.network.unpublished_key();
        self.unpublished
            .send_if_modified(|sent| std::mem::replace(sent, key) != key);
        let (problems, retry) = match synced {
            Ok(mut problems) => {
                problems.extend(self.restore_host_ports().await);
                let retry = match (self.has_host_ports, self.network.is_complete()) {
                    (true, true) => None,
                    (true, false) => Some(ENTRY_RETRY_DELAY),
                    (false, _) => Some(RETRY_DELAY),
                };
                (problems, retry)
            }
            Err(error) => {
                let mut problems = BTreeSet::from([error.to_string()]);
                problems.extend(self.ensure_drops().await);
                (problems, Some(RETRY_DELAY))
            }
        };
        self.report(problems);
        retry
    }

    /// Installs the rules against unencrypted packets, if they are missing. Returns the problem.
    async fn ensure_drops(&mut self) -> Option<String> {
        let watch = &mut self.watch;
        let apply = |rules: String| async move { watch.apply(&rules).await };
        let ensured = self.network.ensure_drops(apply).await;
        ensured.err().map(|error| error.to_string())
    }

    /// Installs the host ports, if another program may have removed them. Returns the problem.
    async fn restore_host_ports(&mut self) -> Option<String> {
        if self.has_host_ports {
            return None;
        }
        match self.network.restore_host_ports().await {
            Ok(()) => {
                self.has_host_ports = true;
                None
            }
            Err(error) => Some(format!("host ports: {error}")),
        }
    }

    /// Logs each problem once, as long as it lasts.
    fn report(&mut self, problems: BTreeSet<String>) {
        for problem in problems.difference(&self.reported) {
            tracing::warn!(problem, "a part of the pod network differs from the nodes");
        }
        if problems.is_empty() && !self.reported.is_empty() {
            tracing::info!("the pod network equals the nodes");
        }
        self.reported = problems;
    }
}
