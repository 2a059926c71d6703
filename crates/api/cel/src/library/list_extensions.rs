//! Library `lists` of cel-go, version 3: parts, order and duplicates of lists.

use std::cmp::Ordering;

use crate::ast::{
    ACCUMULATOR, Comprehension, Expr, ExprFactory, ExprKind, Macro, MacroError, Unexpanded,
};
use crate::compare::{compare, equal_within};
use crate::cost::{
    Argument, CallEstimate, CallSite, LIST_CREATE_COST, Range, STRING_TRAVERSAL_FACTOR,
    actual_size, scale_cost,
};
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{List, Value};

use super::costs::{check_work, size_at, target_size};

/// Cost of a call without the size of its list.
const CALL_COST: u64 = 1 + LIST_CREATE_COST;
/// Cost per pair of elements that are compared.
const PAIR_FACTOR: f64 = 2.0;
/// Variable that holds the list of `sortBy`. No expression can name it.
const SORT_INPUT: &str = "@__sortBy_input__";

/// Types that have an order, with the ids of `sort` and of the function behind `sortBy`.
const COMPARABLE: [(&str, &str, Type); 8] = [
    ("list_int_sort", "list_int_sortByAssociatedKeys", Type::Int),
    (
        "list_uint_sort",
        "list_uint_sortByAssociatedKeys",
        Type::Uint,
    ),
    (
        "list_double_sort",
        "list_double_sortByAssociatedKeys",
        Type::Double,
    ),
    (
        "list_bool_sort",
        "list_bool_sortByAssociatedKeys",
        Type::Bool,
    ),
    (
        "list_google.protobuf.Duration_sort",
        "list_google.protobuf.Duration_sortByAssociatedKeys",
        Type::Duration,
    ),
    (
        "list_google.protobuf.Timestamp_sort",
        "list_google.protobuf.Timestamp_sortByAssociatedKeys",
        Type::Timestamp,
    ),
    (
        "list_string_sort",
        "list_string_sortByAssociatedKeys",
        Type::String,
    ),
    (
        "list_bytes_sort",
        "list_bytes_sortByAssociatedKeys",
        Type::Bytes,
    ),
];

/// Returns the library.
pub fn library() -> Library {
    let mut functions = declare_parts();
    functions.push(declare_flatten());
    functions.extend(declare_sorts());
    functions.push(declare_range());
    Library {
        name: "cel.lib.ext.lists",
        since: 34,
        functions,
        macros: vec![Macro {
            name: "sortBy",
            receiver: true,
            arguments: Some(2),
            expand: expand_sort_by,
        }],
        ..Library::default()
    }
}

/// Returns the type of lists of any element, for functions that keep the elements.
fn build_list_type() -> Type {
    Type::list(Type::param("T"))
}

/// Declares `slice`, `reverse` and `distinct`.
fn declare_parts() -> Vec<Function> {
    let list = build_list_type;
    let slice = Overload::receiver(
        "list_slice",
        vec![list(), Type::Int, Type::Int],
        list(),
        slice,
    );
    let reverse = Overload::receiver("list_reverse", vec![list()], list(), reverse);
    let distinct = Overload::receiver("list_distinct", vec![list()], list(), Overload::unbounded)
        .with_work(distinct)
        .with_cost(sort_cost, estimate_distinct);
    vec![
        Function::new("slice", vec![slice.with_cost(result_cost, estimate_slice)]),
        Function::new(
            "reverse",
            vec![reverse.with_cost(result_cost, estimate_same)],
        ),
        Function::new("distinct", vec![distinct]),
    ]
}

fn declare_flatten() -> Function {
    let list = build_list_type;
    let any = || Type::list(Type::Dyn);
    let flatten = |id, arguments, result, run: Implementation| {
        Overload::receiver(id, arguments, result, run).with_cost(flatten_cost, estimate_flatten)
    };
    Function::new(
        "flatten",
        vec![
            flatten(
                "list_flatten",
                vec![Type::list(list())],
                list(),
                flatten_one,
            ),
            flatten(
                "list_flatten_int",
                vec![any(), Type::Int],
                any(),
                flatten_one,
            ),
        ],
    )
}

