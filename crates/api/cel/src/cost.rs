//! Ranges of sizes and costs, and the slots by which functions declare their cost.

use crate::types::Type;
use crate::value::Value;

// The unit and the factors are those of cel-go. Users have tuned their expressions to upstream's
// limits, so that another measure would reject what upstream accepts.

/// The cost of reading an identifier or a field.
pub const SELECT_COST: u64 = 1;
/// The cost of creating a list.
pub const LIST_CREATE_COST: u64 = 10;
/// The cost of creating a map.
pub const MAP_CREATE_COST: u64 = 30;
/// The cost of creating an object.
pub const STRUCT_CREATE_COST: u64 = 40;
/// The cost of traversing one character of a string.
pub const STRING_TRAVERSAL_FACTOR: f64 = 0.1;
/// The cost of one character of a regular expression, per unit of string cost.
pub const REGEX_LENGTH_FACTOR: f64 = 0.25;
// Upstream chose the limits by time: about 0.1 s for one evaluation, 1 s for all of an object.

/// The cost limit of one evaluation.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The cost limit of all evaluations for one object, or for one policy binding.
pub const RUNTIME_BUDGET: u64 = 10_000_000;

/// A range of costs or sizes; arithmetic saturates. Sizes are what `size()` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least cost or size.
    pub min: u64,
    /// The greatest cost or size.
    pub max: u64,
}

impl Range {
    /// A size of which nothing is known.
    pub const UNKNOWN: Range = Range {
        min: 0,
        max: u64::MAX,
    };
    /// No cost.
    pub const ZERO: Range = Range { min: 0, max: 0 };

    /// Returns the range from `min` to `max`.
    pub const fn new(min: u64, max: u64) -> Range {
        Range { min, max }
    }

    /// Returns the range of one value.
    pub const fn fixed(value: u64) -> Range {
        Range {
            min: value,
            max: value,
        }
    }

    /// Returns the sum.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "the sum saturates, so it is not that of an operator"
    )]
    pub fn add(self, other: Range) -> Range {
        Range::new(
            self.min.saturating_add(other.min),
            self.max.saturating_add(other.max),
        )
    }

    /// Returns the product.
    #[must_use]
    pub fn multiply(self, other: Range) -> Range {
        Range::new(
            self.min.saturating_mul(other.min),
            self.max.saturating_mul(other.max),
        )
    }

    /// Returns the product with a factor, rounded up.
    #[must_use]
    pub fn scale(self, factor: f64) -> Range {
        Range::new(scale_cost(self.min, factor), scale_cost(self.max, factor))
    }

    /// Returns the smallest range that covers both.
    #[must_use]
    pub fn union(self, other: Range) -> Range {
        Range::new(self.min.min(other.min), self.max.max(other.max))
    }
}

/// Returns the product of a size and a factor, rounded up; the greatest number if it overflows.
pub fn scale_cost(size: u64, factor: f64) -> u64 {
    // A conversion from a float saturates.
    (size as f64 * factor).ceil() as u64
}

/// Returns the size that cost functions use: that of strings, bytes, lists and maps, otherwise 1.
pub fn actual_size(value: &Value<'_>) -> u64 {
    match value {
        // CEL's strings consist of code points, and `size()` and upstream's costs count these.
        Value::String(text) => text.chars().count() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(list) => list.len() as u64,
        Value::Map(map) => map.len() as u64,
        Value::Object(object) => object.size().unwrap_or(1),
        Value::Optional(Some(inner)) => actual_size(inner),
        _ => 1,
    }
}

/// An argument of a call whose cost is estimated.
#[derive(Debug, Clone)]
pub struct Argument {
    /// The type of the expression.
    pub result_type: Type,
    /// The size, if the expression or the schema states it.
    pub known_size: Option<Range>,
    /// The size of the elements of a list, if the schema states it.
    pub known_element_size: Option<Range>,
    /// The value of a literal.
    pub literal: Option<Value<'static>>,
}

impl Argument {
    /// Returns the size, or an unlimited range.
    pub fn size(&self) -> Range {
        self.known_size.unwrap_or(Range::UNKNOWN)
    }

    /// Returns the type of the elements of a list, or the first type parameter.
    pub fn element_type(&self) -> Option<&Type> {
        self.result_type.parameters().into_iter().next()
    }

    /// Returns the size of the elements of a list, or an unlimited range.
    pub fn element_size(&self) -> Range {
        self.known_element_size.unwrap_or(Range::UNKNOWN)
    }
}

/// The call whose cost is estimated.
#[derive(Debug, Clone)]
pub struct CallSite {
    /// The receiver of a receiver-style call.
    pub target: Option<Argument>,
    /// The arguments without the receiver.
    pub arguments: Vec<Argument>,
}

/// The estimated cost of a call without that of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallEstimate {
    /// The cost.
    pub cost: Range,
    /// The size of the result, if it can be bounded.
    pub result_size: Option<Range>,
}

impl CallEstimate {
    /// Returns an estimate without the size of the result.
    pub const fn new(cost: Range) -> CallEstimate {
        CallEstimate {
            cost,
            result_size: None,
        }
    }

    /// Returns an estimate with the size of the result.
    pub const fn sized(cost: Range, result_size: Range) -> CallEstimate {
        CallEstimate {
            cost,
            result_size: Some(result_size),
        }
    }
}

/// Estimates the cost of a call; `None` means the default of 1.
pub type EstimateCost = fn(&CallSite) -> Option<CallEstimate>;

/// Computes the actual cost of a call from its arguments (the receiver first) and its result;
/// `None` means the default of 1.
pub type ActualCost = for<'v> fn(&[Value<'v>], &Value<'v>) -> Option<u64>;
