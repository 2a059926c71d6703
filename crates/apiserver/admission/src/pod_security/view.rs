//! A pod as input of the checks.

use super::level::Version;
use crate::context::{list_at, string_at};
use api_meta::tree;
use serde_json::Value;

/// The pod and the standards' version.
pub struct View<'a> {
    /// The pod's or template's metadata.
    pub metadata: &'a Value,
    /// Pod spec.
    pub spec: &'a Value,
    /// Version of the standards.
    pub version: Version,
}

impl<'a> View<'a> {
    /// Returns all containers: init, app, ephemeral.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["/initContainers", "/containers", "/ephemeralContainers"]
            .into_iter()
            .flat_map(move |l| list_at(spec, l))
    }

    /// Returns the names of the containers for which `bad` holds.
    pub fn container_names(&self, bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers()
            .filter(|c| bad(c))
            .map(|c| string_at(c, "/name"))
            .collect()
    }

    /// Returns whether the pod is for Windows, to which some checks do not apply.
    pub fn is_windows(&self) -> bool {
        string_at(self.spec, "/os/name") == "windows"
    }
}

/// Formats `"a", "b"`.
pub fn quote_names<S: AsRef<str>>(names: &[S]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("{:?}", n.as_ref())).collect();
    quoted.join(", ")
}

/// Formats `container "a"` or `containers "a", "b"`.
pub fn containers_text(names: &[&str]) -> String {
    format!(
        "{} {}",
        choose_plural("container", "containers", names.len()),
        quote_names(names)
    )
}

/// Returns the singular or the plural word.
pub fn choose_plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// Returns the distinct values in their order.
pub fn distinct_values(values: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = values.into_iter().collect();
    all.sort();
    all.dedup();
    all
}

/// Returns whether a boolean at a JSON pointer without escapes has this value.
pub fn is_bool(value: &Value, pointer: &str, wanted: bool) -> bool {
    tree::find(value, pointer) == Some(&Value::Bool(wanted))
}
