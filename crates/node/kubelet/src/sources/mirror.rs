//! Mirror pods: the API server's copies of static pods, for people to see. They are made, and made again when somebody
//! deletes them; they never decide anything.

use super::{HASH, MIRROR, annotation};
use crate::context::Node;
use crate::pod::spec;
use crate::worker::Message;
use client::DeleteParams;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;
use std::time::Duration;

/// Makes the mirror of a static pod, until it is there or not wanted any more.
pub(crate) fn wanted(node: &Arc<Node>, pod: &Arc<Pod>) {
    let (Some(client), node, pod) = (node.client.clone(), node.clone(), pod.clone()) else { return };
    let tasks = node.tasks.clone();
    tasks.spawn("mirror pod", async move {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut wait = Duration::from_millis(200);
        while node.workers.shown(&uid).is_some_and(|s| s.wanted) {
            match create(&client, &node, &pod).await {
                Ok(()) => {
                    node.workers.send(&uid, Message::Mirrored);
                    return;
                }
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

async fn create(client: &client::Client, node: &Node, pod: &Pod) -> client::Result<()> {
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
    match client.namespaced::<Pod>(&namespace).create(&copy).await {
        Err(e) if !e.is_already_exists() => Err(e),
        _ => Ok(()),
    }
}

/// The static pod is gone: so is its mirror.
pub(crate) fn unwanted(node: &Arc<Node>, pod: &Arc<Pod>) {
    delete(node, pod);
}

fn delete(node: &Arc<Node>, pod: &Arc<Pod>) {
    let (Some(client), pod) = (node.client.clone(), pod.clone()) else { return };
    node.tasks.spawn("mirror pod", async move {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let gone = client.namespaced::<Pod>(&namespace).delete(&name, &DeleteParams::new().grace_period(0)).await;
        if let Err(e) = gone.as_ref()
            && !e.is_not_found()
        {
            tracing::warn!(pod = spec::full_name(&pod), error = %e, "mirror pod can't be deleted");
        }
    });
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
    let hash = annotation(mirror, MIRROR).unwrap_or_default();
    let pod = node.workers.all().into_iter().find(|s| annotation(&s.pod, HASH) == Some(hash) && s.wanted);
    if let Some(shown) = pod {
        wanted(node, &shown.pod);
    }
}

fn current(node: &Node, hash: &str) -> bool {
    node.workers.all().iter().any(|s| annotation(&s.pod, HASH) == Some(hash) && s.wanted)
}
