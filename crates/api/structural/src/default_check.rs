//! Checks of the defaults in a schema: they must be valid values without unknown fields.

use crate::embedded::{MetadataCheck, coerce_below, coerce_metadata, validate_embedded};
use crate::model::Schema;
use crate::parse::parse_unchecked;
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS};
use crate::prune::prune;
use crate::structure::check_structure;
use crate::value::validate_part;
use crate::visit::visit_schemas;
use api_meta::tree::has;
use serde_json::{Map, Value, json};

/// Steps from a resource to a node, as a linked list.
#[derive(Clone, Copy)]
struct Steps<'a> {
    parent: Option<&'a Steps<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Child(&'a str),
    Element,
}

impl<'a> Steps<'a> {
    const ROOT: Steps<'static> = Steps {
        parent: None,
        step: Step::Root,
    };

    fn add(&'a self, step: Step<'a>) -> Steps<'a> {
        Steps {
            parent: Some(self),
            step,
        }
    }

    /// Returns an object that has the value at this place.
    fn surround(&self, value: Value) -> Value {
        let value = match self.step {
            Step::Root => value,
            Step::Child(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
            Step::Element => Value::Array(vec![value]),
        };
        match self.parent {
            Some(parent) => parent.surround(value),
            None => value,
        }
    }

    /// Returns the value at this place.
    fn find<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        let parent = match self.parent {
            Some(parent) => parent.find(object)?,
            None => object,
        };
        match self.step {
            Step::Root => Some(parent),
            Step::Child(name) => parent.get(name),
            Step::Element => parent.get(0),
        }
    }
}

struct Checker<'a> {
    require_pruned: bool,
    metadata: MetadataCheck<'a>,
    out: Vec<FieldProblem>,
}

/// The next resource above a node: the root or an embedded one.
#[derive(Clone, Copy)]
struct Owner<'a> {
    schema: &'a Schema,
    steps: &'a Steps<'a>,
    /// True if the node is in type or object metadata of the resource.
    inside_metadata: bool,
}

/// Checks that the defaults of a structural schema are valid, and have no unknown fields if
/// `require_pruned`.
pub fn check_defaults(
    schema: &Schema,
    require_pruned: bool,
    metadata: MetadataCheck<'_>,
    path: &FieldPath<'_>,
) -> Vec<FieldProblem> {
    let mut checker = Checker {
        require_pruned,
        metadata,
        out: Vec::new(),
    };
    let owner = Owner {
        schema,
        steps: &Steps::ROOT,
        inside_metadata: false,
    };
    checker.check_node(schema, owner, true, path);
    checker.out
}