/// Declares `sort` and the function that the macro `sortBy` calls.
fn declare_sorts() -> [Function; 2] {
    let list = build_list_type;
    let sort = COMPARABLE.map(|(id, _, element)| {
        let sorted = Type::list(element);
        Overload::receiver(id, vec![sorted.clone()], sorted, sort)
            .with_cost(sort_cost, estimate_sort)
    });
    let sort_by = COMPARABLE.map(|(_, id, key)| {
        Overload::receiver(id, vec![list(), Type::list(key)], list(), sort_by_keys)
            .with_cost(sort_by_cost, estimate_sort_by)
    });
    [
        Function::new("sort", sort.into()),
        Function::new("@sortByAssociatedKeys", sort_by.into()),
    ]
}

fn declare_range() -> Function {
    let range = Overload::global("lists_range", vec![Type::Int], Type::list(Type::Int), range)
        .with_cost(result_cost, estimate_range);
    Function::new("lists.range", vec![range])
}

fn take_list<'a, 'v>(values: &'a [Value<'v>]) -> Result<&'a List<'v>, EvalError> {
    match values.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn slice<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    let fail = |reason: String| {
        Err(EvalError::message(format!(
            "cannot slice({start}, {end}), {reason}"
        )))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fail("negative indexes not supported".to_owned());
    };
    if from > to {
        return fail("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return fail(format!("list is length {}", list.len()));
    }
    Ok(Value::list(
        (from..to).filter_map(|index| list.get(index)).collect(),
    ))
}

fn reverse<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let list = take_list(values)?;
    Ok(Value::list(
        (0..list.len())
            .rev()
            .filter_map(|index| list.get(index))
            .collect(),
    ))
}

fn range<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::Int(end)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    // Upstream creates the list before it computes the cost.
    check_work(u64::try_from(*end).unwrap_or(0))?;
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}

fn flatten_one<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (list, depth) = match values {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        [other, rest @ ..] => {
            let types: Vec<String> = rest
                .iter()
                .map(|value| value.type_of().runtime_name().to_owned())
                .collect();
            return Err(EvalError::message(format!(
                "no such overload: {}.flatten({})",
                other.type_of().runtime_name(),
                types.join(", ")
            )));
        }
        [] => return Err(EvalError::NoSuchOverload),
    };
    let depth =
        usize::try_from(depth).map_err(|_| EvalError::message("level must be non-negative"))?;
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

/// Appends the elements of a list. Values do not nest deeper than an object or an expression, so
/// that the recursion is bounded.
fn flatten_into<'v>(
    list: &List<'v>,
    depth: usize,
    flat: &mut Vec<Value<'v>>,
) -> Result<(), EvalError> {
    for element in list.iter() {
        match element {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat)?,
            other => flat.push(other),
        }
    }
    check_work(flat.len() as u64)
}

fn sort<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let list = take_list(values)?;
    sort_by_list(list, list)
}

fn sort_by_keys<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::List(list), Value::List(keys)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    if list.len() != keys.len() {
        return Err(EvalError::message(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    sort_by_list(list, keys)
}

fn sort_by_list<'v>(list: &List<'v>, keys: &List<'v>) -> Result<Value<'v>, EvalError> {
    let pairs = (keys.len() as u64).saturating_mul(keys.len() as u64);
    // Upstream's cost is quadratic, so a list beyond each limit is rejected before it is sorted.
    check_work(pairs)?;
    let keys: Vec<Value<'v>> = keys.iter().collect();
    let Some(first) = keys.first() else {
        return Ok(Value::List(list.clone()));
    };
    // NaN does not compare with itself, although its type has an order.
    if compare(first, first).is_none() && !matches!(first, Value::Double(_)) {
        return Err(EvalError::message("list elements must be comparable"));
    }
    let kind = first.type_of();
    if keys
        .iter()
        .any(|key| key.type_of().runtime_name() != kind.runtime_name())
    {
        return Err(EvalError::message("list elements must have the same type"));
    }
    let mut pairs: Vec<(Value<'v>, Value<'v>)> = keys.into_iter().zip(list.iter()).collect();
    pairs.sort_by(|(left, _), (right, _)| order_keys(left, right));
    Ok(Value::list(
        pairs.into_iter().map(|(_, element)| element).collect(),
    ))
}

/// Compares keys of one type. NaN needs a place too, because a sort fails without a total order.
fn order_keys(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    match (left, right) {
        (Value::Double(left), Value::Double(right)) => left
            .partial_cmp(right)
            .unwrap_or_else(|| left.total_cmp(right)),
        _ => compare(left, right).unwrap_or(Ordering::Equal),
    }
}

fn distinct<'v>(values: &[Value<'v>], fuel: &mut u64) -> Result<Value<'v>, EvalError> {
    let list = take_list(values)?;
    check_work((list.len() as u64).saturating_mul(list.len() as u64))?;
    let mut unique: Vec<Value<'v>> = Vec::new();
    for element in list.iter() {
        let mut is_known = false;
        for known in &unique {
            is_known = equal_within(known, &element, fuel).ok_or(EvalError::CostLimitExceeded)?;
            if is_known {
                break;
            }
        }
        if !is_known {
            unique.push(element);
        }
    }
    Ok(Value::list(unique))
}

