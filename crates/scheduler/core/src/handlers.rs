//! From informers' events to the cache and the queue.
//!
//! Only changes that a plugin could care about become cluster events: status updates of running pods and
//! heartbeats of nodes wake nobody.

use std::sync::Arc;

use client::{Client, Event, Informer, ListParams, ObjectExt, Store};
use k8s_openapi::api::core::v1::{Container, Namespace, Node, Pod};
use scheduler_framework::{ClusterEvent, PodInfo};

use crate::scheduler::Scheduler;

const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Stores that scheduling cannot do without.
pub(crate) struct Watched {
    pub(crate) pods: Store<Pod>,
    pub(crate) nodes: Store<Node>,
    pub(crate) namespaces: Store<Namespace>,
}

impl Watched {
    pub(crate) fn has_synced(&self) -> bool {
        self.pods.has_synced() && self.nodes.has_synced() && self.namespaces.has_synced()
    }

    pub(crate) async fn synced(&self) {
        self.namespaces.synced().await;
        self.nodes.synced().await;
        self.pods.synced().await;
    }
}

/// Starts the informers.
pub(crate) fn watch(scheduler: &Arc<Scheduler>, client: &Client, tasks: &base_task::Tasks) -> Watched {
    let (on_pod, on_node, on_namespace) = (Arc::clone(scheduler), Arc::clone(scheduler), Arc::clone(scheduler));
    Watched {
        namespaces: Informer::new(client.api(), ListParams::new())
            .on_event(move |event| namespace(&on_namespace, &event))
            .spawn(tasks),
        nodes: Informer::new(client.api(), ListParams::new()).on_event(move |event| node(&on_node, event)).spawn(tasks),
        pods: Informer::new(client.api(), ListParams::new().fields(LIVE))
            .transform(slim)
            .on_event(move |event| pod(&on_pod, event))
            .spawn(tasks),
    }
}

/// Drops what no plugin looks at.
fn slim(pod: &mut Pod) {
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
            volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
        });
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
    pod.metadata.annotations = None;
}

fn is_assigned(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}

/// Whether two states of a pod differ in what plugins look at.
fn differs(old: &Pod, new: &Pod) -> bool {
    let nominated = |pod: &Pod| pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.is_deleting() != new.is_deleting()
        || nominated(old) != nominated(new)
}

fn pod(scheduler: &Scheduler, event: Event<Pod>) {
    match event {
        Event::Applied { old: Some(old), new } if old.uid() != new.uid() => {
            gone(scheduler, &old);
            applied(scheduler, None, &new);
        }
        Event::Applied { old, new } => applied(scheduler, old.as_ref(), &new),
        Event::Deleted(last) => gone(scheduler, &last),
    }
}

fn applied(scheduler: &Scheduler, old: Option<&Arc<Pod>>, new: &Arc<Pod>) {
    let info = || Arc::new(PodInfo::new(Arc::clone(new)));
    if !is_assigned(new) {
        let changed = old.is_none_or(|old| differs(old, new) || status_reset(old, new));
        if changed && scheduler.is_ours(new) {
            waiting(scheduler, old, info());
        }
        return;
    }
    match old.filter(|old| is_assigned(old)) {
        None => {
            scheduler.cache.set_pod(&info());
            scheduler.queue.remove(new.uid());
            scheduler.nominations.remove(new.uid());
            scheduler.queue.event(ClusterEvent::AssignedPodAdded(Arc::clone(new)));
        }
        Some(old) if differs(old, new) => {
            scheduler.cache.set_pod(&info());
            let (old, new) = (Arc::clone(old), Arc::clone(new));
            scheduler.queue.event(ClusterEvent::AssignedPodUpdated { old, new });
        }
        Some(_) => {}
    }
}

/// Conditions matter for what is written next, not for where the pod fits.
fn status_reset(old: &Pod, new: &Pod) -> bool {
    let conditions = |pod: &Pod| pod.status.as_ref().and_then(|status| status.conditions.clone());
    conditions(old) != conditions(new)
}

fn waiting(scheduler: &Scheduler, old: Option<&Arc<Pod>>, info: Arc<PodInfo>) {
    scheduler.nominations.observe(&info);
    if scheduler.cache.has_pod(info.uid()) {
        return;
    }
    let event = old
        .filter(|old| differs_in_spec(old, &info.pod))
        .map(|old| ClusterEvent::PodUpdated { old: Arc::clone(old), new: Arc::clone(&info.pod) });
    scheduler.note_gated(&info);
    scheduler.queue.set(info, event, jiff::Timestamp::now().as_nanosecond());
}

/// Whether the change could make the pod itself fit.
fn differs_in_spec(old: &Pod, new: &Pod) -> bool {
    old.spec != new.spec || old.metadata.labels != new.metadata.labels
}

fn gone(scheduler: &Scheduler, last: &Arc<Pod>) {
    scheduler.queue.remove(last.uid());
    let nominated = scheduler.nominations.remove(last.uid());
    if is_assigned(last) || scheduler.cache.has_pod(last.uid()) {
        scheduler.cache.remove_pod(last.uid());
        scheduler.queue.event(ClusterEvent::AssignedPodDeleted(Arc::clone(last)));
    } else if nominated {
        // The room that was kept for it is free.
        scheduler.queue.event(ClusterEvent::AssignedPodDeleted(Arc::clone(last)));
    }
}

fn node(scheduler: &Scheduler, event: Event<Node>) {
    match event {
        Event::Applied { old, new } => {
            let matters = old.as_ref().is_none_or(|old| node_differs(old, &new));
            if !matters {
                return;
            }
            scheduler.cache.set_node(&new);
            scheduler.queue.event(match old {
                Some(old) => ClusterEvent::NodeUpdated { old, new },
                None => ClusterEvent::NodeAdded(new),
            });
        }
        Event::Deleted(last) => scheduler.cache.remove_node(last.name()),
    }
}

/// Whether two states of a node differ in what plugins look at: not in heartbeats.
fn node_differs(old: &Node, new: &Node) -> bool {
    let status = |node: &Node| node.status.clone().map(|status| (status.allocatable, status.images));
    old.spec != new.spec || old.metadata.labels != new.metadata.labels || status(old) != status(new)
}

fn namespace(scheduler: &Scheduler, event: &Event<Namespace>) {
    match event {
        Event::Applied { old, new } => {
            if old.as_ref().is_some_and(|old| old.metadata.labels == new.metadata.labels) {
                return;
            }
            let labels = new.metadata.labels.clone().unwrap_or_default();
            scheduler.cache.set_namespace(new.name(), Some(labels));
            scheduler.queue.event(ClusterEvent::NamespaceChanged);
        }
        Event::Deleted(last) => scheduler.cache.set_namespace(last.name(), None),
    }
}
