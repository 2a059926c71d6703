//! Checks that a schema is structural: every value has one type, and junctors only validate.

use crate::model::{Additional, Checks, Schema, ValueType};
use crate::path::FieldPath;
use crate::pattern::fit_together;
use crate::problem::{FieldProblem, MAX_PROBLEMS};

/// Position of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks that a schema is structural. The problems are sorted by their text.
pub fn check_structure(schema: &Schema, path: &FieldPath<'_>) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let mut patterns = Vec::new();
    // The memory of compiled patterns adds up over the schema, so they are measured together and
    // first.
    collect_patterns(schema, &mut patterns);
    if !fit_together(patterns.into_iter()) {
        // Not one problem each: they would be compiled again.
        let detail = "the patterns of the schema are too large together";
        return vec![FieldProblem::forbidden(path, detail)];
    }
    check_node(schema, Level::Root, path, &mut problems);
    check_completeness(schema, path, &mut problems);
    // Upstream visits maps in random order and sorts the errors, so equal definitions get equal
    // messages.
    problems.sort_by_cached_key(ToString::to_string);
    problems
}

fn collect_patterns<'s>(schema: &'s Schema, out: &mut Vec<&'s str>) {
    let structure = schema
        .items
        .iter()
        .chain(schema.properties.iter().map(|p| &p.schema));
    structure.for_each(|inner| collect_patterns(inner, out));
    if let Some(Additional::Schema(inner)) = &schema.additional {
        collect_patterns(inner, out);
    }
    let Some(checks) = &schema.checks else {
        return;
    };
    out.extend(checks.pattern.iter().map(|pattern| pattern.source()));
    let junctors = checks
        .all_of
        .iter()
        .chain(&checks.any_of)
        .chain(&checks.one_of);
    for nested in junctors.chain(&checks.not) {
        collect_patterns(nested, out);
    }
}

fn check_node(schema: &Schema, level: Level, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    if out.len() >= MAX_PROBLEMS {
        return;
    }
    match &schema.items {
        Some(items) => check_node(items, Level::Item, &path.child("items"), out),
        // Pruning would not know what to keep of the elements.
        None if schema.value_type == Some(ValueType::Array) => {
            out.push(FieldProblem::required(
                &path.child("items"),
                "must be specified",
            ));
        }
        None => {}
    }
    let at = path.child("properties");
    for property in &schema.properties {
        check_node(&property.schema, Level::Field, &at.key(&property.name), out);
    }
    if let Some(additional) = &schema.additional {
        let at = path.child("additionalProperties");
        // The root is always an object with a type and metadata, never a free map.
        if level == Level::Root {
            out.push(FieldProblem::forbidden(&at, "must not be used at the root"));
        }
        if let Additional::Schema(inner) = additional {
            check_node(inner, Level::Field, &at, out);
        }
    }
    check_extensions(schema, path, out);
    if let Some(checks) = &schema.checks {
        let skip = [
            is_int_or_string_list(&checks.any_of),
            begins_with_int_or_string(checks),
        ];
        check_validations(checks, skip, path, out);
    }
    check_type(schema, level, path, out);
    check_metadata(schema, level, path, out);
}

fn check_extensions(schema: &Schema, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let detail = "must be false if x-kubernetes-int-or-string is true";
    let conflicts = [
        (
            schema.preserves_unknown,
            "x-kubernetes-preserve-unknown-fields",
        ),
        (schema.embedded, "x-kubernetes-embedded-resource"),
    ];
    for (set, keyword) in conflicts {
        // The value is a scalar, so it has no fields to preserve and can't be a resource.
        if schema.int_or_string && set {
            out.push(FieldProblem::invalid(&path.child(keyword), true, detail));
        }
    }
}

