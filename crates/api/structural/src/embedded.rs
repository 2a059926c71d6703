//! Type and object metadata of custom resources and of resources that are embedded in them.

use crate::model::Schema;
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS};
use api_codec::Problem;
use api_codec::json::check;
use api_meta::names;
use serde_json::{Map, Value};

/// Validates the metadata of an object. The fields of the problems begin with `metadata`. The rules
/// are those of built-in kinds, which this crate doesn't know.
pub type MetadataCheck<'a> = &'a dyn Fn(&Value) -> Vec<FieldProblem>;

const OBJECT_META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Checks the types of the metadata of the root, if `is_root`, and of embedded resources, and makes
/// it canonical. Returns the paths of unknown fields, which are removed. With `drop_invalid`,
/// fields of a wrong type are removed as well; this is for objects that are read from the store.
pub fn coerce_metadata(
    schema: &Schema,
    object: &mut Value,
    is_root: bool,
    drop_invalid: bool,
) -> Result<Vec<String>, FieldProblem> {
    coerce_below(schema, object, is_root, drop_invalid, &FieldPath::ROOT)
}

pub(crate) fn coerce_below(
    schema: &Schema,
    object: &mut Value,
    is_root: bool,
    drop_invalid: bool,
    path: &FieldPath<'_>,
) -> Result<Vec<String>, FieldProblem> {
    let mut coercer = Coercer {
        drop_invalid,
        unknown: Vec::new(),
    };
    coercer.coerce(object, schema, is_root, path)?;
    // Sorted, so that the warnings of equal requests are equal.
    coercer.unknown.sort_unstable();
    Ok(coercer.unknown)
}

struct Coercer {
    drop_invalid: bool,
    unknown: Vec<String>,
}

