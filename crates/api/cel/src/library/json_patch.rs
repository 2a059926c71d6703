//! Library of Kubernetes for JSON Patch paths (RFC 6901).

use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::Value;

use super::costs::{estimate_conversion, traverse_once};

/// Returns the library. Only environments of mutating policies have it.
pub fn library() -> Library {
    let escape = Overload::global(
        "string_jsonpatch_escapeKey_string",
        vec![Type::String],
        Type::String,
        escape_key,
    );
    Library {
        name: "kubernetes.jsonpatch",
        functions: vec![Function::new(
            "jsonpatch.escapeKey",
            vec![escape.with_cost(traverse_once, estimate_conversion)],
        )],
        ..Library::default()
    }
}

fn escape_key<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::String(key)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    // The tilde first: it is the escape character.
    Ok(Value::string(key.replace('~', "~0").replace('/', "~1")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn slash_and_tilde_are_escaped() {
        let escaped = escape_key(&[Value::string("k8s.io/my~label")]).unwrap();
        assert_eq!(escaped.as_str(), Some("k8s.io~1my~0label"));
        let escaped = escape_key(&[Value::string("~1")]).unwrap();
        assert_eq!(escaped.as_str(), Some("~01"));
    }
}
