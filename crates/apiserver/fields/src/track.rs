//! Ownership after an update: the writer owns the fields that it changed.

use crate::changes::{Changes, compare_versions, update_entries};
use crate::managers::{self, Entry, Identity};
use crate::set::FieldSet;
use crate::versions::ConversionRequest;
use crate::writer::Writer;
use serde_json::Value;

/// Records in `new` the fields that the writer changed; `old` is `None` for a create. Without a
/// change nothing is updated, and without owners nothing is recorded.
///
/// # Errors
/// A conversion is needed, and `new` is as before.
pub fn track_update(
    writer: &Writer<'_>,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<(), ConversionRequest> {
    let mut entries = find_owners(writer, old, new);
    // As upstream: an object without owners stays so until an apply, and a created one has an
    // owner.
    if entries.is_empty() && old.is_some() {
        managers::write_entries(new, entries);
        return Ok(());
    }
    update_entries(writer, &mut entries);
    // Apply and update of one manager are different owners.
    let identity = writer.identity(managers::UPDATE);
    let mut changes = compare_versions(writer, &entries, &identity, old, new)?;
    take_from_others(&mut entries, &identity, &changes);
    if let Some(own) = changes.take(writer.api_version) {
        give_ownership(&mut entries, identity, writer.now, |fields| {
            own.changed.union(&fields.difference(&own.removed))
        });
    }
    managers::cap_updates(&mut entries);
    managers::write_entries(new, entries);
    Ok(())
}

/// Returns the owners before a write.
fn find_owners(writer: &Writer<'_>, old: Option<&Value>, new: &Value) -> Vec<Entry> {
    let stored = || old.map(managers::read_entries).unwrap_or_default();
    // A permission to write a subresource is none to change who owns the fields of the object.
    if old.is_some() && !writer.subresource.is_empty() {
        return stored();
    }
    if managers::requests_reset(new) {
        return Vec::new();
    }
    // Patches and most updates send the stored owners, which need no check.
    if old.is_some_and(|old| managers::have_same_entries(old, new)) {
        return managers::read_owners(new);
    }
    match managers::decode_entries(new) {
        Ok(sent) if !sent.is_empty() => sent,
        // A client that drops managedFields, or breaks them, keeps the stored owners.
        _ => stored(),
    }
}

/// Removes changed and removed fields from the other managers' entries.
pub(crate) fn take_from_others(entries: &mut [Entry], identity: &Identity, changes: &Changes) {
    for entry in entries
        .iter_mut()
        .filter(|entry| !entry.identity.is_same_owner(identity))
    {
        if let Some(all) = changes.find(&entry.identity.api_version) {
            // Removed fields have no owner any more. The cost depends on the entry's fields only,
            // not on those of the object: a client may send many thousands of entries.
            entry.fields.subtract(&all.changed);
            entry.fields.subtract(&all.removed);
        }
    }
}

