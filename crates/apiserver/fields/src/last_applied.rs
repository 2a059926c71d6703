//! The annotation of client-side apply, which server-side apply by kubectl takes over and keeps.

use crate::compare::{compare_objects, fields_of};
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::writer::Writer;
use api_codec::json;
use serde_json::{Map, Value};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Limit of the keys and values of all annotations in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// The only manager for which the annotation counts: another name opts out.
const KUBECTL: &str = "kubectl";

/// Returns the fields that client-side apply has set and that still have its values. kubectl owns
/// them under another name, so that they are no conflict for its server-side apply.
pub(crate) fn find_client_applied(writer: &Writer<'_>, live: &Value) -> FieldSet {
    let shape = Shape::of_object(writer.schema);
    let Some(applied) = annotations(live)
        .and_then(|all| all.get(ANNOTATION))
        .and_then(Value::as_str)
        .filter(|_| writer.manager == KUBECTL)
        .and_then(|text| json::parse(text.as_bytes()).ok())
        .filter(|applied| applied["apiVersion"] == writer.api_version)
    else {
        return FieldSet::default();
    };
    let difference = compare_objects(shape, &applied, live);
    fields_of(shape, &applied)
        .difference(&difference.changed_paths())
        .difference(&difference.removed)
}

/// Sets the annotation to the intent if the object has it, so that a later client-side apply
/// compares with what was applied last. It belongs to no manager by this.
pub(crate) fn update_annotation(writer: &Writer<'_>, intent: &Value, merged: &mut Value) {
    let has_text = |all: &Map<String, Value>| {
        let value = all.get(ANNOTATION).and_then(Value::as_str);
        value.is_some_and(|text| !text.is_empty())
    };
    if writer.manager != KUBECTL || !annotations(merged).is_some_and(has_text) {
        return;
    }
    let text = encode_intent(intent);
    let Some(all) = merged
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    all.insert(ANNOTATION.into(), text.into());
    let size: usize = all
        .iter()
        .map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len())
        .sum();
    // The apply itself must not fail because of the copy.
    if size > ANNOTATIONS_LIMIT {
        all.remove(ANNOTATION);
    }
}

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.pointer("/metadata/annotations")?.as_object()
}

fn encode_intent(intent: &Value) -> String {
    let mut intent = intent.clone();
    if let Some(Value::Object(all)) = intent.pointer_mut("/metadata/annotations") {
        all.remove(ANNOTATION);
    }
    let mut out = Vec::new();
    json::write_value(&intent, &mut out);
    // As kubectl and Go's encoder write it.
    out.push(b'\n');
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ApplyError, Conflict, Versions, apply_intent, track_update};
    use serde_json::json;

    fn writer(manager: &'static str) -> Writer<'static> {
        Writer {
            manager,
            api_version: "v1",
            subresource: "",
            schema: &api_kinds::find("", "v1", "configmaps").unwrap().schema,
            versions: Versions::NONE,
            ignored: &[],
            now: "2026-01-01T00:00:00Z",
        }
    }

    fn config_map(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
    }

    /// Returns an object as client-side apply creates it; `changed` is written by an editor later.
    fn client_applied(data: Value, changed: Value) -> Value {
        let mut object = config_map(data);
        let text = object.to_string();
        object["metadata"]["annotations"] = json!({ANNOTATION: text});
        track_update(&writer("kubectl-client-side-apply"), None, &mut object).unwrap();
        let mut edited = object.clone();
        for (key, value) in changed.as_object().unwrap() {
            edited["data"][key] = value.clone();
        }
        track_update(&writer("editor"), Some(&object), &mut edited).unwrap();
        edited
    }

    fn last_applied(object: &Value) -> Option<&str> {
        annotations(object)?.get(ANNOTATION)?.as_str()
    }

    #[test]
    fn kubectl_takes_over_the_fields_of_its_client_side_apply() {
        let live = client_applied(json!({"x": "1", "y": "1"}), json!({}));
        let intent = config_map(json!({"x": "2"}));
        let applied = apply_intent(&writer("kubectl"), Some(&live), &intent, false).unwrap();
        assert_eq!(applied.object["data"]["x"], "2");
        let error = apply_intent(&writer("other"), Some(&live), &intent, false).unwrap_err();
        assert!(matches!(error, ApplyError::Conflicts(all) if all.len() == 1));
    }

    #[test]
    fn field_that_another_manager_changed_since_is_the_only_conflict() {
        let live = client_applied(json!({"x": "1", "y": "1"}), json!({"y": "edited"}));
        let intent = config_map(json!({"x": "2", "y": "2"}));
        let error = apply_intent(&writer("kubectl"), Some(&live), &intent, false).unwrap_err();
        let conflict = Conflict {
            manager: "\"editor\" using v1".to_owned(),
            field: ".data.y".to_owned(),
        };
        assert_eq!(error, ApplyError::Conflicts(vec![conflict]));
    }

    #[test]
    fn annotation_of_another_version_or_form_lifts_no_conflict() {
        for text in [
            "",
            "{",
            "[]",
            "null",
            r#"{"apiVersion":"v2","data":{"x":"1"}}"#,
        ] {
            let mut live = client_applied(json!({"x": "1"}), json!({}));
            live["metadata"]["annotations"][ANNOTATION] = json!(text);
            let intent = config_map(json!({"x": "2"}));
            let refused = apply_intent(&writer("kubectl"), Some(&live), &intent, false);
            assert!(refused.is_err(), "{text}");
        }
    }

    #[test]
    fn apply_by_kubectl_keeps_the_annotation_up_to_date() {
        let live = client_applied(json!({"x": "1"}), json!({}));
        let mut intent = config_map(json!({"x": "<"}));
        intent["metadata"]["annotations"] = json!({ANNOTATION: "old"});
        let kubectl = apply_intent(&writer("kubectl"), Some(&live), &intent, true).unwrap();
        let expected = concat!(
            r#"{"apiVersion":"v1","data":{"x":"\u003c"},"kind":"ConfigMap","#,
            r#""metadata":{"annotations":{},"name":"a"}}"#,
            "\n"
        );
        assert_eq!(last_applied(&kubectl.object), Some(expected));
        let plain = config_map(json!({"x": "2"}));
        let other = apply_intent(&writer("other"), Some(&live), &plain, true).unwrap();
        assert_eq!(last_applied(&other.object), last_applied(&live));
        let created = apply_intent(&writer("kubectl"), None, &plain, false).unwrap();
        assert_eq!(last_applied(&created.object), None);
    }

    #[test]
    fn annotation_that_would_be_too_long_is_removed() {
        let live = client_applied(json!({"x": "1"}), json!({}));
        let intent = config_map(json!({"x": "a".repeat(ANNOTATIONS_LIMIT)}));
        let applied = apply_intent(&writer("kubectl"), Some(&live), &intent, false).unwrap();
        assert_eq!(last_applied(&applied.object), None);
    }
}
