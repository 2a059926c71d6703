//! Code that an informer calls: handlers with events, index functions, transforms.

use std::sync::Arc;

/// A change of one object.
#[derive(Debug)]
pub enum Event<K> {
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

impl<K> Clone for Event<K> {
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

impl<K> Event<K> {
    /// Returns the newest state in the event.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted(last) => last,
        }
    }
}

pub(crate) type Handler<K> = Arc<dyn Fn(Event<K>) + Send + Sync>;

pub(crate) type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

pub(crate) type Transform<K> = Box<dyn Fn(&mut K) + Send + Sync>;
