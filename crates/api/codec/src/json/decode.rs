//! Schema-directed decoder: one pass from any serde source to a canonical tree.
//!
//! The same visitors read JSON text, CBOR and trees (YAML, results of patches). Problems are
//! collected in the order of the document. The first value of a wrong type ends the decoding, with
//! the message of Go's decoder.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use api_meta::names::shorten_name;
use api_schema::{Field, Message, Shape, Type};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

use crate::{DecodeError, Problem, Strictness, canonical, scalars};

/// Maximum number of collected problems.
const MAX_PROBLEMS: usize = 1000;

/// Decodes one object from a source of any format.
pub(crate) fn decode_from<'de, D>(
    message: &'static Message,
    source: D,
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError>
where
    D: Deserializer<'de, Error: Into<DecodeError>>,
{
    let context = Context {
        reports: strictness.reports(),
        format: if source.is_human_readable() {
            "json"
        } else {
            "cbor"
        },
        ..Context::default()
    };
    let seed = MessageSeed {
        message,
        owner: None,
        context: &context,
    };
    match seed.deserialize(source) {
        Ok(value) => Ok((value, context.problems.into_inner())),
        Err(error) => Err(context.error.into_inner().unwrap_or_else(|| error.into())),
    }
}

#[derive(Default)]
struct Context {
    reports: bool,
    /// Name of the format in errors about a wrong type.
    format: &'static str,
    problems: RefCell<Vec<Problem>>,
    /// Paths of unknown fields that were already reported.
    unknown: RefCell<HashSet<String>>,
    error: RefCell<Option<DecodeError>>,
    /// Path of the current value, such as `spec.containers[0].name`.
    path: RefCell<String>,
    /// Ranges of `path` that are keys of maps. Go's errors about a wrong type leave them out.
    keys: RefCell<Vec<Range<usize>>>,
}

impl Context {
    /// Calls `run` with a member appended to the path.
    fn member<T>(&self, name: &str, run: impl FnOnce() -> T) -> T {
        let before = self.path.borrow().len();
        // One buffer for all paths: a path as a value of its own would be built for every field,
        // and is needed only for problems.
        if before > 0 {
            self.path.borrow_mut().push('.');
        }
        self.path.borrow_mut().push_str(shorten_name(name));
        let result = run();
        // Also after an error, so that a caller that continues reports right paths.
        self.path.borrow_mut().truncate(before);
        result
    }

    /// Calls `run` with a key of a map appended to the path.
    fn entry<T>(&self, key: &str, run: impl FnOnce() -> T) -> T {
        let start = self.path.borrow().len();
        self.member(key, || {
            let end = self.path.borrow().len();
            self.keys.borrow_mut().push(start..end);
            let result = run();
            self.keys.borrow_mut().pop();
            result
        })
    }

    fn element<T>(&self, index: usize, run: impl FnOnce() -> T) -> T {
        use fmt::Write as _;
        let before = self.path.borrow().len();
        // Writing to a String can't fail.
        let _ = write!(self.path.borrow_mut(), "[{index}]");
        let result = run();
        self.path.borrow_mut().truncate(before);
        result
    }

    fn has_room(&self) -> bool {
        self.reports && self.problems.borrow().len() < MAX_PROBLEMS
    }

    fn report(&self, name: &str, problem: fn(String) -> Problem) {
        // A body of 3 MiB may have a million unknown fields, and each path is as long as the
        // nesting is deep.
        if self.has_room() {
            self.member(name, || {
                self.problems
                    .borrow_mut()
                    .push(problem(self.path.borrow().clone()))
            });
        }
    }

    // The first error counts: serde unwinds through the containers, which add errors of their own.
    fn fail<E: serde::de::Error>(&self, error: DecodeError) -> E {
        self.error.borrow_mut().get_or_insert(error);
        E::custom("refused")
    }

    /// Returns the path without indexes and keys of maps, as Go names fields.
    fn go_path(&self) -> String {
        let mut inside = false;
        let path = self.path.borrow();
        let keys = self.keys.borrow();
        path.char_indices()
            .filter(|(at, _)| !keys.iter().any(|key| key.contains(at)))
            .map(|(_, c)| c)
            .filter(|c| {
                inside = inside && *c != ']' || *c == '[';
                !inside && *c != ']'
            })
            .collect()
    }
}

