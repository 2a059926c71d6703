//! The pods of this node, for whoever is not their worker.

use super::messages::Message;
use crate::pod::view::Observed;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// What a worker shows.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) pod: Arc<Pod>,
    pub(crate) status: Arc<PodStatus>,
    pub(crate) observed: Arc<Observed>,
    /// Admitted and not ended: it counts for the node's resources.
    pub(crate) active: bool,
    /// From a manifest on this node. The pod's annotations don't prove it: clients of the API server may set them.
    pub(crate) is_static: bool,
    /// Somebody still wants it: it was not deleted, and its manifest is there.
    pub(crate) wanted: bool,
}

struct Handle {
    inbox: UnboundedSender<Message>,
    shown: Arc<RwLock<Shown>>,
}

/// Ends of containers that no worker knew yet; more than these are left to the next listing.
const EARLY: usize = 1000;

/// All workers by the pod's uid.
#[derive(Default)]
pub(crate) struct Workers {
    all: Mutex<HashMap<String, Handle>>,
    /// Containers that ended before their start was taken in.
    early: Mutex<HashSet<String>>,
    admission: Mutex<()>,
}

impl Workers {
    pub(crate) fn add(&self, uid: &str, inbox: UnboundedSender<Message>, shown: Arc<RwLock<Shown>>) {
        self.all.lock().insert(uid.to_owned(), Handle { inbox, shown });
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.all.lock().remove(uid);
    }

    /// Tells a worker; false when there is none.
    pub(crate) fn send(&self, uid: &str, message: Message) -> bool {
        self.all.lock().get(uid).is_some_and(|h| h.inbox.send(message).is_ok())
    }

    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.all.lock().contains_key(uid)
    }

    pub(crate) fn all(&self) -> Vec<Shown> {
        self.all.lock().values().map(|h| h.shown.read().clone()).collect()
    }

    pub(crate) fn shown(&self, uid: &str) -> Option<Shown> {
        self.all.lock().get(uid).map(|h| h.shown.read().clone())
    }

    /// Whether another static pod of the same namespace and name is not cleaned up yet.
    pub(crate) fn has_namesake(&self, pod: &Pod) -> bool {
        let name = |p: &Pod| (p.metadata.namespace.clone(), p.metadata.name.clone());
        self.all().iter().any(|s| s.is_static && s.pod.metadata.uid != pod.metadata.uid && name(&s.pod) == name(pod))
    }

    /// A pod by namespace and name; the one that is not ending where there are two.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Shown> {
        let fits = |s: &Shown| {
            s.pod.metadata.namespace.as_deref() == Some(namespace) && s.pod.metadata.name.as_deref() == Some(name)
        };
        let mut all: Vec<Shown> = self.all().into_iter().filter(fits).collect();
        all.sort_by_key(|s| s.pod.metadata.deletion_timestamp.is_some());
        all.into_iter().next()
    }

    /// Tells the worker of a container or sandbox that it changed, now or when the worker knows it.
    pub(crate) fn changed(&self, id: &str) {
        // First noted and then looked for: the worker shows first and then looks for notes, so one of the two finds it.
        {
            let mut early = self.early.lock();
            if early.len() >= EARLY {
                early.clear();
            }
            early.insert(id.to_owned());
        }
        if let Some(uid) = self.owner(id) {
            self.early.lock().remove(id);
            self.send(&uid, Message::Changed(Some(id.to_owned())));
        }
    }

    /// Tells the worker of a container that its memory ran out.
    pub(crate) fn out_of_memory(&self, id: &str) {
        if let Some(uid) = self.owner(id) {
            self.send(&uid, Message::OutOfMemory(id.to_owned()));
        }
    }

    /// Whether the container's end was noted before; asked once.
    pub(crate) fn ended_early(&self, id: &str) -> bool {
        self.early.lock().remove(id)
    }

    /// The pod of a container or sandbox.
    fn owner(&self, id: &str) -> Option<String> {
        let all = self.all.lock();
        all.iter()
            .find(|(_, h)| {
                let shown = h.shown.read();
                shown.observed.by_id(id).is_some() || shown.observed.sandboxes.iter().any(|s| s.id == id)
            })
            .map(|(uid, _)| uid.clone())
    }

    /// Returns the active pods but for `uid`.
    pub(crate) fn active_besides(&self, uid: &str) -> Vec<Arc<Pod>> {
        let other = |s: &Shown| s.active && s.pod.metadata.uid.as_deref() != Some(uid);
        self.all().into_iter().filter(other).map(|s| s.pod).collect()
    }

    /// Admits pods one after the other: each decision counts the pods that were admitted before.
    pub(crate) fn admission(&self) -> MutexGuard<'_, ()> {
        self.admission.lock()
    }
}