fn check_type(schema: &Schema, level: Level, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let at = path.child("type");
    let is_object = schema.value_type == Some(ValueType::Object);
    let name = schema.value_type.map_or("", ValueType::name);
    if schema.embedded && !is_object {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        out.push(match schema.value_type {
            None => FieldProblem::required(&at, detail),
            Some(_) => FieldProblem::invalid(&at, name, detail),
        });
    } else if schema.value_type.is_none() && !schema.int_or_string && !schema.preserves_unknown {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        out.push(FieldProblem::required(
            &at,
            format!("must not be empty {place}"),
        ));
    }
    // A resource has fixed fields, and a map would accept any of them with one type.
    if schema.embedded && schema.additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        out.push(FieldProblem::forbidden(
            &path.child("additionalProperties"),
            detail,
        ));
    }
    if level == Level::Root && schema.value_type.is_some() && !is_object {
        out.push(FieldProblem::invalid(
            &at,
            name,
            "must be object at the root",
        ));
    }
    // Otherwise, pruning would leave nothing of the resource but its metadata.
    if schema.embedded && !schema.preserves_unknown && schema.properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        out.push(FieldProblem::required(&path.child("properties"), detail));
    }
}

/// Checks the schemas of type and object metadata, which the server defines itself.
fn check_metadata(
    schema: &Schema,
    level: Level,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let is_resource = level == Level::Root || schema.embedded;
    let at = path.child("properties");
    // The server compares both as text before the schema is used.
    for name in ["kind", "apiVersion"] {
        if let Some(inner) = schema.property(name).filter(|_| is_resource)
            && inner.value_type != Some(ValueType::String)
        {
            let found = inner.value_type.map_or("", ValueType::name);
            let at = at.key(name);
            out.push(FieldProblem::invalid(
                &at.child("type"),
                found,
                "must be string",
            ));
        }
    }
    let Some(metadata) = schema.property("metadata") else {
        return;
    };
    let at = at.key("metadata");
    if is_resource && metadata.value_type != Some(ValueType::Object) {
        let found = metadata.value_type.map_or("", ValueType::name);
        out.push(FieldProblem::invalid(
            &at.child("type"),
            found,
            "must be object",
        ));
    }
    // The rules of metadata are those of all kinds. A schema may only narrow the names, as some
    // controllers need.
    if level == Level::Root && !restricts_names_only(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        out.push(FieldProblem::forbidden(&at, detail));
    }
}

fn restricts_names_only(metadata: &Schema) -> bool {
    let names = metadata
        .properties
        .iter()
        .all(|p| matches!(&*p.name, "name" | "generateName"));
    let mut rest = metadata.clone();
    rest.properties = Box::default();
    // Defaults at this place are rejected elsewhere, with a better message.
    rest.default = None;
    names && rest.is_empty_except_type()
}

fn is_int_or_string_list(all: &[std::sync::Arc<Schema>]) -> bool {
    matches!(all, [a, b] if a.is_only(ValueType::Integer) && b.is_only(ValueType::String))
}

fn begins_with_int_or_string(checks: &Checks) -> bool {
    let first = checks
        .all_of
        .first()
        .and_then(|schema| schema.checks.as_ref());
    first.is_some_and(|inner| is_int_or_string_list(&inner.any_of))
}

/// Checks value validations. `skip` allows the two forms of int-or-string: types in `anyOf`, and in
/// the `anyOf` of the first element of `allOf`.
fn check_validations(
    checks: &Checks,
    skip: [bool; 2],
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let [skip_any_of, skip_in_first] = skip;
    if !skip_any_of {
        check_junctor(&checks.any_of, false, &path.child("anyOf"), out);
    }
    check_junctor(&checks.all_of, skip_in_first, &path.child("allOf"), out);
    check_junctor(&checks.one_of, false, &path.child("oneOf"), out);
    if let Some(not) = &checks.not {
        check_nested(not, false, &path.child("not"), out);
    }
    // A pattern that can't be compiled would reject each object, so it is rejected with the
    // definition.
    if let Some(pattern) = &checks.pattern
        && let Err(error) = pattern.check()
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        out.push(FieldProblem::invalid(
            &path.child("pattern"),
            pattern.source(),
            detail,
        ));
    }
}

fn check_junctor(
    all: &[std::sync::Arc<Schema>],
    skip_in_first: bool,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    for (i, nested) in all.iter().enumerate() {
        check_nested(nested, skip_in_first && i == 0, &path.index(i), out);
    }
}

