//! Parameters of operations, described in this project's own words.

use api_kinds::Resource;
use serde_json::{Value, json};

const NAMESPACE: &str = "object name and auth scope, such as for teams and projects";

/// Name, type and description of the query parameters.
const QUERY: [(&str, &str, &str); 32] = [
    (
        "allowWatchBookmarks",
        "boolean",
        "Asks for BOOKMARK events in a watch; the server may or may not send them.",
    ),
    (
        "command",
        "string",
        "The command to run, an argument each. It is not run in a shell.",
    ),
    (
        "container",
        "string",
        "The container; the only one when it is not given.",
    ),
    (
        "continue",
        "string",
        "The token of a list's page, to be answered with the next one.",
    ),
    (
        "dryRun",
        "string",
        "Says that nothing is to be stored. The only value is All: all stages are run.",
    ),
    (
        "fieldManager",
        "string",
        "Name of whoever makes the change; the start of the user agent when not given.",
    ),
    (
        "fieldSelector",
        "string",
        "Restricts the list to objects with these field values.",
    ),
    (
        "fieldValidation",
        "string",
        "What happens to unknown and duplicate fields: Ignore, Warn (the default) or Strict.",
    ),
    (
        "follow",
        "boolean",
        "Keeps the log open and sends what is added.",
    ),
    (
        "force",
        "boolean",
        "Takes over fields that others own; for apply patches only.",
    ),
    (
        "gracePeriodSeconds",
        "integer",
        "Seconds until the object is deleted; 0 is at once.",
    ),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Deletes an object that cannot be read. Finalizers and preconditions are passed over.",
    ),
    (
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Does not check the certificate of the kubelet.",
    ),
    (
        "labelSelector",
        "string",
        "Restricts the list to objects with these labels.",
    ),
    (
        "limit",
        "integer",
        "The most items that a page of the list may have.",
    ),
    (
        "limitBytes",
        "integer",
        "The most bytes of the log that are sent.",
    ),
    (
        "orphanDependents",
        "boolean",
        "Old form of propagationPolicy: whether dependents stay.",
    ),
    ("path", "string", "Path of the request that is passed on."),
    ("ports", "integer", "Ports to forward."),
    ("pretty", "string", "Asks for JSON with line breaks."),
    (
        "previous",
        "boolean",
        "Sends the log of the container's previous run.",
    ),
    (
        "propagationPolicy",
        "string",
        "What happens to dependents: Orphan, Background or Foreground.",
    ),
    (
        "resourceVersion",
        "string",
        "The version to read at, or to watch from.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "How resourceVersion is applied to a list.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "Starts a watch with the present objects and a bookmark after them.",
    ),
    (
        "shardSelector",
        "string",
        "Restricts the list to a range of hashes.",
    ),
    (
        "sinceSeconds",
        "integer",
        "Sends the log's lines of the last seconds.",
    ),
    (
        "stream",
        "string",
        "Stream of the log: All, Stdout or Stderr.",
    ),
    (
        "tailLines",
        "integer",
        "Sends this many lines from the end of the log.",
    ),
    (
        "timeoutSeconds",
        "integer",
        "Seconds after which a list or watch ends.",
    ),
    (
        "timestamps",
        "boolean",
        "Puts the time in front of each line.",
    ),
    ("watch", "boolean", "Sends changes instead of a list."),
];

/// Parameters of lists and watches.
pub(crate) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
/// Parameters of creation and update.
pub(crate) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
/// Parameters of patches.
pub(crate) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
/// Parameters of deletion.
pub(crate) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
/// Parameters of the deletion of collections.
pub(crate) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];

/// Returns the parameters of a subresource that is a connection or a log.
pub(crate) fn connection_parameters(subresource: &str, resource: &str) -> &'static [&'static str] {
    match (subresource, resource) {
        ("log", _) => &[
            "container",
            "follow",
            "insecureSkipTLSVerifyBackend",
            "limitBytes",
            "pretty",
            "previous",
            "sinceSeconds",
            "stream",
            "tailLines",
            "timestamps",
        ],
        ("exec", _) => &["command", "container", "stderr", "stdin", "stdout", "tty"],
        ("attach", _) => &["container", "stderr", "stdin", "stdout", "tty"],
        ("portforward", _) => &["ports"],
        ("proxy", _) => &["path"],
        _ => &[],
    }
}

/// Returns query parameters by name.
pub(crate) fn query_parameters(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| query_parameter(name)).collect()
}

fn query_parameter(name: &str) -> Value {
    // The flags of streams (`stdin`, `tty`) are the only parameters without a row in the table.
    let (ty, text) = match QUERY.iter().find(|(known, ..)| known == &name) {
        Some((_, ty, text)) => (*ty, *text),
        None => ("boolean", "Whether this stream or terminal is used."),
    };
    // Upstream's builder writes `uniqueItems` at every parameter.
    json!({"name": name, "in": "query", "description": text, "schema": {"type": ty, "uniqueItems": true}})
}

/// Returns a path parameter.
pub(crate) fn path_parameter(name: &str, text: String) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": text, "schema": {"type": "string", "uniqueItems": true}})
}

pub(crate) fn name_parameter(kind: &str) -> Value {
    path_parameter("name", format!("name of the {kind}"))
}

pub(crate) fn scope_parameters(resource: &Resource) -> Vec<Value> {
    if resource.namespaced {
        vec![path_parameter("namespace", NAMESPACE.to_owned())]
    } else {
        Vec::new()
    }
}

/// Returns the parameters of lists and watches that belong to the path itself.
pub(crate) fn across_parameters() -> Vec<Value> {
    let mut parameters = query_parameters(LIST);
    parameters.extend(query_parameters(&["pretty"]));
    parameters
}

pub(crate) fn put_parameters(operation: &mut Value, parameters: Vec<Value>) {
    if let (Value::Object(map), false) = (operation, parameters.is_empty()) {
        map.insert("parameters".to_owned(), Value::Array(parameters));
    }
}
