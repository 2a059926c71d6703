//! Objects of one cache: snapshots, the past, encodings.

use super::{config_map, config_maps, new_cache, put, select, selection};
use crate::entry::Form;
use crate::{Entry, ResourceCache, Selection, StoredKind};
use apiserver_request::{GroupResource, ObjectEvent, Observer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

fn names(entries: &[Arc<Entry>]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.key).collect()
}

fn listed(key: &str, revision: i64) -> (String, bytes::Bytes, i64) {
    (key.to_owned(), config_map(key, json!({})).into(), revision)
}

#[test]
fn snapshot_does_not_see_later_writes() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({}), 11);
    let snapshot = cache.snapshot(11);
    put(&cache, "d/a", json!({}), 12);
    put(&cache, "d/b", json!({}), 13);
    cache.apply_delete("d/a", 14);
    assert_eq!(snapshot.len(), 1);
    assert_eq!(snapshot.get("d/a").unwrap().revision, 11);
    assert_eq!(
        names(&select(&cache.snapshot(14), &selection("", "", ""))),
        ["d/b"]
    );
}

#[test]
fn snapshot_has_at_least_the_revision_of_the_last_change() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({}), 12);
    assert_eq!(cache.snapshot(11).revision, 12);
    assert_eq!(cache.snapshot(30).revision, 30);
}

#[test]
fn namespace_of_a_list_is_not_a_prefix_of_other_namespaces() {
    let cache = new_cache("configmaps");
    for (revision, key) in [(11, "team/a"), (12, "team-b/a"), (13, "team/b")] {
        put(&cache, key, json!({}), revision);
    }
    let snapshot = cache.snapshot(13);
    let selected = select(&snapshot, &selection("team", "", ""));
    assert_eq!(names(&selected), ["team/a", "team/b"]);
    let rest: Vec<_> = snapshot.range_entries("team/", "team/a\0").collect();
    assert_eq!(
        rest.len(),
        1,
        "a page starts after the last key of the previous one"
    );
}

#[test]
fn past_state_is_rebuilt_from_the_history() {
    let cache = new_cache("configmaps");
    cache.replace_all(vec![listed("d/old", 5)], 10);
    put(&cache, "d/a", json!({"v": "1"}), 11);
    put(&cache, "d/a", json!({"v": "2"}), 12);
    cache.apply_delete("d/old", 13);
    let at = |revision| {
        let snapshot = cache.snapshot_at(revision).unwrap();
        let entries = select(&snapshot, &selection("", "", ""));
        let describe = |entry: &Arc<Entry>| format!("{}@{}", entry.name(), entry.revision);
        entries.iter().map(describe).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(at(10), "old@5");
    assert_eq!(at(11), "a@11 old@5");
    assert_eq!(at(12), "a@12 old@5");
    assert_eq!(at(13), "a@12");
    assert!(cache.snapshot_at(9).is_none(), "before the first list");
}

#[test]
fn undecodable_object_is_reported_and_does_not_hide_others() {
    let cache = new_cache("configmaps");
    cache.apply_put("d/broken", b"k8s\0\xff\xff", 11);
    put(&cache, "d/good", json!({}), 12);
    let entries = select(&cache.snapshot(12), &selection("d", "", ""));
    assert_eq!(names(&entries), ["d/broken", "d/good"]);
    let error = cache.get("d/broken").unwrap().decode_tree().unwrap_err();
    assert_eq!(error.code(), 500);
    assert!(error.message.contains("d/broken"), "{error}");
    assert!(cache.get("d/good").unwrap().decode_tree().is_ok());
}

#[test]
fn encodings_are_shared_between_readers() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({}), 11);
    let entry = cache.get("d/a").unwrap();
    let (first, second) = (
        entry.encode_json(config_maps()).unwrap(),
        entry.encode_json(config_maps()).unwrap(),
    );
    assert_eq!(first.as_ptr(), second.as_ptr());
    let tree: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(tree["metadata"]["resourceVersion"], "11");
    assert_eq!(tree["kind"], "ConfigMap");
}

#[test]
fn stored_object_is_read_in_every_served_version() {
    let stored = api_kinds::find("", "v1", "events").unwrap();
    let served = api_kinds::find("events.k8s.io", "v1", "events").unwrap();
    let object = json!({"metadata": {"name": "e", "namespace": "d"},
        "involvedObject": {"kind": "Pod", "name": "p"}, "message": "m"});
    let cache = new_cache("events");
    cache.apply_put(
        "d/e",
        &apiserver_convert::encode_stored(stored, &object),
        11,
    );
    let tree = cache.get("d/e").unwrap().tree_as(served).unwrap();
    assert_eq!(tree["apiVersion"], "events.k8s.io/v1");
    assert_eq!(tree["regarding"]["name"], "p");
    assert_eq!(tree["note"], "m");
}