impl Checker<'_> {
    fn check_node(
        &mut self,
        schema: &Schema,
        owner: Owner<'_>,
        is_root: bool,
        path: &FieldPath<'_>,
    ) {
        if self.out.len() >= MAX_PROBLEMS {
            return;
        }
        let is_resource = is_root || schema.embedded;
        let owner = match is_resource {
            true => Owner {
                schema,
                steps: &Steps::ROOT,
                inside_metadata: false,
            },
            false => owner,
        };
        if let Some(default) = &schema.default {
            let at = path.child("default");
            let problems = match owner.inside_metadata {
                true => self.check_in_metadata(schema, default, owner, &at),
                false => self.check_value(schema, default, is_resource, &at),
            };
            self.out.extend(problems);
        }
        // Defaults in additional properties of metadata are forbidden elsewhere, and others apply
        // to entries that the client sends.
        if let Some(items) = &schema.items {
            let steps = owner.steps.add(Step::Element);
            let inner = Owner {
                steps: &steps,
                ..owner
            };
            self.check_node(items, inner, false, &path.child("items"));
        }
        let at = path.child("properties");
        for property in &schema.properties {
            let name = &*property.name;
            let steps = owner.steps.add(Step::Child(name));
            let metadata = is_resource && matches!(name, "metadata" | "apiVersion" | "kind");
            let inner = Owner {
                steps: &steps,
                inside_metadata: owner.inside_metadata || metadata,
                ..owner
            };
            self.check_node(&property.schema, inner, false, &at.key(name));
        }
    }

    /// Checks a default in metadata, which is only valid or not as a part of the whole.
    fn check_in_metadata(
        &self,
        schema: &Schema,
        default: &Value,
        owner: Owner<'_>,
        path: &FieldPath<'_>,
    ) -> Vec<FieldProblem> {
        let mut object = owner.steps.surround(default.clone());
        for (field, value) in [("kind", "Validation"), ("apiVersion", "validation/v1")] {
            if object.get(field).is_none() {
                api_meta::tree::set(&mut object, field, json!(value));
            }
        }
        let invalid = |cause: String| {
            let detail = format!("must result in valid metadata: {cause}");
            vec![FieldProblem::invalid(path, default.clone(), detail)]
        };
        if let Err(problem) = coerce_metadata(owner.schema, &mut object, true, false) {
            return invalid(problem.to_string());
        }
        let root = FieldPath::ROOT;
        let problems = validate_embedded(owner.schema, &object, true, self.metadata, &root);
        match problems.as_slice() {
            [] => validate_part(schema, default, None, &path.to_string()),
            [single] => invalid(single.to_string()),
            several => {
                let texts: Vec<String> = several.iter().map(ToString::to_string).collect();
                invalid(format!("[{}]", texts.join(", ")))
            }
        }
    }

    fn check_value(
        &self,
        schema: &Schema,
        default: &Value,
        is_resource: bool,
        path: &FieldPath<'_>,
    ) -> Vec<FieldProblem> {
        let mut out = Vec::new();
        let mut value = default.clone();
        prune(schema, &mut value, is_resource);
        // Not every removed field is reported: names of metadata at the top are not.
        if self.require_pruned && value != *default {
            out.push(FieldProblem::invalid(
                path,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let mut value = default.clone();
        if let Err(problem) = coerce_below(schema, &mut value, is_resource, false, path) {
            out.push(problem);
            return out;
        }
        let embedded = validate_embedded(schema, &value, is_resource, self.metadata, path);
        out.extend(match embedded.is_empty() {
            true => validate_part(schema, &value, None, &path.to_string()),
            false => embedded,
        });
        out
    }
}

/// Returns whether a structural schema has a default that pruning would change. Definitions that
/// have one may keep it.
pub fn has_unpruned_defaults(open_api_v3: &Value) -> bool {
    if !visit_schemas(open_api_v3, &mut |node| has(node, "default")) {
        return false;
    }
    match parse_unchecked(open_api_v3) {
        Ok(schema) if check_structure(&schema, &FieldPath::ROOT).is_empty() => {
            has_unpruned_below(&schema, &schema, &Steps::ROOT)
        }
        _ => false,
    }
}

fn has_unpruned_below(schema: &Schema, root: &Schema, steps: &Steps<'_>) -> bool {
    if let Some(default) = &schema.default {
        let mut object = steps.surround((**default).clone());
        // A default of the root that is no object is another problem.
        if !object.is_object() || coerce_metadata(root, &mut object, true, true).is_err() {
            return false;
        }
        prune(root, &mut object, true);
        if steps.find(&object) != Some(&**default) {
            return true;
        }
    }
    let additional = schema
        .additional_schema()
        .map(|inner| (Step::Child("*"), inner));
    let items = schema.items.as_ref().map(|inner| (Step::Element, inner));
    let properties = schema
        .properties
        .iter()
        .map(|p| (Step::Child(&p.name), &p.schema));
    let mut nested = properties.chain(additional).chain(items);
    nested.any(|(step, inner)| has_unpruned_below(inner, root, &steps.add(step)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn check(properties: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": properties});
        let parsed = parse_unchecked(&schema).unwrap();
        let none = |_: &Value| Vec::new();
        let problems = check_defaults(&parsed, true, &none, &FieldPath::start("s"));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_must_be_valid() {
        let cases = [
            (json!({"a": {"type": "string", "default": "x"}}), vec![]),
            (
                json!({"a": {"type": "string", "default": 1}}),
                vec![
                    "s.properties[a].default: Invalid value: \"integer\": s.properties[a].default in body must be of type string: \"integer\"",
                ],
            ),
            (
                json!({"a": {"type": "integer", "minimum": 3, "default": 2}}),
                vec![
                    "s.properties[a].default: Invalid value: 2: s.properties[a].default in body should be greater than or equal to 3",
                ],
            ),
            (
                json!({"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "boolean", "default": "no"}}}}}),
                vec![
                    "s.properties[a].items.properties[b].default: Invalid value: \"string\": s.properties[a].items.properties[b].default in body must be of type boolean: \"string\"",
                ],
            ),
            (
                json!({"a": {"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}, "default": {}}}),
                vec!["s.properties[a].default.b: Required value"],
            ),
        ];
        for (properties, expected) in cases {
            // Messages have the path below the default, which is empty here.
            let expected: Vec<String> = expected
                .iter()
                .map(|text| {
                    text.replace(": s.properties[a].default in", ":  in")
                        .replace(": s.properties[a].items.properties[b].default in", ":  in")
                })
                .collect();
            assert_eq!(check(properties.clone()), expected, "{properties}");
        }
    }

    #[test]
    fn defaults_must_not_have_unknown_fields() {
        let object = |default: Value| json!({"a": {"type": "object", "properties": {"b": {"type": "string"}}, "default": default}});
        assert_eq!(check(object(json!({"b": "x"}))), [""; 0]);
        assert_eq!(
            check(object(json!({"b": "x", "c": 1}))),
            [
                "s.properties[a].default: Invalid value: {\"b\":\"x\",\"c\":1}: must not have unknown fields"
            ]
        );
        // Names of metadata count, although they aren't reported as unknown.
        assert_eq!(check(object(json!({"kind": "x"}))).len(), 1);
    }

    #[test]
    fn defaults_of_metadata_are_checked_as_part_of_it() {
        let pod = |metadata: Value| {
            json!({"pod": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"metadata": {"type": "object", "properties": {"labels": metadata}}}}})
        };
        let good = json!({"type": "object", "additionalProperties": {"type": "string"}, "default": {"a": "b"}});
        assert_eq!(check(pod(good)), [""; 0]);
        let bad = json!({"type": "integer", "default": 1});
        let problems = check(pod(bad));
        assert!(problems[0].starts_with("s.properties[pod].properties[metadata].properties[labels].default: Invalid value: 1: must result in valid metadata: "), "{problems:?}");
    }

    #[test]
    fn old_unpruned_defaults_are_found() {
        let schema = |default: Value| {
            json!({"type": "object", "properties": {"l": {"type": "array",
            "items": {"type": "object", "default": default, "properties": {"b": {"type": "string"}}}}}})
        };
        assert!(!has_unpruned_defaults(&schema(json!({"b": "x"}))));
        assert!(has_unpruned_defaults(&schema(json!({"c": "x"}))));
        assert!(!has_unpruned_defaults(&json!({"type": "object"})));
    }
}
