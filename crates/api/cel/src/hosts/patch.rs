//! The JSON of a mutation: expressions compute partial objects and operations, of which the values
//! become part of an object of the API.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Number, Value as Json};

use crate::value::{Key, List, Map, Value};

/// Largest JSON value of a mutation, in bytes of its strings and 8 for each value. Expressions can
/// repeat a value at little cost, so that the cost does not bound the size.
const MAX_SIZE: usize = 8 * 1024 * 1024;
/// Deepest JSON value of a mutation, as for the body of a request.
const MAX_DEPTH: usize = 127;

/// The reason why a value of an expression can't become part of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchValueError {
    /// The name of an object's type does not follow from its place.
    #[error(
        "type mismatch: unexpected type name {found:?}, expected {expected:?}, which matches field name path from root Object type"
    )]
    TypeName {
        /// Name in the expression.
        found: String,
        /// Name of the place.
        expected: String,
    },
    /// The value has no JSON form.
    #[error("unsupported type {0} in a mutation")]
    Unsupported(String),
    /// The value is too large or nests too deep.
    #[error("the value of the mutation is too large")]
    TooLarge,
}

/// Converts the result of an expression to JSON. Objects that the expression has created must have
/// the type of their place: below `Object.spec{template: ...}` it is `Object.spec.template`.
///
/// # Errors
/// A value without a JSON form, of the wrong type or too large.
pub fn convert_patch_value(value: &Value<'_>) -> Result<Json, PatchValueError> {
    let place = match value {
        Value::Map(Map::Struct(name, _)) => Some(name.to_string()),
        _ => None,
    };
    Conversion {
        size_left: MAX_SIZE,
    }
    .convert(value, place.as_deref(), MAX_DEPTH)
}

/// Converts the operations of a JSON patch. Each value is checked on its own.
///
/// # Errors
/// As `convert_patch_value`.
pub fn convert_operations(operations: &Value<'_>) -> Result<Json, PatchValueError> {
    let Value::List(operations) = operations else {
        let found = operations.type_of();
        return Err(PatchValueError::Unsupported(
            found.runtime_name().to_owned(),
        ));
    };
    // One bound for all operations together.
    let mut conversion = Conversion {
        size_left: MAX_SIZE,
    };
    let mut converted = Vec::new();
    for operation in operations.iter() {
        let Value::Map(Map::Struct(_, fields)) = &operation else {
            let found = operation.type_of();
            return Err(PatchValueError::Unsupported(
                found.runtime_name().to_owned(),
            ));
        };
        let mut members = JsonMap::new();
        for (key, value) in fields.iter() {
            // The value of an operation is a root of its own, so its type name is taken as given.
            let place = match value {
                Value::Map(Map::Struct(name, _)) => Some(name.to_string()),
                _ => None,
            };
            let value = conversion.convert(value, place.as_deref(), MAX_DEPTH)?;
            members.insert(key.to_string(), value);
        }
        converted.push(Json::Object(members));
    }
    Ok(Json::Array(converted))
}

struct Conversion {
    size_left: usize,
}

impl Conversion {
    fn charge(&mut self, size: usize) -> Result<(), PatchValueError> {
        // Values without a text count too, because a list of a million nulls takes memory.
        let left = self.size_left.checked_sub(size.saturating_add(8));
        self.size_left = left.ok_or(PatchValueError::TooLarge)?;
        Ok(())
    }

