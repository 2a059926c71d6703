//! Mirror pods: the API server's copies of static pods, for people to see. They are made, and made again when somebody
//! deletes them; they never decide anything.

use super::{HASH, MIRROR, annotation};
use crate::context::Node;
use crate::pod::spec;
use crate::worker::{Message, Shown};
use client::DeleteParams;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;
use std::time::Duration;

/// Makes the mirror of a static pod, until it is there or not wanted any more.
pub(crate) fn wanted(node: &Arc<Node>, pod: &Arc<Pod>) {
    let (Some(client), node, pod) = (node.client.clone(), node.clone(), pod.clone()) else { return };
    let tasks = node.tasks.clone();
    tasks.spawn_isolated("mirror pod", async move {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut wait = Duration::from_millis(200);
        while node.workers.shown(&uid).is_some_and(|s| s.wanted) {
            match create(&client, &node, &pod).await {
                Ok(Made::Done) => {
                    node.workers.send(&uid, Message::Mirrored);
                    return;
                }
                Ok(Made::InTheWay(old)) => delete_now(&client, &old).await,
                Err(e) => {
                    tracing::warn!(pod = spec::full_name(&pod), error = %e, "mirror pod can't be made; trying again")
                }
            }
            tokio::select! {
                () = node.tasks.shutdown().cancelled() => return,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(10)),
            }
        }
    });
}

/// What came of making a mirror.
enum Made {
    Done,
    /// Another pod has its name: the mirror of an earlier manifest, or one that is being deleted.
    InTheWay(Box<Pod>),
}

async fn create(client: &client::Client, node: &Node, pod: &Pod) -> client::Result<Made> {
    let owner = client.api::<NodeObject>().get(&node.settings.node_name).await?;
    let mut copy = pod.clone();
    let hash = annotation(pod, HASH).unwrap_or_default().to_owned();
    copy.metadata.uid = None;
    copy.metadata.annotations.get_or_insert_default().insert(MIRROR.into(), hash);
    copy.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.settings.node_name.clone(),
        uid: owner.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    let namespace = copy.metadata.namespace.clone().unwrap_or_default();
    let api = client.namespaced::<Pod>(&namespace);
    match api.create(&copy).await {
        Err(e) if e.is_already_exists() => {
            let found = api.get(copy.metadata.name.as_deref().unwrap_or_default()).await?;
            Ok(if is_mirror_of(&found, pod) { Made::Done } else { Made::InTheWay(Box::new(found)) })
        }
        other => other.map(|_| Made::Done),
    }
}

/// Whether a pod of the API server stands for this static pod and stays.
fn is_mirror_of(found: &Pod, pod: &Pod) -> bool {
    annotation(found, MIRROR).is_some()
        && annotation(found, MIRROR) == annotation(pod, HASH)
        && found.metadata.deletion_timestamp.is_none()
}

/// The static pod is gone: so is its mirror.
pub(crate) fn unwanted(node: &Arc<Node>, pod: &Arc<Pod>) {
    let (Some(client), pod) = (node.client.clone(), pod.clone()) else { return };
    node.tasks.spawn_isolated("mirror pod", async move {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let found = client.namespaced::<Pod>(&namespace).get(pod.metadata.name.as_deref().unwrap_or_default()).await;
        // The mirror of a manifest that followed stays.
        if let Ok(found) = found
            && annotation(&found, MIRROR) == annotation(&pod, HASH)
        {
            delete_now(&client, &found).await;
        }
    });
}

fn delete(node: &Arc<Node>, pod: &Arc<Pod>) {
    let (Some(client), pod) = (node.client.clone(), pod.clone()) else { return };
    node.tasks.spawn_isolated("mirror pod", async move { delete_now(&client, &pod).await });
}

/// Deletes a mirror pod, and never another that has its name by now.
async fn delete_now(client: &client::Client, mirror: &Pod) {
    if annotation(mirror, MIRROR).is_none() {
        return tracing::warn!(pod = spec::full_name(mirror), "a pod that is no mirror has a static pod's name");
    }
    let namespace = mirror.metadata.namespace.clone().unwrap_or_default();
    let name = mirror.metadata.name.clone().unwrap_or_default();
    let params = DeleteParams::new().grace_period(0).uid(mirror.metadata.uid.clone().unwrap_or_default());
    if let Err(e) = client.namespaced::<Pod>(&namespace).delete(&name, &params).await
        && !e.is_not_found()
        && !e.is_conflict()
    {
        tracing::warn!(pod = spec::full_name(mirror), error = %e, "mirror pod can't be deleted");
    }
}

/// A mirror was seen: one that mirrors nothing here, or that is being deleted, goes.
pub(crate) fn seen(node: &Arc<Node>, mirror: &Arc<Pod>) {
    let hash = annotation(mirror, MIRROR).unwrap_or_default();
    if !current(node, hash) || mirror.metadata.deletion_timestamp.is_some() {
        delete(node, mirror);
    }
}

/// A mirror went: its pod still runs, so it is made again.
pub(crate) fn lost(node: &Arc<Node>, mirror: &Arc<Pod>) {
    // By name: it may have been the mirror of an earlier manifest that kept this pod's from being made.
    let name = |p: &Pod| (p.metadata.namespace.clone(), p.metadata.name.clone());
    let own = |s: &Shown| s.is_static && name(&s.pod) == name(mirror) && s.wanted;
    if let Some(shown) = node.workers.all().into_iter().find(own) {
        wanted(node, &shown.pod);
    }
}

fn current(node: &Node, hash: &str) -> bool {
    node.workers.all().iter().any(|s| annotation(&s.pod, HASH) == Some(hash) && s.wanted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn mirror_of_an_earlier_manifest_is_in_the_way() {
        let pod = |metadata: Value| serde_json::from_value::<Pod>(json!({"metadata": metadata})).unwrap();
        let own = pod(json!({"annotations": {HASH: "new"}}));
        for (metadata, want) in [
            (json!({"annotations": {MIRROR: "new"}}), true),
            (json!({"annotations": {MIRROR: "old"}}), false),
            (json!({"annotations": {MIRROR: "new"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_mirror_of(&pod(metadata.clone()), &own), want, "{metadata}");
        }
    }
}
