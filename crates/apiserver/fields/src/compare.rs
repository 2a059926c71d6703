//! Compares two objects, and lists the paths that an object sets.

use crate::path::Step;
use crate::set::FieldSet;
use crate::shape::Shape;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Added, changed and removed paths.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    /// Returns the paths that the new object adds or changes.
    pub(crate) fn changed_paths(&self) -> FieldSet {
        self.added.clone().union(&self.modified)
    }
}

/// Compares two values of a shape.
pub(crate) fn compare_objects(shape: Shape<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    walk_values(
        shape,
        Some(old),
        Some(new),
        &mut Vec::new(),
        &mut comparison,
    );
    comparison
}

fn walk_values(
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Step>,
    out: &mut Comparison,
) {
    let either = old.into_iter().chain(new);
    if shape.is_map()
        && either
            .clone()
            .any(|v| v.as_object().is_some_and(|m| !m.is_empty()))
    {
        compare_members(shape, old, new, path, out);
    } else if shape.is_list()
        && either
            .clone()
            .any(|v| v.as_array().is_some_and(|l| !l.is_empty()))
    {
        compare_elements(shape, old, new, path, out);
    } else if let (Some(old), Some(new)) = (old, new) {
        // Atomic values and empty containers: owned as a whole.
        if old != new {
            out.modified.insert(path);
        }
        return;
    }
    match (old, new) {
        (None, Some(_)) => out.added.insert(path),
        (Some(_), None) => out.removed.insert(path),
        _ => {}
    }
}

fn compare_members(
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Step>,
    out: &mut Comparison,
) {
    let empty = Map::new();
    let old = old.and_then(Value::as_object).unwrap_or(&empty);
    let new = new.and_then(Value::as_object).unwrap_or(&empty);
    let only_new = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(only_new) {
        path.push(Step::Field(key.clone()));
        walk_values(shape.member(key), old.get(key), new.get(key), path, out);
        path.pop();
    }
}

fn compare_elements(
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Step>,
    out: &mut Comparison,
) {
    let (old, new) = (elements_of(shape, old), elements_of(shape, new));
    let only_new = new.keys().filter(|step| !old.contains_key(*step));
    for step in old.keys().chain(only_new) {
        let before = old.get(step).map_or(&[][..], Vec::as_slice);
        let after = new.get(step).map_or(&[][..], Vec::as_slice);
        path.push(step.clone());
        compare_duplicates(shape.element(), before, after, path, out);
        path.pop();
    }
}

/// Compares the elements of one step. Duplicates are owned as a whole, by their common path.
fn compare_duplicates(
    shape: Shape<'_>,
    old: &[&Value],
    new: &[&Value],
    path: &mut Vec<Step>,
    out: &mut Comparison,
) {
    match (old, new) {
        ([] | [_], [] | [_]) => {
            walk_values(shape, old.first().copied(), new.first().copied(), path, out);
        }
        ([_, _, ..], [_, _, ..]) => {
            if old != new {
                out.modified.insert(path);
            }
        }
        ([_, _, ..], _) => {
            if let Some(new) = new.first() {
                walk_values(shape, None, Some(new), path, out);
            }
            out.removed.insert(path);
        }
        (_, _) => {
            if let Some(old) = old.first() {
                walk_values(shape, Some(old), None, path, out);
            }
            out.added.insert(path);
        }
    }
}

fn elements_of<'v>(shape: Shape<'_>, list: Option<&'v Value>) -> BTreeMap<Step, Vec<&'v Value>> {
    let list = list.and_then(Value::as_array);
    index_elements(shape, list.map_or(&[], Vec::as_slice))
}

/// Maps a list's elements by their identifying step; duplicates have the same one.
pub(crate) fn index_elements<'v>(
    shape: Shape<'_>,
    list: &'v [Value],
) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut all: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for element in list {
        all.entry(shape.step(element)).or_default().push(element);
    }
    all
}

/// Returns every path that an intent sets.
pub(crate) fn fields_of(shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect_fields(shape, value, &mut set);
    set
}

fn collect_fields(shape: Shape<'_>, value: &Value, set: &mut FieldSet) {
    match value {
        Value::Object(map) if shape.is_map() => {
            for (key, member) in map {
                let child = set.children.entry(Step::Field(key.clone())).or_default();
                collect_fields(shape.member(key), member, child);
                let empty = member.is_null() || member.as_object().is_some_and(Map::is_empty);
                // A member of a map is owned itself, because its removal is a change of its own.
                child.member |= empty || shape.owns_member(key);
                if child.is_empty() {
                    set.children.remove(&Step::Field(key.clone()));
                }
            }
        }
        Value::Array(list) if shape.is_list() => {
            for (step, elements) in index_elements(shape, list) {
                let child = set.children.entry(step).or_default();
                if let [element] = elements.as_slice() {
                    collect_fields(shape.element(), element, child);
                }
                // Removing an element is a change of its own, apart from the fields in it.
                child.member = true;
            }
        }
        _ => set.member = true,
    }
}
