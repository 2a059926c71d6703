//! Rules of single keywords in the schema of a definition, as JSON: lists, maps and what OpenAPI
//! has but Kubernetes doesn't.

use crate::model::ValueType;
use crate::path::FieldPath;
use crate::problem::FieldProblem;
use api_meta::tree::{flag, get, has, list, opt, opt_text, text, texts};
use serde_json::Value;
use std::collections::HashSet;

/// Position of a node, with the rules that follow from it and from the old definition.
#[derive(Clone, Copy)]
pub(crate) struct Position<'a> {
    /// Reason why defaults are forbidden here, if they are.
    pub forbidden_defaults: Option<&'a str>,
    /// True if the node is inside of type or object metadata.
    pub inside_metadata: bool,
    /// True if types must be known.
    pub require_known_types: bool,
}

/// Checks the keywords that OpenAPI has in general.
pub(crate) fn check_openapi(
    node: &Value,
    position: Position<'_>,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let value_type = text(node, "type");
    let known = ValueType::from_name(value_type) != ValueType::Unknown;
    // Not required if a schema of the stored definition has an unknown type: it must stay writable.
    if position.require_known_types && !value_type.is_empty() && !known {
        let names = ValueType::KNOWN.map(ValueType::name);
        out.push(FieldProblem::not_supported(
            &path.child("type"),
            value_type,
            names,
        ));
    }
    if let Some(reason) = position.forbidden_defaults.filter(|_| has(node, "default")) {
        let detail = format!("must not be set {reason}");
        out.push(FieldProblem::forbidden(&path.child("default"), detail));
    }
    let filled = |keyword| match get(node, keyword) {
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        other => !other.is_null(),
    };
    let keywords = [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ];
    for keyword in keywords.into_iter().filter(|keyword| filled(keyword)) {
        let detail = format!("{keyword} is not supported");
        out.push(FieldProblem::forbidden(&path.child(keyword), detail));
    }
    if value_type == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        out.push(FieldProblem::forbidden(&path.child("type"), detail));
    }
    if get(node, "items")
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        let detail = "items must be a schema object and not an array";
        out.push(FieldProblem::forbidden(&path.child("items"), detail));
    }
    if position.inside_metadata && flag(node, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        let at = path.child("x-kubernetes-embedded-resource");
        out.push(FieldProblem::forbidden(&at, detail));
    }
    if flag(node, "uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        out.push(FieldProblem::forbidden(&path.child("uniqueItems"), detail));
    }
}

/// Checks the keywords of Kubernetes that say how lists and maps are merged.
pub(crate) fn check_topology(
    node: &Value,
    require_atomic_sets: bool,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    // False is the default. Writing it would suggest that a parent with true can be overruled.
    let keyword = "x-kubernetes-preserve-unknown-fields";
    if get(node, keyword) == &Value::Bool(false) {
        let at = path.child(keyword);
        out.push(FieldProblem::invalid(
            &at,
            false,
            "must be true or undefined",
        ));
    }
    check_map_type(node, path, out);
    check_list_type(node, require_atomic_sets, path, out);
}

fn check_map_type(node: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let map_type = opt_text(node, "x-kubernetes-map-type");
    check_type_of(
        node,
        map_type,
        ["x-kubernetes-map-type", "object"],
        path,
        out,
    );
    check_known(
        map_type,
        "x-kubernetes-map-type",
        &["atomic", "granular"],
        path,
        out,
    );
}

fn check_list_type(
    node: &Value,
    require_atomic_sets: bool,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let list_type = opt_text(node, "x-kubernetes-list-type");
    check_type_of(
        node,
        list_type,
        ["x-kubernetes-list-type", "array"],
        path,
        out,
    );
    // Server-side apply owns whole elements of a set. A part of an element could not have an owner
    // of its own.
    if require_atomic_sets && list_type == Some("set") && text(node, "type") == "array" {
        check_atomic_items(get(node, "items"), &path.child("items"), out);
    }
    check_known(
        list_type,
        "x-kubernetes-list-type",
        &["atomic", "set", "map"],
        path,
        out,
    );
    // Keys without the list type would have no effect, although the author expects a merge by key.
    if !list(node, "x-kubernetes-list-map-keys").is_empty() {
        let at = path.child("x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => out.push(FieldProblem::required(&at, detail)),
            Some("map") => {}
            Some(other) => out.push(FieldProblem::invalid(&at, other, detail)),
        }
    }
    if list_type == Some("map") {
        check_list_map(node, path, out);
    }
}

