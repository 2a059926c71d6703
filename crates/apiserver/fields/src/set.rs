//! Sets of field paths.

use crate::path::Step;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A set of paths as a tree: a node is a member itself, has children, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// The path to this node is in the set.
    pub(crate) member: bool,
    pub(crate) children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds a path.
    pub(crate) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => self.member = true,
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Returns a node that is a member without children.
    pub(crate) fn leaf() -> Self {
        FieldSet {
            member: true,
            children: BTreeMap::new(),
        }
    }

    /// Adds all paths of a set below a path.
    pub(crate) fn insert_set(&mut self, path: &[Step], set: FieldSet) {
        match path {
            [] => *self = set.union(self),
            [first, rest @ ..] => {
                let child = self.children.entry(first.clone()).or_default();
                child.insert_set(rest, set);
            }
        }
    }

    /// Removes a path and everything below it. Nodes that held nothing else are removed, too.
    pub(crate) fn remove(&mut self, path: &[Step]) {
        let [first, rest @ ..] = path else {
            *self = FieldSet::default();
            return;
        };
        if let Some(child) = self.children.get_mut(first) {
            child.remove(rest);
            if child.is_empty() {
                self.children.remove(first);
            }
        }
    }

    /// Returns the union. The cost depends on the other set only.
    pub(crate) fn union(mut self, other: &FieldSet) -> FieldSet {
        self.add_all(other);
        self
    }

    fn add_all(&mut self, other: &FieldSet) {
        self.member |= other.member;
        for (step, theirs) in &other.children {
            match self.children.get_mut(step) {
                Some(ours) => ours.add_all(theirs),
                None => drop(self.children.insert(step.clone(), theirs.clone())),
            }
        }
    }

    /// Returns the paths of this set that are not in `other`.
    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// Removes the paths of `other`. The cost depends on this set only.
    pub(crate) fn subtract(&mut self, other: &FieldSet) {
        self.member &= !other.member;
        self.children.retain(|step, ours| {
            if let Some(theirs) = other.children.get(step) {
                ours.subtract(theirs);
            }
            !ours.is_empty()
        });
    }

    /// Returns the intersection.
    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let keep = |(step, ours): (&Step, &FieldSet)| {
            let both = ours.intersection(other.children.get(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        };
        FieldSet {
            member: self.member && other.member,
            children: self.children.iter().filter_map(keep).collect(),
        }
    }

    /// Returns the paths of the set, in the form of messages; the first `limit` ones.
    pub(crate) fn paths(&self, limit: usize) -> Vec<String> {
        let mut all = Vec::new();
        self.collect_paths("", limit, &mut all);
        all
    }

    fn collect_paths(&self, at: &str, limit: usize, all: &mut Vec<String>) {
        if self.member {
            all.push(at.to_owned());
        }
        for (step, child) in &self.children {
            if all.len() >= limit {
                return;
            }
            child.collect_paths(&format!("{at}{}", step.to_message_text()), limit, all);
        }
    }

    /// Encodes the set as `FieldsV1`.
    pub fn to_json(&self) -> Value {
        // A leaf needs no mark: an empty map already means that the path itself is owned.
        let is_marked = self.member && !self.children.is_empty();
        let mark = is_marked.then(|| (".".to_owned(), json!({})));
        let children = self.children.iter();
        let children = children.map(|(step, child)| (step.to_text(), child.to_json()));
        // Collected at once, since the steps are sorted: inserting each would search its place.
        Value::Object(mark.into_iter().chain(children).collect())
    }

    /// Decodes `FieldsV1`; omits what can't be decoded.
    pub fn from_json(value: &Value) -> FieldSet {
        let mut root = FieldSet::read_node(value);
        // The root is never a member itself.
        root.member = false;
        root
    }

    /// Returns why upstream's decoder rejects `FieldsV1`; `None` if it does not.
    pub(crate) fn find_problem(value: &Value) -> Option<String> {
        let map = match value {
            Value::Null => return None,
            Value::Object(map) => map,
            _ => return Some("expected an object".to_owned()),
        };
        map.iter().find_map(|(key, child)| match key.as_str() {
            "." => None,
            key if Step::is_malformed(key) => Some(format!("parsing key as path element: {key}")),
            // Upstream skips what a later version may understand.
            key if !key.starts_with(['f', 'k', 'v', 'i']) => None,
            _ => FieldSet::find_problem(child),
        })
    }

    fn read_node(value: &Value) -> FieldSet {
        let Some(map) = value.as_object() else {
            return FieldSet::default();
        };
        let children: BTreeMap<Step, FieldSet> = map
            .iter()
            .filter_map(|(key, child)| Some((Step::parse(key)?, FieldSet::read_node(child))))
            .collect();
        FieldSet {
            // `{}` is a leaf; a node with children is a member only with `.`.
            member: children.is_empty() || map.contains_key("."),
            children,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_survives_encoding_and_decoding() {
        let text = json!({"f:data": {".": {}, "f:a": {}}, "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}}});
        let set = FieldSet::from_json(&text);
        assert_eq!(set.to_json(), text);
        let data = FieldSet::from_json(&json!({"f:data": {"f:a": {}}}));
        assert_eq!(set.difference(&data).to_json()["f:data"], json!({}));
        assert_eq!(set.intersection(&data), data);
    }

    #[test]
    fn paths_are_printed_as_in_conflict_messages() {
        let set = FieldSet::from_json(
            &json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:name": {}}}},
            "f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}}}),
        );
        assert_eq!(
            set.paths(9),
            [
                ".metadata.finalizers[=\"a/b\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].name"
            ]
        );
        assert_eq!(set.paths(1), [".metadata.finalizers[=\"a/b\"]"]);
        assert!(set.paths(0).is_empty());
    }

    #[test]
    fn unknown_steps_of_fields_v1_are_dropped() {
        let set =
            FieldSet::from_json(&json!({"f:a": {}, "x:b": {}, "plain": {}, "k:not json": {}}));
        assert_eq!(set.to_json(), json!({"f:a": {}}));
        assert!(FieldSet::from_json(&Value::Null).is_empty());
    }
}
