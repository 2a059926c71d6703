//! Converts objects between the client's version, the storage version and the store's bytes.

pub mod codec;
mod custom;
mod foreign;
mod stored;

use api_kinds::{ObjectSchema, Resource};
use serde_json::Value;
use std::sync::Arc;

pub use api_codec::proto::Part;
pub use custom::{coerce_changed, default_custom};
pub use foreign::{convert_admitted, convert_custom, convert_one, convert_to_store};
pub use stored::{
    StoredError, check_managed_fields, decode_message, decode_stored, encode_readable,
    encode_stored, message_to_json, set_resource_version, stored_message, stored_version,
};

/// Converts an object from version `from` to version `to` of the same kind.
pub fn convert_object(from: &Resource, to: &Resource, mut object: Value) -> Value {
    if !from.is_same_version(to) {
        api_kinds::convert(to, &mut object, &to.api_version());
        // Versions differ in which zero values are written.
        match &to.schema {
            ObjectSchema::BuiltIn(_) => codec::canonicalize(&to.schema, &mut object),
            ObjectSchema::Custom(schema) => coerce_changed(schema, &mut object),
        }
    }
    object
}

/// Returns the storage version of a built-in resource.
pub fn storage_resource(resource: &'static Arc<Resource>) -> &'static Arc<Resource> {
    let Some(storage) = &resource.storage else {
        return resource;
    };
    let (group, version) = storage
        .api_version
        .split_once('/')
        .unwrap_or(("", &storage.api_version));
    api_kinds::find(group, version, &resource.plural).unwrap_or(resource)
}

#[cfg(test)]
mod tests;
