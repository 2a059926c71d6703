//! Equality of trees like upstream's `apiequality.Semantic.DeepEqual`.

use serde_json::Value;

/// Compares two trees deeply: null, empty maps, empty lists and absent fields are equal.
pub fn equal(a: &Value, b: &Value) -> bool {
    // Most trees are equal without these rules, and comparing them so needs no lookups.
    a == b || are_equal_parts(a, b)
}

fn are_equal_parts(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(_), Value::Object(_)) => equal_except(a, b, &[]),
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| are_equal_parts(a, b))
        }
        // An empty string is not absent: for a pointer to a string Go distinguishes them.
        _ => a == b || (is_empty(a) && is_empty(b)),
    }
}

/// Compares two objects like [`equal`], without the named fields.
pub fn equal_except(a: &Value, b: &Value, except: &[&str]) -> bool {
    // The members of both: a field that only one object has counts as null in the other.
    let fields = [a, b]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|map| map.keys());
    fields
        .filter(|field| !except.contains(&field.as_str()))
        .all(|field| {
            are_equal_parts(
                a.get(field).unwrap_or(&Value::Null),
                b.get(field).unwrap_or(&Value::Null),
            )
        })
}

fn is_empty(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_and_empty_are_the_same() {
        for (a, b, expect) in [
            (
                json!({"a": 1}),
                json!({"a": 1, "b": null, "c": {}, "d": [], "e": {"f": null}}),
                true,
            ),
            (json!({"a": [{}]}), json!({}), false),
            (json!({"a": ""}), json!({}), false),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), false),
            (json!([1, 2]), json!([2, 1]), false),
        ] {
            assert_eq!(equal(&a, &b), expect, "{a} {b}");
            assert_eq!(equal(&b, &a), expect, "{b} {a}");
        }
        assert!(equal_except(
            &json!({"a": 1, "b": 2}),
            &json!({"a": 1}),
            &["b"]
        ));
        assert!(!equal_except(&json!({"a": 1}), &json!({}), &["b"]));
    }
}
