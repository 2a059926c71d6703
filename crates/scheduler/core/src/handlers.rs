//! Informers' event handlers: they update the cache and the queue.
//!
//! Only changes that a plugin may need become cluster events: status updates of running pods and
//! heartbeats of nodes make no pod schedulable.

use std::sync::Arc;

use api_semantics::resources::is_resize_infeasible;
use client::{Client, Event, Informer, ListParams, ObjectExt, Store};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Namespace, Node, NodeStatus, Pod, PodResourceClaimStatus, PodStatus,
};
use scheduler_framework::cycle::PodNominator;
use scheduler_framework::{ClusterEvent, NodeInfo, PodInfo, Rejection};

use crate::scheduler::{Scheduler, now_nanos};

const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Stores that scheduling requires.
pub(crate) struct Watched {
    pub(crate) pods: Store<Pod>,
    pub(crate) nodes: Store<Node>,
    pub(crate) namespaces: Store<Namespace>,
}

impl Watched {
    pub(crate) fn has_synced(&self) -> bool {
        self.pods.has_synced() && self.nodes.has_synced() && self.namespaces.has_synced()
    }

    pub(crate) async fn wait_until_synced(&self) {
        self.namespaces.wait_until_synced().await;
        self.nodes.wait_until_synced().await;
        self.pods.wait_until_synced().await;
    }
}

/// Starts the informers.
pub(crate) fn start_informers(
    scheduler: &Arc<Scheduler>,
    client: &Client,
    tasks: &base_task::Tasks,
) -> Watched {
    let (on_pod, on_node, on_namespace) = (scheduler.clone(), scheduler.clone(), scheduler.clone());
    Watched {
        namespaces: Informer::new(client.api(), ListParams::new())
            .on_event(move |event| handle_namespace(&on_namespace, &event))
            .spawn(tasks),
        nodes: Informer::new(client.api(), ListParams::new())
            .on_event(move |event| handle_node(&on_node, event))
            .spawn(tasks),
        // Finished pods use no resources. Without the selector they would be the larger part of the
        // memory in clusters with many Jobs.
        pods: Informer::new(client.api(), ListParams::new().with_fields(LIVE))
            .transform(slim_pod)
            .on_event(move |event| handle_pod(&on_pod, event))
            .spawn(tasks),
    }
}

/// Drops fields that no plugin reads.
fn slim_pod(pod: &mut Pod) {
    // A pod of a large cluster takes several KiB, mostly environment and probes, which no plugin
    // reads.
    let keep = |container: &mut Container| {
        let old = std::mem::take(container);
        *container = Container {
            name: old.name,
            image: old.image,
            ports: old.ports,
            resources: old.resources,
            restart_policy: old.restart_policy,
            ..Container::default()
        };
    };
    if let Some(spec) = &mut pod.spec {
        spec.containers.iter_mut().for_each(keep);
        spec.init_containers.iter_mut().flatten().for_each(keep);
        spec.ephemeral_containers = None;
        spec.volumes.iter_mut().for_each(|volumes| {
            // Claims decide about nodes, and image volumes count for their scores. All others can
            // be mounted anywhere.
            volumes.retain(|volume| {
                volume.persistent_volume_claim.is_some()
                    || volume.ephemeral.is_some()
                    || volume.image.is_some()
            });
        });
    }
    if let (Some(spec), Some(status)) = (&pod.spec, &mut pod.status) {
        let init = spec.init_containers.as_deref().unwrap_or_default();
        slim_statuses(&mut status.container_statuses, &spec.containers);
        slim_statuses(&mut status.init_container_statuses, init);
        status.ephemeral_container_statuses = None;
    }
    // Annotations of some tools contain the whole object a second time.
    pod.metadata.annotations = None;
}

/// Keeps the resources of containers that are being resized. A status that equals the spec does not
/// change the pod's requests.
fn slim_statuses(statuses: &mut Option<Vec<ContainerStatus>>, containers: &[Container]) {
    let resized = |status: ContainerStatus| {
        let container = containers.iter().find(|c| c.name == status.name)?;
        let requests = container.resources.as_ref()?.requests.as_ref();
        let actual = status.resources?;
        let allocated = status.allocated_resources;
        let same = actual.requests.as_ref() == requests
            && (allocated.is_none() || allocated.as_ref() == requests);
        (!same).then(|| ContainerStatus {
            allocated_resources: allocated,
            name: status.name,
            resources: Some(actual),
            ..ContainerStatus::default()
        })
    };
    *statuses = statuses
        .take()
        .map(|all| all.into_iter().filter_map(resized).collect::<Vec<_>>())
        .filter(|all| !all.is_empty());
}

fn is_assigned(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .is_some_and(|name| !name.is_empty())
}

/// Returns whether two states of a pod differ in fields that plugins read.
fn pods_differ(old: &Pod, new: &Pod) -> bool {
    let nominated = |pod: &Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.nominated_node_name.clone())
    };
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.is_deleting() != new.is_deleting()
        || is_resize_infeasible(old) != is_resize_infeasible(new)
        || generated_claims(old) != generated_claims(new)
        || resizes_differ(old.status.as_ref(), new.status.as_ref())
        || nominated(old) != nominated(new)
}