/// Rewrites `list.sortBy(x, key)` to one evaluation of the list, its keys, and a sort by them.
fn expand_sort_by(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Result<Expr, Unexpanded> {
    let (Some(target), Ok([variable, key])) = (target, <[Expr; 2]>::try_from(arguments)) else {
        return Err(Unexpanded::Call(None, Vec::new()));
    };
    let fail = |id, message: &str| {
        Err(Unexpanded::Error(MacroError {
            id,
            message: message.to_owned(),
        }))
    };
    let may_be_list = matches!(
        target.kind,
        ExprKind::List(_)
            | ExprKind::Select(_)
            | ExprKind::Ident(_)
            | ExprKind::Comprehension(_)
            | ExprKind::Call(_)
    );
    if !may_be_list {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or \
                       select expression";
        return fail(target.id, message);
    }
    let ExprKind::Ident(name) = variable.kind else {
        return fail(variable.id, "argument is not an identifier");
    };
    // A variable with this name would hide the accumulator. Older versions of cel-go called it
    // `__result__`.
    if name == ACCUMULATOR || name == "__result__" {
        return fail(
            variable.id,
            "iteration variable overwrites accumulator variable",
        );
    }
    let keys = create_map(factory, name, key);
    let input = factory.ident(SORT_INPUT);
    let sorted = factory.member_call(input, "@sortByAssociatedKeys", vec![keys]);
    // The form of `cel.bind`: no loop, only a variable, so that the list is evaluated once.
    let bind = Comprehension {
        range: factory.list(Vec::new()),
        variable: "#unused".to_owned(),
        variable2: None,
        accumulator: SORT_INPUT.to_owned(),
        init: target,
        condition: factory.literal(Value::Bool(false)),
        step: factory.ident(SORT_INPUT),
        result: sorted,
    };
    Ok(factory.comprehension(bind))
}

/// Creates `input.map(name, key)`.
fn create_map(factory: &mut dyn ExprFactory, name: String, key: Expr) -> Expr {
    let range = factory.ident(SORT_INPUT);
    let init = factory.list(Vec::new());
    let condition = factory.literal(Value::Bool(true));
    let accumulator = factory.ident(ACCUMULATOR);
    let element = factory.list(vec![key]);
    let step = factory.call("_+_", vec![accumulator, element]);
    let result = factory.ident(ACCUMULATOR);
    factory.comprehension(Comprehension {
        range,
        variable: name,
        variable2: None,
        accumulator: ACCUMULATOR.to_owned(),
        init,
        condition,
        step,
        result,
    })
}

fn cost_of(size: u64, factor: f64) -> u64 {
    // Rounded down, unlike the estimate.
    ((size as f64 * factor) as u64).saturating_add(CALL_COST)
}

fn result_cost<'v>(_: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    Some(cost_of(actual_size(result), 1.0))
}

fn flatten_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    let depth = match values.get(1) {
        Some(Value::Int(depth)) => *depth as f64,
        _ => 1.0,
    };
    Some(cost_of(size_at(values, 0), depth))
}

fn compare_cost(list: Option<&Value<'_>>) -> Option<u64> {
    let Some(Value::List(list)) = list else {
        return None;
    };
    let size = list.len() as u64;
    // The first element stands for all, because a sort needs elements of one type.
    let factor = match list.get(0) {
        Some(Value::String(_) | Value::Bytes(_)) => PAIR_FACTOR + STRING_TRAVERSAL_FACTOR,
        _ => PAIR_FACTOR,
    };
    Some(cost_of(size.saturating_mul(size), factor))
}

fn sort_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    compare_cost(values.first())
}

fn sort_by_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    compare_cost(values.get(1))
}

