//! Mirror pods: the API server's copies of static pods. They are for display only. They are
//! created, and created again if a client deletes them.

use super::{HASH, MIRROR};
use crate::context::KubeletContext;
use crate::pod::spec;
use crate::pod_source::read_annotation;
use crate::worker::{Message, PodSnapshot};
use client::DeleteParams;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;
use std::time::Duration;

/// Creates the mirror of a static pod; retries until it exists or the static pod is removed.
pub(crate) fn ensure_mirror(node: &Arc<KubeletContext>, pod: &Arc<Pod>) {
    let (Some(client), node, pod) = (node.client.clone(), node.clone(), pod.clone()) else {
        return;
    };
    let tasks = node.tasks.clone();
    tasks.spawn_isolated("mirror pod", async move {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut wait = Duration::from_millis(200);
        while node.workers.snapshot(&uid).is_some_and(|s| s.is_desired) {
            match create_mirror(&client, &node, &pod).await {
                Ok(CreateResult::Created) => {
                    node.workers.send(&uid, Message::MirrorCreated);
                    return;
                }
                Ok(CreateResult::NameTaken(old)) => delete_now(&client, &old).await,
                Err(e) => {
                    tracing::warn!(pod = spec::full_name(&pod), error = %e, "mirror pod can't be created; trying again")
                }
            }
            tokio::select! {
                () = node.tasks.shutdown().cancelled() => return,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(10)),
            }
        }
    });
}

/// The result of creating a mirror.
enum CreateResult {
    Created,
    /// Another pod has the name: the mirror of an earlier manifest, or a pod that is being deleted.
    NameTaken(Box<Pod>),
}

async fn create_mirror(
    client: &client::Client,
    node: &KubeletContext,
    pod: &Pod,
) -> client::Result<CreateResult> {
    let owner = client.api::<Node>().get(&node.settings.node_name).await?;
    let mut copy = pod.clone();
    let hash = read_annotation(pod, HASH).unwrap_or_default().to_owned();
    copy.metadata.uid = None;
    copy.metadata
        .annotations
        .get_or_insert_default()
        .insert(MIRROR.into(), hash);
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
            let found = api
                .get(copy.metadata.name.as_deref().unwrap_or_default())
                .await?;
            Ok(if is_mirror_of(&found, pod) {
                CreateResult::Created
            } else {
                CreateResult::NameTaken(Box::new(found))
            })
        }
        other => other.map(|_| CreateResult::Created),
    }
}

/// Returns whether a pod of the API server is the mirror of this static pod and not being deleted.
fn is_mirror_of(found: &Pod, pod: &Pod) -> bool {
    read_annotation(found, MIRROR).is_some()
        && read_annotation(found, MIRROR) == read_annotation(pod, HASH)
        && found.metadata.deletion_timestamp.is_none()
}

/// Deletes the mirror of a removed static pod.
pub(crate) fn delete_mirror_of(node: &Arc<KubeletContext>, pod: &Arc<Pod>) {
    let (Some(client), pod) = (node.client.clone(), pod.clone()) else {
        return;
    };
    node.tasks.spawn_isolated("mirror pod", async move {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let found = client
            .namespaced::<Pod>(&namespace)
            .get(pod.metadata.name.as_deref().unwrap_or_default())
            .await;
        // The mirror of the succeeding manifest must stay.
        if let Ok(found) = found
            && read_annotation(&found, MIRROR) == read_annotation(&pod, HASH)
        {
            delete_now(&client, &found).await;
        }
    });
}

fn spawn_delete(node: &Arc<KubeletContext>, pod: &Arc<Pod>) {
    let (Some(client), pod) = (node.client.clone(), pod.clone()) else {
        return;
    };
    node.tasks
        .spawn_isolated("mirror pod", async move { delete_now(&client, &pod).await });
}

