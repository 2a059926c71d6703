//! Checks of the schema of one version of a definition, as JSON. This is upstream's validation of
//! `CustomResourceValidation`.

use crate::default_check::check_defaults;
use crate::embedded::MetadataCheck;
use crate::format::{NumberFormat, StringFormat};
use crate::keywords::{Position, check_list_keys, check_openapi, check_topology, is_granular_set};
use crate::model::ValueType;
use crate::old_rules::RuleHistory;
use crate::parse::{MAX_DEPTH, parse_unchecked};
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS};
use crate::rule_check::compile_rules;
use crate::rules::check_rules;
use crate::structure::check_structure;
use crate::visit::visit_schemas;
use api_meta::tree::{flag, get, has, list, opt, text};
use serde_json::Value;

/// Demands of the rest of the definition, and of its old version, on a schema. An old definition
/// with a problem may keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaOptions {
    /// True if the version has the subresource `status`.
    pub has_status: bool,
    /// True if the schema must be structural.
    pub require_structure: bool,
    /// True if types must be known.
    pub require_known_types: bool,
    /// True if defaults must have no unknown fields.
    pub require_pruned_defaults: bool,
    /// True if the items of sets must be atomic.
    pub require_atomic_sets: bool,
    /// True if items and keys of lists must be present and not null.
    pub require_list_keys: bool,
}

impl SchemaOptions {
    /// Options of new definitions.
    pub const NEW: SchemaOptions = SchemaOptions {
        has_status: false,
        require_structure: true,
        require_known_types: true,
        require_pruned_defaults: true,
        require_atomic_sets: true,
        require_list_keys: true,
    };

    /// Returns the options for a changed definition: what one of its old schemas violates is not
    /// required.
    pub fn for_update(old_schemas: &[&Value]) -> Self {
        let none = |violates: &dyn Fn(&Value) -> bool| !old_schemas.iter().any(|s| violates(s));
        let none_of_nodes = |violates: &dyn Fn(&Value) -> bool| {
            none(&|schema| visit_schemas(schema, &mut |node| violates(node)))
        };
        let structural = |schema: &Value| match parse_unchecked(schema) {
            Ok(schema) => check_structure(&schema, &FieldPath::ROOT).is_empty(),
            Err(_) => false,
        };
        Self {
            has_status: false,
            require_structure: none(&|schema| !structural(schema)),
            require_known_types: none_of_nodes(&has_unknown_type),
            require_pruned_defaults: none(&crate::default_check::has_unpruned_defaults),
            require_atomic_sets: none_of_nodes(&is_granular_set),
            require_list_keys: none_of_nodes(&|node| {
                let mut problems = Vec::new();
                check_list_keys(node, &FieldPath::ROOT, &mut problems);
                !problems.is_empty()
            }),
        }
    }
}

fn has_unknown_type(node: &Value) -> bool {
    let name = text(node, "type");
    !name.is_empty() && ValueType::from_name(name) == ValueType::Unknown
}

/// Checks a schema. `history` exempts the rules of the old definition. `path` is that of
/// `openAPIV3Schema`.
pub fn check_schema(
    schema: &Value,
    options: SchemaOptions,
    history: RuleHistory<'_>,
    metadata: MetadataCheck<'_>,
    path: &FieldPath<'_>,
) -> Vec<FieldProblem> {
    let mut out = Vec::new();
    if options.has_status {
        check_root_with_status(schema, path, &mut out);
    }
    if flag(schema, "nullable") {
        let detail = "nullable cannot be true at the root";
        out.push(FieldProblem::forbidden(&path.child("nullable"), detail));
    }
    let mut unusable = None;
    let mut compilable = false;
    if options.require_structure {
        match parse_unchecked(schema) {
            Err(message) => unusable = Some(FieldProblem::invalid(path, "", message)),
            Ok(parsed) => {
                let mut problems = check_structure(&parsed, path);
                if problems.is_empty() {
                    let pruned = options.require_pruned_defaults;
                    problems = check_defaults(&parsed, pruned, metadata, path);
                }
                compilable = problems.is_empty();
                out.append(&mut problems);
            }
        }
    }
    let before = out.len();
    let position = Position {
        forbidden_defaults: None,
        inside_metadata: false,
        require_known_types: options.require_known_types,
    };
    let mut checker = Checker { options, out };
    checker.check_node(schema, position, 0, path);
    let mut out = checker.out;
    // Rules are compiled against the types of the schema, which must be right first.
    if compilable && out.len() == before {
        out.append(&mut compile_rules(schema, history, path));
    }
    // Most errors of the parser are reported above, with a better path.
    if out.is_empty() {
        out.extend(unusable);
    }
    out.truncate(MAX_PROBLEMS);
    out
}

