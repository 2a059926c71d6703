//! JSON values, and how deep they nest.

use crate::choices::Choices;
use serde_json::{Map, Value, json};

/// Levels of a JSON document at most, as the server's decoder enforces them.
pub(crate) const MAX_DEPTH: usize = 127;

/// Names of members; few, so that schemas, objects and patches meet.
pub(crate) const NAMES: [&str; 20] = [
    "a",
    "b",
    "c",
    "spec",
    "status",
    "metadata",
    "name",
    "key",
    "value",
    "items",
    "type",
    "kind",
    "apiVersion",
    "labels",
    "x-y",
    "with.dot",
    "with/slash",
    "~",
    "",
    "ü",
];

const TEXTS: [&str; 16] = [
    "",
    "a",
    "b",
    "aaaaaaaaaaaaaaaaaaaaaaaa!",
    "1",
    "-1",
    "10.0.0.1",
    "2024-01-01T00:00:00Z",
    "1h",
    "100Mi",
    "true",
    "null",
    "Ünïcödé \u{1f600}",
    "line\nbreak",
    "YWJj",
    "\u{0}",
];

/// Builds a value of at most `depth` levels.
pub(crate) fn build_value(choices: &mut Choices<'_>, depth: usize) -> Value {
    let leaf = depth == 0;
    match choices.below(if leaf { 6 } else { 10 }) {
        0 => Value::Null,
        1 => json!(choices.hits(2)),
        2 => build_number(choices),
        3..=5 => json!(choices.pick(&TEXTS)),
        6 => {
            let length = choices.below(4);
            (0..length)
                .map(|_| build_value(choices, depth - 1))
                .collect()
        }
        9 if choices.hits(8) => build_tower(choices, depth),
        _ => Value::Object(build_members(choices, depth - 1)),
    }
}

/// Builds an object whose members have at most `depth` levels.
pub(crate) fn build_members(choices: &mut Choices<'_>, depth: usize) -> Map<String, Value> {
    let length = choices.below(5);
    (0..length)
        .map(|_| {
            let name = choices.pick(&NAMES).to_owned();
            (name, build_value(choices, depth))
        })
        .collect()
}

/// Builds a value that is as deep as possible.
fn build_tower(choices: &mut Choices<'_>, depth: usize) -> Value {
    let name = choices.pick(&NAMES);
    let lists = choices.hits(2);
    (0..depth).fold(Value::Null, |inner, _| {
        if lists {
            json!([inner])
        } else {
            json!({name: inner})
        }
    })
}

fn build_number(choices: &mut Choices<'_>) -> Value {
    let numbers = [
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(7),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1.0),
        json!(0.1),
        json!(-0.0),
        json!(1e308),
        json!(5e-324),
        json!(9_007_199_254_740_993_i64),
    ];
    let at = choices.below(numbers.len());
    numbers.get(at).cloned().unwrap_or_default()
}

/// Returns the levels of a value: 0 for a scalar.
pub(crate) fn measure_depth(value: &Value) -> usize {
    let below = |inner: &Value| measure_depth(inner) + 1;
    match value {
        Value::Array(elements) => elements.iter().map(below).max().unwrap_or(1),
        Value::Object(members) => members.values().map(below).max().unwrap_or(1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn depth_counts_lists_and_objects() {
        for (value, want) in [
            (json!(1), 0),
            (json!([]), 1),
            (json!({"a": [{}], "b": 1}), 3),
        ] {
            assert_eq!(measure_depth(&value), want, "{value}");
        }
    }

    #[test]
    fn built_values_keep_their_depth() {
        let depths = (0..500).map(|seed| {
            measure_depth(&build_value(
                &mut Choices::new(&random_bytes(seed)),
                MAX_DEPTH,
            ))
        });
        assert_eq!(depths.max(), Some(MAX_DEPTH));
    }
}