fn check_type_of(
    node: &Value,
    kind: Option<&str>,
    [keyword, wanted]: [&str; 2],
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let at = path.child("type");
    let detail = format!("must be {wanted} if {keyword} is specified");
    match (kind, text(node, "type")) {
        (None, _) => {}
        (_, "") => out.push(FieldProblem::required(&at, detail)),
        (_, found) if found != wanted => out.push(FieldProblem::invalid(&at, found, detail)),
        _ => {}
    }
}

fn check_known(
    kind: Option<&str>,
    keyword: &str,
    known: &[&str],
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    if let Some(kind) = kind.filter(|kind| !known.contains(kind)) {
        let at = path.child(keyword);
        out.push(FieldProblem::not_supported(
            &at,
            kind,
            known.iter().copied(),
        ));
    }
}

fn check_atomic_items(items: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let Some(keyword) = find_granular_item(items) else {
        return;
    };
    // Upstream shows the list type of both lists and maps.
    let found = get(items, "x-kubernetes-list-type").clone();
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    out.push(FieldProblem::invalid(&path.child(keyword), found, detail));
}

/// Returns the keyword that makes the items of a set something else than atomic.
fn find_granular_item(items: &Value) -> Option<&'static str> {
    match text(items, "type") {
        // Lists are atomic by default, and maps are granular.
        "array" => opt_text(items, "x-kubernetes-list-type")
            .filter(|kind| *kind != "atomic")
            .map(|_| "x-kubernetes-list-type"),
        "object" => (opt_text(items, "x-kubernetes-map-type") != Some("atomic"))
            .then_some("x-kubernetes-map-type"),
        _ => None,
    }
}

/// Returns whether a node is a set whose items aren't atomic.
pub(crate) fn is_granular_set(node: &Value) -> bool {
    opt_text(node, "x-kubernetes-list-type") == Some("set")
        && find_granular_item(get(node, "items")).is_some()
}

fn check_list_map(node: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let keys = texts(node, "x-kubernetes-list-map-keys");
    let at_keys = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        out.push(FieldProblem::required(&at_keys, detail));
    }
    let at = path.child("items");
    let items = match opt(node, "items") {
        None => {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            out.push(FieldProblem::required(&at, detail));
            return;
        }
        Some(items) if items.is_array() => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            out.push(FieldProblem::invalid(&at, items.clone(), detail));
            return;
        }
        Some(items) => items,
    };
    let item_type = text(items, "type");
    if item_type != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        out.push(FieldProblem::invalid(&at.child("type"), item_type, detail));
        return;
    }
    let at = at.child("properties");
    // Keys are compared as text and appear in field paths, which only scalars can.
    for key in &keys {
        let property = get(items, "properties").get(*key);
        if let Some(property) = property
            && matches!(text(property, "type"), "array" | "object")
        {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            out.push(FieldProblem::invalid(
                &at.key(key).child("type"),
                item_type,
                detail,
            ));
        }
    }
    // Once for all keys: each problem shows the whole list.
    if keys
        .iter()
        .any(|key| get(items, "properties").get(*key).is_none())
    {
        let detail = "entries must all be names of item properties";
        out.push(FieldProblem::invalid(&at_keys, keys.clone(), detail));
    }
    if keys.iter().collect::<HashSet<_>>().len() < keys.len() {
        let detail = "must not contain duplicate entries";
        out.push(FieldProblem::invalid(&at_keys, keys.clone(), detail));
    }
}

/// Checks that items of sets and maps, and keys of maps, are never null, and that keys are present.
pub(crate) fn check_list_keys(node: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let list_type = text(node, "x-kubernetes-list-type");
    let items = get(node, "items");
    if !items.is_object() || !matches!(list_type, "set" | "map") {
        return;
    }
    let at = path.child("items");
    // A null has no identity, so two of them could not be merged by key or distinguished in a set.
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        out.push(FieldProblem::forbidden(&at.child("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required: HashSet<&str> = texts(items, "required").into_iter().collect();
    let at = at.child("properties");
    for key in texts(node, "x-kubernetes-list-map-keys") {
        let Some(property) = get(items, "properties").get(key) else {
            continue;
        };
        let at = at.key(key);
        // An element without its key could not be found again by server-side apply.
        if !required.contains(key) && !has(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            out.push(FieldProblem::required(&at.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            out.push(FieldProblem::forbidden(&at.child("nullable"), detail));
        }
    }
}
