//! Code that an informer calls: handlers with events, index functions, transforms.

use std::sync::Arc;

use crate::any_object::{AnyObject, downcast, downcast_ref};
use crate::object::Object;

/// A change of one object.
#[derive(Debug)]
pub enum Event<K: ?Sized> {
    /// The object was created (`old` is `None`) or changed.
    Applied {
        /// The state before.
        old: Option<Arc<K>>,
        /// The state after.
        new: Arc<K>,
    },
    /// The object was deleted. Contains its last known state.
    Deleted(Arc<K>),
}

impl<K: ?Sized> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied { old, new } => Self::Applied {
                old: old.clone(),
                new: new.clone(),
            },
            Self::Deleted(last) => Self::Deleted(last.clone()),
        }
    }
}

impl<K: ?Sized> Event<K> {
    /// Returns the newest state in the event.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted(last) => last,
        }
    }
}

impl Event<dyn AnyObject> {
    fn downcast<K: Object>(self) -> Option<Event<K>> {
        Some(match self {
            Self::Applied { old, new } => Event::Applied {
                old: old.and_then(downcast),
                new: downcast(new)?,
            },
            Self::Deleted(last) => Event::Deleted(downcast(last)?),
        })
    }
}

pub(crate) type Handler = Arc<dyn Fn(Event<dyn AnyObject>) + Send + Sync>;

pub(crate) fn box_handler<K: Object>(
    handler: impl Fn(Event<K>) + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |event| {
        if let Some(event) = event.downcast() {
            handler(event);
        }
    })
}

/// Returns an object's keys in an index.
pub(crate) type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

pub(crate) type AnyIndexFn = Box<dyn Fn(&dyn AnyObject) -> Vec<String> + Send + Sync>;

pub(crate) fn box_index<K: Object>(
    keys: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
) -> AnyIndexFn {
    Box::new(move |object| downcast_ref(object).map(&keys).unwrap_or_default())
}

pub(crate) type Transform<K> = Box<dyn Fn(&mut K) + Send + Sync>;
