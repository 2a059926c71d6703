//! Checks the fields of a configuration file that are not implemented.

use base_cli::{Unsupported, Verdict};
use serde_json::Value;

/// Warnings about fields without effect, and rejections of the others.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) warnings: Vec<String>,
    pub(crate) refusals: Vec<String>,
}

/// Removes the fields of `rows` from a configuration and checks their values.
pub(crate) fn judge_fields(config: &mut Value, rows: &[Unsupported]) -> Judged {
    let mut judged = Judged::default();
    for row in rows {
        let path: Vec<&str> = row.name.split('.').collect();
        let mut values = Vec::new();
        take_values(config, &path, &mut values);
        for value in values {
            match row.judge(row.name, &value) {
                Verdict::Pass => {}
                Verdict::Warn(warning) => judged.warnings.push(warning),
                Verdict::Stop(refusal) => judged.refusals.push(refusal),
            }
        }
    }
    judged.warnings.dedup();
    judged
}

fn take_values(value: &mut Value, path: &[&str], found: &mut Vec<String>) {
    let [step, rest @ ..] = path else { return };
    let Some(object) = value.as_object_mut() else { return };
    let name = step.strip_suffix("[]").unwrap_or(step);
    if rest.is_empty() {
        found.extend(object.remove(name).filter(|value| !value.is_null()).map(show_value));
        return;
    }
    match object.get_mut(name) {
        Some(Value::Array(entries)) => entries.iter_mut().for_each(|entry| take_values(entry, rest, found)),
        Some(inner) => take_values(inner, rest, found),
        None => {}
    }
}

fn show_value(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROWS: &[Unsupported] =
        &[Unsupported::no_effect("a.b", "nothing uses it"), Unsupported::refused("list[].c", &["7"], "it matters")];

    #[test]
    fn fields_are_judged_by_path_and_taken_out() {
        let mut config = json!({"a": {"b": 1, "kept": 2}, "list": [{"c": 7}, {"c": 8, "d": 9}]});
        let judged = judge_fields(&mut config, ROWS);
        assert_eq!(judged.warnings, ["a.b has no effect: nothing uses it"]);
        assert_eq!(judged.refusals.len(), 1, "{judged:?}");
        assert_eq!(config, json!({"a": {"kept": 2}, "list": [{}, {"d": 9}]}));
    }
}