impl Coercer {
    fn coerce(
        &mut self,
        value: &mut Value,
        schema: &Schema,
        is_root: bool,
        path: &FieldPath<'_>,
    ) -> Result<(), FieldProblem> {
        match value {
            Value::Object(map) => {
                if is_root || schema.embedded {
                    self.coerce_resource(map, path)?;
                }
                for (name, inner) in map {
                    if let Some(schema) = schema.property(name) {
                        self.coerce(inner, schema, false, &path.child(name))?;
                    } else if let Some(schema) = schema.additional_schema() {
                        self.coerce(inner, schema, false, &path.key(name))?;
                    }
                }
            }
            Value::Array(all) => {
                let Some(items) = &schema.items else {
                    return Ok(());
                };
                for (i, inner) in all.iter_mut().enumerate() {
                    self.coerce(inner, items, false, &path.index(i))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn coerce_resource(
        &mut self,
        map: &mut Map<String, Value>,
        path: &FieldPath<'_>,
    ) -> Result<(), FieldProblem> {
        // An object from the store must remain readable after the schema has changed, so a wrong
        // type is dropped there and not an error.
        for field in ["apiVersion", "kind"] {
            match map.get(field) {
                None | Some(Value::String(_)) => {}
                Some(_) if self.drop_invalid => {
                    map.remove(field);
                }
                Some(other) => {
                    let at = path.child(field);
                    return Err(FieldProblem::invalid(
                        &at,
                        other.clone(),
                        "must be a string",
                    ));
                }
            }
        }
        let Some(metadata) = map.get_mut("metadata") else {
            return Ok(());
        };
        let at = path.child("metadata");
        // Metadata of custom resources has the same Go type as that of built-in kinds, so it is
        // decoded in the same way.
        match decode_metadata(metadata.clone()) {
            Ok((canonical, unknown)) => {
                *metadata = canonical;
                self.report_unknown(&unknown, &at);
            }
            Err(_) if self.drop_invalid => self.keep_valid_fields(metadata, &at),
            Err(message) => return Err(FieldProblem::invalid(&at, metadata.clone(), message)),
        }
        Ok(())
    }

    fn keep_valid_fields(&mut self, metadata: &mut Value, path: &FieldPath<'_>) {
        // Metadata of another type than an object remains for validation to report.
        let Value::Object(map) = metadata else {
            return;
        };
        let mut kept = Map::new();
        // Each field is decoded alone, so that one of a wrong type doesn't take the others with it.
        for (name, value) in std::mem::take(map) {
            let single = Value::Object(Map::from_iter([(name, value)]));
            if let Ok((Value::Object(valid), unknown)) = decode_metadata(single) {
                kept.extend(valid);
                self.report_unknown(&unknown, path);
            }
        }
        *map = kept;
    }

    fn report_unknown(&mut self, fields: &[String], path: &FieldPath<'_>) {
        // Each unknown field becomes a warning in a header, whose number has to be bounded.
        let room = MAX_PROBLEMS.saturating_sub(self.unknown.len());
        self.unknown.extend(
            fields
                .iter()
                .take(room)
                .map(|field| format!("{path}.{field}")),
        );
    }
}

/// Returns canonical metadata and the unknown fields, or Go's message about a wrong type.
fn decode_metadata(metadata: Value) -> Result<(Value, Vec<String>), String> {
    let Some(message) = api_schema::schema().message(OBJECT_META) else {
        return Err("the schema data has no object metadata".to_owned());
    };
    let (canonical, problems) = check(message, metadata).map_err(|error| error.to_string())?;
    let unknown = problems.into_iter().filter_map(|problem| match problem {
        Problem::Unknown(field) => Some(field),
        _ => None,
    });
    let canonical = match canonical {
        Value::Object(map) => Value::Object(map),
        _ => Value::Object(Map::new()),
    };
    Ok((canonical, unknown.collect()))
}

/// Validates the metadata of the root, if `is_root`, and of embedded resources.
pub fn validate_embedded(
    schema: &Schema,
    object: &Value,
    is_root: bool,
    metadata: MetadataCheck<'_>,
    path: &FieldPath<'_>,
) -> Vec<FieldProblem> {
    let mut out = Vec::new();
    validate_below(schema, object, is_root, metadata, path, &mut out);
    out
}

fn validate_below(
    schema: &Schema,
    value: &Value,
    is_root: bool,
    metadata: MetadataCheck<'_>,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    // An object may embed thousands of resources, and each problem shows a value.
    if out.len() >= MAX_PROBLEMS {
        return;
    }
    match value {
        Value::Object(map) => {
            if is_root || schema.embedded {
                validate_resource(value, metadata, path, out);
            }
            for (name, inner) in map {
                if let Some(schema) = schema.property(name) {
                    validate_below(schema, inner, false, metadata, &path.child(name), out);
                } else if let Some(schema) = schema.additional_schema() {
                    validate_below(schema, inner, false, metadata, &path.key(name), out);
                }
            }
        }
        Value::Array(all) => {
            let Some(items) = &schema.items else {
                return;
            };
            for (i, inner) in all.iter().enumerate() {
                validate_below(items, inner, false, metadata, &path.index(i), out);
            }
        }
        _ => {}
    }
}

fn validate_resource(
    object: &Value,
    metadata: MetadataCheck<'_>,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let checks: [(&str, TextCheck); 2] = [
        ("apiVersion", find_version_problem),
        ("kind", find_kind_problem),
    ];
    for (field, find_problem) in checks {
        let at = path.child(field);
        match object.get(field) {
            None => out.push(FieldProblem::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                out.push(FieldProblem::invalid(
                    &at,
                    text.as_str(),
                    "must not be empty",
                ));
            }
            Some(Value::String(text)) => {
                let problem = find_problem(text);
                out.extend(problem.map(|p| FieldProblem::invalid(&at, text.as_str(), p)));
            }
            Some(other) => {
                out.push(FieldProblem::invalid(
                    &at,
                    other.clone(),
                    "must be a string",
                ));
            }
        }
    }
    // Metadata is optional in an embedded resource, unlike its type.
    let Some(found) = object.get("metadata") else {
        return;
    };
    if let Err(message) = decode_metadata(found.clone()) {
        out.push(FieldProblem::invalid(
            &path.child("metadata"),
            found.clone(),
            message,
        ));
        return;
    }
    out.extend(metadata(object).into_iter().map(|mut problem| {
        // The check knows only the resource itself, so the path to it is put before its fields.
        if !path.is_root() {
            problem.field = format!("{path}.{}", problem.field);
        }
        problem
    }));
}

type TextCheck = fn(&str) -> Option<String>;

fn find_version_problem(version: &str) -> Option<String> {
    // An empty version was reported before, so each other text is a version with or without a
    // group.
    let slashes = version.matches('/').count();
    (slashes > 1).then(|| format!("unexpected GroupVersion string: {version}"))
}

fn find_kind_problem(kind: &str) -> Option<String> {
    let problems = names::dns1035_label(&kind.to_lowercase());
    let all = problems.join(",");
    (!problems.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {all}"))
}

#[cfg(test)]
mod tests;
