//! Schemas of objects.

use std::sync::{Arc, OnceLock};

use crate::Converter;
use api_meta::tree::{flag, get, list, text};
use api_schema::Message;
use api_structural::{Column, JsonPath, RuleSet, ScalePaths, Schema, parse_unchecked, print_text};
use serde_json::{Value, json};

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

    /// Returns what converts custom resources between versions.
    pub fn converter(&self) -> Option<&Arc<dyn Converter>> {
        match self {
            ObjectSchema::BuiltIn(_) => None,
            ObjectSchema::Custom(schema) => schema.converter.as_ref(),
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

/// The schema of one version of a custom resource, with what the version declares beside it. The
/// document itself is not kept: it stays in the definition.
#[derive(Clone, Debug)]
pub struct CustomSchema {
    /// The structural schema.
    pub structural: Arc<Schema>,
    /// Keeps unknown fields of the whole object: `spec.preserveUnknownFields` of a definition that
    /// was stored before v1 of its kind.
    pub preserve_unknown: bool,
    /// Has the subresource `status`.
    pub has_status: bool,
    /// Paths of the subresource `scale`, if the version has it.
    pub scale: Option<ScalePaths>,
    /// `additionalPrinterColumns` before the unreadable one; upstream's default if none are
    /// declared.
    pub columns: Box<[Column]>,
    /// The first JSONPath of `additionalPrinterColumns` that does not parse.
    pub unreadable_column: Option<Box<str>>,
    /// Fields for field selectors beside name and namespace.
    pub selectable_fields: Box<[SelectableField]>,
    /// Warning for each request, if the version is deprecated.
    pub deprecation: Option<Box<str>>,
    /// Converts between versions; without one, versions differ in their name only.
    pub converter: Option<Arc<dyn Converter>>,
    // Compiled when the first object is written: most definitions have few writes, and a server
    // with many of them must start fast.
    rules: OnceLock<Arc<RuleSet>>,
}

/// A field of custom resources that field selectors may use.
#[derive(Clone, Debug)]
pub struct SelectableField {
    /// Name in selectors: the path without its leading dot.
    pub name: Box<str>,
    /// Path of the value.
    pub path: JsonPath,
}

/// A version of a definition that can't be served.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The schema has keywords that structural schemas don't have.
    #[error("{0}")]
    Schema(String),
    /// The JSONPath of a selectable field doesn't parse.
    #[error("unrecognized path of a selectable field {0:?}")]
    Path(String),
}

impl CustomSchema {
    /// Parses a version of a definition: `spec` and an element of its `versions`, in the form of
    /// `apiextensions.k8s.io/v1`. Unlike the validation of the definition, this also accepts what
    /// an older server stored.
    ///
    /// # Errors
    /// The schema has unsupported keywords, or the JSONPath of a selectable field doesn't parse.
    pub fn parse(spec: &Value, version: &Value) -> Result<Self, SchemaError> {
        let document = get(get(version, "schema"), "openAPIV3Schema");
        let structural = match document {
            Value::Object(_) => parse_unchecked(document).map_err(SchemaError::Schema)?,
            // Upstream serves such a version, and prunes everything but metadata.
            _ => Arc::default(),
        };
        let subresources = get(version, "subresources");
        let scale = subresources.get("scale").filter(|scale| scale.is_object());
        let (columns, unreadable_column) = parse_columns(version);
        Ok(Self {
            structural,
            preserve_unknown: flag(spec, "preserveUnknownFields"),
            has_status: get(subresources, "status").is_object(),
            scale: scale.map(ScalePaths::parse),
            columns,
            unreadable_column,
            selectable_fields: list(version, "selectableFields")
                .iter()
                .map(SelectableField::parse)
                .collect::<Result<_, _>>()?,
            deprecation: None,
            converter: None,
            rules: OnceLock::new(),
        })
    }

    /// Returns the compiled rules.
    pub fn rules(&self) -> &RuleSet {
        self.rules
            .get_or_init(|| Arc::new(RuleSet::compile(&self.structural)))
    }
}

impl Default for CustomSchema {
    /// Returns a schema that admits every object and has no subresources.
    fn default() -> Self {
        Self {
            structural: Arc::default(),
            preserve_unknown: true,
            has_status: false,
            scale: None,
            columns: parse_columns(&Value::Null).0,
            unreadable_column: None,
            selectable_fields: Box::default(),
            deprecation: None,
            converter: None,
            rules: OnceLock::new(),
        }
    }
}

impl SelectableField {
    fn parse(field: &Value) -> Result<Self, SchemaError> {
        let path = text(field, "jsonPath");
        Ok(Self {
            name: path.strip_prefix('.').unwrap_or(path).into(),
            path: JsonPath::parse(path).map_err(|_| SchemaError::Path(path.to_owned()))?,
        })
    }

    /// Returns the value that selectors compare; empty if the object has none.
    pub fn read(&self, object: &Value) -> String {
        self.path
            .find_first(object)
            .map(print_text)
            .unwrap_or_default()
    }
}

/// Returns the columns up to the first one whose JSONPath does not parse, and that JSONPath. As
/// upstream: the validation of a definition does not parse these paths, so that a column must not
/// prevent that the resource is served.
fn parse_columns(version: &Value) -> (Box<[Column]>, Option<Box<str>>) {
    let declared = list(version, "additionalPrinterColumns");
    if declared.is_empty() {
        let age = json!({"name": "Age", "type": "date",
            "description": "Time since the object was created.",
            "jsonPath": ".metadata.creationTimestamp"});
        return (Column::parse(&age).into_iter().collect(), None);
    }
    let mut columns = Vec::with_capacity(declared.len());
    for column in declared {
        match Column::parse(column) {
            Ok(column) => columns.push(column),
            Err(_) => return (columns.into(), Some(text(column, "jsonPath").into())),
        }
    }
    (columns.into(), None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn version_declares_columns_paths_and_fields() {
        let version = json!({"name": "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
            "selectableFields": [{"jsonPath": ".spec.color"}]});
        let schema = CustomSchema::parse(&json!({}), &version).unwrap();
        assert!(schema.structural.property("spec").is_some());
        assert!(schema.has_status && !schema.preserve_unknown);
        assert_eq!(&*schema.scale.unwrap().spec_replicas, ".spec.n");
        assert_eq!(schema.columns.len(), 1);
        let field = &schema.selectable_fields[0];
        assert_eq!(&*field.name, "spec.color");
        assert_eq!(field.read(&json!({"spec": {"color": "blue"}})), "blue");
        assert_eq!(field.read(&json!({"spec": {}})), "");
    }

    #[test]
    fn version_without_columns_has_the_age() {
        let schema = CustomSchema::parse(
            &json!({"preserveUnknownFields": true}),
            &json!({"name": "v1"}),
        )
        .unwrap();
        assert!(schema.preserve_unknown && !schema.has_status && schema.scale.is_none());
        assert_eq!(&*schema.columns[0].name, "Age");
    }

    #[test]
    fn selectable_field_that_does_not_parse_is_an_error() {
        let version = json!({"selectableFields": [{"jsonPath": ".spec["}]});
        assert!(CustomSchema::parse(&json!({}), &version).is_err());
    }

    #[test]
    fn columns_end_before_the_first_that_does_not_parse() {
        let long = ".a".repeat(2049);
        for (paths, expect) in [
            (vec![".a", ".b"], (2, None)),
            (vec![".a", "range .b[*]", ".c"], (1, Some("range .b[*]"))),
            (vec![".a[?(@.b", ".c"], (0, Some(".a[?(@.b"))),
            (vec![".a", ".b", ".c}{.d"], (2, Some(".c}{.d"))),
            (vec![&long], (0, Some(&*long))),
        ] {
            let columns: Vec<Value> = paths
                .iter()
                .map(|path| json!({"name": "N", "type": "string", "jsonPath": path}))
                .collect();
            let version = json!({"additionalPrinterColumns": columns});
            let schema = CustomSchema::parse(&json!({}), &version).unwrap();
            let found = (schema.columns.len(), schema.unreadable_column.as_deref());
            assert_eq!(found, expect, "{paths:?}");
        }
    }
}
