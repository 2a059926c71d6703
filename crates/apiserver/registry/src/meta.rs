//! Metadata that only the server sets.

use api_meta::text::truncate_text;
use api_meta::{ApiError, Meta, time};
use rand::Rng;
use serde_json::Value;

/// Characters of generated names: no vowels, no look-alikes (as upstream).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const LONGEST: usize = 63;

/// Sets a name of `generateName` and five random characters.
pub(crate) fn generate_name(object: &mut Value) {
    let name = random_name(object.meta_str("generateName"));
    object.set_meta_str("name", &name);
}

/// Returns `prefix` and five random characters, at most 63 bytes.
fn random_name(prefix: &str) -> String {
    let prefix = truncate_text(prefix, LONGEST - SUFFIX);
    let mut rng = rand::rng();
    let suffix = (0..SUFFIX)
        .filter_map(|_| ALPHABET.get(rng.random_range(0..ALPHABET.len())))
        .map(|b| char::from(*b));
    prefix.chars().chain(suffix).collect()
}

/// Sets the system metadata of a new object except a generated name; drops the clients' values of
/// the server's own fields.
pub(crate) fn set_system_metadata(object: &mut Value, namespace: &str) -> Result<(), ApiError> {
    if !object.resource_version().is_empty() {
        let text = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(api_meta::Reason::Unknown(500), text));
    }
    object.set_meta_str("namespace", namespace);
    // Always new, also if the client sends one: the UID distinguishes an object from an earlier one
    // of the same name.
    object.set_meta_str("uid", &uuid::Uuid::new_v4().to_string());
    object.set_meta_str("creationTimestamp", &time::now());
    for field in [
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        object.metadata_mut().remove(field);
    }
    Ok(())
}

/// Copies metadata that clients may omit or may not change from the old object.
pub(crate) fn carry_over(new: &mut Value, old: &Value) {
    for field in [
        "uid",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    ] {
        if new.metadata().is_none_or(|m| !m.contains_key(field)) {
            copy_field(new, old, field);
        }
    }
    // Even if the client sends another value: a deletion can not be undone.
    copy_field(new, old, "deletionTimestamp");
    copy_field(new, old, "generation");
    new.metadata_mut().remove("selfLink");
    // A body without a namespace means that of the path.
    let namespace = old.namespace().to_owned();
    if new.namespace().is_empty() {
        new.set_meta_str("namespace", &namespace);
    }
}

fn copy_field(new: &mut Value, old: &Value, field: &str) {
    match old.metadata().and_then(|m| m.get(field)).cloned() {
        Some(value) => new.metadata_mut().insert(field.to_owned(), value),
        None => new.metadata_mut().remove(field),
    };
}

/// Parses `metadata.resourceVersion` as a revision; 0 if absent.
pub(crate) fn revision_of(object: &Value) -> Result<i64, ApiError> {
    match object.resource_version() {
        // Both mean an unconditional update.
        "" | "0" => Ok(0),
        text => text.parse().map_err(|_| {
            let text = format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            );
            ApiError::new(api_meta::Reason::Unknown(500), text)
        }),
    }
}

/// Sets `metadata.resourceVersion`.
pub(crate) fn set_revision(object: &mut Value, revision: i64) {
    object.set_meta_str("resourceVersion", &revision.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit() {
        let name = random_name(&"ä".repeat(60));
        assert!(name.len() <= LONGEST, "{name}");
        assert_eq!(random_name("a-").len(), 7);
    }
}
