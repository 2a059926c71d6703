//! Names of groups, versions and types in OpenAPI.

use std::sync::Arc;

use api_kinds::Resource;
use api_schema::Message;
use serde_json::{Value, json};

/// Converts `k8s.io.api.core.v1.Pod` to `io.k8s.api.core.v1.Pod`.
pub(crate) fn type_name(message: &Message) -> String {
    let name = message.name;
    match name.strip_prefix("k8s.io.") {
        Some(rest) => {
            // Proto packages are identifiers, so they have underscores where Go's paths have
            // hyphens.
            let rest = rest
                .replace("apiextensions_apiserver", "apiextensions-apiserver")
                .replace("kube_aggregator", "kube-aggregator");
            format!("io.k8s.{rest}")
        }
        None => name.to_owned(),
    }
}

/// Returns the type name of a resource's objects. A custom resource has none in the schema data;
/// its name is the reversed group, the version and the kind.
pub(crate) fn resource_type(resource: &Resource) -> String {
    match resource.schema.message() {
        Some(message) => type_name(message),
        None => custom_type(resource, &resource.kind),
    }
}

/// Returns the type name of a resource's lists. It has no row in the table of kinds.
pub(crate) fn list_type(resource: &Resource) -> String {
    match resource.schema.message() {
        Some(message) => type_name(message) + "List",
        None => custom_type(resource, &resource.list_kind),
    }
}

fn custom_type(resource: &Resource, kind: &str) -> String {
    let labels: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", labels.join("."), resource.version)
}

/// Returns `rbacAuthorization` for `rbac.authorization.k8s.io`, and `core` for the core group.
pub(crate) fn group_name(group: &str) -> String {
    // Upstream treats `/api` as `/apis/core` when it makes tags and identifiers.
    if group.is_empty() {
        return "core".to_owned();
    }
    to_identifier(group.strip_suffix(".k8s.io").unwrap_or(group))
}

/// Removes characters that identifiers can't have, and capitalises the letters behind them.
pub(crate) fn to_identifier(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_start = false;
    for (index, c) in text.char_indices() {
        let is_part = c.is_ascii_alphabetic() || c == '_' || (index != 0 && c.is_ascii_digit());
        match (is_part, is_start) {
            (false, _) => is_start = true,
            (true, true) => {
                out.push(c.to_ascii_uppercase());
                is_start = false;
            }
            (true, false) => out.push(c),
        }
    }
    out
}

/// Capitalises the first letter.
pub(crate) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + chars.as_str())
        .unwrap_or_default()
}

/// Returns the part of an operation ID for a subresource.
pub(crate) fn sub_name(name: &str) -> String {
    match name {
        "ephemeralcontainers" => "Ephemeralcontainers".to_owned(),
        name => capitalize(name),
    }
}

/// Returns the value of `x-kubernetes-group-version-kind`.
pub(crate) fn kind_of(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

/// Returns group and version in the form `CoreV1`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    capitalize(&group_name(group)) + &capitalize(&to_identifier(version))
}

/// Returns the path of a group and version without the leading slash: `api/v1`, `apis/apps/v1`.
pub(crate) fn root_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// Returns group and version of a proto package's types, from the kinds in it.
pub(crate) fn find_group_version_kind(message: &Message) -> Option<(&'static str, &'static str)> {
    let package = package_of_name(message.name);
    // Status, APIResourceList and the like belong to no resource. Upstream registers them as `v1`.
    if package == "k8s.io.apimachinery.pkg.apis.meta.v1" {
        return Some(("", "v1"));
    }
    let of = |resource: &'static Arc<Resource>| {
        let stored = resource.schema.message()?;
        (package == self::package_of_name(stored.name))
            .then_some((&*resource.group, &*resource.version))
    };
    api_kinds::resources().iter().find_map(of)
}

fn package_of_name(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(package, _)| package)
}