/// Changes one manager's set; its time is updated only if the set changes.
pub(crate) fn give_ownership(
    entries: &mut Vec<Entry>,
    identity: Identity,
    now: &str,
    change: impl FnOnce(&FieldSet) -> FieldSet,
) {
    let before = entries
        .iter()
        .position(|entry| entry.identity.is_same_owner(&identity));
    let entry = match before {
        Some(at) => {
            // An applier that changes to another version keeps its entry.
            entries[at].identity = identity;
            &mut entries[at]
        }
        None => {
            entries.push(Entry {
                identity,
                time: now.to_owned(),
                fields: FieldSet::default(),
            });
            let last = entries.len() - 1;
            &mut entries[last]
        }
    };
    let fields = change(&entry.fields);
    // Repeated writes without a change must not produce a new resourceVersion.
    if fields != entry.fields {
        now.clone_into(&mut entry.time);
    }
    entry.fields = fields;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::versions::Versions;
    use api_kinds::ObjectSchema;
    use serde_json::json;

    fn config_map_schema() -> &'static ObjectSchema {
        &api_kinds::find("", "v1", "configmaps").unwrap().schema
    }

    fn writer(manager: &'static str, now: &'static str) -> Writer<'static> {
        Writer {
            manager,
            api_version: "v1",
            subresource: "",
            schema: config_map_schema(),
            versions: Versions::NONE,
            ignored: &[],
            now,
        }
    }

    #[test]
    fn change_moves_ownership_to_the_writer() {
        let mut one = json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}});
        track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut one).unwrap();
        let entries = one["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(
            entries[0]["fieldsV1"],
            json!({"f:data": {".": {}, "f:x": {}, "f:y": {}}})
        );
        let mut two = one.clone();
        two["data"]["y"] = "2".into();
        track_update(
            &writer("second", "2026-01-01T00:00:01Z"),
            Some(&one),
            &mut two,
        )
        .unwrap();
        let entries = two["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(
            entries[0]["fieldsV1"],
            json!({"f:data": {".": {}, "f:x": {}}})
        );
        assert_eq!(
            (&entries[1]["manager"], &entries[1]["fieldsV1"]),
            (&json!("second"), &json!({"f:data": {"f:y": {}}}))
        );
        let mut same = two.clone();
        track_update(
            &writer("third", "2026-01-01T00:00:02Z"),
            Some(&two),
            &mut same,
        )
        .unwrap();
        assert_eq!(same, two);
    }

    #[test]
    fn custom_object_is_tracked_member_by_member() {
        let schema = ObjectSchema::Custom(Default::default());
        let writer = Writer {
            schema: &schema,
            ..writer("first", "2026-01-01T00:00:00Z")
        };
        let mut one = json!({"metadata": {"name": "a", "labels": {"l": "1"}},
            "spec": {"list": [1, {"b": 2}], "nested": {"c": 1}}});
        track_update(&writer, None, &mut one).unwrap();
        assert_eq!(
            one["metadata"]["managedFields"][0]["fieldsV1"],
            json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}},
                "f:spec": {".": {}, "f:list": {}, "f:nested": {".": {}, "f:c": {}}}})
        );
        let mut two = one.clone();
        two["spec"]["nested"]["c"] = 2.into();
        let second = Writer {
            manager: "second",
            ..writer
        };
        track_update(&second, Some(&one), &mut two).unwrap();
        let entries = &two["metadata"]["managedFields"];
        assert_eq!(
            entries[1]["fieldsV1"],
            json!({"f:spec": {"f:nested": {"f:c": {}}}})
        );
    }

    #[test]
    fn repeated_entries_of_a_stored_owner_become_the_last_one() {
        let entry = |field: &str| {
            json!({"manager": "m", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}})
        };
        let old = json!({"metadata": {"name": "a", "managedFields": [entry("f:x"), entry("f:y")]},
            "data": {"x": "1", "y": "1"}});
        let mut new = old.clone();
        new["data"]["x"] = "2".into();
        track_update(
            &writer("other", "2026-01-01T00:00:00Z"),
            Some(&old),
            &mut new,
        )
        .unwrap();
        let entries = new["metadata"]["managedFields"].as_array().unwrap();
        let owners: Vec<_> = entries
            .iter()
            .map(|entry| (&entry["manager"], &entry["fieldsV1"]["f:data"]))
            .collect();
        let (x, y) = (json!({"f:x": {}}), json!({"f:y": {}}));
        assert_eq!(owners, [(&json!("m"), &y), (&json!("other"), &x)]);
    }

    #[test]
    fn removed_field_leaves_the_set_of_its_owner() {
        let mut one = json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}});
        track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut one).unwrap();
        let mut two = one.clone();
        two["data"] = json!({"x": "1"});
        track_update(
            &writer("second", "2026-01-01T00:00:01Z"),
            Some(&one),
            &mut two,
        )
        .unwrap();
        let entries = two["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            entries[0]["fieldsV1"],
            json!({"f:data": {".": {}, "f:x": {}}})
        );
    }

    #[test]
    fn empty_list_or_single_empty_entry_resets_the_owners() {
        let mut one = json!({"data": {"x": "1"}});
        track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut one).unwrap();
        let later = "2026-01-01T00:00:01Z";
        let status = Writer {
            subresource: "status",
            ..writer("second", later)
        };
        for (sent, writer, resets) in [
            (json!([]), writer("second", later), true),
            (json!([{}]), writer("second", later), true),
            (Value::Null, writer("second", later), false),
            (json!([{}, {}]), writer("second", later), false),
            (json!([{"fieldsV1": {}}]), writer("second", later), false),
            (
                json!([{"operation": "Apply"}]),
                writer("second", later),
                false,
            ),
            (json!([]), status, false),
        ] {
            let mut two = one.clone();
            two["metadata"]["managedFields"] = sent.clone();
            track_update(&writer, Some(&one), &mut two).unwrap();
            let kept = &two["metadata"]["managedFields"];
            let expect = if resets {
                &Value::Null
            } else {
                &one["metadata"]["managedFields"]
            };
            assert_eq!(kept, expect, "{sent} {}", writer.subresource);
        }
    }

    #[test]
    fn object_without_owners_gets_none_by_an_update() {
        let old = json!({"data": {"x": "1"}});
        let mut new = json!({"data": {"x": "2"}});
        track_update(
            &writer("first", "2026-01-01T00:00:00Z"),
            Some(&old),
            &mut new,
        )
        .unwrap();
        assert_eq!(new, json!({"data": {"x": "2"}, "metadata": {}}));
    }

    #[test]
    fn broken_entry_keeps_all_stored_owners() {
        let mut one = json!({"data": {"x": "1"}});
        track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut one).unwrap();
        let sent = |field: &str, value: Value| {
            let mut entry = one["metadata"]["managedFields"][0].clone();
            entry["manager"] = "sent".into();
            entry[field] = value;
            entry
        };
        for (entry, keeps) in [
            (sent("manager", "sent".into()), false),
            (sent("operation", "Apply".into()), false),
            (
                sent("fieldsV1", json!({"f:data": {"f:x": {}}, "x:new": 1})),
                false,
            ),
            (
                sent(
                    "fieldsV1",
                    json!({"f:data": {"k:{\"a\":1}": {}, "v:1": {}, "i:0": null}}),
                ),
                false,
            ),
            (sent("operation", "Delete".into()), true),
            (sent("apiVersion", "".into()), true),
            (sent("fieldsType", "".into()), true),
            (sent("fieldsType", "FieldsV2".into()), true),
            (sent("fieldsV1", json!([])), true),
            (sent("fieldsV1", json!({"f:data": 1})), true),
            (sent("fieldsV1", json!({"data": {}})), true),
            (sent("fieldsV1", json!({"f": {}})), true),
            (sent("fieldsV1", json!({"f:data": {"k:[1]": {}}})), true),
            (sent("fieldsV1", json!({"f:data": {"v:x": {}}})), true),
            (sent("fieldsV1", json!({"f:data": {"i:x": {}}})), true),
        ] {
            let mut two = one.clone();
            two["metadata"]["managedFields"] = json!([entry]);
            track_update(
                &writer("second", "2026-01-01T00:00:01Z"),
                Some(&one),
                &mut two,
            )
            .unwrap();
            let manager = &two["metadata"]["managedFields"][0]["manager"];
            assert_eq!(manager, if keeps { "first" } else { "sent" }, "{entry}");
        }
    }

    #[test]
    fn last_of_two_entries_of_an_owner_counts() {
        let entry = |version: &str, field: &str| {
            json!({"manager": "m", "operation": "Apply", "apiVersion": version,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}})
        };
        let mut old = json!({"data": {"x": "1"}});
        track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut old).unwrap();
        let mut new = old.clone();
        new["metadata"]["managedFields"] = json!([entry("v1beta1", "f:x"), entry("v1", "f:y")]);
        let expect = json!([entry("v1", "f:y")]);
        track_update(
            &writer("second", "2026-01-01T00:00:01Z"),
            Some(&old),
            &mut new,
        )
        .unwrap();
        assert_eq!(new["metadata"]["managedFields"], expect);
    }

    #[test]
    fn created_object_has_an_owner_in_spite_of_a_reset() {
        for sent in [json!([]), json!([{}])] {
            let mut object = json!({"metadata": {"managedFields": sent}, "data": {"x": "1"}});
            track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut object).unwrap();
            assert_eq!(object["metadata"]["managedFields"][0]["manager"], "first");
        }
    }

    #[test]
    fn client_that_drops_managed_fields_keeps_the_owners() {
        let mut one = json!({"data": {"x": "1"}});
        track_update(&writer("first", "2026-01-01T00:00:00Z"), None, &mut one).unwrap();
        let mut two = json!({"data": {"x": "1"}});
        track_update(
            &writer("second", "2026-01-01T00:00:01Z"),
            Some(&one),
            &mut two,
        )
        .unwrap();
        assert_eq!(
            two["metadata"]["managedFields"],
            one["metadata"]["managedFields"]
        );
    }

    #[test]
    fn eleventh_update_merges_the_oldest_entries() {
        const TIMES: [&str; 12] = [
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:01Z",
            "2026-01-01T00:00:02Z",
            "2026-01-01T00:00:03Z",
            "2026-01-01T00:00:04Z",
            "2026-01-01T00:00:05Z",
            "2026-01-01T00:00:06Z",
            "2026-01-01T00:00:07Z",
            "2026-01-01T00:00:08Z",
            "2026-01-01T00:00:09Z",
            "2026-01-01T00:00:10Z",
            "2026-01-01T00:00:11Z",
        ];
        let mut object = json!({"data": {"base": "1"}});
        for (i, now) in TIMES.iter().enumerate() {
            let old = object.clone();
            object["data"][format!("k{i}")] = "1".into();
            let name: &'static str = Box::leak(format!("m{i}").into_boxed_str());
            track_update(&writer(name, now), (i > 0).then_some(&old), &mut object).unwrap();
        }
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let ancient: Vec<&Value> = entries
            .iter()
            .filter(|e| e["manager"] == "ancient-changes")
            .collect();
        assert_eq!((entries.len(), ancient.len()), (10, 1));
        assert_eq!(ancient[0]["fieldsV1"]["f:data"]["f:k0"], json!({}));
    }
}
