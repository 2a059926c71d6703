//! Converts objects between the versions of a kind.
//!
//! Most versions of a kind differ in name only. Two kinds differ in content: events (core and
//! events.k8s.io, stored as core) and autoscalers (v1 and v2, stored as v2).

use serde_json::{Map, Value};

use crate::Resource;
use crate::autoscaler::{convert_to_v1, convert_to_v2};

/// Converts an object to another version (`apps/v1`) and sets `apiVersion`.
pub fn convert(resource: &Resource, object: &mut Value, target: &str) {
    let source = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let Value::Object(map) = object else { return };
    match (&*resource.kind, source.as_str(), target) {
        _ if source == target => return,
        ("Event", "v1", "events.k8s.io/v1") => rename_fields(map, false),
        ("Event", "events.k8s.io/v1", "v1") => rename_fields(map, true),
        ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2") => convert_to_v2(map),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1") => convert_to_v1(map),
        _ => {}
    }
    map.insert("apiVersion".to_owned(), Value::from(target));
}

/// Names of an event's members in core and in events.k8s.io.
const EVENT: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename_fields(map: &mut Map<String, Value>, to_core: bool) {
    for (core, new) in EVENT {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::find;
    use serde_json::json;

    #[test]
    fn events_convert_between_core_and_events_k8s_io() {
        let resource = find("events.k8s.io", "v1", "events").unwrap();
        let new = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "regarding": {"name": "p"}, "note": "n", "reason": "r"});
        let mut object = new.clone();
        convert(resource, &mut object, "v1");
        assert_eq!(
            object,
            json!({"kind": "Event", "apiVersion": "v1", "involvedObject": {"name": "p"}, "message": "n", "reason": "r"})
        );
        convert(resource, &mut object, "events.k8s.io/v1");
        assert_eq!(object, new);
    }
}
