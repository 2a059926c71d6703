//! The writing part of VolumeBinding: before a pod is bound, its waiting claims get a volume.
//!
//! A free volume is reserved by writing the claim into it; a provisioner learns the node from an
//! annotation on the claim. In both cases the volume controllers complete the binding, and PreBind
//! waits until a watch shows it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Client, ListParams, ObjectExt, Patch, WatchEvent};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use scheduler_framework::{
    BindError, Cluster, CycleState, ExtensionPoints, NodeInfo, Plugin, PodInfo, PreBind,
};
use serde_json::{Value, json};

use super::matching::{WaitingClaim, choose_volumes};
use super::{PodClaims, VolumeBinding};

const LIMIT: Duration = Duration::from_secs(600);

/// Reserves volumes. Created with [`VolumeBinder::with_client`], because a registry entry has no
/// client.
pub struct VolumeBinder {
    client: Client,
    cluster: Arc<dyn Cluster>,
}

impl VolumeBinder {
    /// Creates a binder that uses a client.
    pub fn with_client(client: Client, cluster: Arc<dyn Cluster>) -> Self {
        Self { client, cluster }
    }

    fn bind_error(error: impl std::fmt::Display) -> BindError {
        BindError {
            plugin: VolumeBinding::NAME,
            message: error.to_string(),
        }
    }

    async fn reserve_volume(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), BindError> {
        let patch = Patch::Merge(json!({
            "metadata": {
                // Optimistic concurrency: another scheduler or the volume controller may reserve
                // the volume at the same time.
                "resourceVersion": volume.resource_version(),
                // Marks a binding that the volume controller may undo. Without it the binding
                // counts as an administrator's.
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(),
                "name": claim.name(), "uid": claim.uid(), "resourceVersion": claim.resource_version(),
            }},
        }));
        let volumes = self.client.api::<PersistentVolume>();
        volumes
            .patch(volume.name(), &patch)
            .await
            .map(drop)
            .map_err(Self::bind_error)
    }

    async fn select_node(
        &self,
        claim: &PersistentVolumeClaim,
        node: &str,
    ) -> Result<(), BindError> {
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": claim.uid(),
                "annotations": {"volume.kubernetes.io/selected-node": node},
            },
        }));
        let claims = self
            .client
            .namespaced::<PersistentVolumeClaim>(claim.namespace());
        claims
            .patch(claim.name(), &patch)
            .await
            .map(drop)
            .map_err(Self::bind_error)
    }

    async fn wait_until_bound(&self, claim: &PersistentVolumeClaim) -> client::Result<()> {
        let claims = self
            .client
            .namespaced::<PersistentVolumeClaim>(claim.namespace());
        let params = ListParams::new().with_fields(format!("metadata.name={}", claim.name()));
        loop {
            // List before watch: the binding may have completed before this wait began.
            let list = claims.list(&params).await?;
            if list.items.iter().any(is_bound) {
                return Ok(());
            }
            let mut events = claims.watch(&params, list.resource_version(), 300).await?;
            while let Some(event) = events.next().await {
                match event? {
                    WatchEvent::Added(now) | WatchEvent::Modified(now) if is_bound(&now) => {
                        return Ok(());
                    }
                    WatchEvent::Error(status) => return Err(client::Error::Api(status)),
                    _ => {}
                }
            }
        }
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref());
    named.is_some_and(|name| !name.is_empty())
        && claim
            .annotation("pv.kubernetes.io/bind-completed")
            .is_some()
}

impl Plugin for VolumeBinder {
    const NAME: &'static str = VolumeBinding::NAME;

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Err("the binding of volumes needs a client".to_owned())
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_bind(&self);
    }
}

#[async_trait]
impl PreBind for VolumeBinder {
    async fn pre_bind(&self, state: &CycleState, _: &PodInfo, node: &str) -> Result<(), BindError> {
        let known = state
            .get::<PodClaims>()
            .map(|wanted| wanted.waiting.clone())
            .unwrap_or_default();
        // Volumes may have been bound since the node was chosen.
        let waiting: Vec<WaitingClaim> = known
            .iter()
            .map(|waiting| waiting.with_current_volumes(self.cluster.claim_view()))
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        // Read again, because the snapshot of the scheduling cycle is no longer held and labels may
        // have changed.
        let mut info = NodeInfo::new(node);
        info.set_node(Arc::new(
            self.client
                .api::<Node>()
                .get(node)
                .await
                .map_err(Self::bind_error)?,
        ));
        // All claims are written before the first wait, so that volumes are provisioned in
        // parallel.
        for (waiting, volume) in waiting.iter().zip(choose_volumes(&waiting, &info)) {
            match volume {
                Some(volume) => self.reserve_volume(&waiting.claim, volume).await?,
                None => self.select_node(&waiting.claim, node).await?,
            }
        }
        let all = async {
            for waiting in &waiting {
                self.wait_until_bound(&waiting.claim).await?;
            }
            Ok::<(), client::Error>(())
        };
        // Upstream's default of bindTimeoutSeconds. The pod is then unreserved and retried.
        match tokio::time::timeout(LIMIT, all).await {
            Ok(done) => done.map_err(Self::bind_error),
            Err(_) => Err(Self::bind_error(format!(
                "the claims were not bound within {LIMIT:?}"
            ))),
        }
    }
}
