//! A pod as the checks see it.

use super::level::Version;
use crate::context::{list, text};
use serde_json::Value;

/// The pod and the standards' version.
pub struct View<'a> {
    /// The pod's or template's metadata.
    pub metadata: &'a Value,
    /// Its spec.
    pub spec: &'a Value,
    /// Which standards.
    pub version: Version,
}

impl<'a> View<'a> {
    /// All containers: init, app, ephemeral.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["/initContainers", "/containers", "/ephemeralContainers"].into_iter().flat_map(move |l| list(spec, l))
    }

    /// The names of the containers for which `bad` holds.
    pub fn named(&self, bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|c| bad(c)).map(|c| text(c, "/name")).collect()
    }

    /// Whether the pod is for Windows, which has no such thing.
    pub fn windows(&self) -> bool {
        text(self.spec, "/os/name") == "windows"
    }
}

/// `"a", "b"`
pub fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("{:?}", n.as_ref())).collect();
    quoted.join(", ")
}

/// `container "a"` or `containers "a", "b"`.
pub fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// One word or the other.
pub fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// Values in their order, each once.
pub fn distinct(values: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = values.into_iter().collect();
    all.sort();
    all.dedup();
    all
}

/// Whether a boolean at a pointer is this value.
pub fn is(value: &Value, pointer: &str, wanted: bool) -> bool {
    value.pointer(pointer) == Some(&Value::Bool(wanted))
}