    /// Converts a value whose type name must be `place`, if it has one.
    fn convert(
        &mut self,
        value: &Value<'_>,
        place: Option<&str>,
        depth: usize,
    ) -> Result<Json, PatchValueError> {
        let depth = depth.checked_sub(1).ok_or(PatchValueError::TooLarge)?;
        match value {
            // JSON of the request has no type names that could be wrong.
            Value::List(List::Json(elements, _)) => self.copy_list(elements, depth),
            Value::List(list) => {
                self.charge(0)?;
                let mut elements = Vec::new();
                for element in list.iter() {
                    elements.push(self.convert(&element, place, depth)?);
                }
                Ok(Json::Array(elements))
            }
            Value::Map(Map::Json(fields, _)) => self.copy_fields(fields, depth),
            Value::Map(map) => self.convert_map(map, place, depth),
            scalar => {
                let converted = convert_scalar(scalar)?;
                self.charge(converted.as_str().map_or(0, str::len))?;
                Ok(converted)
            }
        }
    }

    fn convert_map(
        &mut self,
        map: &Map<'_>,
        place: Option<&str>,
        depth: usize,
    ) -> Result<Json, PatchValueError> {
        self.charge(0)?;
        let is_object = match (map, place) {
            (Map::Struct(name, _), Some(place)) if **name != *place => {
                return Err(PatchValueError::TypeName {
                    found: name.to_string(),
                    expected: place.to_owned(),
                });
            }
            (map, _) => matches!(map, Map::Struct(..)),
        };
        let mut fields = JsonMap::new();
        for (key, member) in map.iter() {
            // JSON has no keys but strings.
            let Key::String(name) = &key else {
                let found = key.to_value().type_of();
                let why = format!("{} as the key of a map", found.runtime_name());
                return Err(PatchValueError::Unsupported(why));
            };
            self.charge(name.len())?;
            let below = match (is_object, place) {
                (true, Some(place)) => Some(format!("{place}.{}", &**name)),
                // Maps and lists have no name of their own.
                (_, place) => place.map(str::to_owned),
            };
            let member = self.convert(&member, below.as_deref(), depth)?;
            fields.insert(name.to_string(), member);
        }
        Ok(Json::Object(fields))
    }

    /// Copies JSON that an expression has read, within the same bounds.
    fn copy(&mut self, node: &Json, depth: usize) -> Result<Json, PatchValueError> {
        let depth = depth.checked_sub(1).ok_or(PatchValueError::TooLarge)?;
        match node {
            Json::Array(elements) => self.copy_list(elements, depth),
            Json::Object(fields) => self.copy_fields(fields, depth),
            scalar => {
                self.charge(scalar.as_str().map_or(0, str::len))?;
                Ok(scalar.clone())
            }
        }
    }

    fn copy_list(&mut self, elements: &[Json], depth: usize) -> Result<Json, PatchValueError> {
        self.charge(0)?;
        let copies = elements.iter().map(|element| self.copy(element, depth));
        Ok(Json::Array(copies.collect::<Result<_, _>>()?))
    }

    fn copy_fields(
        &mut self,
        fields: &JsonMap<String, Json>,
        depth: usize,
    ) -> Result<Json, PatchValueError> {
        self.charge(0)?;
        let mut copies = JsonMap::new();
        for (name, member) in fields {
            self.charge(name.len())?;
            copies.insert(name.clone(), self.copy(member, depth)?);
        }
        Ok(Json::Object(copies))
    }
}

fn convert_scalar(value: &Value<'_>) -> Result<Json, PatchValueError> {
    let unsupported = || {
        let found = value.type_of();
        PatchValueError::Unsupported(found.runtime_name().to_owned())
    };
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Double(number) => convert_double(*number).ok_or_else(unsupported)?,
        Value::String(text) => (**text).into(),
        // The API has bytes as base64 (format `byte`).
        Value::Bytes(bytes) => STANDARD.encode(bytes).into(),
        Value::Timestamp(time) => time.to_string().into(),
        Value::Duration(duration) => format!("{}s", duration.as_secs_f64()).into(),
        _ => return Err(unsupported()),
    })
}

