//! The registry of pod workers: how other parts of the kubelet find and notify them.

use super::messages::Message;
use crate::pod::Nanos;
use crate::pod::view::Observed;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

/// A resize that waits.
#[derive(Clone, Debug)]
pub(crate) struct ResizeRequest {
    pub(crate) desired: Arc<Pod>,
    /// Time since when it is pending; None before the first decision.
    pub(crate) since: Option<Nanos>,
}

/// A worker's published state, a copy of one moment.
#[derive(Clone, Debug)]
pub(crate) struct PodSnapshot {
    /// The pod with the resources that the node has allocated.
    pub(crate) pod: Arc<Pod>,
    /// A resize that the node has not allocated and may allocate later.
    pub(crate) resize: Option<ResizeRequest>,
    pub(crate) status: Arc<PodStatus>,
    pub(crate) observed: Arc<Observed>,
    /// Admitted and not terminated: counts for the node's resources.
    pub(crate) active: bool,
    /// The pod comes from a manifest on this node. Its annotations don't prove that: API clients
    /// can set them.
    pub(crate) is_static: bool,
    /// Not deleted, and its manifest still exists.
    pub(crate) is_desired: bool,
}

struct Handle {
    inbox: UnboundedSender<Message>,
    snapshot: Arc<RwLock<PodSnapshot>>,
    released: Arc<Notify>,
}

/// Limit of recorded exits of unknown containers; the next relist finds the others.
const MAX_EARLY_EXITS: usize = 1000;

/// All pod workers by the pod's uid.
#[derive(Default)]
pub(crate) struct Workers {
    all: Mutex<HashMap<String, Handle>>,
    /// Containers that exited before their worker had recorded their start.
    early: Mutex<HashSet<String>>,
    admission: Mutex<()>,
    /// The pods that were on the node when the kubelet started have workers.
    allows_resizes: AtomicBool,
}

impl Workers {
    /// Adds a worker. Returns what is notified when resources of the node may have become free for
    /// its pending resize: once, however many pods end before the worker decides again.
    pub(crate) fn add(
        &self,
        uid: &str,
        inbox: UnboundedSender<Message>,
        snapshot: Arc<RwLock<PodSnapshot>>,
    ) -> Arc<Notify> {
        let released = Arc::new(Notify::new());
        let handle = Handle {
            inbox,
            snapshot,
            released: released.clone(),
        };
        self.all.lock().insert(uid.to_owned(), handle);
        released
    }

    pub(crate) fn remove(&self, uid: &str) {
        let removed = self.all.lock().remove(uid);
        if removed.is_some_and(|handle| handle.snapshot.read().active) {
            self.retry_resizes();
        }
    }

    /// Sends a message to a worker; returns false if there is none.
    pub(crate) fn send(&self, uid: &str, message: Message) -> bool {
        self.all
            .lock()
            .get(uid)
            .is_some_and(|h| h.inbox.send(message).is_ok())
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.all.lock().contains_key(uid)
    }

    pub(crate) fn all(&self) -> Vec<PodSnapshot> {
        self.all
            .lock()
            .values()
            .map(|h| h.snapshot.read().clone())
            .collect()
    }

    pub(crate) fn snapshot(&self, uid: &str) -> Option<PodSnapshot> {
        self.all.lock().get(uid).map(|h| h.snapshot.read().clone())
    }

    /// Returns whether another static pod of the same namespace and name is not cleaned up yet.
    pub(crate) fn has_namesake(&self, pod: &Pod) -> bool {
        let name = |p: &Pod| (p.metadata.namespace.clone(), p.metadata.name.clone());
        self.all().iter().any(|s| {
            s.is_static && s.pod.metadata.uid != pod.metadata.uid && name(&s.pod) == name(pod)
        })
    }