/// Decodes a message.
#[derive(Clone, Copy)]
struct MessageSeed<'a> {
    message: &'static Message,
    owner: Option<&'static Message>,
    context: &'a Context,
}

/// Decodes a value of a type.
#[derive(Clone, Copy)]
struct TypeSeed<'a> {
    ty: &'static Type,
    owner: &'static Message,
    context: &'a Context,
}

impl<'de> DeserializeSeed<'de> for TypeSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.ty {
            Type::Message(_) => match self.ty.message() {
                Some(message) => MessageSeed {
                    message,
                    owner: Some(self.owner),
                    context: self.context,
                }
                .deserialize(deserializer),
                None => Ok(Value::Null),
            },
            // A format with bytes of its own; in JSON they are base64 text.
            Type::Bytes if !deserializer.is_human_readable() => {
                deserializer.deserialize_bytes(self)
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.message.shape {
            // Any value, without a schema: fields below are not known and not reported.
            Shape::RawExtension | Shape::FieldsV1 | Shape::Json => {
                serde::Deserialize::deserialize(deserializer)
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

/// Returns Go's error:
/// `FORMAT: cannot unmarshal WHAT into Go struct field STRUCT.PATH of type TYPE`.
fn mismatch_error<E: serde::de::Error>(
    context: &Context,
    owner: Option<&Message>,
    what: &str,
    ty: &str,
) -> E {
    // encoding/json names the struct that has the field and the path from the root, without
    // indexes.
    let target = match owner {
        Some(owner) => format!("struct field {}.{}", owner.short_name(), context.go_path()),
        None => "value".to_owned(),
    };
    let format = context.format;
    context.fail(DecodeError::Type(format!(
        "{format}: cannot unmarshal {what} into Go {target} of type {ty}"
    )))
}

fn go_type(ty: &Type) -> String {
    match ty {
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Uint32 => "uint32".to_owned(),
        Type::Uint64 => "uint64".to_owned(),
        Type::Double => "float64".to_owned(),
        Type::String => "string".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Message(_) => ty.message().map(go_name).unwrap_or_default(),
        Type::List(inner) => format!("[]{}", go_type(inner)),
        Type::Map(inner) => format!("map[string]{}", go_type(inner)),
    }
}

/// Returns package and name, such as `v1.Pod`.
fn go_name(message: &Message) -> String {
    let mut parts = message.name.rsplit('.');
    // Go's errors show the last part of the package's path only.
    let (name, package) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    format!("{package}.{name}")
}

impl TypeSeed<'_> {
    fn wrong<E: serde::de::Error>(&self, what: &str) -> E {
        mismatch_error(self.context, Some(self.owner), what, &go_type(self.ty))
    }

    fn integer<E: serde::de::Error>(&self, number: i128) -> Result<Value, E> {
        // Clients send numbers as they like. A number that does not fit is an error in Go, never a
        // wrapped value.
        let fits = match self.ty {
            Type::Int32 => i32::try_from(number).is_ok(),
            Type::Int64 => i64::try_from(number).is_ok(),
            Type::Uint32 => u32::try_from(number).is_ok(),
            Type::Uint64 => u64::try_from(number).is_ok(),
            Type::Double => true,
            _ => return Err(self.wrong("number")),
        };
        let value = i64::try_from(number)
            .map(Number::from)
            .or_else(|_| u64::try_from(number).map(Number::from));
        match value {
            Ok(value) if fits => Ok(Value::Number(value)),
            _ => Err(self.wrong(&format!("number {number}"))),
        }
    }

    /// Returns the zero value that null means inside lists and maps.
    fn zero(&self) -> Value {
        canonical::zero_value(self.ty).unwrap_or(Value::Null)
    }
}

impl<'de> Visitor<'de> for TypeSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of type {}", go_type(self.ty))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        if *self.ty == Type::Bool {
            Ok(Value::Bool(value))
        } else {
            Err(self.wrong("bool"))
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.integer(i128::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.integer(i128::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // 1.0 is no integer for Go's decoder, unlike for JSON Schema.
        match (self.ty, Number::from_f64(value)) {
            (Type::Double, _) => Ok(canonical::double_tree(value)),
            (Type::Bool | Type::String | Type::Bytes | Type::List(_) | Type::Map(_), _) => {
                Err(self.wrong("number"))
            }
            _ => Err(self.wrong(&format!("number {value:?}"))),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        match self.ty {
            Type::String => Ok(Value::String(value)),
            Type::Bytes => match scalars::base64_decode(&value) {
                // Decoded and encoded again: base64 with line breaks is accepted and stored
                // without.
                Ok(bytes) => Ok(Value::String(scalars::base64_encode(&bytes))),
                Err(text) => Err(self.context.fail(DecodeError::Type(text))),
            },
            _ => Err(self.wrong("string")),
        }
    }

    fn visit_bytes<E: serde::de::Error>(self, value: &[u8]) -> Result<Value, E> {
        match self.ty {
            Type::Bytes => Ok(Value::String(scalars::base64_encode(value))),
            _ => Err(self.wrong("byte string")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Value, A::Error> {
        match self.ty {
            Type::List(inner) => read_list(inner, self.owner, self.context, seq),
            _ => Err(self.wrong("array")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Type::Map(inner) = self.ty else {
            return Err(self.wrong("object"));
        };
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            // The last value counts, as in Go.
            if out.contains_key(&key) {
                self.context.report(&key, Problem::Duplicate);
            }
            let seed = TypeSeed { ty: inner, ..self };
            let value = self.context.entry(&key, || map.next_value_seed(seed))?;
            out.insert(key, if value.is_null() { seed.zero() } else { value });
        }
        Ok(Value::Object(out))
    }
}

fn read_list<'de, A: SeqAccess<'de>>(
    inner: &'static Type,
    owner: &'static Message,
    context: &Context,
    mut seq: A,
) -> Result<Value, A::Error> {
    let seed = TypeSeed {
        ty: inner,
        owner,
        context,
    };
    let mut list = Vec::new();
    while let Some(value) = context.element(list.len(), || seq.next_element_seed(seed))? {
        // Go decodes null into the zero value of the element, so `[null]` is a list with one empty
        // element.
        list.push(if value.is_null() { seed.zero() } else { value });
    }
    Ok(Value::Array(list))
}

static STRING: Type = Type::String;

impl MessageSeed<'_> {
    fn wrong<E: serde::de::Error>(&self, what: &str) -> E {
        mismatch_error(self.context, self.owner, what, &go_name(self.message))
    }

    fn text<E: serde::de::Error>(&self, outcome: Result<Value, String>) -> Result<Value, E> {
        outcome.map_err(|text| self.context.fail(DecodeError::Type(text)))
    }

    fn number<E: serde::de::Error>(&self, number: &Number) -> Result<Value, E> {
        match self.message.shape {
            Shape::Quantity => {
                self.text(scalars::canonical_quantity(&number.to_string()).map(Value::String))
            }
            // IntOrString holds an int32. Larger numbers are an error in every client that decodes
            // them.
            Shape::IntOrString => match number.as_i64().map(i32::try_from) {
                Some(Ok(value)) => Ok(Value::from(value)),
                _ => Err(mismatch_error(
                    self.context,
                    None,
                    &format!("number {number}"),
                    "int32",
                )),
            },
            Shape::Time | Shape::MicroTime | Shape::Duration => {
                Err(mismatch_error(self.context, None, "number", "string"))
            }
            _ => Err(self.wrong("number")),
        }
    }

    /// Returns the type of the field with this number: in the schema unions, of the schema or of
    /// the list.
    fn part(&self, number: u32) -> Option<&'static Type> {
        self.message.field_by_number(number).map(|field| &field.ty)
    }

    /// Returns whether a value is an empty list of an object's managed fields: a request to forget
    /// the owners, while an absent list keeps them. Protobuf can't express the difference.
    fn is_reset(&self, field: &Field, value: &Value) -> bool {
        field.json == "managedFields"
            && value.as_array().is_some_and(Vec::is_empty)
            // Only of the object itself: metadata of a template has no owners.
            && *self.context.path.borrow() == "metadata"
    }

    fn read_struct<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        let mut seen: Vec<&str> = Vec::with_capacity(8);
        while let Some(field) = map.next_key_seed(KeySeed(self))? {
            // The value is skipped without a tree of its own.
            let Some(field) = field else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            // The earlier value is removed even if the later one is empty and is not kept.
            if seen.contains(&field.json) {
                self.context.report(field.json, Problem::Duplicate);
                out.remove(field.json);
            } else {
                seen.push(field.json);
            }
            let seed = TypeSeed {
                ty: &field.ty,
                owner: self.message,
                context: self.context,
            };
            let value = self
                .context
                .member(field.json, || map.next_value_seed(seed))?;
            // Equality of objects is equality of trees: what Go's encoder omits must not be in the
            // tree.
            if canonical::keeps_value(field, &value) || self.is_reset(field, &value) {
                out.insert(field.json.to_owned(), value);
            }
        }
        canonical::fill_zero_values(self.message, &mut out);
        Ok(Value::Object(out))
    }
}

/// Decodes a key of a struct and finds its field. An unknown key is reported once.
struct KeySeed<'a>(MessageSeed<'a>);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed<'_> {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let MessageSeed {
            message, context, ..
        } = self.0;
        // Exact names: unlike encoding/json, upstream's decoder distinguishes upper and lower case.
        let field = message.field(name);
        // kubectl's default is `fieldValidation=Strict`. The API server only warns by default.
        if field.is_none() && context.has_room() {
            let path = context.member(name, || context.path.borrow().clone());
            // Upstream reports an unknown field once, however often it occurs.
            if context.unknown.borrow_mut().insert(path) {
                context.report(name, Problem::Unknown);
            }
        }
        Ok(field)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of type {}", go_name(self.message))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        match self.message.shape {
            Shape::SchemaOrBool => Ok(Value::Bool(value)),
            // Go's Quantity reads the raw text, so the error is one of quantities and not of types.
            Shape::Quantity => {
                self.text(scalars::canonical_quantity(&value.to_string()).map(Value::String))
            }
            _ => Err(self.wrong("bool")),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.number(&Number::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.number(&Number::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => self.number(&number),
            None => Err(E::custom("number out of range")),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        let time = |outcome: Result<Option<String>, String>| {
            outcome.map(|text| text.map_or(Value::Null, Value::String))
        };
        match self.message.shape {
            Shape::Quantity => self.text(scalars::canonical_quantity(value).map(Value::String)),
            Shape::IntOrString => Ok(Value::from(value)),
            Shape::Time => self.text(time(scalars::canonical_time(value))),
            Shape::MicroTime => self.text(time(scalars::canonical_micro_time(value))),
            Shape::Duration => self.text(
                base_duration::parse_duration(value)
                    .map(|nanos| Value::String(base_duration::format_duration(nanos)))
                    .map_err(|error| error.to_string()),
            ),
            _ => Err(self.wrong("string")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Value, A::Error> {
        match self.message.shape {
            Shape::Items => read_list(&STRING, self.message, self.context, seq),
            Shape::SchemaOrArray | Shape::SchemaOrStringArray => {
                match self.part(2).and_then(Type::element) {
                    Some(inner) => read_list(inner, self.message, self.context, seq),
                    None => Err(self.wrong("array")),
                }
            }
            _ => Err(self.wrong("array")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        let schema_at = match self.message.shape {
            Shape::Struct => return self.read_struct(map),
            Shape::SchemaOrBool => 2,
            Shape::SchemaOrArray | Shape::SchemaOrStringArray => 1,
            _ => return Err(self.wrong("object")),
        };
        match self.part(schema_at).and_then(Type::message) {
            Some(message) => MessageSeed { message, ..self }.read_struct(map),
            None => Err(A::Error::custom("no schema")),
        }
    }
}
