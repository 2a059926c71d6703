//! The application of mutations to objects, which needs the schemas of the served kinds.

use apiserver_webhook::GroupVersionResource;
use serde_json::Value;

/// Applies mutations by the schemas of the served kinds. The server implements it.
pub trait PatchObjects: Send + Sync {
    /// Merges a partial object into an object in canonical form.
    ///
    /// # Errors
    /// The partial object does not fit the schema, or would replace lists or maps as a whole.
    fn merge_partial(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        live: &Value,
        partial: &Value,
    ) -> Result<Value, String>;

    /// Checks a patched object and makes it canonical. Unknown fields of built-in kinds are errors.
    ///
    /// # Errors
    /// The object does not fit the schema.
    fn decode_patched(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
        object: Value,
    ) -> Result<Value, String>;
}
