//! Deterministic names: template hashes and random suffixes in an alphabet that forms no words.

use std::hash::Hasher;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;

use crate::object::normalized;

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Encodes text in the safe alphabet, one character each.
pub fn safe_encode(text: &str) -> String {
    text.bytes()
        .filter_map(|b| ALPHABET.get(usize::from(b) % ALPHABET.len()))
        .map(|b| char::from(*b))
        .collect()
}

/// Hashes a serializable value; absent, null and empty values hash equally.
pub fn of<T: Serialize>(value: &T, collisions: Option<i32>) -> String {
    let tree = serde_json::to_value(value)
        .map(normalized)
        .unwrap_or_default();
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(sorted(&tree).as_bytes());
    if let Some(count) = collisions {
        hasher.write(&count.to_le_bytes());
    }
    let wide = hasher.finish();
    safe_encode(&((wide >> 32) as u32 ^ wide as u32).to_string())
}

/// Returns the `pod-template-hash` of a template.
pub fn template(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    of(template, collisions.filter(|c| *c > 0))
}

/// Returns canonical text of a JSON tree: keys sorted whatever the map's order.
fn sorted(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(k, _)| *k);
            let inner: Vec<_> = keys
                .iter()
                .map(|(k, v)| format!("{k:?}:{}", sorted(v)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        serde_json::Value::Array(list) => {
            format!(
                "[{}]",
                list.iter().map(sorted).collect::<Vec<_>>().join(",")
            )
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_meaning_gives_equal_hash() {
        let a = of(&json!({"x": {"b": 1, "a": []}, "y": null}), None);
        assert_eq!(a, of(&json!({"x": {"b": 1}}), None));
        assert_ne!(a, of(&json!({"x": {"b": 2}}), None));
        assert_ne!(a, of(&json!({"x": {"b": 1}}), Some(1)));
        assert!(a.bytes().all(|b| ALPHABET.contains(&b)));
    }
}
