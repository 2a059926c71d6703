//! The ownership graph, by UID. Pure: changes go in, steps come out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_semantics::owners;
use client::{ApiResource, PartialObject};
use controllers_runtime::Meta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The finalizer of foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning deletion.
pub const ORPHAN: &str = "orphan";

/// A step of the collector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Check whether the object has an owner.
    Check(String),
    /// Orphan the object's dependents.
    Orphan(String),
}

impl Step {
    /// Returns the queue key.
    pub fn key(&self) -> String {
        match self {
            Self::Check(uid) => format!("check/{uid}"),
            Self::Orphan(uid) => format!("orphan/{uid}"),
        }
    }

    /// Parses a queue key.
    pub fn parse(key: &str) -> Option<Self> {
        match key.split_once('/')? {
            ("check", uid) => Some(Self::Check(uid.to_owned())),
            ("orphan", uid) => Some(Self::Orphan(uid.to_owned())),
            _ => None,
        }
    }

    /// Returns the object's UID.
    pub fn uid(&self) -> &str {
        match self {
            Self::Check(uid) | Self::Orphan(uid) => uid,
        }
    }
}

/// One object.
#[derive(Clone, Debug)]
pub struct Node {
    /// Kind of the object.
    pub resource: Arc<ApiResource>,
    /// Metadata of the object.
    pub object: Arc<PartialObject>,
}

impl Node {
    /// Returns the owner references.
    pub fn owner_references(&self) -> &[OwnerReference] {
        owners::owner_references(self.object.meta())
    }

    /// Returns whether the object waits for its dependents' deletion.
    pub fn is_foreground(&self) -> bool {
        self.object.is_deleting() && self.object.has_finalizer(FOREGROUND)
    }

    /// Returns whether the object waits for its dependents to be orphaned.
    pub fn is_orphaning(&self) -> bool {
        self.object.is_deleting() && self.object.has_finalizer(ORPHAN)
    }

    /// Returns whether this object blocks the deletion of the owner.
    pub fn blocks_deletion_of(&self, owner: &str) -> bool {
        owners::blocks_deletion_of(self.object.meta(), owner)
    }
}

/// All known objects.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, HashSet<String>>,
}

