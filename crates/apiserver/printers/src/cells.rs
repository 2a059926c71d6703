//! Cells that many kinds share, and the readers that they are made of.

use api_meta::Meta;
use api_meta::meta::{at, str_at};
use api_meta::time::{human_duration, parse};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// `value` or, when empty, `other`.
pub(crate) fn or(value: &str, other: &str) -> Value {
    Value::from(if value.is_empty() { other } else { value })
}

/// Items of a list at a path.
pub(crate) fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A whole number at a path, 0 if absent.
pub(crate) fn number(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// A boolean at a path, false if absent.
pub(crate) fn truth(object: &Value, path: &[&str]) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or_default()
}

/// A string, number or boolean as text; `other` if absent.
pub(crate) fn shown(value: Option<&Value>, other: &str) -> String {
    match value {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Null) | None => other.to_owned(),
        Some(v) => v.to_string(),
    }
}

/// Texts joined by commas, or `other` if there are none.
pub(crate) fn joined<'a>(texts: impl Iterator<Item = &'a str>, other: &str) -> Value {
    let all: Vec<&str> = texts.collect();
    or(&all.join(","), other)
}

/// Strings of a list at a path joined by commas.
pub(crate) fn strings(object: &Value, path: &[&str], other: &str) -> Value {
    joined(items(object, path).iter().filter_map(Value::as_str), other)
}

/// One string field of each item, joined by commas.
pub(crate) fn each(object: &Value, path: &[&str], field: &[&str], other: &str) -> Value {
    joined(items(object, path).iter().map(|i| str_at(i, field)), other)
}

/// How long ago an RFC 3339 time was; `<unknown>` if it is none.
pub(crate) fn since(time: &str, now: Timestamp) -> Value {
    match parse(time) {
        Some(then) => Value::from(human_duration(now.as_second() - then.as_second())),
        None => Value::from("<unknown>"),
    }
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn label_text(labels: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> = labels.into_iter().flatten().map(|(k, v)| format!("{k}={}", shown(Some(v), ""))).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

/// A map of labels at a path.
pub(crate) fn map_labels(object: &Value, path: &[&str]) -> Value {
    Value::from(label_text(at(object, path).and_then(Value::as_object)))
}

/// A `metav1.LabelSelector` at a path; `<none>` when it is absent or selects everything.
pub(crate) fn selector_at(object: &Value, path: &[&str]) -> Value {
    let parsed = at(object, path).map(api_meta::Selector::from_label_selector);
    match parsed {
        Some(Ok(Some(mut selector))) => {
            selector.requirements.sort_by(|a, b| a.key.cmp(&b.key));
            or(&selector.to_string(), "<none>")
        }
        Some(Err(_)) => Value::from("<error>"),
        _ => Value::from("<none>"),
    }
}

pub(crate) fn name(o: &Value, _: Timestamp) -> Value {
    Value::from(o.name())
}

pub(crate) fn age(o: &Value, now: Timestamp) -> Value {
    since(o.meta_str("creationTimestamp"), now)
}

pub(crate) fn created_at(o: &Value, _: Timestamp) -> Value {
    Value::from(o.meta_str("creationTimestamp"))
}

pub(crate) fn selector(o: &Value, _: Timestamp) -> Value {
    selector_at(o, &["spec", "selector"])
}

pub(crate) fn containers(o: &Value, _: Timestamp) -> Value {
    each(o, &["spec", "template", "spec", "containers"], &["name"], "")
}

pub(crate) fn images(o: &Value, _: Timestamp) -> Value {
    each(o, &["spec", "template", "spec", "containers"], &["image"], "")
}

pub(crate) fn data_count(o: &Value, _: Timestamp) -> Value {
    let count = |key: &str| o.get(key).and_then(Value::as_object).map_or(0, Map::len);
    Value::from(count("data") + count("binaryData"))
}

pub(crate) fn webhooks(o: &Value, _: Timestamp) -> Value {
    Value::from(items(o, &["webhooks"]).len())
}
