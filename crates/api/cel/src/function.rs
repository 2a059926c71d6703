//! Declarations of functions: a name with overloads.

use crate::cost::{ActualCost, EstimateCost};
use crate::error::EvalError;
use crate::types::Type;
use crate::value::Value;

/// The implementation of an overload; a receiver is the first argument.
pub type Implementation = for<'v> fn(&[Value<'v>]) -> Result<Value<'v>, EvalError>;

/// An implementation that takes units of work from a budget, for work that its cost does not
/// measure.
pub type BoundedImplementation = for<'v> fn(&[Value<'v>], &mut u64) -> Result<Value<'v>, EvalError>;

/// One signature of a function.
#[derive(Debug, Clone)]
pub struct Overload {
    /// The id as in cel-go or Kubernetes (`string_to_int64`).
    pub id: &'static str,
    /// Called as `receiver.name(...)`.
    pub receiver: bool,
    /// The types of the arguments, the receiver first.
    pub arguments: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// The implementation. The evaluator has checked the number of arguments and their run-time
    /// types.
    pub implementation: Implementation,
    /// Replaces the implementation if it is set.
    pub bounded: Option<BoundedImplementation>,
    /// The actual cost, if it is not 1.
    pub cost: Option<ActualCost>,
    /// The estimated cost, if it is not 1.
    pub estimate: Option<EstimateCost>,
}

impl Overload {
    /// Declares `name(arguments...)`.
    pub fn global(
        id: &'static str,
        arguments: Vec<Type>,
        result: Type,
        implementation: Implementation,
    ) -> Overload {
        Overload {
            id,
            receiver: false,
            arguments,
            result,
            implementation,
            bounded: None,
            cost: None,
            estimate: None,
        }
    }

    /// Declares `arguments[0].name(arguments[1..]...)`.
    pub fn receiver(
        id: &'static str,
        arguments: Vec<Type>,
        result: Type,
        implementation: Implementation,
    ) -> Overload {
        Overload {
            receiver: true,
            ..Overload::global(id, arguments, result, implementation)
        }
    }

    /// Reports whether the overload can be called with these values.
    pub fn admits(&self, values: &[Value<'_>]) -> bool {
        self.arguments.len() == values.len()
            && self
                .arguments
                .iter()
                .zip(values)
                .all(|(declared, value)| value.has_type(declared))
    }

    /// Sets the implementation that takes work from the budget; it replaces the other one.
    #[must_use]
    pub fn with_work(mut self, bounded: BoundedImplementation) -> Overload {
        self.bounded = Some(bounded);
        self
    }

    /// An implementation for overloads that have one with work.
    pub fn unbounded<'v>(_: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
        Err(EvalError::NoSuchOverload)
    }

    /// Sets the cost functions.
    #[must_use]
    pub fn with_cost(mut self, cost: ActualCost, estimate: EstimateCost) -> Overload {
        self.cost = Some(cost);
        self.estimate = Some(estimate);
        self
    }
}

/// A function with its overloads.
#[derive(Debug, Clone)]
pub struct Function {
    /// The name, with dots if it is qualified (`math.greatest`).
    pub name: &'static str,
    /// The overloads in the order in which the checker tries them.
    pub overloads: Vec<Overload>,
}

impl Function {
    /// Declares a function.
    pub fn new(name: &'static str, overloads: Vec<Overload>) -> Function {
        Function { name, overloads }
    }
}

/// Creates the error of a call that no overload admits. Operators do not name the types.
pub fn no_overload(function: &str, arguments: &[Value<'_>]) -> EvalError {
    if function == "size" {
        return EvalError::message("no such overload: size");
    }
    if function.starts_with(['_', '@', '!', '-'])
        || matches!(function, "contains" | "startsWith" | "endsWith" | "matches")
    {
        return EvalError::NoSuchOverload;
    }
    let types: Vec<Type> = arguments.iter().map(Value::type_of).collect();
    let types: Vec<&str> = types.iter().map(Type::runtime_name).collect();
    EvalError::message(format!(
        "no such overload: {function}({})",
        types.join(", ")
    ))
}
