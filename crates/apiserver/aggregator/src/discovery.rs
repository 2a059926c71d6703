//! The part of remote groups in the discovery documents.

use crate::priority::{local_group_priority, local_version_priority};
use api_kinds::compare_versions;
use api_meta::tree::{flag, get, list, text, texts};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Resources of one version at most; more are left out.
const MAX_RESOURCES: usize = 1000;

/// A remote version and what is known of its resources.
#[derive(Clone, Debug)]
pub struct RemoteVersion {
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Priority of the group.
    pub group_priority: i64,
    /// Priority of the version.
    pub version_priority: i64,
    /// The resources as aggregated discovery has them.
    pub resources: Arc<Vec<Value>>,
    /// True if the last request to the server has succeeded.
    pub current: bool,
}

/// Converts an `APIResourceList` into the resources of aggregated discovery; `None` if it is none,
/// or if the scope of a subresource is not that of its resource.
pub fn parse_resource_list(document: &Value) -> Option<Vec<Value>> {
    // An error page or another kind must not look like a version without resources.
    if text(document, "kind") != "APIResourceList" {
        return None;
    }
    // Each row is used once: with repeated names the result would have a multiple of the document's
    // size, and an extension server could fill the memory.
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let rows = list(document, "resources").iter().take(MAX_RESOURCES);
    let (below, plain): (Vec<_>, Vec<_>) = rows
        .map(|row| (text(row, "name"), row))
        .filter(|(name, _)| seen.insert(name))
        .partition(|(name, _)| name.contains('/'));
    let mut all: Vec<Value> = plain
        .iter()
        .map(|(name, row)| resource_entry(name, row))
        .collect();
    let mut places: BTreeMap<&str, usize> = plain
        .iter()
        .enumerate()
        .map(|(at, (name, _))| (*name, at))
        .collect();
    let mut subresources: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for (name, row) in below {
        let (resource, subresource) = name.split_once('/')?;
        let at = *places.entry(resource).or_insert_with(|| {
            // A server may serve subresources only, as metrics adapters do.
            all.push(parent_entry(resource, row));
            all.len() - 1
        });
        // As upstream, which discards the whole document.
        if text(all.get(at)?, "scope") != scope(row) {
            return None;
        }
        let subresources = subresources.entry(at).or_default();
        subresources.push(subresource_entry(subresource, row));
    }
    for (at, subresources) in subresources {
        all.get_mut(at)?["subresources"] = subresources.into();
    }
    Some(all)
}

fn resource_entry(name: &str, row: &Value) -> Value {
    let mut entry = json!({"resource": name, "responseKind": response_kind(row),
        "scope": scope(row), "singularResource": text(row, "singularName"),
        "verbs": texts(row, "verbs")});
    for field in ["shortNames", "categories"] {
        let names = texts(row, field);
        if !names.is_empty() {
            entry[field] = json!(names);
        }
    }
    entry
}

/// Returns the entry of a resource that has no row, from the row of its first subresource.
fn parent_entry(name: &str, row: &Value) -> Value {
    let none: [&str; 0] = [];
    json!({"resource": name, "responseKind": response_kind(&Value::Null), "scope": scope(row),
        "singularResource": "", "verbs": none})
}

fn subresource_entry(name: &str, row: &Value) -> Value {
    // As upstream, a row without a kind has no group and version either.
    let typed = match text(row, "kind") {
        "" => &Value::Null,
        _ => row,
    };
    json!({"subresource": name, "responseKind": response_kind(typed),
        "verbs": texts(row, "verbs")})
}

fn scope(row: &Value) -> &'static str {
    match flag(row, "namespaced") {
        true => "Namespaced",
        false => "Cluster",
    }
}

fn response_kind(row: &Value) -> Value {
    json!({"group": text(row, "group"), "version": text(row, "version"), "kind": text(row, "kind")})
}

/// Adds remote groups to the document of `/apis`.
pub fn merge_groups(document: &mut Value, remote: &[RemoteVersion]) {
    merge(
        document,
        "groups",
        remote,
        |entry| text(entry, "name"),
        add_plain_version,
    );
}