impl Graph {
    /// Returns one object.
    pub fn find_node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Returns the objects with an owner reference to this one.
    pub fn list_dependents(&self, uid: &str) -> Vec<Node> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get(uid))
            .cloned()
            .collect()
    }

    /// Records an added or changed object.
    pub fn apply_node(&mut self, node: Node) -> Vec<Step> {
        let uid = node.object.uid().to_owned();
        let before = self.nodes.insert(uid.clone(), node.clone());
        let old: HashSet<String> = before
            .iter()
            .flat_map(|n| n.owner_references())
            .map(|r| r.uid.clone())
            .collect();
        let new: HashSet<String> = node
            .owner_references()
            .iter()
            .map(|r| r.uid.clone())
            .collect();
        for removed in old.difference(&new) {
            self.remove_dependent(removed, &uid);
        }
        // Dependents are recorded even for owners that are not known yet, because lists of kinds
        // arrive in any order.
        for added in new.difference(&old) {
            self.dependents
                .entry(added.clone())
                .or_default()
                .insert(uid.clone());
        }
        let mut steps = Vec::new();
        // Only the transition counts: an object in foreground deletion changes often while its
        // dependents disappear.
        let fresh = |test: fn(&Node) -> bool| test(&node) && !before.as_ref().is_some_and(test);
        if fresh(Node::is_orphaning) {
            steps.push(Step::Orphan(uid.clone()));
        }
        if fresh(Node::is_foreground) {
            steps.extend(
                self.list_dependents(&uid)
                    .iter()
                    .map(|d| Step::Check(d.object.uid().to_owned())),
            );
            steps.push(Step::Check(uid.clone()));
        }
        // An owner in foreground deletion may already have listed its blocking dependents, so a
        // late one is checked by itself.
        let unsure = |r: &OwnerReference| self.nodes.get(&r.uid).is_none_or(Node::is_foreground);
        if node.owner_references().iter().any(unsure) {
            steps.push(Step::Check(uid.clone()));
        }
        // An owner in foreground deletion waits until references are removed or no longer block.
        let freed = old.iter().filter(|o| !node.blocks_deletion_of(o));
        steps.extend(
            freed
                .filter(|o| self.is_waiting(o))
                .map(|o| Step::Check(o.clone())),
        );
        steps
    }

    /// Records a deleted object.
    pub fn remove_node(&mut self, uid: &str) -> Vec<Step> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let mut steps: Vec<_> = self
            .list_dependents(uid)
            .iter()
            .map(|d| Step::Check(d.object.uid().to_owned()))
            .collect();
        for owner in node.owner_references() {
            self.remove_dependent(&owner.uid, uid);
            if self.is_waiting(&owner.uid) {
                steps.push(Step::Check(owner.uid.clone()));
            }
        }
        steps
    }

    /// Removes all objects of a resource that is no longer served.
    pub fn remove_resource(&mut self, group: &str, plural: &str) -> Vec<Step> {
        let of_resource = |n: &Node| n.resource.group == group && n.resource.plural == plural;
        let uids: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, node)| of_resource(node))
            .map(|(uid, _)| uid.clone())
            .collect();
        uids.iter().flat_map(|uid| self.remove_node(uid)).collect()
    }

    /// Returns checks of all objects with unknown owners, for the time when all kinds are listed.
    pub fn list_unverified(&self) -> Vec<Step> {
        let unsure = |n: &&Node| {
            n.owner_references()
                .iter()
                .any(|r| !self.nodes.contains_key(&r.uid))
        };
        let mut steps: Vec<_> = self
            .nodes
            .values()
            .filter(unsure)
            .map(|n| Step::Check(n.object.uid().to_owned()))
            .collect();
        for (uid, node) in &self.nodes {
            if node.is_foreground() {
                steps.push(Step::Check(uid.clone()));
            }
            if node.is_orphaning() {
                steps.push(Step::Orphan(uid.clone()));
            }
        }
        steps
    }

    fn is_waiting(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(Node::is_foreground)
    }

    fn remove_dependent(&mut self, owner: &str, uid: &str) {
        if let Some(set) = self.dependents.get_mut(owner) {
            set.remove(uid);
            if set.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn removed_resource_frees_its_owners_and_leaves_other_objects() {
        let mut graph = Graph::default();
        let mut gone = node("child", &["owner"], None);
        let widgets = ApiResource {
            plural: "widgets".to_owned(),
            ..(*gone.resource).clone()
        };
        gone.resource = Arc::new(widgets);
        graph.apply_node(node("owner", &[], Some(FOREGROUND)));
        graph.apply_node(gone);
        let steps = graph.remove_resource("", "widgets");
        assert_eq!(steps, [Step::Check("owner".to_owned())]);
        assert!(graph.find_node("child").is_none() && graph.find_node("owner").is_some());
        assert!(graph.list_dependents("owner").is_empty());
    }

    fn node(uid: &str, owners: &[&str], finalizer: Option<&str>) -> Node {
        let refs: Vec<_> = owners
            .iter()
            .map(|o| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o, "uid": o, "blockOwnerDeletion": true}))
            .collect();
        let object = serde_json::from_value(
            json!({"metadata": {"name": uid, "uid": uid, "namespace": "n", "ownerReferences": refs,
            "finalizers": finalizer.map(|f| vec![f]), "deletionTimestamp": finalizer.map(|_| "2026-01-01T00:00:00Z")}}),
        )
        .unwrap();
        let resource = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
            namespaced: true,
        };
        Node {
            resource: Arc::new(resource),
            object: Arc::new(object),
        }
    }

    fn check(uid: &str) -> Step {
        Step::Check(uid.to_owned())
    }

    #[test]
    fn deleted_owner_enqueues_its_dependents() {
        let mut g = Graph::default();
        assert!(g.apply_node(node("a", &[], None)).is_empty());
        assert!(g.apply_node(node("child", &["a"], None)).is_empty());
        assert_eq!(g.remove_node("a"), [check("child")]);
        assert_eq!(
            g.apply_node(node("stray", &["nobody"], None)),
            [check("stray")]
        );
        assert_eq!(g.list_unverified().len(), 2);
    }

    #[test]
    fn foreground_owner_is_checked_again_after_its_last_dependent() {
        let mut g = Graph::default();
        g.apply_node(node("a", &[], None));
        g.apply_node(node("child", &["a"], None));
        assert_eq!(
            g.apply_node(node("a", &[], Some(FOREGROUND))),
            [check("child"), check("a")]
        );
        assert_eq!(g.remove_node("child"), [check("a")]);
    }

    #[test]
    fn orphaning_owner_is_enqueued_once() {
        let mut g = Graph::default();
        g.apply_node(node("a", &[], None));
        assert_eq!(
            g.apply_node(node("a", &[], Some(ORPHAN))),
            [Step::Orphan("a".to_owned())]
        );
        assert!(g.apply_node(node("a", &[], Some(ORPHAN))).is_empty());
    }

    #[test]
    fn dependent_with_one_known_and_one_unknown_owner_is_checked() {
        let mut g = Graph::default();
        g.apply_node(node("a", &[], None));
        assert_eq!(
            g.apply_node(node("child", &["a", "b"], None)),
            [check("child")]
        );
        assert!(g.list_unverified().contains(&check("child")));
    }

    #[test]
    fn removed_owner_reference_unlinks_the_dependent() {
        let mut g = Graph::default();
        g.apply_node(node("a", &[], None));
        g.apply_node(node("child", &["a"], None));
        assert_eq!(g.list_dependents("a").len(), 1);
        g.apply_node(node("child", &[], None));
        assert!(g.list_dependents("a").is_empty());
        assert!(g.remove_node("a").is_empty());
    }

    #[test]
    fn owner_in_foreground_deletion_is_checked_when_a_dependent_stops_blocking() {
        let mut g = Graph::default();
        g.apply_node(node("a", &[], None));
        g.apply_node(node("child", &["a"], None));
        g.apply_node(node("a", &[], Some(FOREGROUND)));
        assert_eq!(g.apply_node(node("child", &[], None)), [check("a")]);
    }

    #[test]
    fn new_dependent_of_an_owner_in_foreground_deletion_is_checked() {
        let mut g = Graph::default();
        g.apply_node(node("a", &[], Some(FOREGROUND)));
        assert_eq!(g.apply_node(node("late", &["a"], None)), [check("late")]);
    }

    #[test]
    fn cycle_of_owners_is_enqueued_when_the_first_is_removed() {
        let mut g = Graph::default();
        g.apply_node(node("a", &["b"], None));
        g.apply_node(node("b", &["a"], None));
        assert_eq!(g.remove_node("a"), [check("b")]);
        assert!(g.remove_node("b").is_empty());
    }

    #[test]
    fn unknown_object_is_removed_without_steps() {
        let mut g = Graph::default();
        assert!(g.remove_node("never-seen").is_empty());
    }

    #[test]
    fn list_of_unverified_objects_contains_pending_finalizers() {
        let mut g = Graph::default();
        g.apply_node(node("f", &[], Some(FOREGROUND)));
        g.apply_node(node("o", &[], Some(ORPHAN)));
        let mut steps = g.list_unverified();
        steps.sort();
        assert_eq!(steps, [check("f"), Step::Orphan("o".to_owned())]);
    }

    #[test]
    fn queue_keys_are_parsed_back_to_steps() {
        for step in [check("u"), Step::Orphan("u".to_owned())] {
            assert_eq!(Step::parse(&step.key()), Some(step));
        }
        assert_eq!(Step::parse("other/u"), None);
        assert_eq!(Step::parse("u"), None);
    }
}
