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
            // Nearly all have it already, and each write reads those of all owners.
            if is_canonical(json) {
                return Some(json.to_owned());
            }
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
        let (mark, text) = match self {
            Step::Field(name) => ("f:", name),
            Step::Key(keys) => ("k:", keys),
            Step::Value(value) => ("v:", value),
        };
        // Without the machinery of formatting: each write does this for each field.
        let mut all = String::with_capacity(mark.len() + text.len());
        all.push_str(mark);
        all.push_str(text);
        all
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

/// Returns whether a text is an object of scalars, or a scalar, in the form in which `Value` writes
/// it: compact, with sorted keys. `false` also for forms that are rare: escapes, fractions,
/// negative numbers, and nested values.
fn is_canonical(json: &str) -> bool {
    let Some(mut rest) = json.strip_prefix('{') else {
        return skip_scalar(json) == Some("");
    };
    let mut last_key = None;
    loop {
        let Some((key, value)) = split_plain_string(rest) else {
            return false;
        };
        let Some(after) = value.strip_prefix(':').and_then(skip_scalar) else {
            return false;
        };
        if last_key.is_some_and(|last| last >= key) {
            return false;
        }
        if after == "}" {
            return true;
        }
        let Some(next) = after.strip_prefix(',') else {
            return false;
        };
        (rest, last_key) = (next, Some(key));
    }
}

/// Returns the text after a string without escapes, an integer or a word.
fn skip_scalar(json: &str) -> Option<&str> {
    if let Some((_, rest)) = split_plain_string(json) {
        return Some(rest);
    }
    let words = ["true", "false", "null"];
    if let Some(rest) = words.iter().find_map(|word| json.strip_prefix(word)) {
        return Some(rest);
    }
    let digits = json.bytes().take_while(u8::is_ascii_digit).count();
    // Every number of 18 digits fits into an integer.
    let is_plain = (1..=18).contains(&digits) && (digits == 1 || !json.starts_with('0'));
    let rest = json.get(digits..)?;
    (is_plain && !rest.starts_with(['.', 'e', 'E'])).then_some(rest)
}

/// Splits a string without escapes from the text after it.
fn split_plain_string(json: &str) -> Option<(&str, &str)> {
    let inner = json.strip_prefix('"')?;
    let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..b' ');
    let end = inner.bytes().position(is_special)?;
    let (text, rest) = inner.split_at_checked(end)?;
    Some((text, rest.strip_prefix('"')?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn step_has_the_canonical_form_of_its_json() {
        for json in [
            r#"{"name":"c"}"#,
            r#"{"containerPort":80,"protocol":"TCP"}"#,
            r#"{"protocol":"TCP","containerPort":80}"#,
            r#"{"a":1,"a":2}"#,
            r#"{ "a": 1 }"#,
            r#"{"a":1 }"#,
            r#"{"a":"\u0041"}"#,
            r#"{"a":"x\ny"}"#,
            r#"{"\u0061":1}"#,
            r#"{"a":"ü"}"#,
            r#"{"a":true,"b":false,"c":null}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"a":[1]}"#,
            r#"{"a":-1}"#,
            r#"{"a":-0}"#,
            r#"{"a":0}"#,
            r#"{"a":1.50}"#,
            r#"{"a":1e2}"#,
            r#"{"a":123456789012345678}"#,
            r#"{"a":12345678901234567890123}"#,
            "{}",
            "[1, 2]",
            r#""text""#,
            r#""te\"xt""#,
            "80",
            "1.0",
            "true",
            "null",
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            let expect = Some(Step::Key(value.to_string()));
            assert_eq!(Step::parse(&format!("k:{json}")), expect, "{json}");
        }
    }

    #[test]
    fn step_with_malformed_json_is_none() {
        for json in [
            "",
            "{",
            r#"{"a"}"#,
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            r#"{"a":1}x"#,
            r#"{"a":1}}"#,
            r#"{"a":}"#,
            r#"{"a":01}"#,
            r#"{"a":1x}"#,
            r#"{"a":truex}"#,
            "{\"a\":\"x\ny\"}",
            r#"{a:1}"#,
            r#""text"#,
            "01",
            "80x",
            "x",
        ] {
            assert_eq!(Step::parse(&format!("v:{json}")), None, "{json}");
        }
    }
}
