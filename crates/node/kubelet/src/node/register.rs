//! Registers the Node object and keeps its status up to date.
//!
//! The status is polled, because the runtime sends no events about itself. It is written if it
//! differs from that in the API, which others change too, if this process has not written it yet,
//! or if its last write is older than `report_every`; the heartbeat is the Lease.

use super::object::{self, NodeObservation};
use super::{Machine, lease};
use crate::context::KubeletContext;
use client::{Client, Informer, ListParams, Patch, Store};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use node_runtime::v1::{Image, RuntimeStatus};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Registers the node and updates its status until shutdown. `now` requests an update ahead of
/// time.
pub(crate) async fn keep_registered(
    kubelet: Arc<KubeletContext>,
    client: Client,
    machine: Machine,
    port: u16,
    now: Arc<Notify>,
) {
    let shutdown = kubelet.tasks.shutdown().clone();
    let own = format!("metadata.name={}", kubelet.settings.node_name);
    let nodes = Informer::new(client.api::<Node>(), ListParams::new().with_fields(own));
    let mut registration = NodeRegistration {
        kubelet: kubelet.clone(),
        client: client.clone(),
        machine,
        port,
        nodes: nodes.spawn(&kubelet.tasks),
        last_status: NodeStatus::default(),
        written: None,
        runtime: LastRuntimeStatus::default(),
        uid: watch::Sender::default(),
    };
    let uid = tokio::select! {
        () = shutdown.cancelled() => return,
        uid = registration.register() => uid,
    };
    // The Lease is owned by this uid, so the heartbeat starts only now.
    registration.uid.send_replace(uid);
    kubelet.tasks.spawn_critical(
        "node lease",
        lease::renew_lease(kubelet.clone(), client, registration.uid.subscribe()),
    );
    loop {
        let ready = registration.write_status().await;
        // Polls faster until the node is ready, because clients wait for readiness.
        let every = if ready {
            kubelet.settings.reporting.status_every
        } else {
            Duration::from_millis(500)
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = now.notified() => {}
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// Time for which a runtime that does not answer counts as up. A restart of containerd takes a
/// moment, but all endpoints of a node that is not ready are withdrawn.
const RUNTIME_GRACE: Duration = Duration::from_secs(30);

/// Last answer of the runtime.
#[derive(Default)]
struct LastRuntimeStatus(Option<(Instant, RuntimeStatus, Vec<Image>)>);

impl LastRuntimeStatus {
    fn put(&mut self, status: RuntimeStatus, images: Vec<Image>, now: Instant) {
        self.0 = Some((now, status, images));
    }

    /// Returns the answer unless it is too old.
    fn fresh_at(&self, now: Instant) -> (Option<&RuntimeStatus>, &[Image]) {
        match &self.0 {
            Some((at, status, images)) if now.duration_since(*at) < RUNTIME_GRACE => {
                (Some(status), images)
            }
            _ => (None, &[]),
        }
    }
}

struct NodeRegistration {
    kubelet: Arc<KubeletContext>,
    client: Client,
    machine: Machine,
    port: u16,
    /// The own Node object only.
    nodes: Store<Node>,
    /// Status in the API, as far as known.
    last_status: NodeStatus,
    /// Time of the last write.
    written: Option<Instant>,
    runtime: LastRuntimeStatus,
    /// The Node object's uid.
    uid: watch::Sender<String>,
}

impl NodeRegistration {
    /// Retries until the Node object exists; returns its uid.
    async fn register(&mut self) -> String {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.try_register().await {
                Ok(found) => {
                    self.last_status = found.status.unwrap_or_default();
                    tracing::info!(node = self.kubelet.settings.node_name, "node registered");
                    return found.metadata.uid.unwrap_or_default();
                }
                Err(e) => tracing::warn!(error = %e, "the node can't be registered; trying again"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(7));
        }
    }

    async fn try_register(&mut self) -> client::Result<Node> {
        let api = self.client.api::<Node>();
        let name = self.kubelet.settings.node_name.clone();
        match api.get_opt(&name).await? {
            // A node that was drained, tainted or labelled by its administrator stays as it is.
            Some(found) => self.adopt_node(found).await,
            None => {
                self.poll_runtime().await;
                api.create(&object::new_node(&self.kubelet, &self.observe()))
                    .await
            }
        }
    }

    /// Updates an existing Node's labels; labels and taints of other owners stay.
    async fn adopt_node(&self, found: Node) -> client::Result<Node> {
        let has = found.metadata.labels.clone().unwrap_or_default();
        let desired = object::build_labels(&self.kubelet.settings, &self.machine);
        let missing: BTreeMap<&String, &String> = desired
            .iter()
            .filter(|(k, v)| has.get(*k) != Some(v))
            .collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let patch = Patch::Merge(json!({"metadata": {"labels": missing}}));
        self.client
            .api::<Node>()
            .patch(&self.kubelet.settings.node_name, &patch)
            .await
    }

    async fn poll_runtime(&mut self) {
        let (status, images) = tokio::join!(
            self.kubelet.runtime.status(),
            self.kubelet.runtime.list_images()
        );
        if let Ok(status) = status {
            self.kubelet.update_features(&status);
            self.runtime.put(
                status.status.unwrap_or_default(),
                images.unwrap_or_default(),
                Instant::now(),
            );
        }
    }

    fn observe(&self) -> NodeObservation<'_> {
        let (runtime, images) = self.runtime.fresh_at(Instant::now());
        NodeObservation {
            machine: &self.machine,
            runtime,
            images,
            port: self.port,
            now: Timestamp::now(),
        }
    }

    /// Writes the status if it is due. Returns true if the node is ready and the API server has
    /// that status.
    async fn write_status(&mut self) -> bool {
        self.poll_runtime().await;
        // The node lifecycle controller may have changed it while this kubelet could not renew its
        // Lease.
        if let Some(stored) = self.nodes.get(&self.kubelet.settings.node_name) {
            self.last_status = stored.status.clone().unwrap_or_default();
        }
        let status = object::build_status(&self.kubelet, &self.observe(), &self.last_status);
        let ready = status
            .conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        // Every write of a Node wakes all watchers of nodes; the Lease is the cheap heartbeat.
        let report_every = self.kubelet.settings.reporting.report_every;
        let due = self
            .written
            .is_none_or(|written| written.elapsed() >= report_every)
            || object::is_outdated(&self.last_status, &status);
        if !due {
            return ready;
        }
        let patch = Patch::Strategic(json!({"status": build_status_patch(&status)}));
        match self
            .client
            .api::<Node>()
            .patch_status(&self.kubelet.settings.node_name, &patch)
            .await
        {
            Ok(_) => {
                self.last_status = status;
                self.written = Some(Instant::now());
                ready
            }
            // The Node was deleted while the kubelet runs; without one, the pod garbage collector
            // deletes the pods of this node.
            Err(e) if e.is_not_found() => {
                tracing::warn!("the node object was deleted; registering again");
                let uid = self.register().await;
                self.uid.send_replace(uid);
                false
            }
            Err(e) => {
                tracing::warn!(error = %e, "the node's status can't be written");
                false
            }
        }
    }
}

/// Builds the patch. Addresses are replaced as a whole, because a merge would keep removed ones.
fn build_status_patch(status: &NodeStatus) -> serde_json::Value {
    let mut body = serde_json::to_value(status).unwrap_or_default();
    if let Some(list) = body
        .get_mut("addresses")
        .and_then(serde_json::Value::as_array_mut)
    {
        list.push(json!({"$patch": "replace"}));
    }
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runtime_that_is_away_for_a_moment_counts_as_up() {
        let (start, mut last) = (Instant::now(), LastRuntimeStatus::default());
        assert!(last.fresh_at(start).0.is_none(), "it has never answered");
        last.put(RuntimeStatus::default(), vec![Image::default()], start);
        let later = |seconds| last.fresh_at(start + Duration::from_secs(seconds));
        assert!(later(29).0.is_some() && later(29).1.len() == 1);
        assert!(later(30).0.is_none() && later(30).1.is_empty());
    }
}
