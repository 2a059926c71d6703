//! The context of a write, and what of an object counts in it.

use crate::managers::Identity;
use crate::versions::{ConversionRequest, Versions};
use api_codec::json;
use api_kinds::ObjectSchema;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The identity and the context of a write.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// `group/version` of the writer's objects.
    pub api_version: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The schema of that version.
    pub schema: &'a ObjectSchema,
    /// The other versions.
    pub versions: &'a Versions<'a>,
    /// Fields that such a write does not set, whatever the body contains (`status`,
    /// `metadata.labels`).
    pub ignored: &'a [&'a str],
    /// The current time.
    pub now: &'a str,
}

impl Writer<'_> {
    pub(crate) fn identity(&self, operation: &str) -> Identity {
        Identity {
            manager: self.manager.to_owned(),
            operation: operation.to_owned(),
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}

impl<'a> Writer<'a> {
    /// Returns the schema of a version; `None` if the version does not exist any more.
    pub(crate) fn find_schema(&self, api_version: &str) -> Option<&'a ObjectSchema> {
        if api_version == self.api_version {
            return Some(self.schema);
        }
        let version = self.versions.find(api_version);
        version.map(|resource| &resource.schema)
    }

    /// Converts an object of the resource.
    pub(crate) fn convert<'v>(
        &'v self,
        object: &'v Value,
        from: &str,
        to: &str,
    ) -> Result<Cow<'v, Value>, ConversionRequest> {
        if from == to {
            return Ok(Cow::Borrowed(object));
        }
        self.versions.convert(object, to)
    }
}

/// Returns an object with the defaults that no client owns.
pub(crate) fn build_default_object(schema: &ObjectSchema) -> Value {
    match schema {
        ObjectSchema::BuiltIn(message) => json::explicit(message, &json!({})),
        ObjectSchema::Custom(_) => json!({"metadata": {}}),
    }
}

/// Returns the object without the fields that this kind of write does not set.
pub(crate) fn strip_ignored_fields(writer: &Writer<'_>, object: &Value) -> Value {
    let mut object = strip_system_fields(object);
    for path in writer.ignored {
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        let mut names = parents.split('.').filter(|name| !name.is_empty());
        let parent = names.try_fold(&mut object, |at, name| at.get_mut(name));
        if let Some(map) = parent.and_then(Value::as_object_mut) {
            map.remove(field);
        }
    }
    object
}

/// Returns the object without the fields that no manager can own.
fn strip_system_fields(object: &Value) -> Value {
    // Fields that the server sets: upstream's strip set.
    const OF_METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
        "clusterName",
    ];
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        // Every write names them, so that they say nothing about ownership.
        map.remove("apiVersion");
        map.remove("kind");
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in OF_METADATA {
                metadata.remove(field);
            }
        }
    }
    object
}
