//! Objects whose kind is not known where they are handled.
//!
//! Informers and stores handle objects of some fifty kinds in the same way. As generic code they
//! would be compiled, and kept in the programs, once for each kind and crate; what is here exists
//! once.

use std::any::Any;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::Object;
use crate::object_key::format_key;

/// An object of any kind.
pub(crate) trait AnyObject: Any + Send + Sync {
    /// Returns the metadata.
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: Object> AnyObject for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// Returns the key of an object, as [`ObjectExt::key`](crate::ObjectExt::key).
pub(crate) fn key_of(object: &dyn AnyObject) -> String {
    let meta = object.metadata();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    format_key(namespace, meta.name.as_deref().unwrap_or_default())
}

/// Returns the object as one of kind `K`, if it is one.
pub(crate) fn downcast<K: Object>(object: Arc<dyn AnyObject>) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

/// Returns a reference to the object as one of kind `K`, if it is one.
pub(crate) fn downcast_ref<K: Object>(object: &dyn AnyObject) -> Option<&K> {
    let object: &dyn Any = object;
    object.downcast_ref()
}
