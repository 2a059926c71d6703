//! Values for field selectors.

use std::borrow::Cow;

use serde_json::Value;

use crate::{ObjectSchema, Resource};

/// Returns the value of a selectable field as text. An absent field has the zero value of its type
/// (`""`, `false`, `0`).
pub fn selectable_value<'a>(resource: &Resource, object: &'a Value, field: &str) -> Cow<'a, str> {
    if let ObjectSchema::Custom(schema) = &resource.schema {
        let mut declared = schema.selectable_fields.iter();
        return match declared.find(|declared| &*declared.name == field) {
            Some(declared) => Cow::Owned(declared.read(object)),
            None => read_text(object, field),
        };
    }
    match (&*resource.kind, field) {
        // Both APIs of events select the same stored objects, which name their writer in different
        // fields.
        ("Event", "source") => read_path(object, "source.component")
            .unwrap_or_else(|| read_text(object, "reportingComponent")),
        ("Event", "reportingComponent" | "reportingController") => read_reporter(object),
        ("Event", _) if field.starts_with("involvedObject.") || field.starts_with("regarding.") => {
            // The stored event has either member, depending on the version of the tree, and clients
            // of both APIs select by the name that they know.
            let member = field.rsplit('.').next().unwrap_or_default();
            let outer = if object.get("regarding").is_some() {
                "regarding"
            } else {
                "involvedObject"
            };
            member_text(object.get(outer), member)
        }
        // The selector kept the field's name of an old release.
        ("Job", "status.successful") => {
            read_path(object, "status.succeeded").unwrap_or(Cow::Borrowed("0"))
        }
        // Upstream compares the printed value. The zero value is not in the tree, but
        // `spec.unschedulable=false` must match it.
        ("Node", "spec.unschedulable") | ("Pod", "spec.hostNetwork") => {
            read_path(object, field).unwrap_or(Cow::Borrowed("false"))
        }
        ("ReplicationController", "status.replicas") => {
            read_path(object, field).unwrap_or(Cow::Borrowed("0"))
        }
        ("Pod", "status.podIPs") => {
            let list = object.pointer("/status/podIPs").and_then(Value::as_array);
            let ips = list
                .into_iter()
                .flatten()
                .filter_map(|ip| ip.get("ip")?.as_str());
            Cow::Owned(ips.collect::<Vec<_>>().join(","))
        }
        _ => read_text(object, field),
    }
}

/// Returns the paths of the members of a built-in object from which [`selectable_value`] reads a
/// field.
pub fn selectable_paths<'a>(resource: &Resource, field: &'a str) -> Vec<&'a str> {
    match (&*resource.kind, field) {
        ("Event", "source") => vec!["source.component", "reportingComponent"],
        ("Event", "reportingComponent" | "reportingController") => {
            vec!["reportingComponent", "reportingController"]
        }
        ("Event", _) if field.starts_with("involvedObject.") || field.starts_with("regarding.") => {
            vec!["regarding", "involvedObject"]
        }
        ("Job", "status.successful") => vec!["status.succeeded"],
        _ => vec![field],
    }
}

fn read_reporter(object: &Value) -> Cow<'_, str> {
    ["reportingComponent", "reportingController"]
        .iter()
        .find_map(|name| read_path(object, name))
        .unwrap_or_default()
}

fn member_text<'a>(object: Option<&'a Value>, member: &str) -> Cow<'a, str> {
    object
        .and_then(|object| format_scalar(object.get(member)?))
        .unwrap_or_default()
}

fn read_text<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    read_path(object, path).unwrap_or_default()
}

fn read_path<'a>(object: &'a Value, path: &str) -> Option<Cow<'a, str>> {
    format_scalar(
        path.split('.')
            .try_fold(object, |value, name| value.get(name))?,
    )
    // Go has no absent strings: an empty one must lead to the fallback of the caller.
    .filter(|text| !text.is_empty())
}

fn format_scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(value.to_string())),
        _ => None,
    }
}

/// Returns upstream's error for a field that is not selectable; `None` if it is.
pub fn unsupported_field(resource: &Resource, field: &str) -> Option<String> {
    // Old clients select pods by `spec.host`, which upstream still converts to `spec.nodeName`.
    if resource
        .selectable_fields
        .iter()
        .any(|known| known == field)
        || (field == "spec.host" && resource.kind == "Pod")
    {
        return None;
    }
    // Upstream has a conversion function for each kind, whose texts differ, and users see them
    // unchanged in kubectl.
    Some(match (&*resource.group, &*resource.kind) {
        ("batch", "Job") => format!("field label \"{field}\" not supported for Job"),
        ("resource.k8s.io", "ResourceSlice") => {
            format!(
                "field label not supported for {}, Kind=ResourceSlice: {field}",
                resource.api_version()
            )
        }
        _ if resource.selectable_fields == ["metadata.name", "metadata.namespace"] => {
            format!(
                "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        }
        _ => format!("field label not supported: {field}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::find;
    use serde_json::json;

    #[test]
    fn selectable_values_are_read() {
        let check = |group: &str, plural: &str, object: Value, field: &str, want: &str| {
            assert_eq!(
                selectable_value(find(group, "v1", plural).unwrap(), &object, field),
                want,
                "{field}"
            );
        };
        check(
            "",
            "pods",
            json!({"spec": {"nodeName": "n"}}),
            "spec.nodeName",
            "n",
        );
        check("", "pods", json!({}), "spec.nodeName", "");
        check("", "nodes", json!({}), "spec.unschedulable", "false");
        check(
            "",
            "nodes",
            json!({"spec": {"unschedulable": true}}),
            "spec.unschedulable",
            "true",
        );
        check(
            "batch",
            "jobs",
            json!({"status": {"succeeded": 2}}),
            "status.successful",
            "2",
        );
        check(
            "",
            "events",
            json!({"involvedObject": {"name": "p"}}),
            "involvedObject.name",
            "p",
        );
        check(
            "events.k8s.io",
            "events",
            json!({"regarding": {"name": "p"}}),
            "regarding.name",
            "p",
        );
        check(
            "",
            "events",
            json!({"source": {"component": "kubelet"}}),
            "source",
            "kubelet",
        );
    }

    #[test]
    fn unsupported_fields_are_rejected() {
        let refusal = |group: &str, plural: &str| {
            unsupported_field(find(group, "v1", plural).unwrap(), "spec.bogus").unwrap()
        };
        assert_eq!(refusal("", "pods"), "field label not supported: spec.bogus");
        assert!(
            refusal("", "configmaps").ends_with("only \"metadata.name\", \"metadata.namespace\"")
        );
        assert_eq!(
            refusal("batch", "jobs"),
            "field label \"spec.bogus\" not supported for Job"
        );
    }
}
