//! Decoding for an informer, whose own code does not know the type of the objects.

use std::sync::Arc;

use super::event::Transform;
use super::packing::{Packing, StoredObject};
use crate::any_object::{AnyObject, key_of};
use crate::list::List;
use crate::object::{Object, ObjectExt};
use crate::watch_event::WatchEvent;

/// An object, and the version of the event that brought it.
pub(crate) struct ReceivedObject {
    pub(crate) version: String,
    pub(crate) object: Arc<dyn AnyObject>,
}

/// An object of a list, as it is stored.
pub(crate) struct ListedObject {
    pub(crate) key: String,
    pub(crate) resource_version: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) object: StoredObject,
}

impl ListedObject {
    pub(crate) fn new(object: Arc<dyn AnyObject>, packing: Option<Packing>) -> Self {
        let metadata = object.metadata();
        Self {
            key: key_of(&*object),
            resource_version: metadata.resource_version.clone(),
            uid: metadata.uid.clone(),
            object: StoredObject::new(&object, packing),
        }
    }
}

/// Decodes objects of one kind, and drops what the informer's user does not need.
pub(crate) trait ObjectDecoder: Send + Sync {
    fn decode_list(&self, bytes: &[u8], kind: &str) -> serde_json::Result<List<ListedObject>>;
    fn decode_event(&self, line: &[u8]) -> serde_json::Result<WatchEvent<ReceivedObject>>;
}

/// The transforms of an informer.
pub(crate) struct Transforms<K> {
    pub(crate) transforms: Vec<Transform<K>>,
    pub(crate) packing: Option<Packing>,
}

impl<K: Object> Transforms<K> {
    fn transform(&self, mut object: K) -> Arc<dyn AnyObject> {
        for transform in &self.transforms {
            transform(&mut object);
        }
        Arc::new(object)
    }
}

impl<K: Object> ObjectDecoder for Transforms<K> {
    fn decode_list(&self, bytes: &[u8], kind: &str) -> serde_json::Result<List<ListedObject>> {
        let mut items = Vec::new();
        // One by one: all objects of a list before the transforms may be several times as large.
        let list = K::decode_items(bytes, kind, &mut |item| {
            items.push(ListedObject::new(self.transform(item), self.packing));
        })?;
        Ok(List {
            metadata: list.metadata,
            items,
            undecodable: list.undecodable,
        })
    }

    fn decode_event(&self, line: &[u8]) -> serde_json::Result<WatchEvent<ReceivedObject>> {
        let event = K::decode_event(line)?;
        Ok(event.map_object(|object| ReceivedObject {
            // Before the transforms, which may clear metadata.
            version: object.resource_version().to_owned(),
            object: self.transform(object),
        }))
    }
}
