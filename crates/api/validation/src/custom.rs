//! Custom resources: their metadata as for all kinds, everything else by their schema.

use crate::apiextensions::problems::{add_problems, check_embedded_metadata};
use crate::field::{ErrorKind, Errors, FieldError, Path, go_quote};
use crate::metadata::{
    NameRule, is_domain_or_standard_finalizer, validate_metadata, validate_metadata_update,
};
use api_meta::tree::{get, text, texts};
use api_meta::{Kind, names};
use api_structural::{
    FieldPath, ProblemKind, RuleSet, ScalePaths, Schema, validate_embedded, validate_lists,
    validate_part, validate_scale, validate_value,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The declarations of a version of a custom resource.
#[derive(Clone, Copy, Debug)]
pub struct CustomRules<'r> {
    /// The structural schema.
    pub schema: &'r Schema,
    /// Paths of the subresource `scale`, if there is one.
    pub scale: Option<&'r ScalePaths>,
    /// The compiled rules of the schema.
    pub rules: &'r RuleSet,
}

/// The result of the validation of a custom resource.
#[derive(Debug, Default)]
pub struct CustomOutcome {
    /// Errors that reject the object.
    pub errors: Vec<FieldError>,
    /// Warnings about rules that fail for unchanged parts.
    pub warnings: Vec<String>,
}

/// Validates a new custom resource.
pub fn validate_custom_create(
    kind: Kind<'_>,
    custom: CustomRules<'_>,
    object: &Value,
) -> CustomOutcome {
    let mut errors = Errors::default();
    check_type(kind, object, &mut errors);
    if errors.0.is_empty() {
        let path = Path::ROOT.child("metadata");
        validate_metadata(object, kind, NameRule::Subdomain, &path, &mut errors);
        add_problems(validate_value(custom.schema, object, None), &mut errors);
        add_scale(custom, object, true, &mut errors);
    }
    add_embedded(custom, object, &mut errors);
    let lists = validate_lists(custom.schema, object, &FieldPath::ROOT);
    add_problems(lists, &mut errors);
    add_rules(custom, object, None, errors)
}

/// Validates a changed custom resource. `subresource` is empty for the object itself. Parts that
/// are unchanged may stay invalid.
pub fn validate_custom_update(
    kind: Kind<'_>,
    custom: CustomRules<'_>,
    subresource: &str,
    new: &Value,
    old: &Value,
) -> CustomOutcome {
    let is_status = subresource == "status";
    let mut errors = Errors::default();
    check_type(kind, new, &mut errors);
    if errors.0.is_empty() {
        let path = Path::ROOT.child("metadata");
        validate_metadata_update(new, old, kind, NameRule::Subdomain, &path, &mut errors);
        if is_status {
            add_status(custom, new, old, &mut errors);
        } else {
            add_problems(validate_value(custom.schema, new, Some(old)), &mut errors);
        }
        add_scale(custom, new, !is_status, &mut errors);
    }
    if !is_status {
        add_embedded(custom, new, &mut errors);
    }
    // As upstream, one invalid list lets all lists be invalid.
    let path = FieldPath::ROOT;
    let lists = validate_lists(custom.schema, new, &path);
    if !lists.is_empty() && validate_lists(custom.schema, old, &path).is_empty() {
        add_problems(lists, &mut errors);
    }
    add_rules(custom, new, Some(old), errors)
}

fn check_type(kind: Kind<'_>, object: &Value, errors: &mut Errors) {
    let api_version = format!("{}/{}", kind.group, kind.version);
    for (field, wanted) in [("kind", kind.kind), ("apiVersion", &api_version)] {
        let found = text(object, field);
        if found != wanted {
            let detail = format!("must be {wanted}");
            errors.0.push(FieldError {
                kind: ErrorKind::Invalid,
                field: field.to_owned(),
                value: Some(found.into()),
                detail,
            });
        }
    }
}

fn add_status(custom: CustomRules<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    if let (Some(status), Some(schema)) = (new.get("status"), custom.schema.property("status")) {
        let problems = validate_part(schema, status, old.get("status"), "status");
        add_problems(problems, errors);
    }
}

fn add_scale(custom: CustomRules<'_>, object: &Value, with_spec: bool, errors: &mut Errors) {
    if let Some(paths) = custom.scale {
        add_problems(validate_scale(paths, object, with_spec), errors);
    }
}

fn add_embedded(custom: CustomRules<'_>, object: &Value, errors: &mut Errors) {
    let path = FieldPath::ROOT;
    let problems = validate_embedded(
        custom.schema,
        object,
        false,
        &check_embedded_metadata,
        &path,
    );
    add_problems(problems, errors);
}

fn add_rules(
    custom: CustomRules<'_>,
    object: &Value,
    old: Option<&Value>,
    mut errors: Errors,
) -> CustomOutcome {
    let blocking = errors.0.iter().map(|error| match error.kind {
        ErrorKind::Required => ProblemKind::Required,
        ErrorKind::NotSupported => ProblemKind::NotSupported,
        ErrorKind::TooLong => ProblemKind::TooLong,
        ErrorKind::TooMany => ProblemKind::TooMany,
        ErrorKind::TypeInvalid => ProblemKind::TypeInvalid,
        _ => ProblemKind::Invalid,
    });
    let outcome = custom.rules.validate(object, old, blocking);
    add_problems(outcome.problems, &mut errors);
    let mut warnings = outcome.warnings;
    warnings.extend(warn_about_finalizers(object, old));
    CustomOutcome {
        errors: errors.0,
        warnings,
    }
}

