//! Library `sets` of cel-go: lists that are compared as sets.

use crate::compare::equal_within;
use crate::cost::{CallEstimate, CallSite, Range};
use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{List, Value};

use super::costs::{argument_size, check_work, size_at};

/// Returns the library.
pub fn library() -> Library {
    let list = || Type::list(Type::param("T"));
    let arguments = || vec![list(), list()];
    let function = |name, id, run, cost, estimate| {
        let overload = Overload::global(id, arguments(), Type::Bool, Overload::unbounded);
        Function::new(
            name,
            vec![overload.with_work(run).with_cost(cost, estimate)],
        )
    };
    Library {
        name: "cel.lib.ext.sets",
        since: 29,
        functions: vec![
            function(
                "sets.contains",
                "list_sets_contains_list",
                contains as _,
                product_cost as _,
                estimate_product as _,
            ),
            function(
                "sets.equivalent",
                "list_sets_equivalent_list",
                equivalent,
                double_product_cost,
                estimate_double_product,
            ),
            function(
                "sets.intersects",
                "list_sets_intersects_list",
                intersects,
                product_cost,
                estimate_product,
            ),
        ],
        ..Library::default()
    }
}

fn has_element<'v>(list: &List<'v>, wanted: &Value<'v>, fuel: &mut u64) -> Result<bool, EvalError> {
    for element in list.iter() {
        if equal_within(&element, wanted, fuel).ok_or(EvalError::CostLimitExceeded)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all<'v>(list: &List<'v>, part: &List<'v>, fuel: &mut u64) -> Result<bool, EvalError> {
    for wanted in part.iter() {
        if !has_element(list, &wanted, fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn take_lists<'a, 'v>(values: &'a [Value<'v>]) -> Result<(&'a List<'v>, &'a List<'v>), EvalError> {
    let [Value::List(left), Value::List(right)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    // Each element of one list may be compared with each element of the other.
    check_work((left.len() as u64).saturating_mul(right.len() as u64))?;
    Ok((left, right))
}

fn contains<'v>(values: &[Value<'v>], fuel: &mut u64) -> Result<Value<'v>, EvalError> {
    let (list, part) = take_lists(values)?;
    has_all(list, part, fuel).map(Value::Bool)
}

fn equivalent<'v>(values: &[Value<'v>], fuel: &mut u64) -> Result<Value<'v>, EvalError> {
    let (left, right) = take_lists(values)?;
    let equivalent = has_all(left, right, fuel)? && has_all(right, left, fuel)?;
    Ok(Value::Bool(equivalent))
}

fn intersects<'v>(values: &[Value<'v>], fuel: &mut u64) -> Result<Value<'v>, EvalError> {
    let (left, right) = take_lists(values)?;
    for wanted in left.iter() {
        if has_element(right, &wanted, fuel)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn product_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    Some(
        size_at(values, 0)
            .saturating_mul(size_at(values, 1))
            .saturating_add(1),
    )
}

fn double_product_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    // Each list is compared with the other.
    let single = product_cost(values, result)?.saturating_sub(1);
    Some(single.saturating_mul(2).saturating_add(1))
}

fn estimate_times(site: &CallSite, factor: f64) -> CallEstimate {
    let pairs = argument_size(site, 0).multiply(argument_size(site, 1));
    CallEstimate::new(pairs.scale(factor).add(Range::fixed(1)))
}

fn estimate_product(site: &CallSite) -> Option<CallEstimate> {
    Some(estimate_times(site, 1.0))
}

fn estimate_double_product(site: &CallSite) -> Option<CallEstimate> {
    Some(estimate_times(site, 2.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::function::BoundedImplementation;

    fn numbers(values: &[i64]) -> Value<'static> {
        Value::list(values.iter().map(|n| Value::Int(*n)).collect())
    }

    fn is_true(run: BoundedImplementation, left: &[i64], right: &[i64]) -> bool {
        matches!(
            run(&[numbers(left), numbers(right)], &mut 1_000).unwrap(),
            Value::Bool(true)
        )
    }

    #[test]
    fn lists_are_compared_without_order_and_repetition() {
        assert!(is_true(contains, &[1, 2, 3], &[3, 1, 1]));
        assert!(!is_true(contains, &[1], &[1, 2]));
        assert!(is_true(contains, &[], &[]));
        assert!(is_true(equivalent, &[1, 2, 2], &[2, 1]));
        assert!(!is_true(equivalent, &[1], &[]));
        assert!(is_true(intersects, &[1, 2], &[2, 3]));
        assert!(!is_true(intersects, &[1], &[]));
    }

    #[test]
    fn work_beyond_any_cost_limit_is_not_begun() {
        let long = numbers(&vec![1; 4_000]);
        assert_eq!(
            contains(&[long.clone(), long], &mut 1_000).err(),
            Some(EvalError::CostLimitExceeded)
        );
    }

    #[test]
    fn comparisons_take_work_from_the_budget() {
        let deep = Value::list(vec![numbers(&[1; 100])]);
        let values = [deep.clone(), deep];
        let mut fuel = 150;
        assert!(contains(&values, &mut fuel).is_ok());
        assert!(contains(&values, &mut fuel).is_err());
    }
}
