//! ConfigMaps and Secrets that pods use: read on demand, and followed by one watch per object while
//! a pod uses it.
//!
//! Rejected: watches of whole namespaces. The Node authorizer lets a kubelet read only objects that
//! its pods reference.

use base_task::{CancellationToken, Tasks};
use client::{Client, Informer, ListParams, Object, Store};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::pod::spec;

/// A kind that pods take content from.
pub(crate) trait Found: Object + k8s_openapi::Resource {
    /// The kind's name in messages.
    const KIND_NAME: &'static str;
}

impl Found for ConfigMap {
    const KIND_NAME: &'static str = "configmap";
}

impl Found for Secret {
    const KIND_NAME: &'static str = "secret";
}

type Key = (&'static str, String, String);
/// Callback for a changed object, with the uid of a pod that uses it.
type Changed = Arc<dyn Fn(&str) + Send + Sync>;

struct Followed {
    /// A `Store<K>`.
    store: Box<dyn Any + Send + Sync>,
    users: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
}

/// The objects in use by pods of this node.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Option<Client>,
    tasks: Tasks,
    followed: Arc<Mutex<HashMap<Key, Followed>>>,
    changed: Changed,
}

impl Objects {
    pub(crate) fn new(client: Option<Client>, tasks: Tasks, changed: Changed) -> Self {
        Objects {
            client,
            tasks,
            followed: Arc::default(),
            changed,
        }
    }

    /// Reads an object; None if it does not exist and is optional.
    pub(crate) async fn get<K: Found>(
        &self,
        namespace: &str,
        name: &str,
        optional: bool,
    ) -> Result<Option<Arc<K>>, String> {
        let unavailable = || {
            format!(
                "{} {name:?} can't be read without an API server",
                K::KIND_NAME
            )
        };
        let client = self.client.as_ref().ok_or_else(unavailable)?;
        // A cached object that is absent may exist: the watch can be behind the write that a user
        // waits for.
        if let Some(found) = self.find_cached::<K>(namespace, name) {
            return Ok(Some(found));
        }
        match client.namespaced::<K>(namespace).get_opt(name).await {
            Ok(Some(found)) => Ok(Some(Arc::new(found))),
            Ok(None) if optional => Ok(None),
            Ok(None) => Err(format!("{} {name:?} not found", K::KIND_NAME)),
            Err(e) => Err(format!(
                "failed to get {} {namespace}/{name}: {e}",
                K::KIND_NAME
            )),
        }
    }

    fn find_cached<K: Found>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let followed = self.followed.lock();
        let entry = followed.get(&(K::KIND_NAME, namespace.to_owned(), name.to_owned()))?;
        let store = entry.store.downcast_ref::<Store<K>>()?;
        store
            .has_synced()
            .then(|| store.get(&format!("{namespace}/{name}")))
            .flatten()
    }

    /// Follows every object that `pod` references.
    pub(crate) fn register(&self, pod: &Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let (maps, secrets) = list_references(pod);
        maps.iter()
            .for_each(|name| self.follow_object::<ConfigMap>(&namespace, name, &uid));
        secrets
            .iter()
            .for_each(|name| self.follow_object::<Secret>(&namespace, name, &uid));
    }

    fn follow_object<K: Found>(&self, namespace: &str, name: &str, uid: &str) {
        let Some(client) = &self.client else { return };
        let key = (K::KIND_NAME, namespace.to_owned(), name.to_owned());
        // Held over the check and the insertion, or two pods that start together would open two
        // watches.
        let mut followed = self.followed.lock();
        if let Some(entry) = followed.get(&key) {
            entry.users.lock().insert(uid.to_owned());
            return;
        }
        let users = Arc::new(Mutex::new(BTreeSet::from([uid.to_owned()])));
        let stop = self.tasks.shutdown().child_token();
        let (of_event, changed) = (users.clone(), self.changed.clone());
        let params = ListParams::new().with_fields(format!("metadata.name={name}"));
        let informer =
            Informer::<K>::new(client.namespaced(namespace), params).on_event(move |_| {
                let users: Vec<String> = of_event.lock().iter().cloned().collect();
                users.iter().for_each(|uid| changed(uid));
            });
        let store = informer.spawn_until(&self.tasks, stop.clone());
        followed.insert(
            key,
            Followed {
                store: Box::new(store),
                users,
                stop,
            },
        );
    }

    /// Stops following objects that only this removed pod used.
    pub(crate) fn unregister(&self, uid: &str) {
        self.followed.lock().retain(|_, entry| {
            let mut users = entry.users.lock();
            users.remove(uid);
            // A deleted pod must not keep a watch that the Node authorizer no longer allows.
            if users.is_empty() {
                entry.stop.cancel();
            }
            !users.is_empty()
        });
    }
}

/// Returns the names of ConfigMaps and Secrets in volumes and environment.
fn list_references(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for volume in spec::read_spec(pod).volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|s| s.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|s| s.secret_name.clone()));
        for source in volume
            .projected
            .iter()
            .flat_map(|p| p.sources.iter().flatten())
        {
            maps.extend(source.config_map.iter().map(|s| s.name.clone()));
            secrets.extend(source.secret.iter().map(|s| s.name.clone()));
        }
    }
    let containers = spec::init_containers(pod)
        .map(|(_, c)| c)
        .chain(spec::app_containers(pod));
    for container in containers {
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.iter().map(|s| s.name.clone()));
            secrets.extend(from.secret_ref.iter().map(|s| s.name.clone()));
        }
        for from in container
            .env
            .iter()
            .flatten()
            .filter_map(|v| v.value_from.as_ref())
        {
            maps.extend(from.config_map_key_ref.iter().map(|s| s.name.clone()));
            secrets.extend(from.secret_key_ref.iter().map(|s| s.name.clone()));
        }
    }
    maps.retain(|name| !name.is_empty());
    secrets.retain(|name| !name.is_empty());
    (maps, secrets)
}
