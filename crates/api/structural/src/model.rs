//! The model of a structural schema.

use crate::format::{NumberFormat, StringFormat};
use crate::pattern::Pattern;
use serde_json::Value;
use std::sync::Arc;

/// A node of a schema: the structure of a value, and how to validate it.
///
/// Descriptions are not kept: OpenAPI documents are built from the definition object. Nodes below
/// `allOf`, `anyOf`, `oneOf` and `not` have the same type.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// `type`; absent only for int-or-string and for values that preserve unknown fields.
    pub value_type: Option<ValueType>,
    /// `x-kubernetes-list-type`
    pub list_type: Option<ListKind>,
    /// `x-kubernetes-map-type`
    pub map_type: Option<MapKind>,
    /// `nullable`
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserves_unknown: bool,
    /// `x-kubernetes-embedded-resource`
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`
    pub int_or_string: bool,
    /// True if the node has a `title`.
    pub has_title: bool,
    /// True if the node has a `description`.
    pub has_description: bool,
    /// True if the node has an `example` or `externalDocs`.
    pub has_examples: bool,
    /// True if `properties` is present, even if it is empty.
    pub has_properties: bool,
    /// `properties`, sorted by name.
    pub properties: Box<[Property]>,
    /// `additionalProperties`
    pub additional: Option<Additional>,
    /// `items`
    pub items: Option<Arc<Schema>>,
    /// `default`, never null
    pub default: Option<Arc<Value>>,
    /// The keywords that only validate.
    pub checks: Option<Arc<Checks>>,
    /// `x-kubernetes-list-map-keys`
    pub list_map_keys: Option<Arc<[Arc<str>]>>,
    /// `x-kubernetes-validations`
    pub rules: Option<Arc<[ValidationRule]>>,
}

impl Schema {
    /// Returns the schema of a property.
    pub fn property(&self, name: &str) -> Option<&Arc<Schema>> {
        let at = self
            .properties
            .binary_search_by(|property| (*property.name).cmp(name))
            .ok()?;
        self.properties.get(at).map(|property| &property.schema)
    }

    /// Returns the schema that applies to a member: of the property, or of all further ones.
    pub fn member(&self, name: &str) -> Option<&Schema> {
        match (self.property(name), &self.additional) {
            (Some(schema), _) | (None, Some(Additional::Schema(schema))) => Some(schema),
            _ => None,
        }
    }

    /// Returns the schema of additional properties.
    pub fn additional_schema(&self) -> Option<&Arc<Schema>> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Returns the keys of a list of type map.
    pub fn map_keys(&self) -> &[Arc<str>] {
        self.list_map_keys.as_deref().unwrap_or_default()
    }

    /// Returns the rules in CEL.
    pub fn validation_rules(&self) -> &[ValidationRule] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// Returns whether the node says nothing but the type.
    pub(crate) fn is_only(&self, value_type: ValueType) -> bool {
        self.value_type == Some(value_type) && self.is_empty_except_type()
    }

    /// Returns whether the node has no keyword except perhaps `type`.
    pub(crate) fn is_empty_except_type(&self) -> bool {
        let extended = self.list_type.is_some()
            || self.map_type.is_some()
            || self.nullable
            || self.preserves_unknown
            || self.embedded
            || self.int_or_string;
        let documented = self.has_title || self.has_description || self.has_examples;
        let structured = !self.properties.is_empty()
            || self.additional.is_some()
            || self.items.is_some()
            || self.default.is_some();
        let checked = self.checks.is_some() || self.list_map_keys.is_some() || self.rules.is_some();
        !(extended || documented || structured || checked)
    }
}

/// A named property.
#[derive(Clone, Debug)]
pub struct Property {
    /// Name of the field.
    pub name: Arc<str>,
    /// Schema of its value.
    pub schema: Arc<Schema>,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A list.
    Array,
    /// true or false
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A map or an object.
    Object,
    /// A text.
    String,
    /// A type that OpenAPI does not have. Only definitions of old servers contain such schemas.
    Unknown,
}

impl ValueType {
    /// The known types, sorted by name.
    pub(crate) const KNOWN: [ValueType; 6] = [
        Self::Array,
        Self::Boolean,
        Self::Integer,
        Self::Number,
        Self::Object,
        Self::String,
    ];

    /// Returns the type with that name.
    pub fn from_name(name: &str) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|known| known.name() == name)
            .unwrap_or(Self::Unknown)
    }

    /// Returns the name in schemas.
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
            Self::Unknown => "unknown",
        }
    }
}

/// Topology of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// Elements are unique.
    Set,
    /// Elements are identified by keys.
    Map,
    /// None of those.
    Unknown,
}

/// Topology of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Fields are independent of each other.
    Granular,
    /// Replaced as a whole.
    Atomic,
    /// None of those.
    Unknown,
}

/// `additionalProperties`
#[derive(Clone, Debug)]
pub enum Additional {
    /// Any value is allowed (true) or none (false).
    Allowed(bool),
    /// Values of this schema.
    Schema(Arc<Schema>),
}

/// A rule in CEL, as data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationRule {
    /// The expression.
    pub rule: Box<str>,
    /// The message on failure.
    pub message: Box<str>,
    /// The expression that computes a message.
    pub message_expression: Box<str>,
    /// The reason of the field error.
    pub reason: Option<Box<str>>,
    /// The field that the error is about, relative to the node.
    pub field_path: Box<str>,
    /// True if `oldSelf` is an optional value.
    pub optional_old_self: Option<bool>,
}

/// The keywords that validate and have no part in the structure.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// `format`, if this version knows it for the type.
    pub format: Option<Arc<str>>,
    /// The same as one of a text.
    pub string_format: Option<StringFormat>,
    /// The same as one of a number.
    pub number_format: Option<NumberFormat>,
    /// `maximum`
    pub maximum: Option<f64>,
    /// `exclusiveMaximum`
    pub exclusive_maximum: bool,
    /// `minimum`
    pub minimum: Option<f64>,
    /// `exclusiveMinimum`
    pub exclusive_minimum: bool,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `maxLength`, in characters
    pub max_length: Option<i64>,
    /// `minLength`, in characters
    pub min_length: Option<i64>,
    /// `pattern`
    pub pattern: Option<Arc<Pattern>>,
    /// `maxItems`
    pub max_items: Option<i64>,
    /// `minItems`
    pub min_items: Option<i64>,
    /// `uniqueItems`, which new definitions may not set
    pub unique_items: bool,
    /// `maxProperties`
    pub max_properties: Option<i64>,
    /// `minProperties`
    pub min_properties: Option<i64>,
    /// `enum`
    pub enumeration: Box<[Value]>,
    /// `required`
    pub required: Box<[Arc<str>]>,
    /// `allOf`
    pub all_of: Box<[Arc<Schema>]>,
    /// `anyOf`
    pub any_of: Box<[Arc<Schema>]>,
    /// `oneOf`
    pub one_of: Box<[Arc<Schema>]>,
    /// `not`
    pub not: Option<Arc<Schema>>,
}