/// Returns warnings about new finalizers without a domain or path, which are only discouraged.
fn warn_about_finalizers(object: &Value, old: Option<&Value>) -> Vec<String> {
    let read = |object| texts(get(object, "metadata"), "finalizers");
    let before = old.map(read).unwrap_or_default();
    let added: BTreeSet<&str> = read(object)
        .into_iter()
        .filter(|name| !before.contains(name))
        .collect();
    added
        .into_iter()
        .flat_map(find_finalizer_problems)
        .collect()
}

fn find_finalizer_problems(name: &str) -> Vec<String> {
    let mut problems = names::qualified_name(name);
    if !is_domain_or_standard_finalizer(name) {
        let form = match name.contains('.') {
            true => " including a path (/)",
            false => "",
        };
        problems.push(format!("prefer a domain-qualified finalizer name{form} to avoid accidental conflicts with other finalizer writers"));
    }
    let quoted = go_quote(name);
    let prefix = format!("metadata.finalizers: {quoted}: ");
    problems.iter().map(|p| format!("{prefix}{p}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_structural::parse_schema;
    use serde_json::json;

    const KIND: Kind<'_> = Kind {
        group: "e.io",
        version: "v1",
        kind: "Tab",
        namespaced: true,
    };

    fn tab(spec: Value, status: Value) -> Value {
        json!({"apiVersion": "e.io/v1", "kind": "Tab", "spec": spec, "status": status,
            "metadata": {"name": "a", "namespace": "d", "resourceVersion": "1", "uid": "u",
                "creationTimestamp": "2024-01-01T00:00:00Z"}})
    }

    fn validate(subresource: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = parse_schema(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "required": ["n"], "properties": {
                "n": {"type": "integer", "maximum": 9},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true}},
                "x-kubernetes-validations": [{"rule": "self.n != 5", "message": "five"}]},
            "status": {"type": "object", "properties": {"ready": {"type": "integer", "minimum": 0}}}}}))
        .unwrap();
        let paths = ScalePaths::parse(
            &json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.ready"}),
        );
        let custom = CustomRules {
            schema: &schema,
            scale: Some(&paths),
            rules: &RuleSet::compile(&schema),
        };
        let outcome = match old {
            None => validate_custom_create(KIND, custom, new),
            Some(old) => validate_custom_update(KIND, custom, subresource, new, old),
        };
        outcome.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_objects_obey_their_schema() {
        for (spec, part) in [
            (json!({"n": 10}), "spec.n: Invalid value: 10"),
            (json!({}), "spec.n: Required value"),
            (json!({"n": -1}), "should be a non-negative integer"),
            (
                json!({"n": 1, "set": ["a", "a"]}),
                "spec.set[1]: Duplicate value",
            ),
            (json!({"n": 5}), "spec: Invalid value: five"),
            (
                json!({"n": 1, "template": {"metadata": {"name": "x"}}}),
                "spec.template.apiVersion: Required value",
            ),
        ] {
            let found = validate("", &tab(spec.clone(), json!({})), None);
            assert!(found[0].contains(part), "{spec}: {found:?}");
        }
        let valid = tab(json!({"n": 1, "set": ["a"]}), json!({}));
        assert_eq!(validate("", &valid, None), Vec::<String>::new());
    }

    #[test]
    fn new_finalizers_without_a_domain_cause_warnings_only() {
        const PREFER: &str = "prefer a domain-qualified finalizer name";
        for (names, before, parts) in [
            (&["e.io/f", "orphan"][..], &[][..], &[][..]),
            (&["f"], &[], &[PREFER]),
            (
                &["f.e.io"],
                &[],
                &["prefer a domain-qualified finalizer name including a path (/)"],
            ),
            (&["f"], &["f"], &[]),
            (&["f", "b", "b"], &["f"], &[PREFER]),
        ] {
            let with = |names: &[&str]| {
                let mut object = tab(json!({"n": 1}), json!({}));
                object["metadata"]["finalizers"] = json!(names);
                object
            };
            let (new, old) = (with(names), with(before));
            let old = (!before.is_empty()).then_some(&old);
            assert_eq!(validate("", &new, old), Vec::<String>::new(), "{names:?}");
            let found = warn_about_finalizers(&new, old);
            let matches = found.len() == parts.len()
                && found.iter().zip(parts).all(|(f, part)| f.contains(part));
            assert!(matches, "{names:?}: {found:?}");
        }
    }

    #[test]
    fn type_must_be_that_of_the_resource() {
        let mut object = tab(json!({"n": 1}), json!({}));
        object["kind"] = json!("Other");
        assert!(
            validate("", &object, None)[0].contains("kind: Invalid value: \"Other\": must be Tab")
        );
    }

    #[test]
    fn unchanged_parts_may_stay_invalid() {
        let old = tab(json!({"n": 10, "set": ["a", "a"]}), json!({}));
        let mut new = old.clone();
        new["spec"]["set"] = json!(["b", "b"]);
        assert_eq!(validate("", &new, Some(&old)), Vec::<String>::new());
        new["spec"]["n"] = json!(11);
        assert_eq!(validate("", &new, Some(&old)).len(), 1);
    }

    #[test]
    fn status_is_validated_alone() {
        let old = tab(json!({"n": 10}), json!({"ready": 1}));
        let new = tab(json!({"n": 10}), json!({"ready": -1}));
        let found = validate("status", &new, Some(&old));
        assert!(
            found[0].starts_with("status.ready: Invalid value: -1"),
            "{found:?}"
        );
        let new = tab(json!({"n": 10}), json!({"ready": 2}));
        assert_eq!(validate("status", &new, Some(&old)), Vec::<String>::new());
    }

    #[test]
    fn rules_are_not_evaluated_for_objects_without_required_fields() {
        let found = validate("", &tab(json!({}), json!({})), None);
        assert!(
            found[1].contains("some validation rules were not checked"),
            "{found:?}"
        );
    }
}
