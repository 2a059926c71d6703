//! Objects that a store keeps encoded.

use std::sync::Arc;

use crate::any_object::{AnyObject, downcast_ref};
use crate::object::Object;

/// The encoding of one kind in a store. A typed object has room for every field of its kind, also
/// for those that are absent; encoded, an object takes a half to a fifth of that.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    pack: fn(&dyn AnyObject) -> Option<Box<[u8]>>,
    unpack: fn(&[u8]) -> serde_json::Result<Arc<dyn AnyObject>>,
}

impl Packing {
    pub(crate) fn for_kind<K: Object>() -> Self {
        Self {
            pack: |object| {
                let encoded = downcast_ref::<K>(object)?.encode_object();
                encoded.ok().map(Vec::into_boxed_slice)
            },
            unpack: |bytes| Ok(Arc::new(K::decode_object(bytes)?)),
        }
    }
}

/// An object in a store.
pub(crate) enum StoredObject {
    /// As it is.
    Plain(Arc<dyn AnyObject>),
    /// Encoded.
    Packed(Box<[u8]>, Packing),
}

impl StoredObject {
    /// Encodes the object, if its store does so. One that can't be encoded is kept as it is.
    pub(crate) fn new(object: &Arc<dyn AnyObject>, packing: Option<Packing>) -> Self {
        let packed = packing.and_then(|packing| Some(((packing.pack)(&**object)?, packing)));
        match packed {
            Some((bytes, packing)) => Self::Packed(bytes, packing),
            None => Self::Plain(object.clone()),
        }
    }

    /// Returns the object.
    pub(crate) fn open(&self) -> Option<Arc<dyn AnyObject>> {
        match self {
            Self::Plain(object) => Some(object.clone()),
            // The encoder of the same type has written it, so there is no error.
            Self::Packed(bytes, packing) => (packing.unpack)(bytes)
                .inspect_err(|error| tracing::error!(%error, "stored object can't be decoded"))
                .ok(),
        }
    }
}