/// The fields of upstream's type of a schema that may be set at the root beside a status, in the
/// order of the struct, with the keywords.
const STRUCT_FIELDS: [(&str, &str); 44] = [
    ("id", "ID"),
    ("$schema", "Schema"),
    ("$ref", "Ref"),
    ("description", "Description"),
    ("type", "Type"),
    ("nullable", "Nullable"),
    ("format", "Format"),
    ("title", "Title"),
    ("default", "Default"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("enum", "Enum"),
    ("maxProperties", "MaxProperties"),
    ("minProperties", "MinProperties"),
    ("required", "Required"),
    ("items", "Items"),
    ("allOf", "AllOf"),
    ("oneOf", "OneOf"),
    ("anyOf", "AnyOf"),
    ("not", "Not"),
    ("properties", "Properties"),
    ("additionalProperties", "AdditionalProperties"),
    ("patternProperties", "PatternProperties"),
    ("dependencies", "Dependencies"),
    ("additionalItems", "AdditionalItems"),
    ("definitions", "Definitions"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "XPreserveUnknownFields",
    ),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource"),
    ("x-kubernetes-int-or-string", "XIntOrString"),
    ("x-kubernetes-list-map-keys", "XListMapKeys"),
    ("x-kubernetes-list-type", "XListType"),
    ("x-kubernetes-map-type", "XMapType"),
    ("x-kubernetes-validations", "XValidations"),
];

const ALLOWED_AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Checks that validation of the status alone loses nothing: only `properties["status"]` applies
/// to it.
fn check_root_with_status(schema: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let is_set = |keyword: &str| match get(schema, keyword) {
        Value::Null | Value::Bool(false) => {
            keyword == "additionalProperties" && has(schema, keyword)
        }
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    for (keyword, field) in STRUCT_FIELDS.iter().filter(|(keyword, _)| is_set(keyword)) {
        if *keyword == "type" && text(schema, "type") != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            let at = path.child("type");
            out.push(FieldProblem::invalid(&at, text(schema, "type"), detail));
            return;
        }
        if !ALLOWED_AT_ROOT.contains(field) {
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                ALLOWED_AT_ROOT.join(" ")
            );
            out.push(FieldProblem::invalid(path, schema.clone(), detail));
            return;
        }
    }
}

struct Checker {
    options: SchemaOptions,
    out: Vec<FieldProblem>,
}

impl Checker {
    fn check_node(
        &mut self,
        node: &Value,
        position: Position<'_>,
        depth: usize,
        path: &FieldPath<'_>,
    ) {
        // Deeper schemas were reported by the parser.
        if !node.is_object() || depth > MAX_DEPTH || self.out.len() >= MAX_PROBLEMS {
            return;
        }
        check_openapi(node, position, path, &mut self.out);
        self.check_additional(node, position, depth, path);
        self.check_properties(node, position, depth, path);
        let mut nested = vec![(path.child("not"), get(node, "not"))];
        let junctors = ["allOf", "oneOf", "anyOf"].map(|name| (path.child(name), list(node, name)));
        for (at, all) in &junctors {
            nested.extend(
                all.iter()
                    .enumerate()
                    .map(|(i, inner)| (at.index(i), inner)),
            );
        }
        nested.push((path.child("items"), get(node, "items")));
        for (at, inner) in nested {
            self.check_node(inner, position, depth + 1, &at);
        }
        check_topology(node, self.options.require_atomic_sets, path, &mut self.out);
        if self.options.require_list_keys {
            check_list_keys(node, path, &mut self.out);
        }
        check_rules(node, path, &mut self.out);
    }

    fn check_additional(
        &mut self,
        node: &Value,
        position: Position<'_>,
        depth: usize,
        path: &FieldPath<'_>,
    ) {
        let Some(additional) = opt(node, "additionalProperties") else {
            return;
        };
        let at = path.child("additionalProperties");
        let named = get(node, "properties")
            .as_object()
            .is_some_and(|map| !map.is_empty());
        // Beside named properties, `true` means to validate nothing more.
        if named && additional != &Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.out.push(FieldProblem::forbidden(&at, detail));
        }
        let mut inner = position;
        if position.inside_metadata {
            // Without a value nothing says which fields of metadata a default would have.
            inner.forbidden_defaults =
                Some("inside additionalProperties applying to object metadata");
        }
        self.check_node(additional, inner, depth + 1, &at);
    }

    fn check_properties(
        &mut self,
        node: &Value,
        position: Position<'_>,
        depth: usize,
        path: &FieldPath<'_>,
    ) {
        let is_root = depth == 0;
        let is_resource = is_root || flag(node, "x-kubernetes-embedded-resource");
        let at = path.child("properties");
        for (name, property) in get(node, "properties").as_object().into_iter().flatten() {
            let mut inner = position;
            let reason = format!("in top-level {name}");
            if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                inner.inside_metadata = true;
                if is_root {
                    inner.forbidden_defaults = Some(&reason);
                }
            }
            self.check_node(property, inner, depth + 1, &at.key(name));
        }
    }
}

/// Returns the formats in a schema that are ignored, for warnings.
pub fn list_unrecognized_formats(open_api_v3: &Value) -> Vec<String> {
    let mut out = Vec::new();
    visit_schemas(open_api_v3, &mut |node| {
        let (format, value_type) = (text(node, "format"), text(node, "type"));
        let known = StringFormat::for_type(format, value_type).is_some()
            || NumberFormat::for_type(format, value_type).is_some();
        if !format.is_empty() && !known {
            out.push(format.to_owned());
        }
        false
    });
    out
}

#[cfg(test)]
mod tests;