/// Returns the names of the claims that were generated for a pod.
fn generated_claims(pod: &Pod) -> Option<&Vec<PodResourceClaimStatus>> {
    pod.status.as_ref()?.resource_claim_statuses.as_ref()
}

fn resizes_differ(old: Option<&PodStatus>, new: Option<&PodStatus>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    old.container_statuses != new.container_statuses
        || old.init_container_statuses != new.init_container_statuses
        || old.resources != new.resources
        || old.allocated_resources != new.allocated_resources
}

pub(crate) fn handle_pod(scheduler: &Scheduler, event: Event<Pod>) {
    match event {
        Event::Applied {
            old: Some(old),
            new,
            // A pod was deleted and created again under its name while the watch was interrupted.
            // The relist shows this as an update.
        } if old.uid() != new.uid() => {
            handle_deleted_pod(scheduler, &old);
            handle_applied_pod(scheduler, None, &new);
        }
        Event::Applied { old, new } => handle_applied_pod(scheduler, old.as_ref(), &new),
        Event::Deleted(last) => handle_deleted_pod(scheduler, &last),
    }
}

fn handle_applied_pod(scheduler: &Scheduler, old: Option<&Arc<Pod>>, new: &Arc<Pod>) {
    let info = || Arc::new(PodInfo::new(new.clone()));
    if !is_assigned(new) {
        // Changed conditions do not become an event, but the queue needs the newest ones: the next
        // status patch is compared with them.
        let changed = old.is_none_or(|old| pods_differ(old, new) || status_reset(old, new));
        if changed && scheduler.is_ours(new) {
            handle_unassigned_pod(scheduler, old, info());
        }
        return;
    }
    match old.filter(|old| is_assigned(old)) {
        None => {
            let info = info();
            scheduler.cache.set_pod(&info);
            // After the cache counts the pod, so that at any time one of both knows it.
            scheduler.queue.remove_pod(new.uid());
            if scheduler
                .nominations
                .remove_nomination(new.uid())
                .is_some_and(|node| *node != *info.node_name())
            {
                // Another scheduler or a user bound it elsewhere: the room reserved for it is
                // released.
                scheduler
                    .queue
                    .move_pods(ClusterEvent::AssignedPodDeleted(info.clone()));
            }
            scheduler
                .queue
                .move_pods(ClusterEvent::AssignedPodAdded(info));
        }
        Some(old) if pods_differ(old, new) => {
            let (old, new) = (Arc::new(PodInfo::new(old.clone())), info());
            scheduler.cache.set_pod(&new);
            scheduler
                .queue
                .move_pods(ClusterEvent::AssignedPodUpdated { old, new });
        }
        Some(_) => {}
    }
}

/// Returns whether the conditions changed. They matter for later status patches, but not for the
/// choice of a node.
fn status_reset(old: &Pod, new: &Pod) -> bool {
    let conditions = |pod: &Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.conditions.clone())
    };
    conditions(old) != conditions(new)
}

fn handle_unassigned_pod(scheduler: &Scheduler, old: Option<&Arc<Pod>>, info: Arc<PodInfo>) {
    let bound = || scheduler.cache.has_pod(info.uid());
    // The node before this update: if the status clears or changes it, room becomes free.
    let kept = scheduler.nominations.node_of(info.uid());
    if !bound() {
        scheduler
            .nominations
            .observe_status(old.map(|old| &**old), &info);
    }
    if bound() {
        // The pod counts on its node, so a late status must not nominate it again. If the node was
        // chosen a moment ago, another pod may have seen its room counted twice.
        if scheduler
            .nominations
            .remove_nomination(info.uid())
            .is_some()
        {
            scheduler
                .queue
                .move_other_pods(info.uid(), ClusterEvent::AssignedPodDeleted(info.clone()));
        }
        return;
    }
    if kept.is_some() && kept != scheduler.nominations.node_of(info.uid()) {
        // The room reserved for the pod is released.
        scheduler
            .queue
            .move_other_pods(info.uid(), ClusterEvent::AssignedPodDeleted(info.clone()));
    }
    let updated = |old: &Arc<Pod>| {
        let old = Arc::new(PodInfo::new(old.clone()));
        ClusterEvent::PodUpdated {
            old,
            new: info.clone(),
        }
    };
    let event = old
        .filter(|old| differs_in_spec(old, &info.pod))
        .map(updated);
    scheduler.note_gated(&info);
    scheduler.queue.set_pod(info, event, now_nanos());
}

/// Returns whether the change could make the pod itself schedulable.
fn differs_in_spec(old: &Pod, new: &Pod) -> bool {
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || generated_claims(old) != generated_claims(new)
}

