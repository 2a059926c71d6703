//! One step of a field path.

use api_meta::names::shorten_name;
use serde_json::Value;

/// A step, in upstream's sort order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// `f:name`: a member.
    Field(String),
    /// `k:{"name":"x"}`: a list element by its keys, as compact JSON with sorted keys.
    Key(String),
    /// `v:"x"`: a set element by its value, as JSON.
    Value(String),
}

impl Step {
    /// Parses `f:...`, `k:...` or `v:...`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Keys are compared as text, so their JSON must have one form.
        let canonical = |json: &str| {
            serde_json::from_str::<Value>(json)
                .ok()
                .map(|v| v.to_string())
        };
        match text.split_once(':')? {
            ("f", name) => Some(Step::Field(name.to_owned())),
            ("k", keys) => canonical(keys).map(Step::Key),
            ("v", value) => canonical(value).map(Step::Value),
            // Index steps are not supported: lists without keys are atomic and owned as a whole.
            _ => None,
        }
    }

    /// Returns whether upstream's decoder rejects a serialized step. It ignores steps of an unknown
    /// type.
    pub(crate) fn is_malformed(text: &str) -> bool {
        let bytes = text.as_bytes();
        let (Some(kind), Some(b':')) = (bytes.first(), bytes.get(1)) else {
            return true;
        };
        let rest = text.get(2..).unwrap_or_default();
        match kind {
            b'k' => !matches!(
                serde_json::from_str::<Value>(rest),
                Ok(Value::Object(_) | Value::Null)
            ),
            b'v' => serde_json::from_str::<Value>(rest).is_err(),
            b'i' => rest.parse::<i64>().is_err(),
            _ => false,
        }
    }

    /// Returns the serialized form.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Key(keys) => format!("k:{keys}"),
            Step::Value(value) => format!("v:{value}"),
        }
    }

    /// Returns the form of paths in messages: `.name`, `[name="x"]`, `[="x"]`. Long names are cut:
    /// a name may be as long as a request, and the paths of all fields below repeat it.
    pub(crate) fn to_message_text(&self) -> String {
        match self {
            Step::Field(name) => format!(".{}", shorten_name(name)),
            Step::Key(keys) => {
                let keys: Value = serde_json::from_str(keys).unwrap_or_default();
                let pairs = keys
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(k, v)| format!("{k}={v}"));
                format!("[{}]", shorten_name(&pairs.collect::<Vec<_>>().join(",")))
            }
            Step::Value(value) => format!("[={}]", shorten_name(value)),
        }
    }
}