/// Returns the keywords that define structure: whether the schema has each, its name, and the state
/// that it must have below a junctor.
fn list_structure(schema: &Schema) -> [(bool, &'static str, &'static str); 13] {
    let additional = !matches!(schema.additional, None | Some(Additional::Allowed(false)));
    [
        (schema.value_type.is_some(), "type", "empty"),
        (additional, "additionalProperties", "undefined"),
        (schema.default.is_some(), "default", "undefined"),
        (schema.has_title, "title", "empty"),
        (schema.has_description, "description", "empty"),
        (schema.nullable, "nullable", "false"),
        (
            schema.preserves_unknown,
            "x-kubernetes-preserve-unknown-fields",
            "false",
        ),
        (schema.embedded, "x-kubernetes-embedded-resource", "false"),
        (schema.int_or_string, "x-kubernetes-int-or-string", "false"),
        (
            schema.list_map_keys.is_some(),
            "x-kubernetes-list-map-keys",
            "empty",
        ),
        (
            schema.list_type.is_some(),
            "x-kubernetes-list-type",
            "undefined",
        ),
        (
            schema.map_type.is_some(),
            "x-kubernetes-map-type",
            "undefined",
        ),
        (schema.rules.is_some(), "x-kubernetes-validations", "empty"),
    ]
}

/// Checks a node below a junctor, which may validate but not define structure.
fn check_nested(
    schema: &Schema,
    skip_any_of: bool,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    if out.len() >= MAX_PROBLEMS {
        return;
    }
    if let Some(checks) = &schema.checks {
        check_validations(checks, [skip_any_of, false], path, out);
    }
    if let Some(items) = &schema.items {
        check_nested(items, false, &path.child("items"), out);
    }
    let at = path.child("properties");
    for property in &schema.properties {
        check_nested(&property.schema, false, &at.key(&property.name), out);
    }
    for (_, keyword, state) in list_structure(schema).into_iter().filter(|(set, ..)| *set) {
        let detail = format!("must be {state} to be structural");
        out.push(FieldProblem::forbidden(&path.child(keyword), detail));
    }
    // As upstream: a junctor could restrict metadata in ways that the rules for the root forbid.
    if schema.property("metadata").is_some() {
        let detail = "must not be specified in a nested context";
        out.push(FieldProblem::forbidden(&at.key("metadata"), detail));
    }
}

/// Checks that the structure has every field and item that the root's junctors validate.
fn check_completeness(schema: &Schema, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    if let Some(checks) = &schema.checks {
        complete_checks(checks, Some(schema), [path, path], out);
    }
}

fn complete_checks(
    checks: &Checks,
    structure: Option<&Schema>,
    [at, from]: [&FieldPath<'_>; 2],
    out: &mut Vec<FieldProblem>,
) {
    if let Some(not) = &checks.not {
        complete_nested(not, structure, [at, &from.child("not")], out);
    }
    let junctors = [
        ("allOf", &checks.all_of),
        ("anyOf", &checks.any_of),
        ("oneOf", &checks.one_of),
    ];
    for (name, all) in junctors {
        let from = from.child(name);
        for (i, nested) in all.iter().enumerate() {
            complete_nested(nested, structure, [at, &from.index(i)], out);
        }
    }
}

fn complete_nested(
    nested: &Schema,
    structure: Option<&Schema>,
    [at, from]: [&FieldPath<'_>; 2],
    out: &mut Vec<FieldProblem>,
) {
    let Some(structure) = structure else {
        out.push(FieldProblem::required(
            at,
            format!("because it is defined in {from}"),
        ));
        return;
    };
    if out.len() >= MAX_PROBLEMS {
        return;
    }
    if let Some(checks) = &nested.checks {
        complete_checks(checks, Some(structure), [at, from], out);
    }
    if let Some(items) = &nested.items {
        let inner = structure.items.as_deref();
        complete_nested(
            items,
            inner,
            [&at.child("items"), &from.child("items")],
            out,
        );
    }
    let (at, from) = (at.child("properties"), from.child("properties"));
    for property in &nested.properties {
        let inner = structure.property(&property.name).map(|schema| &**schema);
        let paths = [&at.key(&property.name), &from.key(&property.name)];
        complete_nested(&property.schema, inner, paths, out);
    }
}

#[cfg(test)]
mod tests;
