//! Deterministic names: template hashes and random suffixes in an alphabet that forms no words.

use std::hash::Hasher;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;

use crate::object::normalize_tree;

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Encodes text in the safe alphabet, one character each.
pub fn safe_encode(text: &str) -> String {
    text.bytes()
        .filter_map(|b| ALPHABET.get(usize::from(b) % ALPHABET.len()))
        .map(|b| char::from(*b))
        .collect()
}

/// Hashes a serializable value; absent, null and empty values hash equally.
pub fn hash_value<T: Serialize>(value: &T, collisions: Option<i32>) -> String {
    // A field that one client leaves out and another one writes as empty must not start a rollout.
    let tree = serde_json::to_value(value)
        .map(normalize_tree)
        .unwrap_or_default();
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(canonical_text(&tree).as_bytes());
    if let Some(count) = collisions {
        // After a collision of names the owner raises its status.collisionCount, which leads to
        // another name.
        hasher.write(&count.to_le_bytes());
    }
    // 32 bits as upstream, so that names of pods and sets have the usual length.
    let wide = hasher.finish();
    safe_encode(&((wide >> 32) as u32 ^ wide as u32).to_string())
}

/// Returns the `pod-template-hash` of a template.
pub fn hash_template(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    // A count of 0 hashes like an absent one: otherwise its first appearance would rename
    // everything.
    hash_value(template, collisions.filter(|c| *c > 0))
}

/// Returns canonical text of a JSON tree: keys sorted whatever the map's order.
fn canonical_text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(k, _)| *k);
            let inner: Vec<_> = keys
                .iter()
                .map(|(k, v)| format!("{k:?}:{}", canonical_text(v)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        serde_json::Value::Array(list) => {
            format!(
                "[{}]",
                list.iter()
                    .map(canonical_text)
                    .collect::<Vec<_>>()
                    .join(",")
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
        let a = hash_value(&json!({"x": {"b": 1, "a": []}, "y": null}), None);
        assert_eq!(a, hash_value(&json!({"x": {"b": 1}}), None));
        assert_ne!(a, hash_value(&json!({"x": {"b": 2}}), None));
        assert_ne!(a, hash_value(&json!({"x": {"b": 1}}), Some(1)));
        assert!(a.bytes().all(|b| ALPHABET.contains(&b)));
    }
}