/// Deletes a mirror pod; the uid precondition protects another pod that has the name now.
async fn delete_now(client: &client::Client, mirror: &Pod) {
    if read_annotation(mirror, MIRROR).is_none() {
        return tracing::warn!(
            pod = spec::full_name(mirror),
            "a pod that is no mirror has a static pod's name"
        );
    }
    let namespace = mirror.metadata.namespace.clone().unwrap_or_default();
    let name = mirror.metadata.name.clone().unwrap_or_default();
    let params = DeleteParams::new()
        .grace_period(0)
        .uid(mirror.metadata.uid.clone().unwrap_or_default());
    if let Err(e) = client
        .namespaced::<Pod>(&namespace)
        .delete(&name, &params)
        .await
        && !e.is_not_found()
        && !e.is_conflict()
    {
        tracing::warn!(pod = spec::full_name(mirror), error = %e, "mirror pod can't be deleted");
    }
}

/// Deletes a mirror that belongs to no static pod here, or whose deletion was requested; sends any
/// other to its worker.
pub(crate) fn reconcile_mirror(node: &Arc<KubeletContext>, mirror: &Arc<Pod>) {
    match find_static_pod(&node.workers.all(), mirror) {
        Some(snapshot) => {
            let uid = snapshot.pod.metadata.uid.as_deref().unwrap_or_default();
            node.workers
                .send(uid, Message::MirrorUpdated(mirror.clone()));
        }
        _ => spawn_delete(node, mirror),
    }
}

/// Returns the static pod whose mirror this is.
fn find_static_pod<'a>(running: &'a [PodSnapshot], mirror: &Pod) -> Option<&'a PodSnapshot> {
    running
        .iter()
        .find(|s| s.is_desired && is_static_namesake(s, mirror) && is_mirror_of(mirror, &s.pod))
}

/// Returns whether a pod runs from a manifest of this node and has the mirror's namespace and name.
/// Both annotations can be set by everyone who may create pods, so the hash alone proves nothing: a
/// pod of a tenant with the hash of a static pod would otherwise be taken for its mirror, and an
/// ordinary pod with a made-up hash for a static pod.
fn is_static_namesake(snapshot: &PodSnapshot, mirror: &Pod) -> bool {
    let (own, other) = (&snapshot.pod.metadata, &mirror.metadata);
    snapshot.is_static && own.namespace == other.namespace && own.name == other.name
}

/// Creates a deleted mirror again while its static pod runs.
pub(crate) fn recreate_mirror(node: &Arc<KubeletContext>, mirror: &Arc<Pod>) {
    // Looked up by name: the deleted pod may be the mirror of an earlier manifest that blocked this
    // pod's mirror.
    let own = |s: &PodSnapshot| s.is_desired && is_static_namesake(s, mirror);
    if let Some(snapshot) = node.workers.all().into_iter().find(own) {
        ensure_mirror(node, &snapshot.pod);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn mirror_of_an_earlier_manifest_is_not_the_mirror() {
        let pod =
            |metadata: Value| serde_json::from_value::<Pod>(json!({"metadata": metadata})).unwrap();
        let own = pod(json!({"annotations": {HASH: "new"}}));
        for (metadata, want) in [
            (json!({"annotations": {MIRROR: "new"}}), true),
            (json!({"annotations": {MIRROR: "old"}}), false),
            (
                json!({"annotations": {MIRROR: "new"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
                false,
            ),
            (json!({}), false),
        ] {
            assert_eq!(
                is_mirror_of(&pod(metadata.clone()), &own),
                want,
                "{metadata}"
            );
        }
    }

    #[test]
    fn copied_hash_makes_no_mirror_of_another_pod() {
        let pod = |name: &str, annotation: &str, hash: &str| -> Pod {
            let metadata = json!({"namespace": "kube-system", "name": name, "annotations": {annotation: hash}});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let running = |name: &str, is_static: bool| PodSnapshot {
            resize: None,
            pod: Arc::new(pod(name, HASH, "h")),
            status: Arc::default(),
            observed: Arc::default(),
            active: true,
            is_static,
            is_desired: true,
        };
        for (name, is_static, mirror, want) in [
            ("etcd-n1", true, pod("etcd-n1", MIRROR, "h"), true),
            ("etcd-n1", true, pod("made-up", MIRROR, "h"), false),
            ("etcd-n1", true, pod("etcd-n1", MIRROR, "other"), false),
            ("etcd-n1", false, pod("etcd-n1", MIRROR, "h"), false),
        ] {
            let found = find_static_pod(&[running(name, is_static)], &mirror).is_some();
            assert_eq!(found, want, "{:?}", mirror.metadata);
        }
    }
}
