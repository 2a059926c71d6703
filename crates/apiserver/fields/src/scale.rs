//! Owners of the replicas, as a Scale shows them and as the object behind it stores them.

use crate::managers::{self, Entry};
use crate::path::Step;
use crate::set::FieldSet;
use serde_json::Value;
use std::collections::BTreeMap;

const SCALE_VERSION: &str = "autoscaling/v1";
const IN_SCALE: &str = "spec.replicas";

/// The path of the replicas, with dots, in the versions of an object.
#[derive(Clone, Debug)]
pub enum ReplicasPaths {
    /// The same in all versions.
    Same(String),
    /// By `apiVersion`. A version without a Scale has none, and its owners keep their fields.
    ByVersion(BTreeMap<String, String>),
}

impl ReplicasPaths {
    fn find(&self, api_version: &str) -> Option<FieldSet> {
        match self {
            ReplicasPaths::Same(path) => Some(set_of(path)),
            ReplicasPaths::ByVersion(paths) => paths.get(api_version).map(|path| set_of(path)),
        }
    }

    /// Returns the replicas of an owner; none if it does not own them.
    fn find_owned(&self, entry: &Entry) -> Option<FieldSet> {
        let replicas = self.find(&entry.identity.api_version);
        replicas.filter(|replicas| !entry.fields.intersection(replicas).is_empty())
    }
}

/// Sets the owners of a Scale: those of the object that own the replicas in their version.
pub fn set_scale_owners(scale: &mut Value, object: &Value, replicas: &ReplicasPaths) {
    let mut entries = managers::read_entries(object);
    entries.retain(|entry| replicas.find_owned(entry).is_some());
    for entry in &mut entries {
        SCALE_VERSION.clone_into(&mut entry.identity.api_version);
        entry.fields = set_of(IN_SCALE);
    }
    managers::write_entries(scale, entries);
}

/// Moves the owners of a Scale to the object of version `api_version`. An owner that no longer owns
/// the replicas of the Scale loses those of the object, and keeps its other fields.
pub fn set_object_owners(
    object: &mut Value,
    scale: &Value,
    replicas: &ReplicasPaths,
    api_version: &str,
) {
    let in_scale = set_of(IN_SCALE);
    let mut owners = managers::read_entries(scale);
    owners.retain(|owner| !owner.fields.intersection(&in_scale).is_empty());
    let mut entries = managers::read_entries(object);
    for entry in &mut entries {
        let Some(in_object) = replicas.find_owned(entry) else {
            continue;
        };
        match owners.iter().position(|owner| is_shown_as(entry, owner)) {
            // The owner of another version is shown once more below, if it has two entries.
            Some(at) => drop(owners.swap_remove(at)),
            None => entry.fields = entry.fields.difference(&in_object),
        }
    }
    let Some(in_object) = replicas.find(api_version) else {
        return managers::write_entries(object, entries);
    };
    for mut owner in owners {
        api_version.clone_into(&mut owner.identity.api_version);
        owner.fields = in_object.clone();
        entries.push(owner);
    }
    managers::write_entries(object, entries);
}

/// Returns whether an owner of the Scale is this owner of the object.
fn is_shown_as(entry: &Entry, owner: &Entry) -> bool {
    let mut identity = entry.identity.clone();
    SCALE_VERSION.clone_into(&mut identity.api_version);
    identity.is_same_owner(&owner.identity)
}

