//! Evaluation with costs.

mod fold;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::Budget;
use crate::compare::equal_within;
use crate::cost::{
    LIST_CREATE_COST, STRING_TRAVERSAL_FACTOR, STRUCT_CREATE_COST, actual_size, scale_cost,
};
use crate::error::EvalError;
use crate::function::no_overload;
use crate::plan::{CallStep, Indexing, Mode, Node, Selection};
use crate::value::{Key, List, Map, Value};

/// The variables of an evaluation.
pub trait Variables<'v> {
    /// Returns the value of a variable; `None` if it has none.
    ///
    /// A variable that is computed charges its cost to the budget.
    fn find(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'v>, EvalError>>;
}

impl<'v> Variables<'v> for BTreeMap<String, Value<'v>> {
    fn find(&self, name: &str, _: &mut Budget) -> Option<Result<Value<'v>, EvalError>> {
        self.get(name).cloned().map(Ok)
    }
}

impl<'v> Variables<'v> for [(&str, Value<'v>)] {
    fn find(&self, name: &str, _: &mut Budget) -> Option<Result<Value<'v>, EvalError>> {
        self.iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| Ok(value.clone()))
    }
}

impl<'v, const N: usize> Variables<'v> for [(&str, Value<'v>); N] {
    fn find(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'v>, EvalError>> {
        self.as_slice().find(name, budget)
    }
}

type Eval<'v> = Result<Value<'v>, EvalError>;

/// Evaluates planned steps.
pub fn evaluate<'v>(node: &Node, variables: &dyn Variables<'v>, budget: &mut Budget) -> Eval<'v> {
    Evaluation {
        variables,
        budget,
        locals: Vec::new(),
    }
    .eval(node)
}

struct Evaluation<'e, 'v> {
    variables: &'e dyn Variables<'v>,
    budget: &'e mut Budget,
    locals: Vec<Value<'v>>,
}

