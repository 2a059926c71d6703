//! OpenAPI version 3: an index, and a document for each group and version.
//!
//! A document depends on the program and on the definitions of custom resources. Its hash is
//! computed from their identity, so the index needs no document.

use std::sync::LazyLock;

use api_schema::schema;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::custom::CustomResources;
use crate::custom_schema::{Form, add_schemas};
use crate::descriptions::Descriptions;
use crate::names::root_path;
use crate::operations::Operations;
use crate::schemas::{PATCH, collect_schemas};

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.";
const SHARED: [&str; 4] = ["APIResourceList", "DeleteOptions", "Status", "WatchEvent"];
/// The types of every group that custom resources refer to.
const SHARED_BY_CUSTOM: [&str; 4] = ["DeleteOptions", "ListMeta", "ObjectMeta", "Status"];

/// Digest of what the documents of built-in resources depend on.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(include_str!("../../schema/data/v1.36.txt"));
    hasher.update(include_str!("../../kinds/data/v1.36.txt"));
    hasher.finalize().to_vec()
});

/// Returns the paths of `/openapi/v3`, with the hash of each document in its URL.
pub fn index_paths(custom: &CustomResources) -> Map<String, Value> {
    let mut paths = Map::new();
    for (group, version) in list_versions(custom) {
        let path = root_path(group, version);
        // The hash in the URL makes clients read a document again only if it has changed.
        let url = format!(
            "/openapi/v3/{path}?hash={}",
            version_hash(group, version, custom)
        );
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    paths
}

/// Returns the hash of a path's document (`apis/apps/v1`), for its URL and entity tag; `None` if
/// nothing is served there.
pub fn hash(path: &str, custom: &CustomResources) -> Option<String> {
    let (group, version) = find_version(path, custom)?;
    Some(version_hash(group, version, custom))
}

fn version_hash(group: &str, version: &str, custom: &CustomResources) -> String {
    let mut hasher = Sha256::new();
    // Clients cache documents by this hash without an end, so everything that the document depends
    // on is a part of it.
    hasher.update(&*PROGRAM);
    hasher.update(root_path(group, version));
    if custom.serves_cbor() {
        hasher.update("cbor");
    }
    // `--runtime-config` can disable single resources of a version.
    for resource in custom.built_in_of(group, version) {
        hasher.update(json!(resource.plural).to_string());
    }
    for version in custom.of_version(group, version) {
        let (resource, definition) = (&version.resource, &version.definition);
        // The revision stands for the schema: hashing all of them would make the index slow.
        let parts = json!([
            definition.revision(),
            resource.plural,
            resource.kind,
            resource.list_kind,
            resource.verbs.len(),
        ]);
        hasher.update(parts.to_string());
    }
    to_hexadecimal(&hasher.finalize())
}

pub(crate) fn to_hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Returns the built-in versions, and those that only custom resources have.
pub(crate) fn list_versions(
    custom: &CustomResources,
) -> impl Iterator<Item = (&str, &str)> + Clone {
    let others = custom
        .versions()
        .filter(|(group, version)| !is_built_in(custom, group, version));
    list_built_in(custom).chain(others)
}

/// Returns the served built-in versions.
pub(crate) fn list_built_in(
    custom: &CustomResources,
) -> impl Iterator<Item = (&str, &str)> + Clone {
    custom.built_in_groups().iter().flat_map(|group| {
        group
            .versions
            .iter()
            .map(move |version| (&*group.name, &**version))
    })
}

fn is_built_in(custom: &CustomResources, group: &str, version: &str) -> bool {
    let mut groups = custom.built_in_groups().iter();
    groups.any(|known| known.name == group && known.versions.iter().any(|name| name == version))
}

fn find_version<'a>(path: &str, custom: &'a CustomResources) -> Option<(&'a str, &'a str)> {
    list_versions(custom).find(|(group, version)| root_path(group, version) == path)
}

/// Returns the document of a path such as `api/v1` or `apis/apps/v1`; `None` if nothing is served
/// there.
pub fn document(path: &str, custom: &CustomResources) -> Option<Value> {
    let (group, version) = find_version(path, custom)?;
    let operations = Operations::new(group, version, custom);
    let descriptions = Descriptions::load();
    let mut components = build_components(&operations, &[(group, version)], &descriptions);
    for version in custom.of_version(group, version) {
        add_schemas(version, Form::Version3, &descriptions, &mut components);
    }
    if !is_built_in(custom, group, version) {
        return Some(json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
            "paths": operations.paths,
            "components": {"schemas": components},
        }));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": operations.paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "in": "header", "name": "authorization", "description": "Bearer Token authentication",
            }},
        },
    }))
}

/// Returns the schemas of built-in types.
pub(crate) fn build_components(
    operations: &Operations<'_>,
    groups: &[(&str, &str)],
    descriptions: &Descriptions,
) -> Map<String, Value> {
    // Every group answers with these types, but no resource has them as its own type.
    let built_in: &[&str] = if operations.has_built_in {
        &SHARED
    } else {
        &[]
    };
    let custom: &[&str] = if operations.has_custom {
        &SHARED_BY_CUSTOM
    } else {
        &[]
    };
    let shared = built_in
        .iter()
        .chain(custom)
        .filter_map(|name| schema().message(&format!("{META}{name}")));
    let mut schemas = collect_schemas(
        operations.messages.iter().copied().chain(shared),
        groups,
        descriptions,
    );
    schemas.insert(
        PATCH.to_owned(),
        json!({
            "type": "object",
            "description": descriptions.of_type(PATCH).unwrap_or_else(|| "A patch of an object.".to_owned()),
        }),
    );
    schemas
}