/// Returns a whole number as such: fields of whole numbers reject `1.0`.
fn convert_double(number: f64) -> Option<Json> {
    // 2^53: up to here, each whole number is a double of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.trunc() == number && number.abs() <= EXACT {
        return Some((number as i64).into());
    }
    Number::from_f64(number).map(Json::Number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Budget;
    use crate::hosts::STORED_EXPRESSIONS;
    use crate::hosts::policy::{PolicyCompiler, Purpose};
    use serde_json::json;

    fn convert(purpose: Purpose, source: &str) -> Result<Json, String> {
        let compiler = PolicyCompiler::new(false);
        let program = compiler
            .compile(purpose, source, STORED_EXPRESSIONS)
            .unwrap();
        let object = json!({"a": {"b": ["c"]}, "long": "x".repeat(100_000)});
        let variables = [("object", Value::from_json(&object, None))];
        let mut budget = Budget::new(1_000_000);
        let value = program.evaluate(&variables, &mut budget).unwrap();
        convert_patch_value(&value).map_err(|error| error.to_string())
    }

    #[test]
    fn partial_object_becomes_json() {
        for (source, expect) in [
            ("Object{}", json!({})),
            (
                "Object{spec: Object.spec{replicas: 3, ratio: 0.5, whole: 2.0, on: true, none: null}}",
                json!({"spec": {"replicas": 3, "ratio": 0.5, "whole": 2, "on": true, "none": null}}),
            ),
            (
                "Object{metadata: Object.metadata{labels: {'a': 'b'}}}",
                json!({"metadata": {"labels": {"a": "b"}}}),
            ),
            (
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x'}]}}",
                json!({"spec": {"containers": [{"name": "x"}]}}),
            ),
            (
                "Object{copy: object.a, ?none: object.?none, ?some: object.a.?b}",
                json!({"copy": {"b": ["c"]}, "some": ["c"]}),
            ),
            (
                "Object{at: timestamp('2026-01-02T03:04:05Z'), bytes: b'ab'}",
                json!({"at": "2026-01-02T03:04:05Z", "bytes": "YWI="}),
            ),
        ] {
            assert_eq!(
                convert(Purpose::ApplyConfiguration, source),
                Ok(expect),
                "{source}"
            );
        }
    }

    #[test]
    fn operations_become_json() {
        let source = "[JSONPatch{op: 'add', path: '/x', value: Object.x{y: {'k': [1]}}},
            JSONPatch{op: 'move', from: '/a', path: '/' + jsonpatch.escapeKey('b/c')}]";
        let expect = json!([{"op": "add", "path": "/x", "value": {"y": {"k": [1]}}},
            {"op": "move", "from": "/a", "path": "/b~1c"}]);
        let compiler = PolicyCompiler::new(false);
        let program = compiler.compile(Purpose::JsonPatch, source, STORED_EXPRESSIONS);
        let program = program.unwrap();
        let none: [(&str, Value<'_>); 0] = [];
        let value = program.evaluate(&none, &mut Budget::new(10_000)).unwrap();
        assert_eq!(convert_operations(&value), Ok(expect));
    }

    #[test]
    fn type_name_follows_from_the_place() {
        for (source, found, expected) in [
            (
                "Object{spec: Object.spec{selector: Object.spec.wrong{}}}",
                "Object.spec.wrong",
                "Object.spec.selector",
            ),
            ("Object{spec: Object{}}", "Object", "Object.spec"),
            (
                "Object{spec: Object.spec{list: [Object.spec.items{}]}}",
                "Object.spec.items",
                "Object.spec.list",
            ),
        ] {
            let error = convert(Purpose::ApplyConfiguration, source).unwrap_err();
            let expect = format!("unexpected type name {found:?}, expected {expected:?}");
            assert!(error.contains(&expect), "{error}");
        }
    }

    #[test]
    fn repeated_value_is_bounded() {
        let long = ["object.long"; 100].join(", ");
        let error = convert(
            Purpose::ApplyConfiguration,
            &format!("Object{{list: [{long}]}}"),
        );
        assert_eq!(
            error,
            Err("the value of the mutation is too large".to_owned())
        );
    }
}