impl<'v> Evaluation<'_, 'v> {
    fn eval(&mut self, node: &Node) -> Eval<'v> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(name, cost) => self.read_variable(name, *cost),
            Node::Local(slot, cost) => {
                // Charged before the read, as for all nodes: an exhausted budget ends the
                // evaluation without further work.
                self.budget.charge(*cost)?;
                self.locals
                    .get(*slot)
                    .cloned()
                    .ok_or(EvalError::NoSuchOverload)
            }
            Node::Select(selection) => self.select(selection),
            Node::Index(indexing) => self.index(indexing),
            Node::And(terms) => self.combine(&terms.0, &terms.1, false),
            Node::Or(terms) => self.combine(&terms.0, &terms.1, true),
            // Only the chosen branch is evaluated, so an error in the other one has no effect.
            Node::Conditional(parts) => match self.eval(&parts.0)? {
                Value::Bool(true) => self.eval(&parts.1),
                Value::Bool(false) => self.eval(&parts.2),
                _ => Err(EvalError::NoSuchOverload),
            },
            Node::Equal(sides, negated) => self.compare(&**sides, *negated),
            Node::InConstants(node, constants) => self.find_constant(node, constants),
            Node::OptionalOr(sides, unwraps) => self.choose(&sides.0, &sides.1, *unwraps),
            Node::Call(call) => self.call(call),
            Node::List(elements) => self.create_list(elements),
            Node::Map(entries, cost) => {
                let entries = self.create_entries(entries, *cost)?;
                Ok(Value::Map(Map::Values(Arc::new(entries))))
            }
            Node::Struct(name, fields) => {
                let fields = self.create_entries(fields, STRUCT_CREATE_COST)?;
                Ok(Value::Map(Map::Struct(name.clone(), Arc::new(fields))))
            }
            Node::Fold(fold) => self.fold(fold),
        }
    }

    fn read_variable(&mut self, name: &str, cost: u64) -> Eval<'v> {
        self.budget.charge(cost)?;
        match self.variables.find(name, self.budget) {
            Some(result) => result,
            // The checker accepts declared names only, so the host has declared a variable for
            // which it has no value in this request.
            None => Err(EvalError::NoSuchAttribute(name.to_owned())),
        }
    }

    fn select(&mut self, selection: &Selection) -> Eval<'v> {
        let operand = self.eval(&selection.operand)?;
        let key = Key::String(selection.field.clone());
        let (operand, mode) = match unwrap_operand(operand, selection.mode) {
            Ok(unwrapped) => unwrapped,
            Err(absent) => return self.finish_absent(selection.start_cost, absent),
        };
        let found = match operand {
            Value::Map(map) => map.get(&key),
            Value::List(_) => {
                // The error is charged like a success, as in cel-go.
                self.budget.charge(selection.cost + selection.start_cost)?;
                return Err(EvalError::message(
                    "unsupported index type 'string' in list",
                ));
            }
            _ if mode == Mode::Optional => {
                return Err(EvalError::NoSuchKey(selection.field.to_string()));
            }
            _ => None,
        };
        let missing = || EvalError::NoSuchKey(selection.field.to_string());
        self.finish(found, mode, (selection.cost, selection.start_cost), missing)
    }

    fn index(&mut self, indexing: &Indexing) -> Eval<'v> {
        let operand = self.eval(&indexing.operand)?;
        let (operand, mode) = match unwrap_operand(operand, indexing.mode) {
            Ok(unwrapped) => unwrapped,
            Err(absent) => return self.finish_absent(indexing.start_cost, absent),
        };
        // The index is evaluated after the operand, so an absent optional operand leaves it without
        // a cost.
        let index = self.eval(&indexing.index)?;
        let is_absent = |found: &Option<Value<'v>>| found.is_none() && mode == Mode::Optional;
        let missing_key = || EvalError::NoSuchKey(describe_index(&index));
        match operand {
            Value::List(list) => {
                let Some(place) = list_index(&index) else {
                    let found = index.type_of();
                    let message =
                        format!("unsupported index type '{}' in list", found.runtime_name());
                    return Err(EvalError::Message(message));
                };
                // A negative index fails this conversion and is out of bounds, as in cel-go.
                let found = usize::try_from(place)
                    .ok()
                    .and_then(|place| list.get(place));
                if is_absent(&found) {
                    // cel-go doesn't count the step for an absent element, and the total cost
                    // decides about later rules.
                    self.budget.refund(indexing.refund);
                }
                let missing = || EvalError::IndexOutOfBounds(place.to_string());
                self.finish(found, mode, (indexing.cost, indexing.start_cost), missing)
            }
            Value::Map(map) => {
                // A value that can't be a key is in no map, so it isn't found rather than an error.
                let found = Key::from_value(&index).and_then(|key| map.get(&key));
                if is_absent(&found) {
                    self.budget.refund(indexing.refund);
                }
                self.finish(
                    found,
                    mode,
                    (indexing.cost, indexing.start_cost),
                    missing_key,
                )
            }
            _ => {
                self.budget.charge(indexing.cost + indexing.start_cost)?;
                Err(missing_key())
            }
        }
    }

    /// Ends a selection from an optional value that is absent, which has no cost but that of its
    /// start.
    fn finish_absent(&mut self, start_cost: u64, absent: Value<'v>) -> Eval<'v> {
        self.budget.charge(start_cost)?;
        Ok(absent)
    }

    fn finish(
        &mut self,
        found: Option<Value<'v>>,
        mode: Mode,
        (cost, start_cost): (u64, u64),
        missing: impl FnOnce() -> EvalError,
    ) -> Eval<'v> {
        if mode == Mode::Optional && found.is_none() {
            return self.finish_absent(start_cost, Value::Optional(None));
        }
        self.budget.charge(cost + start_cost)?;
        match mode {
            Mode::Value => found.ok_or_else(missing),
            Mode::Presence => Ok(Value::Bool(found.is_some())),
            Mode::Optional => Ok(Value::optional(found)),
        }
    }

    /// Evaluates `&&` or `||`: the deciding value wins over an error of the other term.
    fn combine(&mut self, left: &Node, right: &Node, deciding: bool) -> Eval<'v> {
        // Both sides commute: `a || b` holds if one of them does, even if the other one is an
        // error.
        let left = self.eval_term(left)?;
        if left == Ok(deciding) {
            return Ok(Value::Bool(deciding));
        }
        let right = self.eval_term(right)?;
        if right == Ok(deciding) {
            return Ok(Value::Bool(deciding));
        }
        // Nothing decides: an error of the left term is reported before one of the right.
        left.and(right).map(Value::Bool)
    }

    /// Evaluates a term of a logical operator. The outer error ends the evaluation, the inner may
    /// be absorbed.
    fn eval_term(&mut self, node: &Node) -> Result<Result<bool, EvalError>, EvalError> {
        match self.eval(node) {
            Ok(Value::Bool(value)) => Ok(Ok(value)),
            Ok(_) => Ok(Err(EvalError::NoSuchOverload)),
            Err(error) if error.is_cancellation() => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }

    fn compare(&mut self, sides: &[Node], negated: bool) -> Eval<'v> {
        let sides = self.eval_arguments(sides)?;
        let [left, right] = sides.as_slice() else {
            return Err(EvalError::NoSuchOverload);
        };
        self.charge_traversal(&sides)?;
        let cost = match left {
            // Upstream has a cost of its own for `==` of library values, and forgets `!=`.
            Value::Object(_) if !negated => 1,
            _ => {
                let size = actual_size(left).min(actual_size(right));
                scale_cost(size, STRING_TRAVERSAL_FACTOR)
            }
        };
        self.budget.charge(cost)?;
        // The cost above looks at the size of the outermost value only. The work bounds what is
        // compared inside of it.
        let equal = equal_within(left, right, self.budget.work_left());
        let equal = equal.ok_or(EvalError::CostLimitExceeded)?;
        Ok(Value::Bool(equal != negated))
    }

    fn find_constant(&mut self, node: &Node, constants: &Value<'static>) -> Eval<'v> {
        let value = self.eval(node)?;
        let Value::List(list) = constants else {
            return Err(EvalError::NoSuchOverload);
        };
        self.contains(list, &value)
    }

    fn contains(&mut self, list: &List<'_>, value: &Value<'_>) -> Eval<'v> {
        // The cost counts elements and not what each comparison reads, so the work bounds the
        // latter.
        for element in list.iter() {
            let equal = equal_within(&element, value, self.budget.work_left());
            if equal.ok_or(EvalError::CostLimitExceeded)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    fn choose(&mut self, left: &Node, right: &Node, unwraps: bool) -> Eval<'v> {
        match self.eval(left)? {
            Value::Optional(None) => self.eval(right),
            Value::Optional(Some(inner)) if unwraps => Ok((*inner).clone()),
            optional @ Value::Optional(_) => Ok(optional),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// Evaluates arguments. Of two, the second has its cost even if the first is an error, and so
    /// has the call.
    fn eval_arguments(&mut self, nodes: &[Node]) -> Result<Vec<Value<'v>>, EvalError> {
        let mut arguments = Vec::with_capacity(nodes.len());
        let mut failure = None;
        for node in nodes {
            match self.eval(node) {
                Ok(value) => arguments.push(value),
                Err(error) if error.is_cancellation() || nodes.len() > 2 => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) => {
                self.budget.charge(1)?;
                Err(error)
            }
            None => Ok(arguments),
        }
    }

    fn call(&mut self, call: &CallStep) -> Eval<'v> {
        let arguments = self.eval_arguments(&call.arguments)?;
        self.charge_traversal(&arguments)?;
        // The first one counts: overloads for the same arguments don't exist.
        let Some(overload) = call.overloads.iter().find(|found| found.admits(&arguments)) else {
            return Err(no_overload(&call.function, &arguments));
        };
        if overload.id == "in_list"
            && let [value, Value::List(list)] = arguments.as_slice()
        {
            self.budget
                .charge(if call.has_cost { list.len() as u64 } else { 1 })?;
            let list = list.clone();
            return self.contains(&list, value);
        }
        // Functions that may do much more work than their cost suggests count it themselves.
        let result = match overload.bounded {
            Some(bounded) => bounded(&arguments, self.budget.work_left()),
            None => (overload.implementation)(&arguments),
        };
        // A call that fails costs as much as one that succeeds.
        let value = result.as_ref().unwrap_or(&Value::Null);
        let known = overload.cost.filter(|_| call.has_cost);
        // The result is an argument of the cost, so it is charged after the call, as in cel-go.
        let cost = known.and_then(|cost| cost(&arguments, value)).unwrap_or(1);
        self.budget.charge(cost)?;
        result
    }

    /// Bounds the reading of long strings, which some functions do at a cost of 1.
    fn charge_traversal(&mut self, values: &[Value<'v>]) -> Result<(), EvalError> {
        let bytes: usize = values
            .iter()
            .map(|value| match value {
                Value::String(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            })
            .sum();
        // One unit for each call as well, so that a loop of free calls ends.
        self.budget.work(1 + bytes as u64 / 64)
    }

    fn create_list(&mut self, elements: &[(Node, bool)]) -> Eval<'v> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.eval(element)?;
            match (optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(inner))) => values.push((*inner).clone()),
                (true, other) => return Err(not_optional(&other)),
            }
        }
        // The same for any length: the elements have paid for themselves.
        self.budget.charge(LIST_CREATE_COST)?;
        Ok(Value::list(values))
    }

    fn create_entries(
        &mut self,
        entries: &[(Node, Node, bool)],
        cost: u64,
    ) -> Result<BTreeMap<Key<'v>, Value<'v>>, EvalError> {
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let key = Key::from_literal(&key)?;
            let value = match (optional, self.eval(value)?) {
                (false, value) => value,
                (true, Value::Optional(None)) => continue,
                (true, Value::Optional(Some(inner))) => (*inner).clone(),
                (true, other) => return Err(not_optional(&other)),
            };
            // An error and not the last value, because CEL has no order of entries.
            if map.insert(key, value).is_some() {
                return Err(EvalError::message("Failed with repeated key"));
            }
        }
        self.budget.charge(cost)?;
        Ok(map)
    }
}

