//! Converts device requests and devices between `resource.k8s.io/v1beta1` and the later versions.
//!
//! v1beta1 has the fields of a request in the request itself, later versions in `exactly`
//! (KEP-4816). v1beta1 has the fields of a device in `basic`, later versions in the device itself
//! (KEP-4381). Elements of lists that are not objects stay as they are: the decoder rejects them.

use serde_json::{Map, Value};

/// The version with other fields. Its kinds are stored in v1.
pub(super) const OLD_VERSION: &str = "resource.k8s.io/v1beta1";

/// Fields of a request in v1beta1, and of its `exactly` in the later versions.
const EXACT_REQUEST: [&str; 7] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
];
const EXACTLY: &str = "exactly";
const BASIC: &str = "basic";
/// The field of a device beside `basic`.
const NAME: &str = "name";

/// Converts an object of v1beta1 to the fields of the later versions.
pub(super) fn to_current(kind: &str, object: &mut Map<String, Value>) {
    match kind {
        "ResourceClaim" | "ResourceClaimTemplate" => each_request(kind, object, nest_request),
        "ResourceSlice" => {
            each_device(object, flatten_device);
            if let Some(spec) = find_member(object, "spec") {
                // Pointers in the later versions, where the zero value is not an absent one.
                for field in ["nodeName", "allNodes"] {
                    if spec.get(field).is_some_and(is_zero) {
                        spec.remove(field);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Converts an object of a later version to the fields of v1beta1.
pub(super) fn to_old(kind: &str, object: &mut Map<String, Value>) {
    match kind {
        "ResourceClaim" | "ResourceClaimTemplate" => each_request(kind, object, flatten_request),
        "ResourceSlice" => each_device(object, nest_device),
        _ => {}
    }
}

type Fields = Map<String, Value>;

fn find_member<'a>(object: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    object.get_mut(name)?.as_object_mut()
}

fn each_element(object: &mut Fields, list: &str, change: impl Fn(&mut Fields)) {
    let elements = object.get_mut(list).and_then(Value::as_array_mut);
    let objects = elements.into_iter().flatten();
    objects.filter_map(Value::as_object_mut).for_each(change);
}

fn each_request(kind: &str, object: &mut Fields, change: impl Fn(&mut Fields)) {
    let mut spec = find_member(object, "spec");
    if kind == "ResourceClaimTemplate" {
        spec = spec.and_then(|template| find_member(template, "spec"));
    }
    if let Some(devices) = spec.and_then(|spec| find_member(spec, "devices")) {
        each_element(devices, "requests", change);
    }
}

fn each_device(object: &mut Fields, change: impl Fn(&mut Fields)) {
    if let Some(spec) = find_member(object, "spec") {
        each_element(spec, "devices", change);
    }
}

/// Moves the fields for one class of devices into `exactly`. A request without them has
/// alternatives, or is invalid, and validation names what is missing.
fn nest_request(request: &mut Fields) {
    let mut exactly = Map::new();
    for field in EXACT_REQUEST {
        if let Some(value) = request
            .remove(field)
            .filter(|value| !is_zero_of_v1beta1(field, value))
        {
            exactly.insert(field.to_owned(), value);
        }
    }
    if !exactly.is_empty() {
        request.insert(EXACTLY.to_owned(), Value::Object(exactly));
    }
}

fn flatten_request(request: &mut Fields) {
    if let Some(Value::Object(exactly)) = request.remove(EXACTLY) {
        request.extend(exactly);
    }
}

fn flatten_device(device: &mut Fields) {
    if let Some(Value::Object(mut basic)) = device.remove(BASIC) {
        // No member of `basic` may rename the device.
        basic.remove(NAME);
        device.extend(basic);
    }
}

/// Moves all fields but the name into `basic`. Every device of v1beta1 has it, also an empty one.
fn nest_device(device: &mut Fields) {
    let name = device.remove(NAME);
    let basic = std::mem::take(device);
    device.extend(name.map(|name| (NAME.to_owned(), name)));
    device.insert(BASIC.to_owned(), Value::Object(basic));
}

fn is_zero_of_v1beta1(field: &str, value: &Value) -> bool {
    // A pointer, whose false is a value.
    value.is_null() || field != "adminAccess" && is_zero(value)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        // A pointer to a structure.
        Value::Object(_) => false,
    }
}
