//! Decodes JSON by Go's rules: null and absence mean the zero value of a field, even of a required
//! one.
//!
//! The types of k8s-openapi reject null in a required field such as
//! `conditions[].lastTransitionTime`. Servers store and serve it nevertheless, because Go encodes
//! its zero time as null. Documents are first decoded strictly, at no extra cost; only those that
//! fail are decoded again from a JSON tree with [`LenientDeserializer`].

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Error, Map, Value};

/// Go's zero `metav1.Time` after a round trip.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Decodes a document.
///
/// # Errors
/// The document is not JSON, or a field has the wrong type.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).or_else(|_| from_tree(serde_json::from_slice(bytes)?))
}

/// Decodes a JSON tree.
///
/// # Errors
/// A field has the wrong type.
pub(crate) fn from_tree<T: DeserializeOwned>(tree: Value) -> Result<T, Error> {
    T::deserialize(LenientDeserializer(tree))
}

/// Deserializer of a JSON tree in which null and missing fields mean zero values.
struct LenientDeserializer(Value);

impl<'de> IntoDeserializer<'de, Error> for LenientDeserializer {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl LenientDeserializer {
    fn or_zero(self, zero: impl FnOnce() -> Value) -> Value {
        if self.0.is_null() { zero() } else { self.0 }
    }

    fn visit_or_zero<'de, V: Visitor<'de>>(
        self,
        zero: impl FnOnce() -> Value,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visit_value(self.or_zero(zero), visitor)
    }
}

/// Deserializes a JSON value by its own type; nested values remain lenient.
fn visit_value<'de, V: Visitor<'de>>(tree: Value, visitor: V) -> Result<V::Value, Error> {
    match tree {
        // Nested values are wrapped again, so that leniency applies at every depth.
        Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(
            items.into_iter().map(LenientDeserializer),
        )),
        Value::Object(fields) => visitor.visit_map(MapDeserializer::new(
            fields
                .into_iter()
                .map(|(key, value)| (key, LenientDeserializer(value))),
        )),
        // Each scalar by itself: `Value::deserialize_any` would be compiled with its own decoder of
        // arrays and objects for every type.
        Value::Null => visitor.visit_unit(),
        Value::Bool(value) => visitor.visit_bool(value),
        Value::Number(value) => value.deserialize_any(visitor),
        Value::String(value) => visitor.visit_string(value),
    }
}

macro_rules! zeros {
    ($($method:ident => $zero:expr),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.visit_or_zero(|| $zero, visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for LenientDeserializer {
    type Error = Error;

    zeros! {
        deserialize_any => Value::Null,
        deserialize_bool => Value::Bool(false),
        deserialize_i8 => 0.into(),
        deserialize_i16 => 0.into(),
        deserialize_i32 => 0.into(),
        deserialize_i64 => 0.into(),
        deserialize_u8 => 0.into(),
        deserialize_u16 => 0.into(),
        deserialize_u32 => 0.into(),
        deserialize_u64 => 0.into(),
        deserialize_f32 => 0.0.into(),
        deserialize_f64 => 0.0.into(),
        deserialize_char => Value::Null,
        deserialize_str => "".into(),
        deserialize_string => "".into(),
        deserialize_bytes => "".into(),
        deserialize_byte_buf => "".into(),
        deserialize_unit => Value::Null,
        deserialize_seq => Value::Array(Vec::new()),
        deserialize_map => Value::Object(Map::new()),
        deserialize_identifier => Value::Null,
        deserialize_ignored_any => Value::Null,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let zero = || match name {
            // Wrapper types of k8s-openapi, whose inner decoder does not accept an empty string.
            "Time" | "MicroTime" => ZERO_TIME.into(),
            "Quantity" => "0".into(),
            _ => Value::Null,
        };
        visitor.visit_newtype_struct(LenientDeserializer(self.or_zero(zero)))
    }

    /// Visits every field of the struct; missing ones are null. Kind and version are verified only
    /// if the document contains them.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut tree = self.or_zero(|| Value::Object(Map::new()));
        if let Value::Object(present) = &mut tree {
            for field in fields {
                // Kind and version of a typed struct are constants; null would be compared with
                // them and fail. List items lack both.
                if !present.contains_key(*field) && !matches!(*field, "apiVersion" | "kind") {
                    present.insert((*field).to_owned(), Value::Null);
                }
            }
        }
        visit_value(tree, visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visit_value(self.0, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visit_value(self.0, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visit_value(self.0, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, Service};

    #[test]
    fn null_and_missing_required_fields_decode_as_zero_values() {
        let cases = [
            r#"{"status":{"conditions":[{"type":"X","status":"True","lastTransitionTime":null}]}}"#,
            r#"{"status":{"conditions":[{"type":"X","status":"True"}]}}"#,
        ];
        for case in cases {
            let service: Service = from_slice(case.as_bytes()).unwrap();
            let conditions = service.status.unwrap().conditions.unwrap();
            assert_eq!(conditions[0].type_, "X", "{case}");
            assert_eq!(
                conditions[0].last_transition_time.0.to_string(),
                ZERO_TIME,
                "{case}"
            );
        }
    }

    #[test]
    fn null_in_an_optional_field_stays_absent() {
        let strange = r#"{"metadata":{"name":"p","labels":null,"creationTimestamp":null},
            "spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":null}},"ports":[{"containerPort":null}]}]},
            "status":{"conditions":[{"type":"Ready","status":null,"lastTransitionTime":null}]}}"#;
        let pod: Pod = from_tree(serde_json::from_str(strange).unwrap()).unwrap();
        assert_eq!(
            (pod.metadata.labels, pod.metadata.creation_timestamp),
            (None, None)
        );
        let container = pod.spec.unwrap().containers.remove(0);
        assert_eq!(container.resources.unwrap().requests.unwrap()["cpu"].0, "0");
        assert_eq!(container.ports.unwrap()[0].container_port, 0);
        assert_eq!(
            pod.status.unwrap().conditions.unwrap()[0].last_transition_time,
            None
        );
    }

    #[test]
    fn value_of_a_wrong_type_is_an_error() {
        assert!(from_slice::<Pod>(br#"{"spec":{"containers":5}}"#).is_err());
        assert!(from_slice::<Pod>(b"no JSON").is_err());
    }
}
