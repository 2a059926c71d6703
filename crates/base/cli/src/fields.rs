//! Judges the fields of a configuration file that are not implemented.

use crate::upstream::{Unsupported, Verdict};
use serde_json::Value;

/// The consequences of unsupported fields that a configuration sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JudgedFields {
    /// Fields that are accepted without effect, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that stop the start.
    pub refusals: Vec<String>,
}

/// The meaning of `false` in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FalseMeans {
    /// The field is a plain boolean of Go's, and tools that write every field write `false` for one
    /// that was not set.
    Unset,
    /// The field is a pointer: `false` was written on purpose.
    Set,
}

/// Takes the fields of `rows` out of a configuration and judges their values. In a row's path `[]`
/// stands for every entry of a list. Empty and zero values count as unset, as for Go; sections of
/// these fields of which nothing is left are removed.
pub fn judge_fields(
    config: &mut Value,
    rows: &[Unsupported],
    false_means: FalseMeans,
) -> JudgedFields {
    let mut judged = JudgedFields::default();
    // In the order of the table, so that messages do not depend on the order of the file.
    for row in rows {
        let path: Vec<&str> = row.name.split('.').collect();
        let mut values = Vec::new();
        take_values(config, &path, &mut values);
        for value in values
            .into_iter()
            .filter(|value| !is_unset(value, false_means))
        {
            match row.evaluate_value(row.name, &show_value(value)) {
                Verdict::Pass => {}
                Verdict::Warn(warning) => judged.warnings.push(warning),
                Verdict::Stop(refusal) => judged.refusals.push(refusal),
            }
        }
    }
    // A field in every entry of a list gives one warning, not one for each entry.
    judged.warnings.dedup();
    judged
}

fn take_values(value: &mut Value, path: &[&str], found: &mut Vec<Value>) {
    let [step, rest @ ..] = path else { return };
    let Some(object) = value.as_object_mut() else {
        return;
    };
    let name = step.strip_suffix("[]").unwrap_or(step);
    if rest.is_empty() {
        // Taken out of the tree, because the typed parse that follows rejects unknown fields.
        found.extend(object.remove(name));
        return;
    }
    match object.get_mut(name) {
        Some(Value::Array(entries)) => entries
            .iter_mut()
            .for_each(|entry| take_values(entry, rest, found)),
        Some(inner) => take_values(inner, rest, found),
        None => {}
    }
    // A section of which nothing is left would be an unknown field itself.
    if object.get(name).is_some_and(is_empty_section) {
        object.remove(name);
    }
}

fn is_empty_section(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn is_unset(value: &Value, false_means: FalseMeans) -> bool {
    match value {
        Value::Null => true,
        // Tools such as kubeadm write every field of a plain boolean, so that false says nothing
        // about intent.
        Value::Bool(yes) => !yes && false_means == FalseMeans::Unset,
        Value::Number(number) => number.as_f64() == Some(0.0),
        // Durations of Go are written as "0s" when they were not set.
        Value::String(text) => matches!(text.as_str(), "" | "0" | "0s"),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.values().all(|value| is_unset(value, false_means)),
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

    const ROWS: &[Unsupported] = &[
        Unsupported::no_effect("a.b", "nothing uses it"),
        Unsupported::no_effect("zero.duration", "nothing uses it"),
        Unsupported::no_effect("zero.switch", "nothing uses it"),
        Unsupported::refused("list[].c", &["7"], "it matters"),
        Unsupported::refused("mode", &["x"], "it matters"),
    ];

    #[test]
    fn fields_are_judged_by_path_and_taken_out() {
        let mut config =
            json!({"a": {"b": 1, "kept": 2}, "list": [{"c": 7}, {"c": 8, "d": 9}], "mode": "y"});
        let judged = judge_fields(&mut config, ROWS, FalseMeans::Unset);
        assert_eq!(judged.warnings, ["a.b has no effect: nothing uses it"]);
        let refusals = [
            "list[].c is not supported: it matters; leave it out or set it to \"7\"",
            "mode is not supported: it matters; leave it out or set it to \"x\"",
        ];
        assert_eq!(judged.refusals, refusals);
        assert_eq!(config, json!({"a": {"kept": 2}, "list": [{}, {"d": 9}]}));
    }

    #[test]
    fn zero_values_count_as_unset_and_false_where_it_does() {
        let written = json!({"zero": {"duration": "0s", "switch": false}, "mode": "", "a": null, "unknown": {}});
        for (false_means, warnings) in [(FalseMeans::Unset, 0), (FalseMeans::Set, 1)] {
            let mut config = written.clone();
            let judged = judge_fields(&mut config, ROWS, false_means);
            assert_eq!(
                (judged.warnings.len(), judged.refusals.len()),
                (warnings, 0),
                "{false_means:?}"
            );
            assert_eq!(
                config,
                json!({"unknown": {}}),
                "names that no row has are left to the reader"
            );
        }
    }
}