fn handle_deleted_pod(scheduler: &Scheduler, last: &Arc<Pod>) {
    // First, so that no attempt for a deleted pod starts while the rest is cleaned up.
    scheduler.queue.remove_pod(last.uid());
    // Ends a Permit wait: there is no pod left to bind.
    scheduler.waiting.reject_pod(
        last.uid(),
        Rejection::unschedulable("", "the pod was deleted"),
    );
    let nominated = scheduler
        .nominations
        .remove_nomination(last.uid())
        .is_some();
    // An assumed pod counts in the cache although its last known state names no node.
    let counted = is_assigned(last) || scheduler.cache.has_pod(last.uid());
    if counted {
        scheduler.cache.remove_pod(last.uid());
    }
    if counted || nominated {
        // Room was reserved for a nominated pod.
        scheduler
            .queue
            .move_pods(ClusterEvent::AssignedPodDeleted(Arc::new(PodInfo::new(
                last.clone(),
            ))));
    }
}

pub(crate) fn handle_node(scheduler: &Scheduler, event: Event<Node>) {
    let bare = |node: Arc<Node>| Arc::new(NodeInfo::without_pods(node));
    match event {
        Event::Applied { old, new } => {
            // Kubelets report their status every few seconds. Copying a node's entry for each
            // report would cost more than scheduling.
            if old.as_ref().is_some_and(|old| !node_differs(old, &new)) {
                return;
            }
            scheduler.cache.set_node(&new);
            match old {
                // Images change only scores.
                Some(old) if !node_fits_differ(&old, &new) => {}
                Some(old) => scheduler.queue.move_pods(ClusterEvent::NodeUpdated {
                    old: bare(old),
                    new: bare(new),
                }),
                None => scheduler
                    .queue
                    .move_pods(ClusterEvent::NodeAdded(bare(new))),
            }
        }
        Event::Deleted(last) => {
            scheduler.cache.remove_node(last.name());
            scheduler
                .queue
                .move_pods(ClusterEvent::NodeDeleted(bare(last)));
        }
    }
}

/// Returns whether two states of a node differ in fields that plugins read; ignores heartbeats.
fn node_differs(old: &Node, new: &Node) -> bool {
    let images = |old: &NodeStatus, new: &NodeStatus| old.images != new.images;
    node_fits_differ(old, new) || statuses_differ(old, new, images)
}

/// Returns whether two states of a node differ in fields that Filter plugins read.
fn node_fits_differ(old: &Node, new: &Node) -> bool {
    let allocatable = |old: &NodeStatus, new: &NodeStatus| old.allocatable != new.allocatable;
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || statuses_differ(old, new, allocatable)
}

fn statuses_differ(
    old: &Node,
    new: &Node,
    differ: impl Fn(&NodeStatus, &NodeStatus) -> bool,
) -> bool {
    match (&old.status, &new.status) {
        (Some(old), Some(new)) => differ(old, new),
        (old, new) => old.is_some() != new.is_some(),
    }
}

fn handle_namespace(scheduler: &Scheduler, event: &Event<Namespace>) {
    match event {
        Event::Applied { old, new } => {
            if old
                .as_ref()
                .is_some_and(|old| old.metadata.labels == new.metadata.labels)
            {
                return;
            }
            let labels = new.metadata.labels.clone().unwrap_or_default();
            scheduler.cache.set_namespace(new.name(), Some(labels));
            scheduler.queue.move_pods(ClusterEvent::NamespaceChanged);
        }
        // No event: a namespace goes only after its pods, whose deletions are events.
        Event::Deleted(last) => scheduler.cache.set_namespace(last.name(), None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn slimmed(object: Value) -> Value {
        let mut pod: Pod = serde_json::from_value(object).unwrap();
        slim_pod(&mut pod);
        serde_json::to_value(pod).unwrap()
    }

    #[test]
    fn cached_pod_keeps_what_plugins_read_and_drops_the_rest() {
        let slim = slimmed(json!({
            "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"large": "x"}},
            "spec": {
                "nodeSelector": {"zone": "a"},
                "containers": [{"name": "c", "image": "i", "command": ["x"], "env": [{"name": "E", "value": "v"}],
                    "ports": [{"containerPort": 1, "hostPort": 2}], "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "m", "configMap": {"name": "m"}},
                    {"name": "i", "image": {"reference": "model:1"}},
                    {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}));
        let container = &slim["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["cpu"], "1");
        assert_eq!(
            (&container["image"], &container["ports"][0]["hostPort"]),
            (&json!("i"), &json!(2))
        );
        assert!(container.get("env").is_none() && container.get("command").is_none());
        assert_eq!(slim["spec"]["volumes"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (
                &slim["metadata"]["labels"]["a"],
                &slim["spec"]["nodeSelector"]["zone"]
            ),
            (&json!("b"), &json!("a"))
        );
        assert!(slim["metadata"].get("annotations").is_none());
    }

    #[test]
    fn container_status_is_kept_only_while_its_resources_differ_from_the_spec() {
        for (actual, kept) in [("1", false), ("2", true)] {
            let slim = slimmed(json!({"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"containerStatuses": [{"name": "c", "ready": true, "restartCount": 3, "image": "i",
                    "imageID": "", "resources": {"requests": {"cpu": actual}}}]}}));
            assert_eq!(
                slim["status"].get("containerStatuses").is_some(),
                kept,
                "{actual}"
            );
        }
    }
}
