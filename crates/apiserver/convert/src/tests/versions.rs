//! Round trips of random objects between versions with different fields.

use super::*;
use api_kinds::find_rule_version;
use api_schema::{Message, Omit, Shape, Type};
use serde_json::{Map, json};

/// A generator of trees (xorshift64*), whose seed a failure prints.
struct Generator(u64);

impl Generator {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    /// Returns an object with about half of its fields, fewer below.
    fn message(&mut self, message: &'static Message, depth: u64) -> Value {
        match message.shape {
            Shape::Struct => {}
            Shape::Time | Shape::MicroTime => return json!("2026-01-01T00:00:00Z"),
            Shape::Quantity => return json!("5"),
            _ => return json!({}),
        }
        let mut object = Map::new();
        for field in message.fields.iter().filter(|field| field.number > 0) {
            if self.below(2 + depth / 3) == 0 || field.omit == Omit::Never && !field.pointer {
                let value = self.value(&field.ty, depth + 1);
                object.insert(field.json.to_owned(), value);
            }
        }
        Value::Object(object)
    }

    fn value(&mut self, ty: &Type, depth: u64) -> Value {
        let count = self.below(3);
        match ty {
            Type::Bool => json!(self.below(2) == 0),
            Type::String => json!(["", "a", "b.example.com/c"][self.below(3) as usize]),
            Type::Bytes => json!("AAEC"),
            Type::Double => json!(1.5),
            Type::Message(_) => self.message(ty.message().unwrap(), depth),
            Type::List(inner) => (0..count).map(|_| self.value(inner, depth)).collect(),
            Type::Map(inner) => {
                let member = |at| (format!("k{at}"), self.value(inner, depth));
                Value::Object((0..count).map(member).collect())
            }
            _ => json!(self.below(3)),
        }
    }
}

/// Returns a random object of a resource, as it is stored.
fn generate_object(resource: &Resource, seed: u64) -> Value {
    let message = resource.schema.message().unwrap();
    let mut object = Generator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).message(message, 0);
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    object["metadata"] = json!({"name": "n"});
    // Protobuf has no empty lists.
    decode_stored(resource, &encode_stored(resource, &object)).unwrap()
}

/// Gives devices of v1beta1 their `basic`, which a conversion adds.
fn add_basic(object: &mut Value) {
    let slices = object
        .pointer_mut("/spec/devices")
        .and_then(Value::as_array_mut);
    for device in slices.into_iter().flatten() {
        device["basic"] = device.get("basic").cloned().unwrap_or_else(|| json!({}));
    }
}

#[test]
fn random_objects_survive_the_conversion_to_the_rule_version_and_back() {
    let all = api_kinds::resources().iter();
    let pairs: Vec<_> = all
        .filter_map(|resource| Some((resource, find_rule_version(resource)?)))
        .collect();
    assert_eq!(pairs.len(), 4);
    for (old, current) in pairs {
        let (mut changed, mut with_devices) = (0, 0);
        for seed in 1..400 {
            let mut object = generate_object(old, seed);
            add_basic(&mut object);
            let converted = convert_object(old, current, object.clone());
            // Protobuf drops what the version does not have.
            let stored = encode_stored(current, &converted);
            let read = decode_stored(old, &stored).unwrap();
            assert_eq!(read, object, "{} {seed}", old.kind);
            assert_eq!(
                decode_stored(current, &stored).unwrap(),
                converted,
                "{seed}"
            );
            let mut same = converted.clone();
            same["apiVersion"] = object["apiVersion"].clone();
            changed += usize::from(same != object);
            let text = converted.to_string();
            with_devices += usize::from(text.contains("exactly") || text.contains("\"devices\""));
        }
        let differs = old.kind != "DeviceClass";
        assert_eq!(
            changed > 20 && with_devices > 20,
            differs,
            "{} {changed}",
            old.kind
        );
    }
}

#[test]
fn object_stored_in_the_old_version_is_read_in_the_new_one() {
    for (plural, old, new) in [
        (
            "resourceclaims",
            json!({"devices": {"requests": [{"name": "r", "deviceClassName": "c", "count": 2}]}}),
            json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "count": 2}}]}}),
        ),
        (
            "resourceslices",
            json!({"driver": "d", "nodeName": "n", "pool": {"name": "p"},
                "devices": [{"name": "a", "basic": {"bindsToNode": true}}]}),
            json!({"driver": "d", "nodeName": "n", "pool": {"name": "p"},
                "devices": [{"name": "a", "bindsToNode": true}]}),
        ),
    ] {
        let writer = resource("resource.k8s.io", "v1beta1", plural);
        let object = json!({"metadata": {"name": "n"}, "spec": old});
        let stored = encode_stored(writer, &object);
        for version in ["v1", "v1beta2"] {
            let reader = resource("resource.k8s.io", version, plural);
            let read = decode_stored(reader, &stored).unwrap();
            assert_eq!(
                read["spec"]["devices"], new["devices"],
                "{plural} {version}"
            );
            assert_eq!(read["spec"]["nodeName"], new["nodeName"]);
        }
    }
}
