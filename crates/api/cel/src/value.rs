//! Values of expressions. A JSON value is viewed in place: nothing is copied before an expression
//! reads it.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::error::EvalError;
use crate::escaping;
use crate::schema::{JsonForm, JsonSchema};
use crate::types::Type;

/// Joined lists nest at most this deep; more is an error of the evaluation.
pub const MAX_JOINS: u16 = 512;

/// A value. `'v` is the lifetime of the JSON values that variables refer to.
#[derive(Debug, Clone)]
pub enum Value<'v> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// A string.
    String(Text<'v>),
    /// A sequence of bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(List<'v>),
    /// A map, or an object with fields.
    Map(Map<'v>),
    /// A duration; implementations keep it within 64 bits of nanoseconds.
    Duration(SignedDuration),
    /// A point in time between the years 1 and 9999.
    Timestamp(Timestamp),
    /// A type.
    Type(Type),
    /// An optional value.
    Optional(Option<Arc<Value<'v>>>),
    /// An object of a library (an IP address, a quantity).
    Object(Arc<dyn Object>),
}

/// An object that only its library can look into.
pub trait Object: fmt::Debug + Send + Sync {
    /// Returns the type of the object, as the library declares it.
    fn object_type(&self) -> Type;
    /// Compares with another object.
    fn is_equal(&self, other: &dyn Object) -> bool;
    /// Returns the size for cost functions, if the object has one.
    fn size(&self) -> Option<u64> {
        None
    }
    /// Returns the object for a downcast.
    fn as_any(&self) -> &dyn Any;
}

impl<'v> Value<'v> {
    /// Creates a string.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Value::String(Text::Shared(text.into()))
    }

    /// Creates a list.
    pub fn list(values: Vec<Value<'v>>) -> Self {
        Value::List(List::Values(Arc::new(values)))
    }

    /// Creates a map.
    pub fn map(entries: BTreeMap<Key<'v>, Value<'v>>) -> Self {
        Value::Map(Map::Values(Arc::new(entries)))
    }

    /// Creates an optional value.
    pub fn optional(inner: Option<Value<'v>>) -> Self {
        Value::Optional(inner.map(Arc::new))
    }

    /// Creates an object of a library.
    pub fn object(object: impl Object + 'static) -> Self {
        Value::Object(Arc::new(object))
    }

    /// Returns a library's object of type `T`.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        match self {
            Value::Object(object) => object.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Views a JSON value, typed by a schema if there is one.
    ///
    /// A string that does not follow the format of its schema stays a string.
    pub fn from_json(node: &'v serde_json::Value, schema: Option<&'v dyn JsonSchema>) -> Self {
        match node {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => number_value(number, schema),
            serde_json::Value::String(text) => string_value(text, schema),
            serde_json::Value::Array(elements) => Value::List(List::Json(elements, schema)),
            serde_json::Value::Object(fields) => Value::Map(Map::Json(fields, schema)),
        }
    }

    /// Returns the type at run time; the parameters of lists and maps are `dyn`.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(Map::Struct(name, _)) => Type::object(name),
            Value::Map(map) => match map.object_schema() {
                Some(schema) => Type::object(schema.type_name()),
                None => Type::map(Type::Dyn, Type::Dyn),
            },
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Type(_) => Type::Type(None),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Object(object) => object.object_type(),
        }
    }

    /// Reports whether the value fits a declared type at run time.
    pub fn has_type(&self, declared: &Type) -> bool {
        match (self, declared) {
            (_, Type::Dyn | Type::Param(_) | Type::Error) => true,
            (Value::Null, Type::Nullable(_)) => true,
            (value, Type::Nullable(inner)) => value.has_type(inner),
            // The first element decides on the overload, as in cel-go. Only `flatten` has lists of
            // lists, and it admits other elements too.
            (Value::List(list), Type::List(element)) => {
                matches!(**element, Type::List(_))
                    || list.get(0).is_none_or(|first| first.has_type(element))
            }
            (Value::Map(_), Type::Map(..) | Type::Struct(_)) => true,
            (Value::Type(_), Type::Type(_)) => true,
            (Value::List(_) | Value::Map(_), _) => false,
            (value, declared) => value.type_of().runtime_name() == declared.runtime_name(),
        }
    }

    /// Returns the string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

fn number_value<'v>(number: &serde_json::Number, schema: Option<&dyn JsonSchema>) -> Value<'v> {
    // A field of type `number` is a double even if the JSON says `1`, since no operator adds an
    // `int` to a `double`.
    let is_double = schema.is_some_and(|schema| schema.form() == JsonForm::Double);
    match number.as_i64() {
        Some(value) if !is_double => Value::Int(value),
        // Kubernetes decodes JSON numbers to `int64` or `float64` as well.
        _ => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn string_value<'v>(text: &'v str, schema: Option<&dyn JsonSchema>) -> Value<'v> {
    let formatted = match schema.map(|schema| schema.form()) {
        Some(JsonForm::Bytes) => crate::format::decode_base64(text).map(|b| Value::Bytes(b.into())),
        Some(JsonForm::Date) => crate::format::parse_date(text).map(Value::Timestamp),
        Some(JsonForm::DateTime) => crate::format::parse_timestamp(text).map(Value::Timestamp),
        Some(JsonForm::Duration) => crate::format::parse_duration(text).map(Value::Duration),
        _ => None,
    };
    formatted.unwrap_or(Value::String(Text::Borrowed(text)))
}

