//! Parser of JSONSchemaProps.

use crate::format::{NumberFormat, StringFormat};
use crate::model::{
    Additional, Checks, ListKind, MapKind, Property, Schema, ValidationRule, ValueType,
};
use crate::path::FieldPath;
use crate::pattern::Pattern;
use crate::problem::FieldProblem;
use crate::structure::check_structure;
use api_meta::tree::{flag, get, int, list, opt, opt_text, text};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Maximum depth of nested schemas. A body of 127 levels can't have a deeper one.
pub(crate) const MAX_DEPTH: usize = 128;

/// Keywords whose values are schemas, or that document.
const NOT_IN_KEY: [&str; 11] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "description",
    "example",
    "externalDocs",
    "items",
    "not",
    "oneOf",
    "properties",
    "title",
];

/// Parses a schema and checks that it is structural.
pub fn parse_schema(open_api_v3: &Value) -> Result<Arc<Schema>, Vec<FieldProblem>> {
    let path = FieldPath::ROOT;
    let schema = parse_unchecked(open_api_v3)
        .map_err(|message| vec![FieldProblem::invalid(&path, "", message)])?;
    match check_structure(&schema, &path) {
        problems if problems.is_empty() => Ok(schema),
        problems => Err(problems),
    }
}

/// Parses a schema. Fails only for keywords that the model can't express.
pub fn parse_unchecked(open_api_v3: &Value) -> Result<Arc<Schema>, String> {
    Parser::default().parse_node(open_api_v3, 0)
}

#[derive(Default)]
struct Parser {
    // Nodes by their own keywords and the addresses of their children, which are in the map
    // themselves and so stay allocated.
    nodes: HashMap<String, Arc<Schema>>,
    names: HashMap<Box<str>, Arc<str>>,
}

impl Parser {
    fn parse_node(&mut self, node: &Value, depth: usize) -> Result<Arc<Schema>, String> {
        if depth >= MAX_DEPTH {
            return Err(format!(
                "schemas must not be nested more than {MAX_DEPTH} levels deep"
            ));
        }
        // Rejected first, so that the model never contains a keyword that it would ignore.
        reject_unsupported(node)?;
        let mut schema = Schema {
            value_type: opt_text(node, "type")
                .filter(|name| !name.is_empty())
                .map(ValueType::from_name),
            list_type: opt_text(node, "x-kubernetes-list-type").map(read_list_kind),
            map_type: opt_text(node, "x-kubernetes-map-type").map(read_map_kind),
            nullable: flag(node, "nullable"),
            preserves_unknown: flag(node, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(node, "x-kubernetes-embedded-resource"),
            int_or_string: flag(node, "x-kubernetes-int-or-string"),
            has_title: !text(node, "title").is_empty(),
            has_description: !text(node, "description").is_empty(),
            has_examples: opt(node, "example").is_some() || opt(node, "externalDocs").is_some(),
            has_properties: get(node, "properties").is_object(),
            default: opt(node, "default").cloned().map(Arc::new),
            list_map_keys: self.parse_names(node, "x-kubernetes-list-map-keys"),
            rules: parse_rules(node),
            ..Schema::default()
        };
        // Definitions repeat large parts in each version, so equal nodes are shared.
        let mut key = describe_keywords(node, &schema);
        if let Some(items) = opt(node, "items") {
            let items = self.parse_node(items, depth + 1)?;
            push_child(&mut key, "items", &items);
            schema.items = Some(items);
        }
        schema.properties = self.parse_properties(node, &mut key, depth)?;
        schema.additional = self.parse_additional(node, &mut key, depth)?;
        schema.checks = self.parse_checks(node, &mut key, depth)?;
        Ok(self
            .nodes
            .entry(key)
            .or_insert_with(|| Arc::new(schema))
            .clone())
    }

    fn parse_properties(
        &mut self,
        node: &Value,
        key: &mut String,
        depth: usize,
    ) -> Result<Box<[Property]>, String> {
        let mut all = Vec::new();
        for (name, child) in get(node, "properties").as_object().into_iter().flatten() {
            let schema = self.parse_node(child, depth + 1)?;
            push_child(key, name, &schema);
            all.push(Property {
                name: self.intern(name),
                schema,
            });
        }
        // Lookups are binary searches.
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all.into())
    }

    fn parse_additional(
        &mut self,
        node: &Value,
        key: &mut String,
        depth: usize,
    ) -> Result<Option<Additional>, String> {
        match opt(node, "additionalProperties") {
            Some(Value::Bool(allowed)) => {
                let _ = write!(key, "additional={allowed};");
                Ok(Some(Additional::Allowed(*allowed)))
            }
            Some(child) => {
                let schema = self.parse_node(child, depth + 1)?;
                push_child(key, "additional", &schema);
                Ok(Some(Additional::Schema(schema)))
            }
            None => Ok(None),
        }
    }

    fn parse_checks(
        &mut self,
        node: &Value,
        key: &mut String,
        depth: usize,
    ) -> Result<Option<Arc<Checks>>, String> {
        let mut checks = Checks {
            all_of: self.parse_list(node, "allOf", key, depth)?,
            any_of: self.parse_list(node, "anyOf", key, depth)?,
            one_of: self.parse_list(node, "oneOf", key, depth)?,
            ..Checks::default()
        };
        if let Some(child) = opt(node, "not") {
            let child = self.parse_node(child, depth + 1)?;
            push_child(key, "not", &child);
            checks.not = Some(child);
        }
        // Most nodes have no such keyword, so they don't get the memory for them.
        let junctors = checks.not.is_some()
            || [&checks.all_of, &checks.any_of, &checks.one_of]
                .iter()
                .any(|l| !l.is_empty());
        if !junctors && !has_plain_checks(node) {
            return Ok(None);
        }
        self.read_plain_checks(node, &mut checks);
        Ok(Some(Arc::new(checks)))
    }

