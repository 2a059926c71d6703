//! The functions of the language itself.

mod arithmetic;
mod collections;
mod conversions;
mod numbers;
mod optional;
mod relations;
mod strings;
mod time;

use crate::library::{Constant, Library};
use crate::macros;
use crate::types::Type;
use crate::value::Value;

/// Returns the operators, conversions and functions that every environment has.
pub fn standard_library() -> Library {
    let mut functions = arithmetic::functions();
    functions.extend(relations::functions());
    functions.extend(collections::functions());
    functions.extend(conversions::functions());
    functions.extend(strings::functions());
    functions.extend(time::functions());
    Library {
        name: "stdlib",
        functions,
        types: vec![
            Type::Bool,
            Type::Bytes,
            Type::Double,
            Type::Duration,
            Type::Int,
            Type::list(Type::param("A")),
            Type::map(Type::param("A"), Type::param("B")),
            Type::Null,
            Type::String,
            Type::Timestamp,
            Type::Type(None),
            Type::Uint,
        ],
        constants: vec![Constant {
            name: "google.protobuf.Timestamp",
            value_type: Type::type_of(Type::Timestamp),
            value: Value::Type(Type::Timestamp),
        }],
        macros: macros::STANDARD.to_vec(),
        ..Library::default()
    }
}

/// Returns optional values, which Kubernetes has since 1.28.
pub fn optional_library() -> Library {
    Library {
        name: "optional",
        since: 28,
        functions: optional::functions(),
        types: vec![Type::optional(Type::param("V"))],
        macros: macros::OPTIONAL.to_vec(),
        ..Library::default()
    }
}

/// Returns the comprehensions with two variables, which Kubernetes has since 1.32.
pub fn two_variables_library() -> Library {
    Library {
        name: "cel.lib.ext.comprev2",
        since: 32,
        functions: vec![collections::map_insert()],
        macros: macros::TWO_VARIABLES.to_vec(),
        ..Library::default()
    }
}