fn not_optional(value: &Value<'_>) -> EvalError {
    let found = value.type_of();
    EvalError::message(format!(
        "cannot initialize optional entry from non-optional value {found}"
    ))
}

/// Looks into an optional operand, whose selections are optional too. `Err` is the result if it is
/// absent.
fn unwrap_operand(operand: Value<'_>, mode: Mode) -> Result<(Value<'_>, Mode), Value<'_>> {
    // Presence stays a boolean, so that `has()` on an absent optional is false instead of absent.
    match (operand, mode) {
        (Value::Optional(None), Mode::Presence) => Err(Value::Bool(false)),
        (Value::Optional(None), _) => Err(Value::Optional(None)),
        (Value::Optional(Some(inner)), Mode::Presence) => Ok(((*inner).clone(), mode)),
        (Value::Optional(Some(inner)), _) => Ok(((*inner).clone(), Mode::Optional)),
        (operand, mode) => Ok((operand, mode)),
    }
}

fn describe_index(index: &Value<'_>) -> String {
    Key::from_value(index).map_or_else(|| format!("{:?}", index.type_of()), |key| key.to_string())
}

fn list_index(index: &Value<'_>) -> Option<i128> {
    match index {
        Value::Int(index) => Some((*index).into()),
        Value::Uint(index) => Some((*index).into()),
        // JSON has one type of numbers, so a whole number that came as a double is a valid index.
        Value::Double(index) if index.trunc() == *index => Some(*index as i128),
        _ => None,
    }
}