/// A string, borrowed from a JSON value or shared.
#[derive(Clone)]
pub enum Text<'v> {
    /// Part of a JSON value or of the program.
    Borrowed(&'v str),
    /// A computed string.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

/// A list.
#[derive(Debug, Clone)]
pub enum List<'v> {
    /// Computed elements.
    Values(Arc<Vec<Value<'v>>>),
    /// A JSON array and its schema.
    Json(&'v [serde_json::Value], Option<&'v dyn JsonSchema>),
    /// Two lists, one after the other. `+` costs 1 whatever the lengths, so it must not copy.
    Joined(Arc<Joined<'v>>),
}

/// Two lists that are read as one.
#[derive(Debug)]
pub struct Joined<'v> {
    left: List<'v>,
    right: List<'v>,
    length: usize,
    depth: u16,
}

impl<'v> List<'v> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            List::Values(values) => values.len(),
            List::Json(elements, _) => elements.len(),
            List::Joined(joined) => joined.length,
        }
    }

    /// Reports whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element at `index`.
    pub fn get(&self, index: usize) -> Option<Value<'v>> {
        let mut list = self;
        let mut index = index;
        loop {
            match list {
                List::Values(values) => return values.get(index).cloned(),
                List::Json(elements, schema) => {
                    let items = schema.and_then(|schema| schema.items());
                    return elements
                        .get(index)
                        .map(|element| Value::from_json(element, items));
                }
                List::Joined(joined) if index < joined.left.len() => list = &joined.left,
                List::Joined(joined) => {
                    index -= joined.left.len();
                    list = &joined.right;
                }
            }
        }
    }

    /// Iterates over the elements.
    pub fn iter(&self) -> impl Iterator<Item = Value<'v>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns this list followed by `other`; `None` if the result nests or counts too much.
    pub fn join(&self, other: &List<'v>) -> Option<List<'v>> {
        if other.is_empty() {
            return Some(self.clone());
        }
        if self.is_empty() {
            return Some(other.clone());
        }
        // Each join adds a level, which every read and the final drop walk through.
        let depth = self.depth().max(other.depth()) + 1;
        let length = self
            .len()
            .checked_add(other.len())
            .filter(|l| i64::try_from(*l).is_ok())?;
        let joined = Joined {
            left: self.clone(),
            right: other.clone(),
            length,
            depth,
        };
        (depth <= MAX_JOINS).then(|| List::Joined(Arc::new(joined)))
    }

    fn depth(&self) -> u16 {
        match self {
            List::Joined(joined) => joined.depth,
            _ => 0,
        }
    }

    /// Returns the schema of a JSON list whose order does not matter.
    pub fn unordered_schema(&self) -> Option<&'v dyn JsonSchema> {
        match self {
            List::Json(_, Some(schema))
                if matches!(schema.form(), JsonForm::Set | JsonForm::MapList) =>
            {
                Some(*schema)
            }
            _ => None,
        }
    }
}

/// A key of a map. Numbers of different types are the same key if they are equal.
#[derive(Debug, Clone)]
pub enum Key<'v> {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A string.
    String(Text<'v>),
}

