//! Optional values.

use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let types = Types::new();
    let mut functions = declare_constructors(&types);
    functions.extend(declare_accessors(&types));
    functions.extend(declare_selections(&types));
    functions.extend(declare_list_functions(&types));
    functions
}

/// Types of the signatures.
struct Types {
    key: Type,
    value: Type,
    list: Type,
    map: Type,
    optional: Type,
}

impl Types {
    fn new() -> Self {
        let (key, value) = (Type::param("K"), Type::param("V"));
        Self {
            list: Type::list(value.clone()),
            map: Type::map(key.clone(), value.clone()),
            optional: Type::optional(value.clone()),
            key,
            value,
        }
    }
}

fn clone_types(types: &[&Type]) -> Vec<Type> {
    types.iter().map(|&found| found.clone()).collect()
}

fn global(id: &'static str, arguments: &[&Type], result: &Type, run: Implementation) -> Overload {
    Overload::global(id, clone_types(arguments), result.clone(), run)
}

fn receiver(id: &'static str, arguments: &[&Type], result: &Type, run: Implementation) -> Overload {
    Overload::receiver(id, clone_types(arguments), result.clone(), run)
}

/// Declares the functions that create an optional value.
fn declare_constructors(types: &Types) -> Vec<Function> {
    let (value, optional) = (&types.value, &types.optional);
    let of = global("optional_of", &[value], optional, create);
    let non_zero = global(
        "optional_ofNonZeroValue",
        &[value],
        optional,
        create_non_zero,
    );
    let none = global("optional_none", &[], optional, create_none);
    vec![
        Function::new("optional.of", vec![of]),
        Function::new("optional.ofNonZeroValue", vec![non_zero]),
        Function::new("optional.none", vec![none]),
    ]
}

/// Declares the functions that read an optional value or replace an absent one.
fn declare_accessors(types: &Types) -> Vec<Function> {
    let (value, optional) = (&types.value, &types.optional);
    let read = receiver("optional_value", &[optional], value, unwrap);
    let present = receiver("optional_hasValue", &[optional], &Type::Bool, has_value);
    // The right side is not evaluated if the left one is present, so the evaluator implements both.
    let or = receiver(
        "optional_or_optional",
        &[optional, optional],
        optional,
        evaluator_only,
    );
    let or_value = receiver(
        "optional_orValue_value",
        &[optional, value],
        value,
        evaluator_only,
    );
    vec![
        Function::new("value", vec![read]),
        Function::new("hasValue", vec![present]),
        Function::new("or", vec![or]),
        Function::new("orValue", vec![or_value]),
    ]
}

/// Declares the selection of a field or an element that may be absent.
fn declare_selections(types: &Types) -> Vec<Function> {
    let (optional, list, map) = (&types.optional, &types.list, &types.map);
    let optional_list = Type::optional(list.clone());
    let optional_map = Type::optional(map.clone());
    // The evaluator implements selections itself; the checker needs their types.
    let index =
        |id, operand: &Type, index: &Type| global(id, &[operand, index], optional, evaluator_only);
    vec![
        Function::new(
            "_?._",
            vec![global(
                "select_optional_field",
                &[&Type::Dyn, &Type::String],
                optional,
                evaluator_only,
            )],
        ),
        Function::new(
            "_[?_]",
            vec![
                index("list_optindex_optional_int", list, &Type::Int),
                index(
                    "optional_list_optindex_optional_int",
                    &optional_list,
                    &Type::Int,
                ),
                index("map_optindex_optional_value", map, &types.key),
                index(
                    "optional_map_optindex_optional_value",
                    &optional_map,
                    &types.key,
                ),
            ],
        ),
        Function::new(
            "_[_]",
            vec![
                index("optional_list_index_int", &optional_list, &Type::Int),
                index("optional_map_index_value", &optional_map, &types.key),
            ],
        ),
    ]
}

/// Declares the functions from lists to optional values, and from lists of optional values.
fn declare_list_functions(types: &Types) -> Vec<Function> {
    let (list, optional) = (&types.list, &types.optional);
    let optionals = Type::list(optional.clone());
    let unwrap_global = global("optional_unwrap", &[&optionals], list, unwrap_all);
    let unwrap_member = receiver("optional_unwrapOpt", &[&optionals], list, unwrap_all);
    vec![
        Function::new("last", vec![receiver("list_last", &[list], optional, last)]),
        Function::new(
            "first",
            vec![receiver("list_first", &[list], optional, first)],
        ),
        Function::new("optional.unwrap", vec![unwrap_global]),
        Function::new("unwrapOpt", vec![unwrap_member]),
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
        // Go's zero time is the first second of the year 1, not of 1970.
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
        // For an empty list the index wraps around to one that no list has.
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
