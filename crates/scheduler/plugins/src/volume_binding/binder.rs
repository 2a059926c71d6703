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
    BindError, Cluster, CycleState, NodeInfo, Plugin, PodInfo, Points, PreBind,
};
use serde_json::{Value, json};

use super::matching::{Waiting, choose_volumes};
use super::{VolumeBinding, Wanted};

const LIMIT: Duration = Duration::from_secs(600);

/// Reserves volumes. Created with [`VolumeBinder::with`], because a registry entry has no client.
pub struct VolumeBinder {
    client: Client,
    cluster: Arc<dyn Cluster>,
}

impl VolumeBinder {
    /// Creates a binder that uses a client.
    pub fn with(client: Client, cluster: Arc<dyn Cluster>) -> Self {
        Self { client, cluster }
    }

    fn failed(error: impl std::fmt::Display) -> BindError {
        BindError {
            plugin: VolumeBinding::NAME,
            message: error.to_string(),
        }
    }

    async fn reserve(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), BindError> {
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": volume.resource_version(),
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
            .map_err(Self::failed)
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
            .map_err(Self::failed)
    }

    async fn bound(&self, claim: &PersistentVolumeClaim) -> client::Result<()> {
        let claims = self
            .client
            .namespaced::<PersistentVolumeClaim>(claim.namespace());
        let params = ListParams::new().fields(format!("metadata.name={}", claim.name()));
        loop {
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

    fn extend(self: Arc<Self>, points: &mut Points) {
        points.pre_bind(&self);
    }
}

#[async_trait]
impl PreBind for VolumeBinder {
    async fn pre_bind(&self, state: &CycleState, _: &PodInfo, node: &str) -> Result<(), BindError> {
        let known = state
            .get::<Wanted>()
            .map(|wanted| Arc::clone(&wanted.waiting))
            .unwrap_or_default();
        // Volumes may have been bound since the node was chosen.
        let waiting: Vec<Waiting> = known
            .iter()
            .map(|waiting| waiting.refreshed(self.cluster.claims()))
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let mut info = NodeInfo::new(node);
        info.set_node(Arc::new(
            self.client
                .api::<Node>()
                .get(node)
                .await
                .map_err(Self::failed)?,
        ));
        for (waiting, volume) in waiting.iter().zip(choose_volumes(&waiting, &info)) {
            match volume {
                Some(volume) => self.reserve(&waiting.claim, volume).await?,
                None => self.select_node(&waiting.claim, node).await?,
            }
        }
        let all = async {
            for waiting in &waiting {
                self.bound(&waiting.claim).await?;
            }
            Ok::<(), client::Error>(())
        };
        match tokio::time::timeout(LIMIT, all).await {
            Ok(done) => done.map_err(Self::failed),
            Err(_) => Err(Self::failed(format!(
                "the claims were not bound within {LIMIT:?}"
            ))),
        }
    }
}
