//! Objects in the version that a webhook has asked for.

use crate::attributes::Attributes;
use crate::kinds::{GroupVersionResource, Kinds, ReviewTarget};
use api_meta::ApiError;
use serde_json::Value;

/// The objects of a request in the version of one webhook, in canonical form.
pub struct VersionedObjects {
    /// The object, or null.
    pub object: Value,
    /// The old object, or null.
    pub old: Value,
}

impl VersionedObjects {
    /// Converts the objects.
    ///
    /// # Errors
    /// An object that can't be converted.
    pub fn convert(
        kinds: &dyn Kinds,
        attributes: &Attributes<'_>,
        (resource, kind): &ReviewTarget,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Self, ApiError> {
        let convert = |object: Value| {
            if !object.is_object() {
                return Ok(Value::Null);
            }
            // The bodies of most subresources are the same in all versions of their resource.
            let same = *resource == attributes.resource || *kind == attributes.kind;
            let converted = if same {
                object
            } else {
                convert_object(kinds, object, &attributes.resource, resource)?
            };
            Ok(with_type(converted, &kind.api_version(), &kind.kind))
        };
        Ok(VersionedObjects {
            object: convert(object.clone())?,
            old: convert(old.cloned().unwrap_or_default())?,
        })
    }
}

/// Converts an object between equivalent resources.
///
/// # Errors
/// The object has no form there.
pub fn convert_object(
    kinds: &dyn Kinds,
    object: Value,
    from: &GroupVersionResource,
    to: &GroupVersionResource,
) -> Result<Value, ApiError> {
    kinds
        .convert_object(object, from, to)
        .map_err(ApiError::internal)
}

/// Returns the object with the type that reviews have to name.
pub fn with_type(mut object: Value, api_version: &str, kind: &str) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), kind.into());
    }
    object
}