fn set_of(path: &str) -> FieldSet {
    let steps: Vec<Step> = path
        .split('.')
        .filter(|name| !name.is_empty())
        .map(|name| Step::Field(name.to_owned()))
        .collect();
    let mut set = FieldSet::default();
    set.insert(&steps);
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Value {
        let entry = |manager: &str, operation: &str, spec: Value| {
            json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec}, "time": "2026-01-01T00:00:00Z"})
        };
        json!({"metadata": {"managedFields": [
            entry("a", "Apply", json!({"f:paused": {}, "f:replicas": {}})),
            entry("b", "Update", json!({"f:paused": {}})),
            entry("c", "Update", json!({"f:replicas": {}}))]}})
    }

    fn owners(object: &Value) -> Vec<(&str, &str, &Value)> {
        let entries = object["metadata"]["managedFields"].as_array();
        entries
            .into_iter()
            .flatten()
            .map(|entry| {
                let text = |name: &str| entry[name].as_str().unwrap_or_default();
                (
                    text("manager"),
                    text("apiVersion"),
                    &entry["fieldsV1"]["f:spec"],
                )
            })
            .collect()
    }

    fn same_path() -> ReplicasPaths {
        ReplicasPaths::Same("spec.replicas".to_owned())
    }

    #[test]
    fn owners_of_other_versions_have_the_replicas_elsewhere() {
        let entry = |manager: &str, version: &str, spec: Value| {
            json!({"manager": manager, "operation": "Apply", "apiVersion": version,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec}})
        };
        let mut object = json!({"metadata": {"managedFields": [
            entry("a", "e.io/v1", json!({"f:size": {}})),
            entry("b", "e.io/v2", json!({"f:count": {}, "f:size": {}})),
            entry("c", "e.io/v3", json!({"f:size": {}}))]}});
        let paths = [("v1", "size"), ("v2", "count")];
        let paths =
            paths.map(|(version, name)| (format!("e.io/{version}"), format!(".spec.{name}")));
        let paths = ReplicasPaths::ByVersion(paths.into());
        let mut scale = json!({"metadata": {}});
        set_scale_owners(&mut scale, &object, &paths);
        let replicas = json!({"f:replicas": {}});
        let shown = ["a", "b"].map(|name| (name, "autoscaling/v1", &replicas));
        assert_eq!(owners(&scale), shown);
        // A forced apply of the Scale takes the replicas of all.
        scale["metadata"]["managedFields"] =
            json!([entry("hpa", "autoscaling/v1", json!({"f:replicas": {}}))]);
        set_object_owners(&mut object, &scale, &paths, "e.io/v2");
        let (size, count) = (json!({"f:size": {}}), json!({"f:count": {}}));
        let mut found = owners(&object);
        found.sort_by_key(|(manager, _, _)| *manager);
        let expect = [
            ("b", "e.io/v2", &size),
            ("c", "e.io/v3", &size),
            ("hpa", "e.io/v2", &count),
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn scale_shows_the_owners_of_the_replicas_only() {
        let mut scale = json!({"metadata": {}});
        set_scale_owners(&mut scale, &object(), &same_path());
        let replicas = json!({"f:replicas": {}});
        assert_eq!(
            owners(&scale),
            [
                ("a", "autoscaling/v1", &replicas),
                ("c", "autoscaling/v1", &replicas)
            ]
        );
    }

    #[test]
    fn owners_survive_the_way_through_a_scale() {
        let (mut scale, mut same) = (json!({"metadata": {}}), object());
        set_scale_owners(&mut scale, &same, &same_path());
        set_object_owners(&mut same, &scale, &same_path(), "apps/v1");
        assert_eq!(same, object());
    }

    #[test]
    fn new_owner_of_a_scale_takes_the_replicas() {
        let mut changed = object();
        let scale = json!({"metadata": {"managedFields": [{"manager": "hpa", "operation": "Apply",
            "subresource": "scale", "apiVersion": "autoscaling/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}, "time": "2026-01-02T00:00:00Z"}]}});
        set_object_owners(&mut changed, &scale, &same_path(), "apps/v1");
        let (paused, replicas) = (json!({"f:paused": {}}), json!({"f:replicas": {}}));
        assert_eq!(
            owners(&changed),
            [
                ("a", "apps/v1", &paused),
                ("hpa", "apps/v1", &replicas),
                ("b", "apps/v1", &paused)
            ]
        );
    }
}