fn estimate_size(size: Range, factor: f64) -> CallEstimate {
    let cost = Range::new(scale_cost(size.min, factor), scale_cost(size.max, factor));
    CallEstimate::sized(cost.add(Range::fixed(CALL_COST)), size)
}

/// Returns the number of a literal argument that is not below zero, or what stands for any number.
fn literal_number(argument: Option<&Argument>, unknown: u64) -> u64 {
    match argument.and_then(|argument| argument.literal.as_ref()) {
        Some(Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => unknown,
    }
}

fn estimate_slice(site: &CallSite) -> Option<CallEstimate> {
    let start = literal_number(site.arguments.first(), 0);
    let end = literal_number(site.arguments.get(1), target_size(site).max);
    // Upstream's subtraction wraps around for a slice that always fails.
    Some(estimate_size(Range::fixed(end.wrapping_sub(start)), 1.0))
}

fn estimate_range(site: &CallSite) -> Option<CallEstimate> {
    let end = literal_number(site.arguments.first(), u64::MAX);
    Some(estimate_size(Range::fixed(end), 1.0))
}

fn estimate_same(site: &CallSite) -> Option<CallEstimate> {
    Some(estimate_size(target_size(site), 1.0))
}

fn estimate_flatten(site: &CallSite) -> Option<CallEstimate> {
    let depth = match site.arguments.first() {
        Some(argument) => literal_number(Some(argument), u64::MAX),
        None => 1,
    };
    Some(estimate_size(target_size(site), depth as f64))
}

fn estimate_distinct(site: &CallSite) -> Option<CallEstimate> {
    let size = target_size(site);
    Some(estimate_size(size.multiply(size), PAIR_FACTOR))
}

fn estimate_compare(keys: &Argument) -> CallEstimate {
    let size = keys.size();
    let factor = match keys.element_type() {
        Some(Type::String | Type::Bytes) => PAIR_FACTOR + STRING_TRAVERSAL_FACTOR,
        _ => PAIR_FACTOR,
    };
    estimate_size(size.multiply(size), factor)
}

fn estimate_sort(site: &CallSite) -> Option<CallEstimate> {
    site.target.as_ref().map(estimate_compare)
}

fn estimate_sort_by(site: &CallSite) -> Option<CallEstimate> {
    site.arguments.first().map(estimate_compare)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn numbers(values: &[i64]) -> Value<'static> {
        Value::list(values.iter().map(|n| Value::Int(*n)).collect())
    }

    #[test]
    fn long_ranges_are_not_created() {
        for end in [i64::MAX, 1_000_000_000] {
            let result = range(&[Value::Int(end)]);
            assert_eq!(result.err(), Some(EvalError::CostLimitExceeded));
        }
    }

    #[test]
    fn quadratic_work_is_bounded() {
        let long = numbers(&vec![1; 10_000]);
        assert_eq!(
            distinct(std::slice::from_ref(&long), &mut 1_000).err(),
            Some(EvalError::CostLimitExceeded)
        );
        assert_eq!(sort(&[long]).err(), Some(EvalError::CostLimitExceeded));
    }

    #[test]
    fn nan_has_a_place_in_the_order() {
        let doubles = [2.0, f64::NAN, 1.0, -f64::NAN, 0.0, -0.0];
        let doubles = doubles.repeat(20).into_iter();
        let list = Value::list(doubles.map(Value::Double).collect());
        let Value::List(sorted) = sort(&[list]).unwrap() else {
            panic!("no list")
        };
        assert_eq!(sorted.len(), 120);
    }

    #[test]
    fn sort_needs_elements_of_one_type_with_an_order() {
        let mixed = Value::list(vec![Value::Int(1), Value::string("a")]);
        assert_eq!(
            sort(&[mixed]).err(),
            Some(EvalError::message("list elements must have the same type"))
        );
        let null = Value::list(vec![Value::Null]);
        assert_eq!(
            sort(&[null]).err(),
            Some(EvalError::message("list elements must be comparable"))
        );
    }

    #[test]
    fn slice_beyond_the_list_is_an_error() {
        for (start, end, is_good) in [(0, 3, true), (1, 1, true), (0, 4, false), (2, 1, false)] {
            let values = [numbers(&[1, 2, 3]), Value::Int(start), Value::Int(end)];
            assert_eq!(slice(&values).is_ok(), is_good, "{start} {end}");
        }
    }
}