impl<'v> Key<'v> {
    /// Converts a value to a key. A `double` is a key if it is a whole number.
    pub fn from_value(value: &Value<'v>) -> Option<Key<'v>> {
        match value {
            Value::Bool(value) => Some(Key::Bool(*value)),
            Value::Int(value) => Some(Key::Int(*value)),
            Value::Uint(value) => Some(Key::Uint(*value)),
            Value::String(text) => Some(Key::String(text.clone())),
            Value::Double(value) if value.trunc() == *value => {
                // These bounds are -2^63 and 2^63, which are exact doubles.
                if *value >= i64::MIN as f64 && *value < -(i64::MIN as f64) {
                    Some(Key::Int(*value as i64))
                } else if *value > 0.0 && *value < -2.0 * i64::MIN as f64 {
                    Some(Key::Uint(*value as u64))
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// Converts the key of a map literal.
    pub fn from_literal(value: &Value<'v>) -> Result<Key<'v>, EvalError> {
        match value {
            // Keys of literals are `int`, `uint`, `bool` or `string` (cel-spec). A double is valid
            // for lookups only.
            Value::Double(_) => None,
            other => Key::from_value(other),
        }
        .ok_or_else(|| {
            let found = value.type_of();
            EvalError::message(format!("unsupported key type: {}", found.runtime_name()))
        })
    }

    /// Converts the key to a value.
    pub fn to_value(&self) -> Value<'v> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::String(text) => Value::String(text.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            // `1` and `1u` are the same key, so both types need the same rank.
            Key::Int(_) | Key::Uint(_) => 1,
            Key::String(_) => 2,
        }
    }

    fn number(&self) -> i128 {
        match self {
            Key::Int(value) => i128::from(*value),
            Key::Uint(value) => i128::from(*value),
            Key::Bool(value) => i128::from(*value),
            Key::String(_) => 0,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Bool(value) => value.fmt(f),
            Key::Int(value) => value.fmt(f),
            Key::Uint(value) => value.fmt(f),
            Key::String(text) => f.write_str(text),
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::String(left), Key::String(right)) => left.as_bytes().cmp(right.as_bytes()),
            _ => self
                .rank()
                .cmp(&other.rank())
                .then(self.number().cmp(&other.number())),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

/// A map, or an object with fields.
#[derive(Debug, Clone)]
pub enum Map<'v> {
    /// Computed entries.
    Values(Arc<BTreeMap<Key<'v>, Value<'v>>>),
    /// Entries, and the value of each key that is not among them. Such a key is not in the map for
    /// the operator `in`.
    WithDefault(Arc<BTreeMap<Key<'v>, Value<'v>>>, Arc<Value<'v>>),
    /// An object that the expression has created: the name of its type, and its fields.
    Struct(Arc<str>, Arc<BTreeMap<Key<'v>, Value<'v>>>),
    /// A JSON object and its schema.
    Json(
        &'v serde_json::Map<String, serde_json::Value>,
        Option<&'v dyn JsonSchema>,
    ),
}

impl<'v> Map<'v> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Values(entries) | Map::Struct(_, entries) | Map::WithDefault(entries, _) => {
                entries.len()
            }
            Map::Json(fields, _) => fields.len(),
        }
    }

    /// Reports whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the schema of an object with declared fields.
    pub fn object_schema(&self) -> Option<&'v dyn JsonSchema> {
        match self {
            Map::Json(_, Some(schema)) if schema.form() == JsonForm::Object => Some(*schema),
            _ => None,
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &Key<'v>) -> Option<Value<'v>> {
        match (self, key) {
            (Map::Values(entries) | Map::Struct(_, entries), key) => entries.get(key).cloned(),
            (Map::WithDefault(entries, default), key) => {
                Some(entries.get(key).unwrap_or(default).clone())
            }
            (Map::Json(..), Key::String(name)) => self.get_field(name),
            (Map::Json(..), _) => None,
        }
    }

    /// Returns whether a key is in the map.
    pub fn contains_key(&self, key: &Key<'v>) -> bool {
        match self {
            Map::WithDefault(entries, _) => entries.contains_key(key),
            _ => self.get(key).is_some(),
        }
    }

    /// Returns the value of a field, or of a key that is a string.
    pub fn get_field(&self, name: &str) -> Option<Value<'v>> {
        match self {
            Map::WithDefault(..) => self.get(&Key::String(Text::Shared(name.into()))),
            Map::Values(entries) | Map::Struct(_, entries) => entries
                .get(&Key::String(Text::Shared(name.into())))
                .cloned(),
            Map::Json(fields, None) => fields.get(name).map(|node| Value::from_json(node, None)),
            Map::Json(fields, Some(schema)) if schema.form() == JsonForm::Object => {
                let name = escaping::unescape(name)?;
                let property = schema.property(&name)?;
                fields
                    .get(&*name)
                    .map(|node| Value::from_json(node, Some(property)))
            }
            Map::Json(fields, Some(schema)) => {
                let unescaped = schema.unescapes_keys().then(|| escaping::unescape(name));
                let name = unescaped.flatten().unwrap_or(name.into());
                fields
                    .get(&*name)
                    .map(|node| Value::from_json(node, schema.values()))
            }
        }
    }

    /// Returns the value of a key that [`Map::keys`] has listed, which no map unescapes again.
    pub fn get_listed(&self, key: &Key<'v>) -> Option<Value<'v>> {
        match (self, key) {
            (Map::Json(fields, Some(schema)), Key::String(name)) if schema.unescapes_keys() => {
                fields
                    .get(&**name)
                    .map(|node| Value::from_json(node, schema.values()))
            }
            _ => self.get(key),
        }
    }

    /// Returns the keys. Those of an object with a schema are escaped field names.
    pub fn keys(&self) -> Vec<Key<'v>> {
        match self {
            Map::Values(entries) | Map::Struct(_, entries) | Map::WithDefault(entries, _) => {
                entries.keys().cloned().collect()
            }
            Map::Json(fields, _) if self.object_schema().is_some() => fields
                .keys()
                .filter_map(|name| escaping::escape(name))
                .map(|name| Key::String(Text::Shared(name.into())))
                .collect(),
            Map::Json(fields, _) => fields
                .keys()
                .map(|name| Key::String(Text::Borrowed(name)))
                .collect(),
        }
    }

    /// Iterates over the entries in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'v>, Value<'v>)> + '_ {
        self.keys()
            .into_iter()
            .filter_map(|key| self.get_listed(&key).map(|value| (key, value)))
    }
}