    /// Finds a pod by namespace and name; prefers one that is not terminating.
    pub(crate) fn find_by_name(&self, namespace: &str, name: &str) -> Option<PodSnapshot> {
        let fits = |s: &PodSnapshot| {
            s.pod.metadata.namespace.as_deref() == Some(namespace)
                && s.pod.metadata.name.as_deref() == Some(name)
        };
        let mut all: Vec<PodSnapshot> = self.all().into_iter().filter(fits).collect();
        // A StatefulSet creates the successor under the same name while its predecessor is being
        // cleaned up.
        all.sort_by_key(|s| s.pod.metadata.deletion_timestamp.is_some());
        all.into_iter().next()
    }

    /// Notifies the worker of a container or sandbox of a change, now or once the worker knows the
    /// id.
    pub(crate) fn notify_changed(&self, id: &str) {
        // Record first, look up second. The worker publishes first and reads the records second, so
        // that one of the two always sees the exit.
        {
            let mut early = self.early.lock();
            // Most of these containers belong to another client of the runtime and are never asked
            // for. Forgetting all is safe: a relist finds the exits.
            if early.len() >= MAX_EARLY_EXITS {
                early.clear();
            }
            early.insert(id.to_owned());
        }
        if let Some(uid) = self.find_owner(id) {
            self.early.lock().remove(id);
            self.send(&uid, Message::Changed(Some(id.to_owned())));
        }
    }

    /// Notifies the worker of a container that it ran out of memory.
    pub(crate) fn notify_out_of_memory(&self, id: &str) {
        if let Some(uid) = self.find_owner(id) {
            self.send(&uid, Message::OutOfMemory(id.to_owned()));
        }
    }

    /// Returns whether an exit of the container was recorded, and removes the record.
    pub(crate) fn take_early_exit(&self, id: &str) -> bool {
        self.early.lock().remove(id)
    }

    /// Returns the uid of the pod that owns a container or sandbox.
    fn find_owner(&self, id: &str) -> Option<String> {
        let all = self.all.lock();
        all.iter()
            .find(|(_, h)| {
                let snapshot = h.snapshot.read();
                snapshot.observed.by_id(id).is_some()
                    || snapshot.observed.sandboxes.iter().any(|s| s.id == id)
            })
            .map(|(uid, _)| uid.clone())
    }

    /// Returns the active pods except `uid`.
    pub(crate) fn active_besides(&self, uid: &str) -> Vec<Arc<Pod>> {
        let other = |s: &PodSnapshot| s.active && s.pod.metadata.uid.as_deref() != Some(uid);
        self.all()
            .into_iter()
            .filter(other)
            .map(|s| s.pod)
            .collect()
    }

    /// Allows resizes from now on. Before, those of pods of an earlier kubelet could get resources
    /// of pods that are not known yet.
    pub(crate) fn allow_resizes(&self) {
        self.allows_resizes.store(true, Ordering::SeqCst);
        self.retry_resizes();
    }

    pub(crate) fn allows_resizes(&self) -> bool {
        self.allows_resizes.load(Ordering::SeqCst)
    }

    /// Notifies the workers with a pending resize that resources of the node may have become free.
    pub(crate) fn retry_resizes(&self) {
        for handle in self.all.lock().values() {
            if handle.snapshot.read().resize.is_some() {
                handle.released.notify_one();
            }
        }
    }

    /// Serializes admission: each decision must count the pods admitted before it.
    pub(crate) fn lock_admission(&self) -> MutexGuard<'_, ()> {
        base_task::assert_may_block();
        self.admission.lock()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::view::{CriContainer, CriState};
    use futures::FutureExt;
    use serde_json::json;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    /// Adds a pod with one running container, whose id is the pod's uid with `-c`.
    fn add(workers: &Workers, uid: &str, more: serde_json::Value) -> UnboundedReceiver<Message> {
        let mut metadata = json!({"namespace": "ns", "name": "a", "uid": uid});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let container = CriContainer {
            id: format!("{uid}-c"),
            name: "c".into(),
            state: CriState::Running,
            ..CriContainer::default()
        };
        let snapshot = PodSnapshot {
            pod: Arc::new(pod),
            resize: None,
            status: Arc::default(),
            observed: Arc::new(Observed::new(Vec::new(), vec![container])),
            active: true,
            is_static: false,
            is_desired: true,
        };
        let (sender, inbox) = unbounded_channel();
        workers.add(uid, sender, Arc::new(RwLock::new(snapshot)));
        inbox
    }