/// Adds remote versions to the document of `/apis/GROUP`, which is null for a group that is not
/// served here; returns null if the group has no version.
pub fn merge_group(local: Value, group: &str, remote: &[RemoteVersion]) -> Value {
    let own: Vec<RemoteVersion> = remote
        .iter()
        .filter(|v| v.group == group)
        .cloned()
        .collect();
    if own.is_empty() {
        return local;
    }
    let groups: Vec<Value> = Some(local)
        .filter(|entry| !entry.is_null())
        .into_iter()
        .collect();
    let mut list = json!({"groups": groups});
    merge_groups(&mut list, &own);
    let mut entry = get(&list, "groups").get(0).cloned().unwrap_or_default();
    // Entries of the list have no type, the document of a single group has.
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    entry
}

/// Adds remote groups to the aggregated document of `/apis`.
pub fn merge_aggregated(document: &mut Value, remote: &[RemoteVersion]) {
    merge(
        document,
        "items",
        remote,
        |entry| text(get(entry, "metadata"), "name"),
        |group, version, ranks| {
            if group.get("metadata").is_none() {
                group["metadata"] = json!({"name": version.group});
            }
            // Stale as defined by `apidiscovery.k8s.io`: the last known resources, because their
            // server does not respond.
            let freshness = if version.current { "Current" } else { "Stale" };
            let entry = json!({"version": version.version, "resources": *version.resources,
                "freshness": freshness});
            insert_version(group, version, entry, ranks);
        },
    );
}

fn add_plain_version(group: &mut Value, version: &RemoteVersion, ranks: &Ranks<'_>) {
    group["name"] = version.group.as_str().into();
    let entry = json!({"groupVersion": format!("{}/{}", version.group, version.version),
        "version": version.version});
    insert_version(group, version, entry, ranks);
    // Upstream prefers the version with the highest priority, which is the first.
    group["preferredVersion"] = get(group, "versions").get(0).cloned().unwrap_or_default();
}

/// Inserts a version before the first one that comes after it. A version of the same name is
/// replaced: requests for it go to the extension server.
fn insert_version(group: &mut Value, version: &RemoteVersion, entry: Value, ranks: &Ranks<'_>) {
    let mut all = list(group, "versions").to_vec();
    all.retain(|other| text(other, "version") != version.version);
    let comes_after = |other: &Value| {
        let other = text(other, "version");
        ranks
            .compare_versions(&version.group, &version.version, other)
            .is_lt()
    };
    let at = all.iter().position(comes_after).unwrap_or(all.len());
    all.insert(at, entry);
    group["versions"] = all.into();
}

/// The order of groups and versions.
struct Ranks<'a> {
    /// Priorities of remote versions by group and version.
    versions: BTreeMap<(&'a str, &'a str), i64>,
    /// The highest priority of each remote group.
    groups: BTreeMap<&'a str, i64>,
}

