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

    /// Removes the fields at a path of names, and everything below it.
    fn remove_path(&mut self, path: &[Step]) {
        self.added.remove(path);
        self.modified.remove(path);
        self.removed.remove(path);
    }
}

/// Compares two values of a shape.
pub(crate) fn compare_objects(shape: Shape<'_>, old: &Value, new: &Value) -> Comparison {
    let mut walk = Walk::default();
    if old != new {
        walk.compare_values(shape, old, new);
    }
    walk.found
}

/// Compares two objects without the fields at some paths (`status`, `metadata.labels`).
pub(crate) fn compare_without<'p>(
    ignored: impl Iterator<Item = &'p str>,
    shape: Shape<'_>,
    old: &Value,
    new: &Value,
) -> Comparison {
    // The paths are removed from the result, since objects without these fields would be copies:
    // managedFields alone are half of a small object.
    let mut found = compare_objects(shape, old, new);
    for path in ignored {
        let names = path.split('.').map(|name| Step::Field(name.to_owned()));
        found.remove_path(&names.collect::<Vec<_>>());
    }
    found
}

/// A walk through two values. Equal parts, which are most of an object, are skipped. A part is
/// compared for equality at most once for each level above it; decoders limit the levels.
#[derive(Default)]
struct Walk {
    path: Vec<Step>,
    found: Comparison,
}

impl Walk {
    /// Compares two values that differ.
    fn compare_values(&mut self, shape: Shape<'_>, old: &Value, new: &Value) {
        let has_members = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
        let has_elements = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
        if shape.is_map() && (has_members(old) || has_members(new)) {
            self.compare_members(shape, old, new);
        } else if shape.is_list() && (has_elements(old) || has_elements(new)) {
            self.compare_elements(shape, old, new);
        } else {
            // Atomic values and empty containers: owned as a whole.
            self.found.modified.insert(&self.path);
        }
    }

    fn compare_members(&mut self, shape: Shape<'_>, old: &Value, new: &Value) {
        let empty = Map::new();
        let old = old.as_object().unwrap_or(&empty);
        let new = new.as_object().unwrap_or(&empty);
        let only_new = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(only_new) {
            let (before, after) = (old.get(key), new.get(key));
            if before != after {
                self.path.push(Step::Field(key.clone()));
                self.compare_either(shape.member(key), before, after);
                self.path.pop();
            }
        }
    }

    fn compare_elements(&mut self, shape: Shape<'_>, old: &Value, new: &Value) {
        let (old, new) = (elements_of(shape, old), elements_of(shape, new));
        let only_new = new.keys().filter(|step| !old.contains_key(*step));
        for step in old.keys().chain(only_new) {
            let before = old.get(step).map_or(&[][..], Vec::as_slice);
            let after = new.get(step).map_or(&[][..], Vec::as_slice);
            if before != after {
                self.path.push(step.clone());
                self.compare_duplicates(shape.element(), before, after);
                self.path.pop();
            }
        }
    }

    /// Compares the elements of one step, which differ. Duplicates are owned as a whole, by their
    /// common path.
    fn compare_duplicates(&mut self, shape: Shape<'_>, old: &[&Value], new: &[&Value]) {
        let (before, after) = (old.first().copied(), new.first().copied());
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => self.compare_either(shape, before, after),
            (2.., 2..) => self.found.modified.insert(&self.path),
            (2.., _) => {
                self.compare_either(shape, None, after);
                self.found.removed.insert(&self.path);
            }
            (_, _) => {
                self.compare_either(shape, before, None);
                self.found.added.insert(&self.path);
            }
        }
    }

    /// Compares two values that differ, of which one may be absent.
    fn compare_either(&mut self, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) => self.compare_values(shape, old, new),
            (None, Some(new)) => {
                let paths = collect_paths(shape, new);
                self.found.added.insert_set(&self.path, paths);
            }
            (Some(old), None) => {
                let paths = collect_paths(shape, old);
                self.found.removed.insert_set(&self.path, paths);
            }
            (None, None) => {}
        }
    }
}