    /// Returns whether the worker was notified of resources that became free, and forgets that.
    fn take_release(workers: &Workers, uid: &str) -> bool {
        let released = workers.all.lock().get(uid).unwrap().released.clone();
        released.notified().now_or_never().is_some()
    }

    #[test]
    fn exit_is_sent_to_the_worker_of_the_container() {
        let workers = Workers::default();
        let mut inboxes = ["u1", "u2"].map(|uid| add(&workers, uid, json!({})));
        workers.notify_changed("u2-c");
        assert!(inboxes[0].try_recv().is_err());
        let message = inboxes[1].try_recv();
        assert!(matches!(message, Ok(Message::Changed(Some(id))) if id == "u2-c"));
        assert!(!workers.take_early_exit("u2-c"), "the worker knows it");
    }

    /// The runtime may report the exit before the worker has published the container.
    #[test]
    fn exit_of_an_unknown_container_is_kept_for_its_worker() {
        let workers = Workers::default();
        workers.notify_changed("u1-c");
        let _inbox = add(&workers, "u1", json!({}));
        assert!(workers.take_early_exit("u1-c"));
        assert!(!workers.take_early_exit("u1-c"), "once");
        for n in 0..=MAX_EARLY_EXITS {
            workers.notify_changed(&format!("unknown-{n}"));
        }
        assert!(workers.early.lock().len() <= MAX_EARLY_EXITS);
    }

    #[test]
    fn pod_is_found_by_name_and_one_that_is_not_deleted_is_preferred() {
        let workers = Workers::default();
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let _inboxes = [
            add(&workers, "old", deleted),
            add(&workers, "new", json!({})),
        ];
        let found = workers.find_by_name("ns", "a").unwrap();
        assert_eq!(found.pod.metadata.uid.as_deref(), Some("new"));
        assert!(workers.find_by_name("ns", "b").is_none());
        workers.remove("new");
        let found = workers.find_by_name("ns", "a").unwrap();
        assert_eq!(found.pod.metadata.uid.as_deref(), Some("old"));
    }

    #[test]
    fn pending_resizes_are_tried_again_when_an_active_pod_is_removed() {
        let workers = Workers::default();
        let _inboxes = ["u1", "u2"].map(|uid| add(&workers, uid, json!({})));
        let _removed = ["u3", "u4", "u5"].map(|uid| add(&workers, uid, json!({})));
        let change = |uid: &str, change: &dyn Fn(&mut PodSnapshot)| {
            change(&mut workers.all.lock().get(uid).unwrap().snapshot.write());
        };
        change("u1", &|snapshot| {
            snapshot.resize = Some(ResizeRequest {
                desired: snapshot.pod.clone(),
                since: None,
            });
        });
        change("u3", &|snapshot| snapshot.active = false);
        workers.remove("u3");
        assert!(!take_release(&workers, "u1"), "nothing became free");
        workers.remove("u4");
        workers.remove("u5");
        assert!(take_release(&workers, "u1"));
        assert!(!take_release(&workers, "u1"), "one decision serves both");
        assert!(!take_release(&workers, "u2"), "it has no resize");
    }

    #[test]
    fn admission_counts_the_other_active_pods() {
        let workers = Workers::default();
        let _inboxes = ["u1", "u2", "u3"].map(|uid| add(&workers, uid, json!({})));
        workers
            .all
            .lock()
            .get("u2")
            .unwrap()
            .snapshot
            .write()
            .active = false;
        let others = workers.active_besides("u1");
        let uids: Vec<_> = others
            .iter()
            .filter_map(|p| p.metadata.uid.clone())
            .collect();
        assert_eq!(uids, ["u3"]);
    }
}