impl<'a> Ranks<'a> {
    fn new(remote: &'a [RemoteVersion]) -> Self {
        let mut ranks = Ranks {
            versions: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        for version in remote {
            let (group, priority) = (&*version.group, version.group_priority);
            let name = (group, &*version.version);
            ranks.versions.insert(name, version.version_priority);
            let highest = ranks.groups.entry(group).or_insert(priority);
            *highest = priority.max(*highest);
        }
        ranks
    }

    /// Returns the order of two versions in a group.
    fn compare_versions(&self, group: &str, a: &str, b: &str) -> Ordering {
        let priority = |version: &str| {
            let remote = self.versions.get(&(group, version)).copied();
            remote.unwrap_or_else(|| local_version_priority(group, version))
        };
        priority(b)
            .cmp(&priority(a))
            .then_with(|| compare_versions(a, b))
    }
}

fn merge(
    document: &mut Value,
    field: &str,
    remote: &[RemoteVersion],
    name_of: for<'a> fn(&'a Value) -> &'a str,
    add: impl Fn(&mut Value, &RemoteVersion, &Ranks<'_>),
) {
    if remote.is_empty() {
        return;
    }
    let mut groups = list(document, field).to_vec();
    let mut priorities: Vec<i64> = groups
        .iter()
        .map(|group| local_group_priority(name_of(group)))
        .collect();
    let ranks = Ranks::new(remote);
    for (name, remote_priority) in &ranks.groups {
        let found = groups.iter().position(|group| name_of(group) == *name);
        // A remote version may give a group that is also local a higher place.
        let (mut group, priority) = match found {
            Some(at) => (
                groups.remove(at),
                priorities.remove(at).max(*remote_priority),
            ),
            None => (json!({}), *remote_priority),
        };
        for version in remote.iter().filter(|version| version.group == *name) {
            add(&mut group, version, &ranks);
        }
        // Groups of equal priority are in the order of their names.
        let at = groups
            .iter()
            .zip(&priorities)
            .position(|(other, other_priority)| {
                (priority, name_of(other)) > (*other_priority, *name)
            })
            .unwrap_or(groups.len());
        groups.insert(at, group);
        priorities.insert(at, priority);
    }
    document[field] = groups.into();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn remote(
        group: &str,
        version: &str,
        group_priority: i64,
        version_priority: i64,
    ) -> RemoteVersion {
        RemoteVersion {
            group: group.into(),
            version: version.into(),
            group_priority,
            version_priority,
            resources: Arc::default(),
            current: false,
        }
    }

    fn names(document: &Value) -> Vec<&str> {
        list(document, "groups")
            .iter()
            .map(|g| text(g, "name"))
            .collect()
    }

    #[test]
    fn remote_groups_stand_where_their_priority_puts_them() {
        let mut document = json!({"groups": [{"name": "apiregistration.k8s.io"}, {"name": "apps"},
            {"name": "batch"}, {"name": "example.com"}]});
        let all = [
            remote("low.example.com", "v1", 500, 1),
            remote("high.example.com", "v1", 17500, 1),
            remote("b.example.com", "v1", 2000, 1),
            remote("a.example.com", "v1", 2000, 1),
        ];
        merge_groups(&mut document, &all);
        assert_eq!(
            names(&document),
            [
                "apiregistration.k8s.io",
                "apps",
                "high.example.com",
                "batch",
                "a.example.com",
                "b.example.com",
                "example.com",
                "low.example.com"
            ]
        );
    }

    #[test]
    fn preferred_version_is_that_of_the_highest_priority() {
        let all = [
            remote("g.example.com", "v1beta1", 1, 5),
            remote("g.example.com", "v1", 1, 10),
        ];
        // Versions are inserted by priority, whatever their order.
        let group = merge_group(Value::Null, "g.example.com", &all);
        assert_eq!(group["kind"], "APIGroup");
        assert_eq!(group["preferredVersion"]["version"], "v1");
        assert_eq!(list(&group, "versions").len(), 2);
        assert!(merge_group(Value::Null, "other", &all).is_null());
    }

    #[test]
    fn versions_of_equal_priority_are_in_the_order_of_kubernetes() {
        let local = |versions: &[&str]| {
            let entries = versions.iter().map(|version| json!({"version": version}));
            json!({"name": "g.example.com", "versions": entries.collect::<Vec<_>>()})
        };
        for (local, all, expect) in [
            (
                Value::Null,
                vec![("v9", 1, 10), ("v10", 1, 10), ("v1beta1", 1, 10)],
                vec!["v10", "v9", "v1beta1"],
            ),
            // Priorities of groups do not order the versions of one group.
            (
                Value::Null,
                vec![("v1", 1, 10), ("v2", 9, 5)],
                vec!["v1", "v2"],
            ),
            // Versions of custom resources have the priority 100.
            (local(&["v1"]), vec![("v2", 1, 100)], vec!["v2", "v1"]),
            (local(&["v2"]), vec![("v1", 1, 200)], vec!["v1", "v2"]),
            (local(&["v1"]), vec![("v2", 1, 50)], vec!["v1", "v2"]),
            (
                local(&["v1", "v1beta1"]),
                vec![("v2", 1, 150), ("v3", 1, 140), ("v1alpha1", 1, 100)],
                vec!["v2", "v3", "v1", "v1beta1", "v1alpha1"],
            ),
        ] {
            let case = format!("{local} {all:?}");
            let remote: Vec<RemoteVersion> = all
                .into_iter()
                .map(|(version, group, priority)| remote("g.example.com", version, group, priority))
                .collect();
            let group = merge_group(local, "g.example.com", &remote);
            let versions = list(&group, "versions").iter().map(|v| text(v, "version"));
            assert_eq!(versions.collect::<Vec<_>>(), expect, "{case}");
        }
    }

    #[test]
    fn group_has_the_highest_priority_of_its_versions() {
        let groups = [
            json!({"name": "batch"}),
            json!({"name": "b.io"}),
            json!({"name": "d.io"}),
        ];
        for (all, expect) in [
            (
                vec![("c.io", "v1", 1000)],
                ["batch", "b.io", "c.io", "d.io"],
            ),
            (
                vec![("c.io", "v1", 1), ("c.io", "v2", 2000)],
                ["batch", "c.io", "b.io", "d.io"],
            ),
            (
                vec![("d.io", "v2", 2000), ("c.io", "v1", 1500)],
                ["batch", "d.io", "c.io", "b.io"],
            ),
        ] {
            let mut document = json!({"groups": groups});
            let remote: Vec<RemoteVersion> = all
                .iter()
                .map(|(group, version, priority)| remote(group, version, *priority, 1))
                .collect();
            merge_groups(&mut document, &remote);
            assert_eq!(names(&document), expect, "{all:?}");
        }
    }

    #[test]
    fn aggregated_document_marks_unreachable_servers() {
        let mut document = json!({"items": []});
        merge_aggregated(&mut document, &[remote("g.example.com", "v1", 1, 1)]);
        assert_eq!(document["items"][0]["metadata"]["name"], "g.example.com");
        assert_eq!(document["items"][0]["versions"][0]["freshness"], "Stale");
    }

    #[test]
    fn resource_list_becomes_aggregated_resources() {
        let document = json!({"kind": "APIResourceList", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                "verbs": ["get", "list"], "shortNames": ["fl"]},
            {"name": "flunders/status", "namespaced": true, "kind": "Flunder", "verbs": ["get"]}]});
        let all = parse_resource_list(&document).unwrap();
        assert_eq!(all.len(), 1);
        let first = all.first().unwrap();
        assert_eq!(first["scope"], "Namespaced");
        assert_eq!(first["shortNames"], json!(["fl"]));
        assert_eq!(first["subresources"][0]["subresource"], "status");
        assert!(parse_resource_list(&json!({"kind": "Status"})).is_none());
    }

    #[test]
    fn subresources_without_their_resource_have_an_empty_one() {
        let empty = json!({"group": "", "version": "", "kind": ""});
        let document = json!({"kind": "APIResourceList", "resources": [
            {"name": "pods/b", "namespaced": true, "group": "g", "version": "v1", "kind": "Value",
                "verbs": ["get"]},
            {"name": "nodes/a", "namespaced": false, "kind": "", "group": "g", "verbs": ["list"]},
            {"name": "things", "namespaced": true, "kind": "Thing", "verbs": []},
            {"name": "pods/c/d", "namespaced": true, "kind": "Value", "verbs": ["get"]}]});
        let all = parse_resource_list(&document).unwrap();
        let names: Vec<&str> = all.iter().map(|entry| text(entry, "resource")).collect();
        assert_eq!(names, ["things", "pods", "nodes"]);
        let value = json!({"group": "g", "version": "v1", "kind": "Value"});
        let plain = json!({"group": "", "version": "", "kind": "Value"});
        assert_eq!(
            all[1],
            json!({"resource": "pods", "scope": "Namespaced", "singularResource": "",
                "responseKind": empty, "verbs": [], "subresources": [
                {"subresource": "b", "responseKind": value, "verbs": ["get"]},
                {"subresource": "c/d", "responseKind": plain, "verbs": ["get"]}]})
        );
        assert_eq!(all[2]["scope"], "Cluster");
        assert_eq!(all[2]["subresources"][0]["responseKind"], empty);
    }

    #[test]
    fn subresource_of_another_scope_makes_the_list_unusable() {
        for (parent, expect) in [(true, true), (false, false)] {
            let document = json!({"kind": "APIResourceList", "resources": [
                {"name": "a", "namespaced": parent, "kind": "A"},
                {"name": "a/x", "namespaced": true, "kind": "A"}]});
            assert_eq!(parse_resource_list(&document).is_some(), expect, "{parent}");
        }
    }

    #[test]
    fn repeated_names_do_not_multiply_the_document() {
        let plain = (0..500).map(|_| json!({"name": "a", "kind": "A"}));
        let below = (0..500).map(|_| json!({"name": "a/x", "verbs": ["get"]}));
        let rows: Vec<Value> = plain.chain(below).collect();
        let document = json!({"kind": "APIResourceList", "resources": rows});
        let all = parse_resource_list(&document).unwrap();
        assert!(json!(all).to_string().len() < document.to_string().len());
        assert_eq!(all.len(), 1);
    }
}
