//! The condition of definitions whose schemas are not structural: those that were stored by servers
//! with older versions of the API.

use crate::names::join_problems;
use api_kinds::{ObjectSchema, Resource};
use api_meta::tree::{flag, get, list, text};
use api_strategy::definition::Condition;
use api_structural::{FieldPath, Schema, check_structure, parse_unchecked};
use serde_json::Value;
use std::sync::Arc;

pub(crate) const KIND: &str = "NonStructuralSchema";

/// Returns the condition; `None` if all schemas are structural. `built` are the resources of the
/// definition if they are built, so that no schema is parsed twice.
pub(crate) fn structure_condition(
    definition: &Value,
    built: &[Arc<Resource>],
) -> Option<Condition> {
    let spec = get(definition, "spec");
    let mut problems = Vec::new();
    if flag(spec, "preserveUnknownFields") {
        problems.push("spec.preserveUnknownFields: Invalid value: true: must be false".to_owned());
    }
    let at_spec = FieldPath::start("spec");
    let at_versions = at_spec.child("versions");
    for (index, version) in list(spec, "versions").iter().enumerate() {
        let document = get(get(version, "schema"), "openAPIV3Schema");
        if !document.is_object() {
            continue;
        }
        // Resources are built in the order of the versions.
        let parsed = built.get(index).and_then(|resource| find_schema(resource));
        let schema = match parsed.map_or_else(|| parse_unchecked(document), Ok) {
            Ok(schema) => schema,
            Err(error) => {
                let version = text(version, "name");
                let message =
                    format!("failed to check validation schema for version {version}: {error}");
                // As upstream, the first schema that cannot be parsed decides.
                return Some(Condition::new(KIND, "Unknown", "StructuralError", message));
            }
        };
        let (at_version, name) = (at_versions.index(index), "schema");
        let at_schema = at_version.child(name);
        let found = check_structure(&schema, &at_schema.child("openAPIV3Schema"));
        problems.extend(found.iter().map(ToString::to_string));
    }
    let message = join_problems(problems)?;
    Some(Condition::new(KIND, "True", "Violations", message))
}

fn find_schema(resource: &Resource) -> Option<Arc<Schema>> {
    match &resource.schema {
        ObjectSchema::Custom(custom) => Some(custom.structural.clone()),
        ObjectSchema::BuiltIn(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn condition(preserve: bool, schema: Value) -> Option<Condition> {
        structure_condition(
            &json!({"spec": {"preserveUnknownFields": preserve,
            "versions": [{"name": "v1"}, {"name": "v2", "schema": {"openAPIV3Schema": schema}}]}}),
            &[],
        )
    }

    #[test]
    fn structural_schema_has_no_condition() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "string"}}});
        assert_eq!(condition(false, schema), None);
        assert_eq!(condition(false, Value::Null), None);
    }

    #[test]
    fn violations_are_listed_with_their_paths() {
        let schema = json!({"type": "object", "properties": {"spec": {"properties": {}}}});
        let found = condition(false, schema.clone()).unwrap();
        assert_eq!((found.status, found.reason), ("True", "Violations"));
        let path = "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value";
        assert!(found.message.starts_with(path), "{}", found.message);
        let both = condition(true, schema).unwrap().message;
        assert!(
            both.starts_with("[spec.preserveUnknownFields: Invalid value: true: must be false, ")
        );
    }
}
