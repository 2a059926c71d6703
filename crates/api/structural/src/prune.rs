//! Pruning: removes fields that the schema doesn't have.

use crate::model::Schema;
use crate::problem::MAX_PROBLEMS;
use api_meta::names::shorten_name;
use serde_json::Value;
use std::fmt::Write as _;

const METADATA_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes the fields that the schema doesn't have. Type and object metadata of the root, if
/// `is_root`, and of embedded resources remain. Returns the paths of what was removed, sorted, at
/// most 1,000.
pub fn prune(schema: &Schema, object: &mut Value, is_root: bool) -> Vec<String> {
    let mut pruner = Pruner {
        path: String::new(),
        removed: Vec::new(),
    };
    pruner.prune_value(object, Some(schema), is_root);
    pruner.removed.sort_unstable();
    pruner.removed
}

/// Returns the paths of the fields that the schema doesn't have, as strict field validation reports
/// them.
pub fn report_unknown_fields(schema: &Schema, object: &Value, is_root: bool) -> Vec<String> {
    prune(schema, &mut object.clone(), is_root)
}

struct Pruner {
    path: String,
    removed: Vec<String>,
}

impl Pruner {
    fn prune_value(&mut self, value: &mut Value, schema: Option<&Schema>, is_root: bool) {
        if let Some(schema) = schema.filter(|schema| schema.preserves_unknown) {
            return self.prune_known_parts(value, schema, is_root);
        }
        match value {
            Value::Object(map) => map.retain(|name, inner| {
                let Some(schema) = schema else {
                    self.report(name);
                    return false;
                };
                self.retain_member(name, inner, schema, is_root)
            }),
            Value::Array(all) => {
                let items = schema.and_then(|schema| schema.items.as_deref());
                for (i, inner) in all.iter_mut().enumerate() {
                    self.descend_index(i, |pruner| pruner.prune_value(inner, items, false));
                }
            }
            _ => {}
        }
    }

    fn retain_member(
        &mut self,
        name: &str,
        value: &mut Value,
        schema: &Schema,
        is_root: bool,
    ) -> bool {
        let is_metadata = METADATA_FIELDS.contains(&name);
        if is_metadata && (is_root || schema.embedded) {
            return true;
        }
        let property = schema.property(name);
        if property.is_none() && schema.additional.is_none() {
            // A default at the root of a definition is no object, and has no metadata.
            if !is_metadata || !self.path.is_empty() {
                self.report(name);
            }
            return false;
        }
        // Values of `additionalProperties: true` are kept without their content, as upstream does.
        let inner = property
            .or_else(|| schema.additional_schema())
            .map(|inner| &**inner);
        self.descend_key(name, |pruner| pruner.prune_value(value, inner, false));
        true
    }

    /// Prunes below a node that preserves unknown fields: only what has a schema of its own.
    fn prune_known_parts(&mut self, value: &mut Value, schema: &Schema, is_root: bool) {
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    let is_metadata = METADATA_FIELDS.contains(&name.as_str());
                    if is_metadata && (is_root || schema.embedded) {
                        continue;
                    }
                    let property = schema.property(name);
                    if property.is_some() || schema.additional.is_some() {
                        let inner_schema = property.or_else(|| schema.additional_schema());
                        let inner_schema = inner_schema.map(|inner| &**inner);
                        self.descend_key(name, |pruner| {
                            pruner.prune_value(inner, inner_schema, false);
                        });
                    }
                }
            }
            Value::Array(all) => {
                let Some(items) = &schema.items else {
                    return;
                };
                for (i, inner) in all.iter_mut().enumerate() {
                    self.descend_index(i, |pruner| pruner.prune_known_parts(inner, items, false));
                }
            }
            _ => {}
        }
    }

    fn descend_key(&mut self, name: &str, run: impl FnOnce(&mut Self)) {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(shorten_name(name));
        run(self);
        self.path.truncate(before);
    }

    fn descend_index(&mut self, index: usize, run: impl FnOnce(&mut Self)) {
        let before = self.path.len();
        // Writing to a String can't fail.
        let _ = write!(self.path, "[{index}]");
        run(self);
        self.path.truncate(before);
    }

    fn report(&mut self, name: &str) {
        // A body of 3 MiB may have a million unknown fields.
        if self.removed.len() < MAX_PROBLEMS {
            self.descend_key(name, |pruner| pruner.removed.push(pruner.path.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
