//! Optional values.

use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let (key, value) = (Type::param("K"), Type::param("V"));
    let optional = Type::optional(value.clone());
    let list = Type::list(value.clone());
    let map = Type::map(key.clone(), value.clone());
    let optionals = Type::list(optional.clone());
    let (optional_list, optional_map) = (Type::optional(list.clone()), Type::optional(map.clone()));
    let receiver = |name, id, arguments: &[&Type], result: &Type, implementation| {
        let arguments = arguments.iter().map(|&argument| argument.clone()).collect();
        Function::new(
            name,
            vec![Overload::receiver(
                id,
                arguments,
                result.clone(),
                implementation,
            )],
        )
    };
    let global = |id, arguments: &[&Type], result: &Type, implementation| {
        let arguments = arguments.iter().map(|&argument| argument.clone()).collect();
        Overload::global(id, arguments, result.clone(), implementation)
    };
    let index =
        |id, operand: &Type, index: &Type| global(id, &[operand, index], &optional, evaluator_only);
    vec![
        Function::new(
            "optional.of",
            vec![global("optional_of", &[&value], &optional, create)],
        ),
        Function::new(
            "optional.ofNonZeroValue",
            vec![global(
                "optional_ofNonZeroValue",
                &[&value],
                &optional,
                create_non_zero,
            )],
        ),
        Function::new(
            "optional.none",
            vec![global("optional_none", &[], &optional, create_none)],
        ),
        receiver("value", "optional_value", &[&optional], &value, unwrap),
        receiver(
            "hasValue",
            "optional_hasValue",
            &[&optional],
            &Type::Bool,
            has_value,
        ),
        receiver(
            "or",
            "optional_or_optional",
            &[&optional, &optional],
            &optional,
            evaluator_only,
        ),
        receiver(
            "orValue",
            "optional_orValue_value",
            &[&optional, &value],
            &value,
            evaluator_only,
        ),
        Function::new(
            "_?._",
            vec![global(
                "select_optional_field",
                &[&Type::Dyn, &Type::String],
                &optional,
                evaluator_only,
            )],
        ),
        Function::new(
            "_[?_]",
            vec![
                index("list_optindex_optional_int", &list, &Type::Int),
                index(
                    "optional_list_optindex_optional_int",
                    &optional_list,
                    &Type::Int,
                ),
                index("map_optindex_optional_value", &map, &key),
                index("optional_map_optindex_optional_value", &optional_map, &key),
            ],
        ),
        Function::new(
            "_[_]",
            vec![
                index("optional_list_index_int", &optional_list, &Type::Int),
                index("optional_map_index_value", &optional_map, &key),
            ],
        ),
        receiver("last", "list_last", &[&list], &optional, last),
        receiver("first", "list_first", &[&list], &optional, first),
        Function::new(
            "optional.unwrap",
            vec![global("optional_unwrap", &[&optionals], &list, unwrap_all)],
        ),
        receiver(
            "unwrapOpt",
            "optional_unwrapOpt",
            &[&optionals],
            &list,
            unwrap_all,
        ),
    ]
}

fn evaluator_only<'v>(_: &[Value<'v>]) -> Eval<'v> {
    Err(EvalError::NoSuchOverload)
}

fn create<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    Ok(Value::optional(arguments.first().cloned()))
}

fn create_none<'v>(_: &[Value<'v>]) -> Eval<'v> {
    Ok(Value::Optional(None))
}

fn create_non_zero<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let value = arguments.first().ok_or(EvalError::NoSuchOverload)?;
    let is_zero = match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Duration(length) => length.is_zero(),
        Value::Timestamp(time) => time.as_second() == crate::format::MIN_TIMESTAMP,
        Value::Optional(inner) => inner.is_none(),
        Value::Type(_) | Value::Object(_) => false,
    };
    Ok(Value::optional((!is_zero).then(|| value.clone())))
}

fn unwrap<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Optional(Some(inner))] => Ok((**inner).clone()),
        [Value::Optional(None)] => Err(EvalError::message("optional.none() dereference")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn has_value<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::Optional(inner)] => Ok(Value::Bool(inner.is_some())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn last<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::List(list)] => Ok(Value::optional(list.get(list.len().wrapping_sub(1)))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn first<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [Value::List(list)] => Ok(Value::optional(list.get(0))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn unwrap_all<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let [Value::List(list)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut values = Vec::new();
    for element in list.iter() {
        match element {
            Value::Optional(None) => {}
            Value::Optional(Some(inner)) => values.push((*inner).clone()),
            _ => return Err(EvalError::message("value in list is not an optional")),
        }
    }
    Ok(Value::list(values))
}