    fn read_plain_checks(&mut self, node: &Value, checks: &mut Checks) {
        let format = text(node, "format");
        // Int-or-string values have two types upstream, so only formats of texts apply.
        let value_type = match flag(node, "x-kubernetes-int-or-string") {
            true => "",
            false => text(node, "type"),
        };
        checks.string_format = StringFormat::for_type(format, value_type);
        checks.number_format = NumberFormat::for_type(format, value_type);
        if checks.string_format.is_some() || checks.number_format.is_some() {
            checks.format = Some(self.intern(format));
        }
        let number = |name| get(node, name).as_f64();
        (checks.maximum, checks.minimum) = (number("maximum"), number("minimum"));
        checks.multiple_of = number("multipleOf");
        checks.exclusive_maximum = flag(node, "exclusiveMaximum");
        checks.exclusive_minimum = flag(node, "exclusiveMinimum");
        (checks.max_length, checks.min_length) = (int(node, "maxLength"), int(node, "minLength"));
        (checks.max_items, checks.min_items) = (int(node, "maxItems"), int(node, "minItems"));
        checks.max_properties = int(node, "maxProperties");
        checks.min_properties = int(node, "minProperties");
        checks.unique_items = flag(node, "uniqueItems");
        checks.pattern = opt_text(node, "pattern")
            .filter(|source| !source.is_empty())
            .map(|source| Arc::new(Pattern::new(source)));
        checks.enumeration = list(node, "enum").into();
        checks.required = list(node, "required")
            .iter()
            .filter_map(Value::as_str)
            .map(|n| self.intern(n))
            .collect();
    }

    fn parse_list(
        &mut self,
        node: &Value,
        keyword: &str,
        key: &mut String,
        depth: usize,
    ) -> Result<Box<[Arc<Schema>]>, String> {
        let mut all = Vec::new();
        for child in list(node, keyword) {
            let child = self.parse_node(child, depth + 1)?;
            push_child(key, keyword, &child);
            all.push(child);
        }
        Ok(all.into())
    }

    fn parse_names(&mut self, node: &Value, keyword: &str) -> Option<Arc<[Arc<str>]>> {
        let all = list(node, keyword);
        let names = all
            .iter()
            .filter_map(Value::as_str)
            .map(|name| self.intern(name));
        (!all.is_empty()).then(|| names.collect())
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        // Names such as `name` and `type` occur thousands of times in one cluster's definitions.
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert((*name).into(), name.clone());
        name
    }
}

/// Writes the keywords of the node itself. Two nodes with the same text and children are equal.
fn describe_keywords(node: &Value, schema: &Schema) -> String {
    let mut key = String::new();
    let documented = (
        schema.has_title,
        schema.has_description,
        schema.has_examples,
    );
    // Writing to a String can't fail.
    let _ = write!(key, "{documented:?}{};", schema.has_properties);
    for (name, value) in node.as_object().into_iter().flatten() {
        if !NOT_IN_KEY.contains(&name.as_str()) && !value.is_null() {
            let _ = write!(key, "{name}={value};");
        }
    }
    key
}

fn push_child(key: &mut String, name: &str, child: &Arc<Schema>) {
    // The quotes of the name's text form keep names apart that contain separators.
    let _ = write!(key, "{name:?}@{:p};", Arc::as_ptr(child));
}

fn reject_unsupported(node: &Value) -> Result<(), String> {
    if !node.is_object() {
        return Err("a schema must be an object".to_owned());
    }
    let texts = [("id", "id"), ("$schema", "schema"), ("$ref", "$ref")];
    for (keyword, name) in texts {
        if !text(node, keyword).is_empty() {
            return Err(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    for keyword in ["patternProperties", "dependencies", "definitions"] {
        if get(node, keyword)
            .as_object()
            .is_some_and(|map| !map.is_empty())
        {
            return Err(format!("OpenAPIV3Schema '{keyword}' is not supported"));
        }
    }
    if opt(node, "additionalItems").is_some() {
        return Err("OpenAPIV3Schema 'additionalItems' is not supported".to_owned());
    }
    if get(node, "items").is_array() {
        return Err("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    if get(node, "x-kubernetes-preserve-unknown-fields") == &Value::Bool(false) {
        return Err(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
                .to_owned(),
        );
    }
    Ok(())
}

fn has_plain_checks(node: &Value) -> bool {
    const KEYWORDS: [&str; 17] = [
        "format",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "multipleOf",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "enum",
        "required",
        "patternProperties",
    ];
    KEYWORDS.iter().any(|keyword| match get(node, keyword) {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

fn read_list_kind(name: &str) -> ListKind {
    match name {
        "atomic" => ListKind::Atomic,
        "set" => ListKind::Set,
        "map" => ListKind::Map,
        _ => ListKind::Unknown,
    }
}

fn read_map_kind(name: &str) -> MapKind {
    match name {
        "granular" => MapKind::Granular,
        "atomic" => MapKind::Atomic,
        _ => MapKind::Unknown,
    }
}

fn parse_rules(node: &Value) -> Option<Arc<[ValidationRule]>> {
    let all = list(node, "x-kubernetes-validations");
    let rule = |rule: &Value| ValidationRule {
        rule: text(rule, "rule").into(),
        message: text(rule, "message").into(),
        message_expression: text(rule, "messageExpression").into(),
        reason: opt_text(rule, "reason").map(Into::into),
        field_path: text(rule, "fieldPath").into(),
        optional_old_self: get(rule, "optionalOldSelf").as_bool(),
    };
    (!all.is_empty()).then(|| all.iter().map(rule).collect())
}

#[cfg(test)]
mod tests;
