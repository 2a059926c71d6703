//! OpenAPI version 3: an index, and a document for each group and version.
//!
//! A document only depends on the program. Its hash is computed from name and data, so the index
//! needs no document.

use api_schema::schema;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::descriptions::Descriptions;
use crate::names::root_path;
use crate::operations::Operations;
use crate::schemas::{PATCH, collect_schemas};

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.";
const SHARED: [&str; 4] = ["APIResourceList", "DeleteOptions", "Status", "WatchEvent"];

/// Returns `/openapi/v3`: paths of the documents with their hashes.
pub fn index() -> Value {
    let mut paths = Map::new();
    for (group, version) in list_versions() {
        let path = root_path(group, version);
        // The hash in the URL makes clients read a document again only if it has changed.
        let url = format!("/openapi/v3/{path}?hash={}", hash(&path));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// Returns the hash of a path's document (`apis/apps/v1`), for its URL and entity tag.
pub fn hash(path: &str) -> String {
    let mut hasher = Sha256::new();
    // Clients cache documents by this hash without an end, so everything that the document depends
    // on is a part of it.
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(include_str!("../../schema/data/v1.36.txt"));
    hasher.update(include_str!("../../kinds/data/v1.36.txt"));
    hasher.update(path);
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

pub(crate) fn list_versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    api_kinds::groups().iter().flat_map(|group| {
        group
            .versions
            .iter()
            .map(move |version| (&*group.name, &**version))
    })
}

/// Returns the document of a path such as `api/v1` or `apis/apps/v1`; `None` if nothing is served
/// there.
pub fn document(path: &str) -> Option<Value> {
    let (group, version) =
        list_versions().find(|(group, version)| root_path(group, version) == path)?;
    let operations = Operations::new(group, version);
    let components = build_components(&operations, &[(group, version)], &Descriptions::load());
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

pub(crate) fn build_components(
    operations: &Operations,
    groups: &[(&'static str, &'static str)],
    descriptions: &Descriptions,
) -> Map<String, Value> {
    // Every group answers with these types, but no resource has them as its own type.
    let shared = SHARED
        .iter()
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
