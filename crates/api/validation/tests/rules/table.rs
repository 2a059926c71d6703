//! Tables of cases: one row is a small change of a valid object and the errors that it causes.
//!
//! A row reads `CHANGES => ERRORS`. Changes are assignments `/path/to/field=JSON` with ` & `
//! between them; null removes a field, and `-` as an index appends. Errors have ` ;; ` between
//! them, and must be the beginnings of all errors in order; `ok` is none, and a last `...` permits
//! more. In tables of updates, `OLD >> NEW => ERRORS` changes the old object before (for values
//! that older releases accepted). Empty lines and lines that begin with `#` are skipped.

use super::{Name, build, count_case, kind, validate_new};
use api_defaulting::default_object;
use api_strategy::prepare_update;
use api_validation::{FieldError, validate_update};
use serde_json::Value;

/// Checks a table of new objects.
pub fn check_create(name: Name, base: &Value, table: &str) {
    let valid = build(name, base.clone());
    check_rows(name, table, |changes| {
        let object = build(name, change(base, changes));
        validate_new(name, Some(&valid), &object)
    });
}

/// Checks a table of objects by other rules than those of a create or update.
pub fn check_with(
    name: Name,
    base: &Value,
    table: &str,
    errors: impl Fn(Value) -> Vec<FieldError>,
) {
    check_rows(name, table, |changes| errors(change(base, changes)));
}

/// Checks a table of changed objects.
pub fn check_update(name: Name, base: &Value, table: &str) {
    check_writes(name, "", base, table);
}

/// Checks a table of writes to a subresource.
pub fn check_writes(name: Name, subresource: &str, base: &Value, table: &str) {
    let status = base.get("status").cloned();
    let mut built = build(name, base.clone());
    // A new object has no status yet.
    if let Some(status) = status {
        built["status"] = status;
    }
    check_rows(name, table, |changes| {
        let (before, after) = changes.split_once(" >> ").unwrap_or(("", changes));
        let mut old = change(&built, before);
        default_object(kind(name), &mut old);
        let mut new = change(&old, after);
        default_object(kind(name), &mut new);
        prepare_update(kind(name), subresource, &mut new, &old);
        let errors = validate_update(kind(name), subresource, &new, &old);
        super::ratcheting::check_written(name, subresource, &new, &errors);
        errors
    });
}

fn check_rows(name: Name, table: &str, errors: impl Fn(&str) -> Vec<FieldError>) {
    let mut failed = Vec::new();
    let rows = table.lines().map(str::trim);
    for row in rows.filter(|row| !row.is_empty() && !row.starts_with('#')) {
        count_case(name);
        let (changes, expected) = row
            .split_once("=> ")
            .unwrap_or_else(|| panic!("row: {row}"));
        let found: Vec<String> = errors(changes.trim())
            .iter()
            .map(ToString::to_string)
            .collect();
        if !is_expected(&found, expected.trim()) {
            failed.push(format!("{row}\n    found: {found:#?}"));
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", name.1, failed.join("\n"));
}

fn is_expected(found: &[String], expected: &str) -> bool {
    if expected == "ok" {
        return found.is_empty();
    }
    let mut parts: Vec<&str> = expected.split(" ;; ").collect();
    if parts.last() == Some(&"...") {
        parts.pop();
        return parts
            .iter()
            .all(|part| found.iter().any(|f| f.starts_with(part)));
    }
    found.len() == parts.len() && found.iter().zip(parts).all(|(f, part)| f.starts_with(part))
}

/// Returns a changed copy of an object.
pub fn change(base: &Value, changes: &str) -> Value {
    let mut object = base.clone();
    for assignment in changes
        .split(" & ")
        .map(str::trim)
        .filter(|c| !c.is_empty())
    {
        let (path, value) = assignment
            .split_once('=')
            .unwrap_or_else(|| panic!("change: {assignment}"));
        let value = serde_json::from_str(value).unwrap_or_else(|e| panic!("{assignment}: {e}"));
        assign(&mut object, path.trim(), value);
    }
    object
}

fn assign(object: &mut Value, path: &str, value: Value) {
    let segments: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|segment| segment.replace("~1", "/"))
        .collect();
    let (last, parents) = segments
        .split_last()
        .unwrap_or_else(|| panic!("path: {path}"));
    let mut at = object;
    for segment in parents {
        at = step(at, segment);
    }
    match at {
        Value::Array(items) if value.is_null() => drop(items.remove(last.parse().unwrap())),
        Value::Object(fields) if value.is_null() => drop(fields.remove(last)),
        at => *step(at, last) = value,
    }
}

/// Returns a field or element, created if it is absent.
fn step<'a>(parent: &'a mut Value, segment: &str) -> &'a mut Value {
    if let Value::Array(items) = parent {
        let index = segment.parse().unwrap_or(items.len());
        if index >= items.len() {
            items.push(Value::Null);
        }
        let last = items.len() - 1;
        return &mut items[index.min(last)];
    }
    &mut parent[segment]
}

#[test]
fn changes_assign_append_and_remove() {
    let base = serde_json::json!({"a": {"b.c/d": 1}, "l": [1, 2]});
    for (changes, expected) in [
        ("", r#"{"a":{"b.c/d":1},"l":[1,2]}"#),
        ("/a/b.c~1d=2 & /l/-=3", r#"{"a":{"b.c/d":2},"l":[1,2,3]}"#),
        ("/a=null & /l/0=null", r#"{"l":[2]}"#),
        ("/x/y=\"=\"", r#"{"a":{"b.c/d":1},"l":[1,2],"x":{"y":"="}}"#),
    ] {
        assert_eq!(change(&base, changes).to_string(), expected, "{changes}");
    }
}

#[test]
fn rows_demand_all_errors_in_order() {
    let found = [
        "a: Required value".to_owned(),
        "b: Invalid value: 1".to_owned(),
    ];
    for (expected, matches) in [
        ("a: Required ;; b: Invalid", true),
        ("a: Required ;; ...", true),
        ("b: Invalid ;; ...", true),
        ("a: Required", false),
        ("b: Invalid ;; a: Required", false),
        ("c: ;; ...", false),
        ("ok", false),
    ] {
        assert_eq!(is_expected(&found, expected), matches, "{expected}");
    }
    assert!(is_expected(&[], "ok"));
}
