//! Lists and maps: `size`, `in`, `[]`, `+`.

use std::sync::Arc;

use crate::compare::is_same_element;
use crate::cost::{CallEstimate, CallSite};
use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::macros::MAP_INSERT;
use crate::types::Type;
use crate::value::{Key, List, Map, Value};

type Eval<'v> = Result<Value<'v>, EvalError>;

/// Comparisons that one union of lists of type `set` or `map` may take.
const MAX_UNION_WORK: u64 = 1_000_000;

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    let (a, b) = (Type::param("A"), Type::param("B"));
    let (list, map) = (Type::list(a.clone()), Type::map(a.clone(), b.clone()));
    let mut sizes = Vec::new();
    for (global, receiver, sized) in [
        ("size_bytes", "bytes_size", Type::Bytes),
        ("size_list", "list_size", list.clone()),
        ("size_map", "map_size", map.clone()),
        ("size_string", "string_size", Type::String),
    ] {
        sizes.push(Overload::global(
            global,
            vec![sized.clone()],
            Type::Int,
            size,
        ));
        sizes.push(Overload::receiver(receiver, vec![sized], Type::Int, size));
    }
    vec![
        Function::new("size", sizes),
        Function::new(
            "_[_]",
            vec![
                Overload::global(
                    "index_list",
                    vec![list.clone(), Type::Int],
                    a.clone(),
                    reject_call,
                ),
                Overload::global("index_map", vec![map.clone(), a.clone()], b, reject_call),
            ],
        ),
        Function::new(
            "@in",
            vec![
                Overload {
                    // The evaluator charges the actual cost, because it searches the list itself.
                    estimate: Some(estimate_in_list),
                    ..Overload::global("in_list", vec![a.clone(), list], Type::Bool, reject_call)
                },
                Overload::global("in_map", vec![a, map], Type::Bool, find_key),
            ],
        ),
    ]
}

/// Declares the function by which comprehensions build maps.
pub fn map_insert() -> Function {
    let (key, value) = (Type::param("K"), Type::param("V"));
    let map = Type::map(key.clone(), value.clone());
    Function::new(
        MAP_INSERT,
        vec![
            Overload::global(
                "@mapInsert_map_key_value",
                vec![map.clone(), key, value],
                map.clone(),
                insert,
            ),
            Overload::global(
                "@mapInsert_map_map",
                // `transformMapEntry` inserts the entries of a map instead of a key and a value.
                vec![map.clone(), map.clone()],
                map,
                insert,
            ),
        ],
    )
}

fn size<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let size = match arguments {
        // A string is a sequence of code points in the language (cel-spec), not of bytes.
        [Value::String(text)] => text.chars().count(),
        [Value::Bytes(bytes)] => bytes.len(),
        [Value::List(list)] => list.len(),
        [Value::Map(map)] => map.len(),
        _ => return Err(EvalError::NoSuchOverload),
    };
    i64::try_from(size)
        .map(Value::Int)
        .map_err(|_| EvalError::Overflow("integer"))
}

/// Always fails: the evaluator itself indexes lists and maps, and searches lists.
fn reject_call<'v>(_: &[Value<'v>]) -> Eval<'v> {
    Err(EvalError::NoSuchOverload)
}

fn find_key<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    match arguments {
        [key, Value::Map(map)] => {
            // A value that can't be a key is in no map, which is no error.
            let found = Key::from_value(key).is_some_and(|key| map.contains_key(&key));
            Ok(Value::Bool(found))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn insert<'v>(arguments: &[Value<'v>]) -> Eval<'v> {
    let (map, added) = match arguments {
        [Value::Map(map), Value::Map(added)] => (map, added.iter().collect()),
        [Value::Map(map), key, value] => (map, vec![(Key::from_literal(key)?, value.clone())]),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let mut entries: std::collections::BTreeMap<_, _> = map.iter().collect();
    for (key, value) in added {
        // Comprehensions reject a repeated key, because none of both values is the right one.
        if entries.contains_key(&key) {
            return Err(EvalError::message(format!(
                "insert failed: key {key} already exists"
            )));
        }
        entries.insert(key, value);
    }
    Ok(Value::Map(Map::Values(Arc::new(entries))))
}

/// Joins lists. Those of type `set` and `map` become the union, in which elements of the right list
/// win.
pub fn join_lists<'v>(left: &List<'v>, right: &List<'v>) -> Eval<'v> {
    let too_large = || EvalError::message("list is too large");
    // Only a JSON list with a schema is unordered, and the left operand decides, as upstream.
    let Some(schema) = left.unordered_schema() else {
        return left.join(right).map(Value::List).ok_or_else(too_large);
    };
    // There is no index of the elements, so the union takes quadratic time.
    let mut fuel = MAX_UNION_WORK;
    let mut union: Vec<Value<'v>> = left.iter().collect();
    for added in right.iter() {
        let mut place = None;
        for (index, existing) in union.iter().enumerate() {
            if is_same_element(schema, existing, &added, &mut fuel).ok_or_else(too_large)? {
                place = Some(index);
                break;
            }
        }
        match place.and_then(|index| union.get_mut(index)) {
            Some(existing) => *existing = added,
            None => union.push(added),
        }
    }
    Ok(Value::list(union))
}

fn estimate_in_list(site: &CallSite) -> Option<CallEstimate> {
    let [_, list] = site.arguments.as_slice() else {
        return None;
    };
    // The search may compare the value with each element.
    Some(CallEstimate::new(list.size().scale(1.0)))
}
