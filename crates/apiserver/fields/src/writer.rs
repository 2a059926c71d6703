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

/// Fields that the server sets: upstream's strip set. The first two are in every write, so they say
/// nothing about ownership.
const SYSTEM_FIELDS: [&str; 11] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.clusterName",
];

impl<'a> Writer<'a> {
    /// Returns the paths that this kind of write does not set, or that no manager can own.
    pub(crate) fn ignored_paths(&self) -> impl Iterator<Item = &'a str> {
        SYSTEM_FIELDS
            .into_iter()
            .chain(self.ignored.iter().copied())
    }
}

/// Returns the object without the fields that this kind of write does not set.
pub(crate) fn strip_ignored_fields(writer: &Writer<'_>, object: &Value) -> Value {
    let mut object = object.clone();
    for path in writer.ignored_paths() {
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        let mut names = parents.split('.').filter(|name| !name.is_empty());
        let parent = names.try_fold(&mut object, |at, name| at.get_mut(name));
        if let Some(map) = parent.and_then(Value::as_object_mut) {
            map.remove(field);
        }
    }
    object
}
