//! Types of expressions.

use std::fmt;
use std::sync::Arc;

/// A type of the language. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// Any value; checked at run time.
    Dyn,
    /// The type of an expression that has an error, which is compatible with all others.
    Error,
    /// The type of `null`.
    Null,
    /// A boolean.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A 64-bit floating point number.
    Double,
    /// A string of Unicode code points.
    String,
    /// A sequence of bytes.
    Bytes,
    /// A signed length of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// A type as a value; with the type itself if known.
    Type(Option<Arc<Type>>),
    /// A list of elements of one type.
    List(Arc<Type>),
    /// A map with the types of keys and values.
    Map(Arc<Type>, Arc<Type>),
    /// A primitive type that also admits `null`.
    Nullable(Arc<Type>),
    /// A type of a library, known by its name and parameters; optional types are
    /// `optional_type(T)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// An object type with declared fields, resolved by a type provider, or a library's type
    /// without fields.
    Struct(Arc<str>),
    /// A type parameter of a function, or a type that is not known yet.
    Param(Arc<str>),
}

/// The name of optional types.
pub const OPTIONAL: &str = "optional_type";

impl Type {
    /// Returns the type of lists of `element`.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// Returns the type of maps from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns the type of optional values of `inner`.
    pub fn optional(inner: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), Arc::new([inner]))
    }

    /// Returns the type parameter `name`.
    pub fn param(name: &str) -> Type {
        Type::Param(name.into())
    }

    /// Returns a library's type without parameters (`net.IP`).
    pub fn opaque(name: &str) -> Type {
        Type::Opaque(name.into(), Arc::new([]))
    }

    /// Returns the object type `name`.
    pub fn object(name: &str) -> Type {
        Type::Struct(name.into())
    }

    /// Returns the type of the type `inner` as a value.
    pub fn type_of(inner: Type) -> Type {
        Type::Type(Some(Arc::new(inner)))
    }

    /// Returns the inner type of an optional type.
    pub fn optional_inner(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    /// Returns the type parameters: element, key and value, or those of a library's type.
    pub fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(element) => vec![element],
            Type::Map(key, value) => vec![key, value],
            Type::Opaque(_, params) => params.iter().collect(),
            Type::Type(Some(inner)) => vec![inner],
            _ => Vec::new(),
        }
    }

    /// Returns the name that `type(x)` has at run time.
    pub fn runtime_name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Error => "!error!",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Type(_) => "type",
            Type::List(_) => "list",
            Type::Map(..) => "map",
            Type::Nullable(inner) => inner.runtime_name(),
            Type::Opaque(name, _) | Type::Struct(name) | Type::Param(name) => name,
        }
    }
}

impl fmt::Display for Type {
    /// Writes the type as error messages of the checker name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The checker's messages have shorter names for these than `type(x)` at run time.
            Type::Null => f.write_str("null"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Nullable(inner) => write!(f, "wrapper({inner})"),
            other => {
                f.write_str(other.runtime_name())?;
                for (index, parameter) in other.parameters().into_iter().enumerate() {
                    f.write_str(if index == 0 { "(" } else { ", " })?;
                    write!(f, "{parameter}")?;
                }
                if other.parameters().is_empty() {
                    Ok(())
                } else {
                    f.write_str(")")
                }
            }
        }
    }
}
