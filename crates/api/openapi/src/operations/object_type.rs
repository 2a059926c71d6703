//! The type of the bodies of operations.

use crate::content::{MediaTypes, media_types};
use crate::names::{kind_of, resource_type};
use api_kinds::Resource;
use serde_json::Value;

/// The type of the bodies of an operation.
pub(super) struct ObjectType<'a> {
    /// Name of the type.
    pub(super) name: String,
    /// The kind whose path it is.
    pub(super) owner: &'a str,
    /// Value of `x-kubernetes-group-version-kind`.
    pub(super) gvk: Value,
    pub(super) types: &'static MediaTypes,
    pub(super) is_custom: bool,
}

impl<'a> ObjectType<'a> {
    /// Returns the type of a resource's objects.
    pub(super) fn of_resource(resource: &'a Resource, serves_cbor: bool) -> Self {
        Self {
            name: resource_type(resource),
            owner: &resource.kind,
            gvk: kind_of(resource),
            types: media_types(resource, serves_cbor),
            is_custom: resource.is_custom(),
        }
    }
}
