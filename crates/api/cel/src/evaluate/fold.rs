//! Comprehensions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Eval, Evaluation};
use crate::cost::SELECT_COST;
use crate::error::EvalError;
use crate::plan::{Body, Fold, Node};
use crate::value::{Key, List, Map, Value};

/// The elements that a comprehension visits.
enum Range<'v> {
    List(List<'v>),
    Map(Map<'v>, Vec<Key<'v>>),
}

impl<'v> Range<'v> {
    fn new(value: Value<'v>, has_two: bool) -> Result<Range<'v>, EvalError> {
        match value {
            Value::List(list) => Ok(Range::List(list)),
            Value::Map(map) => {
                let keys = map.keys();
                Ok(Range::Map(map, keys))
            }
            other => Err(no_range(&other, has_two)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Map(_, keys) => keys.len(),
        }
    }

    /// Returns the values of the variables.
    fn get(&self, index: usize, has_two: bool) -> Option<(Value<'v>, Option<Value<'v>>)> {
        match self {
            Range::List(list) if has_two => {
                Some((Value::Int(index as i64), Some(list.get(index)?)))
            }
            Range::List(list) => Some((list.get(index)?, None)),
            Range::Map(map, keys) => {
                let key = keys.get(index)?;
                let value = if has_two {
                    Some(map.get_listed(key)?)
                } else {
                    None
                };
                Some((key.to_value(), value))
            }
        }
    }
}

impl<'v> Evaluation<'_, 'v> {
    pub(super) fn fold(&mut self, fold: &Fold) -> Eval<'v> {
        let range = Range::new(self.eval(&fold.range)?, fold.has_two)?;
        let init = self.eval(&fold.init)?;
        let depth = self.locals.len();
        let accumulated = self.run_body(fold, &range, init);
        // Before the error is returned: an operator around the loop may absorb it, and the slots of
        // the variables that follow must be right then.
        self.locals.truncate(depth);
        self.locals.push(accumulated?);
        let result = self.eval(&fold.result);
        self.locals.truncate(depth);
        result
    }

