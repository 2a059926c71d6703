//! JSON Merge Patch (RFC 7386).

use serde_json::{Map, Value};

/// Applies a merge patch to a tree: null removes a member, objects are merged, everything else is
/// replaced.
pub fn merge_patch(original: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut map = match original {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, change) in changes {
        // Nested nulls are removed as well, even if there was nothing to merge with (RFC 7386).
        let before = map.remove(key).unwrap_or(Value::Null);
        if !change.is_null() {
            map.insert(key.clone(), merge_patch(before, change));
        }
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_merges_objects() {
        let check = |original: Value, patch: Value, want: Value| {
            assert_eq!(merge_patch(original, &patch), want, "{patch}")
        };
        check(
            json!({"a": 1, "b": {"c": 2, "d": 3}}),
            json!({"b": {"c": null, "e": 4}}),
            json!({"a": 1, "b": {"d": 3, "e": 4}}),
        );
        check(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}));
        check(
            json!({"a": 1}),
            json!({"a": {"b": null, "c": 1}}),
            json!({"a": {"c": 1}}),
        );
    }
}
