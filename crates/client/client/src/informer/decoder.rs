//! Decoding for an informer, whose own code does not know the type of the objects.

use std::sync::Arc;

use super::event::Transform;
use crate::any_object::AnyObject;
use crate::list::List;
use crate::object::{Object, ObjectExt};
use crate::watch_event::WatchEvent;

/// An object, and the version of the event that brought it.
pub(crate) struct ReceivedObject {
    pub(crate) version: String,
    pub(crate) object: Arc<dyn AnyObject>,
}

/// Decodes objects of one kind, and drops what the informer's user does not need.
pub(crate) trait ObjectDecoder: Send + Sync {
    fn decode_list(&self, bytes: &[u8], kind: &str)
    -> serde_json::Result<List<Arc<dyn AnyObject>>>;
    fn decode_event(&self, line: &[u8]) -> serde_json::Result<WatchEvent<ReceivedObject>>;
}

/// The transforms of an informer.
pub(crate) struct Transforms<K>(pub(crate) Vec<Transform<K>>);

impl<K: Object> Transforms<K> {
    fn transform(&self, mut object: K) -> Arc<dyn AnyObject> {
        for transform in &self.0 {
            transform(&mut object);
        }
        Arc::new(object)
    }
}

impl<K: Object> ObjectDecoder for Transforms<K> {
    fn decode_list(
        &self,
        bytes: &[u8],
        kind: &str,
    ) -> serde_json::Result<List<Arc<dyn AnyObject>>> {
        let list = K::decode_list(bytes, kind)?;
        let items = list.items.into_iter().map(|item| self.transform(item));
        Ok(List {
            metadata: list.metadata,
            items: items.collect(),
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
