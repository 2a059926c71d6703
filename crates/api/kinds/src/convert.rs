//! Converts objects between the versions of a kind.
//!
//! Most versions of a kind differ in name only. These differ in content: events (core and
//! events.k8s.io, stored as core), autoscalers (v1 and v2, stored as v2), and device requests and
//! devices of resource.k8s.io/v1beta1.

mod devices;

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
        (kind, devices::OLD_VERSION, _) => devices::to_current(kind, map),
        (kind, _, devices::OLD_VERSION) => devices::to_old(kind, map),
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

    /// Returns an object of a kind of `resource.k8s.io` with these requests or devices.
    fn with_devices(plural: &str, version: &str, list: &Value) -> Value {
        let claim = json!({"devices": {"requests": list}});
        let spec = match plural {
            "resourceclaims" => claim,
            "resourceclaimtemplates" => json!({"metadata": {"labels": {"a": "b"}}, "spec": claim}),
            _ => json!({"driver": "d", "devices": list}),
        };
        json!({"apiVersion": format!("resource.k8s.io/{version}"), "spec": spec})
    }

    #[test]
    fn requests_and_devices_convert_from_v1beta1_and_back() {
        let (claims, slices) = ("resourceclaims", "resourceslices");
        let sub = json!([{"name": "s", "deviceClassName": "c", "allocationMode": "All"}]);
        let all = json!({"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}],
            "count": 2, "allocationMode": "ExactCount", "tolerations": [{"key": "k"}]});
        let mut flat = all.clone();
        (flat["name"], flat["firstAvailable"]) = (json!("r"), sub.clone());
        let basic = json!({"attributes": {"x": {"int": 1}}, "taints": []});
        for (plural, old, new) in [
            (
                claims,
                json!([{"name": "r", "deviceClassName": "c"}, {"name": "s", "firstAvailable": sub}]),
                json!([{"name": "r", "exactly": {"deviceClassName": "c"}},
                    {"name": "s", "firstAvailable": sub}]),
            ),
            (
                claims,
                json!([{"name": "r", "adminAccess": false}, {"name": "s", "capacity": {}}]),
                json!([{"name": "r", "exactly": {"adminAccess": false}},
                    {"name": "s", "exactly": {"capacity": {}}}]),
            ),
            (
                claims,
                json!([flat]),
                json!([{"name": "r", "firstAvailable": sub, "exactly": all}]),
            ),
            (
                claims,
                json!([{"name": "r"}, "text", null]),
                json!([{"name": "r"}, "text", null]),
            ),
            (
                "resourceclaimtemplates",
                json!([{"name": "r", "deviceClassName": "c"}]),
                json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]),
            ),
            (
                slices,
                json!([{"name": "a", "basic": basic}]),
                json!([{"name": "a", "attributes": {"x": {"int": 1}}, "taints": []}]),
            ),
            (
                slices,
                json!([{"name": "a", "basic": {}}, 7]),
                json!([{"name": "a"}, 7]),
            ),
        ] {
            let resource = find("resource.k8s.io", "v1", plural).unwrap();
            for version in ["v1", "v1beta2"] {
                let mut object = with_devices(plural, "v1beta1", &old);
                convert(resource, &mut object, &format!("resource.k8s.io/{version}"));
                assert_eq!(object, with_devices(plural, version, &new));
                convert(resource, &mut object, "resource.k8s.io/v1beta1");
                assert_eq!(object, with_devices(plural, "v1beta1", &old));
            }
        }
    }

    #[test]
    fn zero_values_of_v1beta1_are_absent_in_v1() {
        for (plural, old, new) in [
            (
                "resourceclaims",
                json!({"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "", "count": 0, "adminAccess": null}]}}}),
                json!({"spec": {"devices": {"requests": [{"name": "r"}]}}}),
            ),
            (
                "resourceslices",
                json!({"spec": {"nodeName": "", "allNodes": false, "devices": [{"name": "a"}, {"name": "b", "basic": {"name": "c"}}]}}),
                json!({"spec": {"devices": [{"name": "a"}, {"name": "b"}]}}),
            ),
            (
                "deviceclasses",
                json!({"spec": {"selectors": []}}),
                json!({"spec": {"selectors": []}}),
            ),
        ] {
            let mut object = old;
            object["apiVersion"] = json!("resource.k8s.io/v1beta1");
            convert(
                find("resource.k8s.io", "v1", plural).unwrap(),
                &mut object,
                "resource.k8s.io/v1",
            );
            object.as_object_mut().unwrap().remove("apiVersion");
            assert_eq!(object, new, "{plural}");
        }
    }
}
