//! Accessors of an object for printers: paths, ages, labels and selectors.

use api_kinds::Resource;
use api_meta::time;
use jiff::Timestamp;
use serde_json::Value;

/// An object and the current time.
pub(crate) struct View<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) object: &'a Value,
    pub(crate) now: Timestamp,
}

impl<'a> View<'a> {
    pub(crate) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.object.pointer(pointer)
    }

    /// Returns the text at a pointer, empty if absent.
    pub(crate) fn text(&self, pointer: &str) -> &'a str {
        text_of(self.at(pointer))
    }

    /// Returns the text at a pointer, or `absent` if it is absent or empty.
    pub(crate) fn text_or(&self, pointer: &str, absent: &'static str) -> &'a str {
        Some(self.text(pointer))
            .filter(|text| !text.is_empty())
            .unwrap_or(absent)
    }

    pub(crate) fn int(&self, pointer: &str) -> i64 {
        self.at(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    pub(crate) fn bool(&self, pointer: &str) -> bool {
        self.at(pointer)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    pub(crate) fn list(&self, pointer: &str) -> &'a [Value] {
        list_of(self.at(pointer))
    }

    /// Returns the number of members of a list or map.
    pub(crate) fn count(&self, pointer: &str) -> usize {
        match self.at(pointer) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    pub(crate) fn has(&self, pointer: &str) -> bool {
        self.at(pointer).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn name(&self) -> Value {
        Value::from(self.text("/metadata/name"))
    }

    pub(crate) fn age(&self) -> Value {
        Value::from(self.since("/metadata/creationTimestamp"))
    }

    /// Returns the time since the timestamp at a pointer.
    pub(crate) fn since(&self, pointer: &str) -> String {
        self.ago(self.text(pointer))
    }

    /// Returns the time since a timestamp.
    pub(crate) fn ago(&self, moment: &str) -> String {
        match time::parse(moment) {
            Some(at) => time::human_duration(seconds_between(at, self.now)),
            // An object that was never stored has no creation time.
            None => "<unknown>".to_owned(),
        }
    }

    pub(crate) fn labels(&self, pointer: &str) -> String {
        format_labels(self.at(pointer))
    }

    pub(crate) fn selector(&self, pointer: &str) -> String {
        format_selector(self.at(pointer))
    }

    /// Returns names and images of the containers of a template's pod spec.
    pub(crate) fn containers(&self, pointer: &str) -> [Value; 2] {
        let join = |name: &str| Value::from(join_members(self.list(pointer), name, ","));
        [join("name"), join("image")]
    }

    /// Returns the status of a condition in `status.conditions`.
    pub(crate) fn condition(&self, kind: &str) -> Option<&'a Value> {
        self.list("/status/conditions")
            .iter()
            .find(|condition| text_of(condition.get("type")) == kind)
    }

    pub(crate) fn condition_is_true(&self, kind: &str) -> bool {
        self.condition(kind)
            .is_some_and(|condition| text_of(condition.get("status")) == "True")
    }
}

pub(crate) fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list_of(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Joins a member of each element.
pub(crate) fn join_members(list: &[Value], member: &str, separator: &str) -> String {
    list.iter()
        .map(|item| text_of(item.get(member)))
        .collect::<Vec<_>>()
        .join(separator)
}

/// Joins the texts of a list.
pub(crate) fn join_texts(list: &[Value], separator: &str) -> String {
    list.iter()
        .map(|item| text_of(Some(item)))
        .collect::<Vec<_>>()
        .join(separator)
}

/// Formats any scalar: some fields hold numbers or percentages.
pub(crate) fn plain_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the whole seconds from one time to another.
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second() - from.as_second()
}

/// Formats `a=b,c=d`, or `<none>`.
pub(crate) fn format_labels(map: Option<&Value>) -> String {
    let map = map.and_then(Value::as_object);
    let pairs: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text_of(Some(value))))
        .collect();
    if pairs.is_empty() {
        "<none>".to_owned()
    } else {
        pairs.join(",")
    }
}

/// Formats a label selector, terms sorted by key, or `<none>`.
pub(crate) fn format_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return "<none>".to_owned();
    };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut terms: Vec<(&str, String)> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), format!("{key}={}", text_of(Some(value)))))
        .collect();
    terms.extend(
        list_of(selector.get("matchExpressions"))
            .iter()
            .map(format_expression),
    );
    // kubectl's order: by key, not labels before expressions.
    terms.sort_by_key(|(key, _)| *key);
    if terms.is_empty() {
        return "<none>".to_owned();
    }
    terms
        .into_iter()
        .map(|(_, term)| term)
        .collect::<Vec<_>>()
        .join(",")
}

fn format_expression(expression: &Value) -> (&str, String) {
    let key = text_of(expression.get("key"));
    let mut values: Vec<&str> = list_of(expression.get("values"))
        .iter()
        .map(|value| text_of(Some(value)))
        .collect();
    // Values of a requirement are a set, printed in one order.
    values.sort_unstable();
    let term = match text_of(expression.get("operator")) {
        "In" => format!("{key} in ({})", values.join(",")),
        "NotIn" => format!("{key} notin ({})", values.join(",")),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    };
    (key, term)
}

/// Formats the first elements of a list: `a,b,c + 2 more...`.
pub(crate) fn first_few(list: &[String], most: usize) -> String {
    let shown = list
        .iter()
        .take(most)
        .cloned()
        .collect::<Vec<_>>()
        .join(",");
    if list.len() > most {
        format!("{shown} + {} more...", list.len() - most)
    } else {
        shown
    }
}
