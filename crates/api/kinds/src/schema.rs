//! Schemas of objects.

use std::sync::Arc;

use api_schema::Message;
use serde_json::Value;

/// The schema of an object or of a subresource's body; cheap to clone.
#[derive(Clone, Debug)]
pub enum ObjectSchema {
    /// A built-in kind: a message of the schema data, which gives all encodings.
    BuiltIn(&'static Message),
    /// A custom resource: encoded as JSON and YAML only.
    Custom(Arc<CustomSchema>),
}

impl ObjectSchema {
    /// Returns the message of a built-in kind.
    pub fn message(&self) -> Option<&'static Message> {
        match self {
            ObjectSchema::BuiltIn(message) => Some(message),
            ObjectSchema::Custom(_) => None,
        }
    }

    /// Returns whether objects have a protobuf encoding.
    pub fn has_protobuf(&self) -> bool {
        matches!(self, ObjectSchema::BuiltIn(_))
    }
}

impl From<&'static Message> for ObjectSchema {
    fn from(message: &'static Message) -> Self {
        ObjectSchema::BuiltIn(message)
    }
}

/// The schema of one version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct CustomSchema {
    /// `openAPIV3Schema` of the version (JSONSchemaProps).
    pub document: Arc<Value>,
    /// Keeps unknown fields of the whole object: `spec.preserveUnknownFields` of the definition, or
    /// `x-kubernetes-preserve-unknown-fields` at the root.
    pub preserve_unknown: bool,
}