#[test]
fn cluster_scoped_object_has_no_namespace() {
    let resource = api_kinds::find("", "v1", "nodes").unwrap();
    let cache = new_cache("nodes");
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
    cache.apply_put("n", &apiserver_convert::encode_stored(resource, &node), 11);
    let entry = cache.get("n").unwrap();
    assert_eq!((entry.namespace(), entry.name()), ("", "n"));
    assert_eq!(entry.field("metadata.name"), Some("n"));
    assert_eq!(entry.field("spec.unschedulable"), Some("true"));
    assert_eq!(entry.field("status.phase"), None);
}

/// Records what an observer receives.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Observer for Recorder {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        let (verb, object) = match event {
            ObjectEvent::Applied(object) => ("applied", object),
            ObjectEvent::Deleted(object) => ("deleted", object),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let line = format!("{} {verb} {name}", resource.resource);
        self.0.lock().push(line);
    }
}

fn observe(cache: &ResourceCache) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::default());
    cache.add_observer(recorder.clone());
    recorder
}

#[test]
fn observer_receives_the_existing_objects_and_then_every_change() {
    let cache = new_cache("configmaps");
    put(&cache, "d/a", json!({}), 11);
    let recorder = observe(&cache);
    put(&cache, "d/b", json!({}), 12);
    cache.apply_delete("d/a", 13);
    let expect = [
        "configmaps applied a",
        "configmaps applied b",
        "configmaps deleted a",
    ];
    assert_eq!(*recorder.0.lock(), expect);
}

#[test]
fn observer_receives_the_difference_after_a_relist() {
    let cache = new_cache("configmaps");
    let (kept, changed, gone) = (
        listed("d/kept", 5),
        listed("d/changed", 6),
        listed("d/gone", 7),
    );
    cache.replace_all(vec![kept.clone(), changed, gone], 10);
    let recorder = observe(&cache);
    recorder.0.lock().clear();
    cache.replace_all(vec![kept, listed("d/changed", 16)], 20);
    let expect = ["configmaps applied changed", "configmaps deleted gone"];
    assert_eq!(*recorder.0.lock(), expect);
}

#[test]
fn object_in_another_version_or_encoding_is_outdated() {
    let mut kinds = StoredKind::stored_kinds().into_iter();
    let kind = kinds.find(|kind| kind.resource.plural == "csidrivers");
    let kind = Arc::new(kind.unwrap());
    let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": {"name": "a"}, "spec": {}});
    let encode = |version: &str| {
        let resource = api_kinds::find("storage.k8s.io", version, "csidrivers").unwrap();
        apiserver_convert::encode_stored(resource, &object)
    };
    let json = object.to_string().into_bytes();
    for (bytes, expect) in [
        (encode("v1"), false),
        (json, true),
        (b"nothing".to_vec(), false),
    ] {
        let entry = Entry::new(&kind, "a", &bytes, 1);
        assert_eq!(entry.is_outdated(), expect, "{bytes:?}");
    }
}

#[test]
fn replaced_states_read_the_same_from_smaller_copies() {
    let cache = new_cache("configmaps");
    let large = |text: &str| json!({"text": text.repeat(20_000)});
    let states = [large("a"), json!({"small": "b"}), large("c"), large("d")];
    let originals = (11..).zip(states).map(|(revision, labels)| {
        put(&cache, "d/a", labels, revision);
        let entry = cache.get("d/a").unwrap();
        let json = entry.encode_json(config_maps()).unwrap();
        let proto = entry.encode_proto(config_maps()).unwrap();
        (entry, json, proto)
    });
    let originals: Vec<_> = originals.collect();
    cache.apply_delete("d/a", 15);
    let backlog = cache
        .subscribe_after(Selection::default(), 10)
        .unwrap()
        .backlog;
    assert_eq!(backlog.len(), 5);
    for (delivery, (entry, json, proto)) in backlog.iter().zip(&originals) {
        assert!(!Arc::ptr_eq(&delivery.entry, entry), "{}", entry.revision);
        assert_eq!(delivery.entry.stored_size(), entry.stored_size());
        assert_eq!(delivery.entry.encode_proto(config_maps()).unwrap(), proto);
        let again = delivery.entry.encode_json(config_maps()).unwrap();
        assert_eq!(again, json);
        assert_ne!(again.as_ptr(), json.as_ptr(), "the encoding was kept");
    }
    let deleted = backlog.last().unwrap().entry.decode_tree().unwrap();
    assert_eq!(deleted["metadata"]["resourceVersion"], "15");
    assert_eq!(deleted["metadata"]["labels"], large("d"));
}