    fn run_body(&mut self, fold: &Fold, range: &Range<'v>, init: Value<'v>) -> Eval<'v> {
        match &fold.body {
            Body::Bind => Ok(init),
            Body::All(predicate) => self.quantify(fold, range, predicate, false),
            Body::Exists(predicate) => self.quantify(fold, range, predicate, true),
            Body::Append(filter, element, cost) => {
                self.append(fold, range, filter.as_ref(), (element, *cost))
            }
            Body::Insert(filter, key, value) => {
                self.insert(fold, range, filter.as_ref(), key.as_ref(), value)
            }
            Body::General(condition, step) => self.loop_over(fold, range, init, condition, step),
        }
    }

    /// Sets the variables to the element at `index`.
    fn enter(
        &mut self,
        fold: &Fold,
        range: &Range<'v>,
        index: usize,
        accumulator: Value<'v>,
    ) -> Result<(), EvalError> {
        // An iteration may have no cost, and loops nest: without this bound a short expression over
        // a long list would not end in any useful time.
        self.budget.work(1)?;
        let (first, second) = range
            .get(index, fold.has_two)
            .ok_or(EvalError::NoSuchOverload)?;
        self.locals.truncate(fold.slot);
        self.locals.push(accumulator);
        self.locals.push(first);
        self.locals.extend(second);
        Ok(())
    }

    /// Evaluates `all` and `exists`, which absorb errors if another element decides.
    fn quantify(
        &mut self,
        fold: &Fold,
        range: &Range<'v>,
        predicate: &Node,
        deciding: bool,
    ) -> Eval<'v> {
        let mut outcome = Ok(!deciding);
        // The condition reads the accumulator, negates it for `exists`, and tests it.
        let condition_cost = if deciding {
            SELECT_COST + 2
        } else {
            SELECT_COST + 1
        };
        for index in 0..range.len() {
            self.enter(fold, range, index, Value::Null)?;
            self.budget.charge(condition_cost)?;
            if outcome == Ok(deciding) {
                break;
            }
            self.budget.charge(SELECT_COST)?;
            let term = self.eval_term(predicate)?;
            outcome = match (outcome, term) {
                (_, Ok(value)) if value == deciding => Ok(deciding),
                // An error stays the outcome until an element decides.
                (Err(error), _) => Err(error),
                (Ok(_), term) => term,
            };
        }
        outcome.map(Value::Bool)
    }

    fn holds(&mut self, filter: Option<&Node>) -> Result<bool, EvalError> {
        match filter {
            None => Ok(true),
            Some(filter) => match self.eval(filter)? {
                Value::Bool(value) => Ok(value),
                _ => Err(EvalError::NoSuchOverload),
            },
        }
    }

    fn append(
        &mut self,
        fold: &Fold,
        range: &Range<'v>,
        filter: Option<&Node>,
        (element, cost): (&Node, u64),
    ) -> Eval<'v> {
        let mut values = Vec::new();
        for index in 0..range.len() {
            // No expression can name the accumulator, so its slot needs no value.
            self.enter(fold, range, index, Value::Null)?;
            if self.holds(filter)? {
                values.push(self.eval(element)?);
                self.budget.charge(cost)?;
            }
        }
        Ok(Value::list(values))
    }

    fn insert(
        &mut self,
        fold: &Fold,
        range: &Range<'v>,
        filter: Option<&Node>,
        key: Option<&Node>,
        value: &Node,
    ) -> Eval<'v> {
        let mut entries = BTreeMap::new();
        for index in 0..range.len() {
            self.enter(fold, range, index, Value::Null)?;
            if !self.holds(filter)? {
                continue;
            }
            // The accumulator and the call of the inserting function.
            self.budget.charge(SELECT_COST + 1)?;
            match key {
                Some(key) => {
                    let key = Key::from_literal(&self.eval(key)?)?;
                    let value = self.eval(value)?;
                    insert_entry(&mut entries, key, value)?;
                }
                None => {
                    let Value::Map(map) = self.eval(value)? else {
                        return Err(EvalError::NoSuchOverload);
                    };
                    // An inserted map costs the same for any size, so its entries count as work.
                    self.budget.work(map.len() as u64)?;
                    for (key, value) in map.iter() {
                        insert_entry(&mut entries, key, value)?;
                    }
                }
            }
        }
        Ok(Value::Map(Map::Values(Arc::new(entries))))
    }

    fn loop_over(
        &mut self,
        fold: &Fold,
        range: &Range<'v>,
        init: Value<'v>,
        condition: &Node,
        step: &Node,
    ) -> Eval<'v> {
        let mut accumulator = init;
        for index in 0..range.len() {
            self.enter(fold, range, index, accumulator.clone())?;
            if let Value::Bool(false) = self.eval(condition)? {
                break;
            }
            accumulator = self.eval(step)?;
        }
        Ok(accumulator)
    }
}

fn insert_entry<'v>(
    entries: &mut BTreeMap<Key<'v>, Value<'v>>,
    key: Key<'v>,
    value: Value<'v>,
) -> Result<(), EvalError> {
    if entries.contains_key(&key) {
        return Err(EvalError::message(format!(
            "insert failed: key {key} already exists"
        )));
    }
    entries.insert(key, value);
    Ok(())
}

/// Creates the error of a comprehension over a value that is no list or map, with cel-go's names of
/// types.
fn no_range(value: &Value<'_>, has_two: bool) -> EvalError {
    let name = match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Optional(_) => "*types.Optional",
        _ => "*types.Type",
    };
    EvalError::message(match has_two {
        true => format!("unsupported comprehension range type: {name}"),
        false => format!("got '{name}', expected iterable type"),
    })
}
