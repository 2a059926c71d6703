//! Checks the fields of a configuration that are not implemented.

use base_cli::{Unsupported, Verdict};
use serde_json::Value;

/// Warnings about fields without effect, and rejections of the others.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) warnings: Vec<String>,
    pub(super) refusals: Vec<String>,
}

/// Removes the fields of `rows` from a configuration and checks their values. A zero value counts as absent, as in
/// Go: kubeadm writes every field.
pub(super) fn judge(config: &mut Value, rows: &[Unsupported]) -> Judged {
    let mut judged = Judged::default();
    for row in rows {
        let Some(value) = take(config, row.name).filter(|value| !is_zero(value)) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match row.judge(row.name, &text) {
            Verdict::Pass => {}
            Verdict::Warn(warning) => judged.warnings.push(warning),
            Verdict::Stop(refusal) => judged.refusals.push(refusal),
        }
    }
    drop_empty(config);
    judged
}

fn take(config: &mut Value, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => config.as_object_mut()?.remove(path),
        Some((first, rest)) => take(config.get_mut(first)?, rest),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.as_str(), "" | "0" | "0s"),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// Removes nulls and empty sections.
fn drop_empty(config: &mut Value) {
    let Some(fields) = config.as_object_mut() else { return };
    fields.values_mut().for_each(drop_empty);
    fields.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROWS: &[Unsupported] = &[
        Unsupported::no_effect("a.b", "nothing uses it"),
        Unsupported::no_effect("zero.duration", "nothing uses it"),
        Unsupported::refused("mode", &["x"], "it matters"),
    ];

    #[test]
    fn fields_are_judged_and_taken_out_unless_they_are_zero() {
        let mut config = json!({"a": {"b": 1, "kept": 2}, "zero": {"duration": "0s"}, "mode": "y", "none": null});
        let judged = judge(&mut config, ROWS);
        assert_eq!(judged.warnings, ["a.b has no effect: nothing uses it"]);
        assert_eq!(judged.refusals, ["mode is not supported: it matters; leave it out or set it to \"x\""]);
        assert_eq!(config, json!({"a": {"kept": 2}}));
    }
}