/// Keys and ciphertext are random: a copy would be no smaller, and each read would decompress it.
#[test]
fn replaced_state_that_does_not_compress_is_kept_as_it_is() {
    const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let secrets = api_kinds::find("", "v1", "secrets").unwrap();
    let mut random = vec![0_u8; 700 << 10];
    rand::RngCore::fill_bytes(&mut rand::rng(), &mut random);
    let random = random.iter().map(|byte| BASE64[usize::from(byte % 64)]);
    let random = String::from_utf8(random.collect()).unwrap();
    for (case, data, is_smaller) in [
        ("random", random, false),
        ("text", "text".repeat(9000), true),
    ] {
        let cache = new_cache("secrets");
        let secret = json!({"metadata": {"name": "a", "namespace": "d"}, "data": {"key": data}});
        let stored = apiserver_convert::encode_stored(secrets, &secret);
        cache.apply_put("d/a", &stored, 11);
        let original = cache.get("d/a").unwrap();
        cache.apply_put("d/a", &stored, 12);
        let all = cache.subscribe_after(Selection::default(), 10).unwrap();
        let first = &all.backlog[0].entry;
        assert_eq!(!Arc::ptr_eq(first, &original), is_smaller, "{case}");
        assert_eq!(
            first.encode_proto(secrets).unwrap(),
            original.encode_proto(secrets).unwrap()
        );
    }
}

#[test]
fn objects_of_one_transaction_are_not_confused_in_the_history() {
    let cache = new_cache("configmaps");
    for key in ["d/a", "d/b"] {
        put(&cache, key, json!({"key": key.replace('/', ".")}), 11);
        cache.get(key).unwrap().encode_json(config_maps()).unwrap();
    }
    put(&cache, "d/a", json!({"key": "changed"}), 12);
    let backlog = cache
        .subscribe_after(Selection::default(), 10)
        .unwrap()
        .backlog;
    let labels: Vec<_> = backlog
        .iter()
        .map(|delivery| delivery.entry.label("key").unwrap())
        .collect();
    assert_eq!(labels, ["d.a", "d.b", "changed"]);
}

/// Sets the member at a path to a value of its type.
fn set_member(message: &'static api_schema::Message, object: &mut Value, path: &str) {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(field) = message.field(name) else {
        return;
    };
    match (&field.ty, field.ty.message()) {
        (_, Some(inner)) if inner.shape == api_schema::Shape::Struct => {
            if object.get(name).is_none() {
                object[name] = json!({});
            }
            set_member(inner, &mut object[name], rest);
        }
        (api_schema::Type::String, _) => object[name] = json!("x"),
        (api_schema::Type::Bool, _) => object[name] = json!(true),
        (api_schema::Type::Int32 | api_schema::Type::Int64, _) => object[name] = json!(3),
        _ => {}
    }
}

#[test]
fn labels_and_fields_are_those_of_the_whole_object() {
    let mut with_fields = 0;
    for kind in StoredKind::stored_kinds() {
        let kind = Arc::new(kind);
        let Some(message) = kind.resource.schema.message() else {
            continue;
        };
        let paths: Vec<&str> = kind
            .selectable_names()
            .flat_map(|field| api_kinds::selectable_paths(&kind.resource, field))
            .collect();
        let metadata = json!({"name": "a", "namespace": "n", "labels": {"b": "1", "a": "2"}});
        let mut objects = vec![json!({ "metadata": metadata })];
        let mut full = objects[0].clone();
        for path in &paths {
            set_member(message, &mut full, path);
            objects.push(full.clone());
        }
        for object in objects {
            let bytes = apiserver_convert::encode_stored(&kind.resource, &object);
            let read = |form| {
                let (entry, _) = Entry::with_decoded(&kind, "n/a", &bytes, 5, form);
                let labels: Vec<(String, String)> = entry
                    .labels()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect();
                let fields: Vec<Option<String>> = kind
                    .selectable_names()
                    .map(|name| entry.field(name).map(str::to_owned))
                    .collect();
                let json = entry.encode_json(&kind.resource).unwrap();
                (labels, fields, json)
            };
            let (short, whole) = (read(Form::Json), read(Form::Tree));
            assert_eq!(short, whole, "{} {object}", kind.prefix);
            with_fields += whole
                .1
                .iter()
                .flatten()
                .filter(|value| !value.is_empty())
                .count();
        }
    }
    assert!(with_fields > 100, "only {with_fields} values were compared");
}

#[test]
fn broken_managed_fields_are_found_with_and_without_observers() {
    let owner = json!({"manager": "m", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}});
    let object = json!({"metadata": {"name": "a", "namespace": "d", "managedFields": [owner]}});
    let stored = apiserver_convert::encode_stored(config_maps(), &object);
    let (fields, mut broken) = (br#"{"f:data":{}}"#, stored.clone());
    let at = stored.windows(fields.len()).position(|part| part == fields);
    broken[at.unwrap()] = b'[';
    for is_observed in [false, true] {
        for (bytes, is_readable) in [(&stored, true), (&broken, false)] {
            let cache = new_cache("configmaps");
            let recorder = is_observed.then(|| observe(&cache));
            cache.apply_put("d/a", bytes, 11);
            let case = format!("observed {is_observed}, readable {is_readable}");
            let entry = cache.get("d/a").unwrap();
            assert_eq!(
                entry.check_readable(config_maps()).is_ok(),
                is_readable,
                "{case}"
            );
            assert_eq!(
                entry.encode_json(config_maps()).is_ok(),
                is_readable,
                "{case}"
            );
            let received = recorder.map_or(0, |recorder| recorder.0.lock().len());
            assert_eq!(received, usize::from(is_observed && is_readable), "{case}");
        }
    }
}
