//! Discovery documents, legacy and aggregated.

use api_kinds::{Name, Resource, ResourceSet, Subresource};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Returns the document of `/api`.
pub fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// Returns the document of `/apis`.
pub fn api_groups(set: &ResourceSet) -> Value {
    let groups: Vec<Value> = set
        .groups()
        .iter()
        // The core group is served at `/api`, which has a document of another type.
        .filter(|group| !group.name.is_empty())
        .map(group_entry)
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns the document of `/apis/GROUP`; `None` for core and for groups that are not served.
pub fn api_group(set: &ResourceSet, name: &str) -> Option<Value> {
    // The core group has no name, so no document below `/apis` can describe it.
    let group = set
        .groups()
        .iter()
        .find(|group| group.name == name && !name.is_empty())?;
    let mut entry = group_entry(group);
    if let Value::Object(map) = &mut entry {
        map.insert("kind".to_owned(), Value::from("APIGroup"));
        map.insert("apiVersion".to_owned(), Value::from("v1"));
    }
    Some(entry)
}

fn group_entry(group: &api_kinds::Group) -> Value {
    let version = |version: &Name| json!({"groupVersion": format!("{}/{version}", group.name), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

/// Returns the document of `/api/v1` or `/apis/GROUP/VERSION`; `None` if the version is not served.
pub fn api_resources(set: &ResourceSet, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    let mut served = list_resources(set, group, version);
    // Upstream sorts the list of a version by name, unlike the list of groups.
    served.sort_by(|a, b| a.plural.cmp(&b.plural));
    let first = *served.first()?;
    for resource in served {
        list.push(resource_entry(resource));
        list.extend(
            resource
                .subresources
                .iter()
                .map(|subresource| subresource_entry(resource, subresource)),
        );
    }
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": first.api_version(), "resources": list}),
    )
}

fn list_resources<'a>(set: &'a ResourceSet, group: &str, version: &str) -> Vec<&'a Resource> {
    set.served()
        .filter(|resource| resource.group == group && resource.version == version)
        .map(|resource| &**resource)
        .collect()
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    put_names(resource, &mut entry);
    if let (Value::Object(map), Some(storage)) = (&mut entry, &resource.storage) {
        let hash = storage_version_hash(&storage.api_version, &resource.kind);
        map.insert("storageVersionHash".to_owned(), Value::from(hash));
    }
    entry
}

fn put_names(resource: &Resource, entry: &mut Value) {
    let Value::Object(map) = entry else { return };
    for (name, list) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !list.is_empty() {
            map.insert(name.to_owned(), json!(list));
        }
    }
}

/// Returns eight bytes of a hash over group, version and kind of the stored object.
pub fn storage_version_hash(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // The storage migrator compares hashes to find out whether objects must be rewritten.
    let hash = Sha256::digest(format!("{group}/{version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(hash.get(..8).unwrap_or_default())
}

fn subresource_entry(resource: &Resource, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    if let Value::Object(map) = &mut entry
        // Group and version of a subresource are shown only if they differ from the resource's
        // (Scale, Eviction, TokenRequest).
        && is_foreign(resource, subresource)
    {
        map.insert("group".to_owned(), Value::from(&*subresource.group));
        map.insert("version".to_owned(), Value::from(&*subresource.version));
    }
    entry
}

fn is_foreign(resource: &Resource, subresource: &Subresource) -> bool {
    subresource.group != resource.group || subresource.version != resource.version
}

/// Returns the `APIGroupDiscoveryList` of `/api` (core) or `/apis` (all other groups). `version` is
/// `v2` or `v2beta1`.
pub fn aggregated(set: &ResourceSet, core: bool, version: &str) -> Value {
    let groups = set
        .groups()
        .iter()
        .filter(|group| group.name.is_empty() == core);
    let items: Vec<Value> = groups.map(|group| aggregated_group(set, group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(set: &ResourceSet, group: &api_kinds::Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| aggregated_version(set, &group.name, version))
        .collect();
    let mut metadata = Map::new();
    if !group.name.is_empty() {
        metadata.insert("name".to_owned(), Value::from(&*group.name));
    }
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_version(set: &ResourceSet, group: &str, version: &str) -> Value {
    let mut resources = list_resources(set, group, version);
    // The same order as in the legacy document: clients may read either.
    resources.sort_by(|a, b| a.plural.cmp(&b.plural));
    let resources: Vec<Value> = resources.into_iter().map(aggregated_resource).collect();
    // Only the groups of aggregated servers can be stale: this one is a part of the program.
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        // Empty means the group and version of the list, as in the document that upstream converts.
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    put_names(resource, &mut entry);
    if let Value::Object(map) = &mut entry
        && !resource.subresources.is_empty()
    {
        let list = resource
            .subresources
            .iter()
            .map(|subresource| aggregated_subresource(resource, subresource));
        map.insert("subresources".to_owned(), list.collect());
    }
    entry
}

fn aggregated_subresource(resource: &Resource, subresource: &Subresource) -> Value {
    let (group, version) = if is_foreign(resource, subresource) {
        (&*subresource.group, &*subresource.version)
    } else {
        ("", "")
    };
    json!({
        "subresource": subresource.name,
        "responseKind": {"group": group, "version": version, "kind": subresource.kind},
        "verbs": subresource.verbs,
    })
}

/// Returns the entity tag of a document: upper-case hexadecimal digits in quotes.
pub fn entity_tag(bytes: &[u8]) -> String {
    format!("\"{}\"", hash(bytes))
}

/// Returns a document's hash in upper-case hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn discovery_documents_list_groups_and_resources() {
        let set = ResourceSet::new([]);
        assert_eq!(
            storage_version_hash("apps/v1", "ControllerRevision"),
            "85nkx63pcBU="
        );
        assert_eq!(
            api_group(&set, "autoscaling").unwrap()["preferredVersion"]["version"],
            "v2"
        );
        assert!(api_group(&set, "").is_none());
        let pods = api_resources(&set, "", "v1").unwrap();
        assert_eq!(pods["groupVersion"], "v1");
        let names: Vec<&str> = pods["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"pods/eviction") && names.contains(&"bindings"));
        assert!(api_resources(&set, "apps", "v9").is_none());
        let apps = aggregated(&set, false, "v2");
        assert_eq!(
            apps["items"].as_array().unwrap().first().unwrap()["metadata"]["name"],
            "apiregistration.k8s.io"
        );
        assert_eq!(
            aggregated(&set, true, "v2")["items"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
}