/// Returns the paths of a value and of everything in it, relative to the value.
fn collect_paths(shape: Shape<'_>, value: &Value) -> FieldSet {
    let children = match value {
        Value::Object(map) if shape.is_map() => map
            .iter()
            .map(|(key, member)| {
                let step = Step::Field(key.clone());
                (step, collect_paths(shape.member(key), member))
            })
            .collect(),
        Value::Array(list) if shape.is_list() => collect_elements(shape, list),
        _ => BTreeMap::new(),
    };
    FieldSet {
        member: true,
        children,
    }
}

/// Returns the paths of the elements of a list. Duplicates are owned as a whole.
fn collect_elements(shape: Shape<'_>, list: &[Value]) -> BTreeMap<Step, FieldSet> {
    let steps = list.iter().map(|element| (shape.step(element), element));
    let mut steps: Vec<(Step, &Value)> = steps.collect();
    // Most lists have no duplicates, so that no list for each step is built.
    steps.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut sets: Vec<(Step, FieldSet)> = Vec::with_capacity(steps.len());
    for (step, element) in steps {
        match sets.last_mut() {
            Some((last, set)) if *last == step => *set = FieldSet::leaf(),
            _ => sets.push((step, collect_paths(shape.element(), element))),
        }
    }
    sets.into_iter().collect()
}

fn elements_of<'v>(shape: Shape<'_>, list: &'v Value) -> BTreeMap<Step, Vec<&'v Value>> {
    index_elements(shape, list.as_array().map_or(&[], Vec::as_slice))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Returns the added, modified and removed fields of a Pod's change.
    fn compare_pods(old: Value, new: Value, ignored: &[&str]) -> [Value; 3] {
        let pod = api_kinds::find("", "v1", "pods").unwrap();
        let shape = Shape::of_object(&pod.schema);
        let found = compare_without(ignored.iter().copied(), shape, &old, &new);
        [found.added, found.modified, found.removed].map(|set| set.to_json())
    }

    #[test]
    fn changes_are_found_member_by_member_and_element_by_element() {
        let ports = |list: Value| json!({"spec": {"containers": [{"name": "c", "ports": list}]}});
        let of_ports = |set: Value| json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:ports": set}}}});
        let http = "k:{\"containerPort\":80,\"protocol\":\"TCP\"}";
        let [none, port] = [json!({}), json!({"containerPort": 80})];
        for (case, old, new, expect) in [
            (
                "nothing",
                ports(json!([port])),
                ports(json!([port])),
                [none.clone(), none.clone(), none.clone()],
            ),
            (
                "a whole list",
                json!({"spec": {"containers": [{"name": "c"}]}}),
                ports(json!([port])),
                [
                    of_ports(json!({".": {}, http: {".": {}, "f:containerPort": {}}})),
                    none.clone(),
                    none.clone(),
                ],
            ),
            (
                "an element becomes two of the same key",
                ports(json!([port])),
                ports(json!([port, port])),
                [
                    of_ports(json!({http: {}})),
                    none.clone(),
                    of_ports(json!({http: {".": {}, "f:containerPort": {}}})),
                ],
            ),
            (
                "two of the same key become one",
                ports(json!([port, port])),
                ports(json!([port])),
                [
                    of_ports(json!({http: {".": {}, "f:containerPort": {}}})),
                    none.clone(),
                    of_ports(json!({http: {}})),
                ],
            ),
            (
                "an atomic list",
                json!({"spec": {"containers": [{"name": "c", "args": ["a"]}]}}),
                json!({"spec": {"containers": [{"name": "c", "args": ["b"]}]}}),
                [
                    none.clone(),
                    json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:args": {}}}}}),
                    none.clone(),
                ],
            ),
        ] {
            assert_eq!(compare_pods(old, new, &[]), expect, "{case}");
        }
    }

    #[test]
    fn ignored_fields_leave_no_empty_parents() {
        let old = json!({"metadata": {"uid": "1", "labels": {"a": "1"}}, "status": {"phase": "x"}});
        let new = json!({"metadata": {"uid": "2", "labels": {"a": "2"}}});
        let [none, label] = [json!({}), json!({"f:metadata": {"f:labels": {"f:a": {}}}})];
        let ignored = ["metadata.uid", "metadata.labels", "status"];
        let found = compare_pods(old.clone(), new.clone(), &ignored);
        assert_eq!(found, [none.clone(), none.clone(), none.clone()]);
        let found = compare_pods(old, new, &["metadata.uid", "status"]);
        assert_eq!(found, [none.clone(), label, none]);
    }
}
