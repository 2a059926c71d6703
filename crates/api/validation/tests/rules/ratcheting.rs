//! Ratcheting: what an update does with values that a create rejects.
//!
//! Each row of a table of new objects that has errors is two updates as well: one of an object
//! that has the values already, and one of the valid object that introduces them. The first has
//! the same errors, unless `tables/ratcheting.txt` lists the rule: upstream tolerates what the old
//! object has. The second has an error, unless `tables/introduced.txt` lists the rule. A row of a
//! write to a subresource is also a write that changes nothing, with `tables/written.txt`. The
//! files hold in both directions: updates do apply each rule that is not in them.
//!
//! A line reads `KIND | FIELD | DETAIL`. A kind is `GROUP/KIND` or `GROUP/KIND/SUBRESOURCE`, or
//! `pods` for Pods and the kinds with a template of pods. A field has no indexes, and `*` stands
//! for any text. The detail is the beginning of the message after the value.

use super::{Name, kind};
use api_defaulting::default_object;
use api_strategy::prepare_update;
use api_validation::{FieldError, validate_create, validate_update};
use serde_json::Value;
use std::collections::BTreeMap;

/// Rules that upstream does not apply to what the old object has.
const TOLERATED: &str = include_str!("tables/ratcheting.txt");
/// Rules for new objects only: an update may introduce what they reject.
const INTRODUCED: &str = include_str!("tables/introduced.txt");
/// Rules of writes to subresources that do not apply to what the old object has.
const WRITTEN: &str = include_str!("tables/written.txt");

/// Kinds with the spec of a pod.
const POD_KINDS: [&str; 9] = [
    "/Pod",
    "/PodTemplate",
    "/ReplicationController",
    "apps/DaemonSet",
    "apps/Deployment",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "batch/CronJob",
    "batch/Job",
];

/// Fields that never change, so that no update meets a value that other rules accepted.
const FIXED: [&str; 3] = [
    "metadata.generateName",
    "metadata.name",
    "metadata.namespace",
];

/// A rule: the field without indexes, and the message without the value.
type Rule = (String, String);

/// Checks an update that changes a label only of an object with these errors.
pub fn check_unchanged(name: Name, object: &Value, errors: &[FieldError]) {
    let kind = kind(name);
    let mut new = object.clone();
    // In some rows the labels are invalid themselves.
    if matches!(&new["metadata"]["labels"], Value::Object(_) | Value::Null) {
        new["metadata"]["labels"]["changed"] = "true".into();
    }
    default_object(kind, &mut new);
    prepare_update(kind, "", &mut new, object);
    let found = count_rules(&validate_update(kind, "", &new, object));
    let own = format!("{}/{}", name.0, name.1);
    for (rule, count) in count_rules(errors) {
        let is_tolerated = found.get(&rule).copied().unwrap_or(0) < count;
        assert_eq!(
            is_tolerated,
            is_listed(TOLERATED, &own, &rule),
            "tolerated in an update that does not change it: {name:?} {rule:?}, found {found:?} of {object}"
        );
    }
}

/// Checks a write to a subresource that leaves an object as it is, which another write with these
/// errors would have made.
pub fn check_written(name: Name, subresource: &str, object: &Value, errors: &[FieldError]) {
    // All rules of a resize are about what it changes.
    if matches!(subresource, "" | "resize") {
        return;
    }
    let unchanged = validate_update(kind(name), subresource, object, object);
    let found = count_rules(&unchanged);
    let own = format!("{}/{}/{subresource}", name.0, name.1);
    for (rule, count) in count_rules(errors) {
        let is_tolerated = found.get(&rule).copied().unwrap_or(0) < count;
        assert_eq!(
            is_tolerated,
            is_listed(WRITTEN, &own, &rule),
            "tolerated in a write that does not change it: {own} {rule:?}, found {found:?} of {object}"
        );
    }
}

/// Checks an update of a valid object that introduces the errors of another one.
pub fn check_introduced(name: Name, base: &Value, object: &Value) {
    let kind = kind(name);
    if !validate_create(kind, base).is_empty() {
        return;
    }
    let mut new = object.clone();
    default_object(kind, &mut new);
    prepare_update(kind, "", &mut new, base);
    // Without the changes of fields that updates can't write, and of features that are off.
    let rules = count_rules(&validate_create(kind, &new));
    if rules.is_empty() {
        return;
    }
    let is_accepted = validate_update(kind, "", &new, base).is_empty();
    let own = format!("{}/{}", name.0, name.1);
    let is_listed = rules.keys().all(|rule| is_listed(INTRODUCED, &own, rule));
    assert_eq!(
        is_accepted, is_listed,
        "introduced by an update: {name:?} {rules:?} by {object}"
    );
}

fn count_rules(errors: &[FieldError]) -> BTreeMap<Rule, usize> {
    let mut all = BTreeMap::new();
    for error in errors {
        let rule = (remove_indexes(&error.field), error.detail.clone());
        if !FIXED.contains(&rule.0.as_str()) {
            *all.entry(rule).or_default() += 1;
        }
    }
    all
}

/// Returns a field with `[]` in place of indexes and keys.
fn remove_indexes(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        out.push_str("[]");
        rest = after.split_once(']').map_or("", |(_, end)| end);
    }
    out + rest
}

fn is_listed(list: &str, own: &str, (field, detail): &Rule) -> bool {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|line| !line.is_empty()).any(|line| {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [kind, pattern, beginning] = parts[..] else {
            panic!("line: {line}")
        };
        let is_kind = kind == own || (kind == "pods" && POD_KINDS.contains(&own));
        is_kind && matches(pattern, field) && matches(&format!("{beginning}*"), detail)
    })
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))
        }),
    }
}

#[test]
fn patterns_match_whole_fields() {
    for (pattern, text, expected) in [
        ("a.b", "a.b", true),
        ("a.b", "a.bc", false),
        ("a.*", "a.b[].c", true),
        ("*.values[]", "spec.a[].values[]", true),
        ("*.values[]", "spec.values[].b", false),
        ("*", "", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
    assert_eq!(remove_indexes("a[0].b[x.y/z]"), "a[].b[]");
}
