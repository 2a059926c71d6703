//! Requests to install and remove custom resources, and the set that a batch of them leads to.

use crate::kind::StoredKind;
use crate::resource::{Redescription, ResourceCache};
use crate::served::ServedResources;
use api_kinds::{Name, ObjectSchema, Resource, custom_prefix, is_built_in};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Reasons why a resource can't be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The description contradicts itself or a built-in resource.
    #[error("{0} cannot be served as a custom resource: {1}")]
    Invalid(String, &'static str),
    /// The task that feeds the caches has ended.
    #[error("the watch caches have stopped")]
    Stopped,
}

/// A request to the reader.
#[derive(Debug)]
pub(crate) struct Request {
    /// By storage prefix; `None` removes the resource.
    pub(crate) kinds: BTreeMap<Name, Option<StoredKind>>,
    /// Notified once the set with the change is published.
    pub(crate) done: oneshot::Sender<()>,
}

/// Checks the versions of custom resources and groups them by storage prefix.
pub(crate) fn check_resources(
    resources: Vec<Arc<Resource>>,
) -> Result<BTreeMap<Name, Option<StoredKind>>, InstallError> {
    for resource in &resources {
        if let Some(why) = find_problem(resource) {
            return Err(InstallError::Invalid(resource.group_resource(), why));
        }
    }
    let kinds = StoredKind::from_resources(&resources);
    for kind in &kinds {
        // Keys have one form: a namespaced version and a cluster-scoped one can't share them.
        let scopes = |row: &&Arc<Resource>| row.namespaced != kind.resource.namespaced;
        if let Some(row) = kind.rows.iter().find(scopes) {
            return Err(InstallError::Invalid(
                row.group_resource(),
                "its versions have different scopes",
            ));
        }
    }
    let by_prefix = |kind: StoredKind| (kind.prefix.clone(), Some(kind));
    Ok(kinds.into_iter().map(by_prefix).collect())
}

fn find_problem(resource: &Resource) -> Option<&'static str> {
    let (group, plural) = (&*resource.group, &*resource.plural);
    // A slash would move the prefix into the keys of another resource.
    let is_segment = |name: &str| !name.is_empty() && !name.contains('/');
    if !is_segment(group) || !is_segment(plural) || !is_segment(&resource.version) {
        return Some("its names are no path segments");
    }
    if is_built_in(group, plural) {
        return Some("the name is that of a built-in resource");
    }
    if !matches!(resource.schema, ObjectSchema::Custom(_)) {
        return Some("its schema is that of a built-in kind");
    }
    match &resource.storage {
        Some(storage) if storage.prefix == custom_prefix(group, plural) => None,
        _ => Some("its storage prefix is not that of its name"),
    }
}

/// Requests that are executed together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    kinds: BTreeMap<Name, Option<StoredKind>>,
    done: Vec<oneshot::Sender<()>>,
}

/// The set that a batch leads to.
pub(crate) struct NextSet {
    pub(crate) set: ServedResources,
    /// Caches of the set whose objects are to be replaced when it is published.
    pub(crate) changed: Vec<Redescription>,
    /// Caches that the batch adds.
    pub(crate) added: Vec<Arc<ResourceCache>>,
    /// Caches that the batch removes.
    pub(crate) removed: Vec<Arc<ResourceCache>>,
}

impl Batch {
    /// Adds a request; a later one replaces an earlier one of the same resource.
    pub(crate) fn add_request(&mut self, request: Request) {
        self.kinds.extend(request.kinds);
        self.done.push(request.done);
    }

    /// Returns the kinds that have no cache in the set.
    pub(crate) fn list_new_kinds(&self, set: &ServedResources) -> Vec<StoredKind> {
        self.kinds
            .values()
            .flatten()
            .filter(|kind| !set.custom().contains_key(&kind.prefix))
            .cloned()
            .collect()
    }

    /// Returns the set after the batch. `filled` holds the caches of the new kinds; the others keep
    /// their objects.
    pub(crate) fn next_set(
        &self,
        set: &ServedResources,
        mut filled: BTreeMap<Name, Arc<ResourceCache>>,
    ) -> NextSet {
        let mut custom = set.custom().clone();
        let (mut changed, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for (prefix, kind) in &self.kinds {
            let old = custom.remove(prefix);
            match (kind, old) {
                (None, old) => removed.extend(old),
                (Some(kind), Some(old)) => {
                    let described = old.with_kind(kind.clone());
                    custom.insert(prefix.clone(), described.cache.clone());
                    changed.push(described);
                }
                (Some(_), None) => {
                    if let Some(cache) = filled.remove(prefix) {
                        added.push(cache.clone());
                        custom.insert(prefix.clone(), cache);
                    }
                }
            }
        }
        NextSet {
            set: set.with_custom(custom),
            changed,
            added,
            removed,
        }
    }

    /// Notifies the callers that the change is published.
    pub(crate) fn notify_callers(self) {
        for done in self.done {
            // A caller that no longer waits needs no answer.
            let _ = done.send(());
        }
    }
}
