//! Strategies of custom resources, which have no rules of their own but those of `status` and
//! `metadata.generation`.

use api_meta::tree::{get, int, make, remove, set};
use serde_json::Value;

/// Prepares a new object. `has_status`: the resource has the subresource `status`.
pub fn prepare_create(has_status: bool, object: &mut Value) {
    if has_status {
        remove(object, "status");
    }
    if let Some(meta) = make(object, "metadata") {
        set(meta, "generation", 1);
    }
}

/// Prepares a changed object. `subresource` is empty for the object itself.
pub fn prepare_update(has_status: bool, subresource: &str, new: &mut Value, old: &Value) {
    if subresource == "status" {
        return keep_all_but_status(new, old);
    }
    if has_status {
        copy_member(new, old, "status");
    }
    let before = int(get(old, "metadata"), "generation").unwrap_or(0);
    // Exact, as upstream for objects without types: an empty object is not an absent one.
    let changed = counted(has_status, new) != counted(has_status, old);
    if let Some(meta) = make(new, "metadata") {
        set(meta, "generation", before + i64::from(changed));
    }
}

/// Takes everything from the old object but the status and the owners of its fields.
fn keep_all_but_status(new: &mut Value, old: &Value) {
    let mut kept = old.clone();
    copy_member(&mut kept, new, "status");
    if let Some(meta) = make(&mut kept, "metadata") {
        let owners = get(get(new, "metadata"), "managedFields");
        if owners.is_null() {
            remove(meta, "managedFields");
        } else {
            set(meta, "managedFields", owners.clone());
        }
    }
    *new = kept;
}

fn copy_member(to: &mut Value, from: &Value, name: &str) {
    match from.get(name) {
        Some(value) => {
            set(to, name, value.clone());
        }
        None => {
            remove(to, name);
        }
    }
}

/// Returns the part whose changes count as a new generation.
fn counted(has_status: bool, object: &Value) -> Value {
    let mut object = object.clone();
    remove(&mut object, "metadata");
    if has_status {
        remove(&mut object, "status");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn new_object_has_generation_one_and_no_status() {
        let given = json!({"metadata": {"name": "a", "generation": 7}, "spec": 1, "status": 2});
        let mut object = given.clone();
        prepare_create(true, &mut object);
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "generation": 1}, "spec": 1})
        );
        let mut object = given;
        prepare_create(false, &mut object);
        assert_eq!(object["status"], 2, "a field like any other");
    }

    #[test]
    fn generation_counts_changes_outside_of_metadata_and_status() {
        let old = json!({"metadata": {"generation": 3}, "spec": 1, "status": 1, "other": 1});
        for (has_status, field, expect) in [
            (true, "spec", 4),
            (true, "other", 4),
            (true, "status", 3),
            (false, "status", 4),
        ] {
            let mut new = old.clone();
            new[field] = json!(9);
            new["metadata"]["labels"] = json!({"a": "b"});
            prepare_update(has_status, "", &mut new, &old);
            assert_eq!(new["metadata"]["generation"], expect, "{field}");
        }
    }

    #[test]
    fn empty_value_is_a_change_and_the_same_value_is_none() {
        for (old, new, expect) in [
            (json!({}), json!({"a": {}}), 4),
            (json!({"a": null}), json!({}), 4),
            (json!({"a": [{}]}), json!({"a": [{}]}), 3),
        ] {
            let object = |spec: &Value| json!({"metadata": {"generation": 3}, "spec": spec});
            let mut changed = object(&new);
            prepare_update(true, "", &mut changed, &object(&old));
            assert_eq!(changed["metadata"]["generation"], expect, "{old} {new}");
        }
    }

    #[test]
    fn object_can_not_change_the_status_and_the_status_nothing_else() {
        let old = json!({"metadata": {"generation": 3}, "spec": 1, "status": 1});
        let sent = json!({"metadata": {"labels": {"a": "b"}, "managedFields": [1]}, "spec": 2, "status": 2});
        let mut new = sent.clone();
        prepare_update(true, "", &mut new, &old);
        assert_eq!((&new["spec"], &new["status"]), (&json!(2), &json!(1)));
        let mut new = sent;
        prepare_update(true, "status", &mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 3, "managedFields": [1]}, "spec": 1, "status": 2})
        );
    }
}
