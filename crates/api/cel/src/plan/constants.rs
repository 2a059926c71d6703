//! Lists, maps, searches and conversions of constants, which are computed once.

use std::sync::Arc;

use super::node::{CallStep, Node};
use crate::cost::MAP_CREATE_COST;
use crate::error::EvalError;
use crate::function::no_overload;
use crate::types::Type;
use crate::value::{Key, Map, Value};

/// Functions whose calls with a literal are computed once.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

pub(super) fn fold_list(elements: Vec<(Node, bool)>) -> Node {
    let mut values = Vec::with_capacity(elements.len());
    // cel-go creates a list of constants once, when it optimizes the program. An optional element
    // may be absent, so it stays a step.
    for (element, optional) in &elements {
        match element {
            Node::Constant(value) if !optional => values.push(value.clone()),
            _ => return Node::List(elements),
        }
    }
    Node::Constant(Value::list(values))
}

pub(super) fn fold_map(entries: Vec<(Node, Node, bool)>) -> Result<Node, EvalError> {
    let is_constant = |(key, value, optional): &(Node, Node, bool)| {
        matches!((key, value), (Node::Constant(_), Node::Constant(_))) && !optional
    };
    if !entries.iter().all(is_constant) {
        return Ok(Node::Map(entries, MAP_CREATE_COST));
    }
    let mut map = std::collections::BTreeMap::new();
    for entry in &entries {
        if let (Node::Constant(key), Node::Constant(value), _) = entry {
            let key = Key::from_literal(key)?;
            // A repeated key would fail in every evaluation, so it is an error of the compilation.
            if map.insert(key, value.clone()).is_some() {
                return Err(EvalError::message("Failed with repeated key"));
            }
        }
    }
    Ok(Node::Constant(Value::Map(Map::Values(Arc::new(map)))))
}

/// Plans `a in [1, 2]` as a test without a cost.
pub(super) fn fold_membership(arguments: &mut Vec<Node>) -> Option<Node> {
    let Some(Node::Constant(constants @ Value::List(list))) = arguments.last() else {
        return None;
    };
    // No value is in an empty list: as in cel-go, the left side is not even evaluated.
    if list.is_empty() {
        return Some(Node::Constant(Value::Bool(false)));
    }
    // cel-go builds a hash set of the constants, which bytes, lists, maps and null can't be in.
    let is_simple = |value: Value<'_>| {
        matches!(
            value.type_of(),
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::String
        )
    };
    if !list.iter().all(is_simple) {
        return None;
    }
    let constants = constants.clone();
    arguments.truncate(1);
    Some(Node::InConstants(Box::new(arguments.pop()?), constants))
}

pub(super) fn fold_conversion(call: CallStep) -> Result<Node, EvalError> {
    // cel-go converts a constant when it optimizes the program, and reports the error there.
    if CONVERSIONS.contains(&&*call.function)
        && let [Node::Constant(value)] = call.arguments.as_slice()
    {
        let arguments = [value.clone()];
        let overload = call
            .overloads
            .iter()
            .find(|overload| overload.admits(&arguments));
        let overload = overload.ok_or_else(|| no_overload(&call.function, &arguments))?;
        return (overload.implementation)(&arguments).map(Node::Constant);
    }
    Ok(Node::Call(Box::new(call)))
}
