//! The steps of an evaluation.

use std::sync::Arc;

use crate::function::Overload;
use crate::value::{Text, Value};

/// A step of an evaluation.
#[derive(Debug, Clone)]
pub enum Node {
    /// A literal, or a computation with literals only.
    Constant(Value<'static>),
    /// A variable of the environment.
    Variable(String, u64),
    /// A variable of a comprehension, by its place on the stack.
    Local(usize, u64),
    /// A field of an object or map.
    Select(Box<Selection>),
    /// An element of a list or map.
    Index(Box<Indexing>),
    /// `a && b`.
    And(Box<(Node, Node)>),
    /// `a || b`.
    Or(Box<(Node, Node)>),
    /// `a ? b : c`.
    Conditional(Box<(Node, Node, Node)>),
    /// `a == b`, or `a != b` if negated.
    Equal(Box<[Node; 2]>, bool),
    /// `a in [literals]`.
    InConstants(Box<Node>, Value<'static>),
    /// `a.or(b)`, or `a.orValue(b)` if it unwraps.
    OptionalOr(Box<(Node, Node)>, bool),
    /// A call of a function.
    Call(Box<CallStep>),
    /// A list; elements may be marked as optional.
    List(Vec<(Node, bool)>),
    /// A map, or an object with fields; entries may be marked as optional.
    Map(Vec<(Node, Node, bool)>, u64),
    /// An object with the name of its type.
    Struct(Arc<str>, Vec<(Node, Node, bool)>),
    /// A comprehension.
    Fold(Box<Fold>),
}

/// A selection of a field.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The object or map.
    pub operand: Node,
    /// The name of the field.
    pub field: Text<'static>,
    /// The way to read the field.
    pub mode: Mode,
    /// The cost.
    pub cost: u64,
    /// The cost of the start of a chain of selections; an absent field has only this cost.
    pub start_cost: u64,
}

/// The ways to read a field or an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The value; absence is an error.
    Value,
    /// Presence.
    Presence,
    /// An optional value.
    Optional,
}

/// A selection of an element.
#[derive(Debug, Clone)]
pub struct Indexing {
    /// The list or map.
    pub operand: Node,
    /// The index or key.
    pub index: Node,
    /// The way to read the element.
    pub mode: Mode,
    /// The cost beyond that of operand and index.
    pub cost: u64,
    /// The cost of the start of a chain of selections; an absent element has only this cost.
    pub start_cost: u64,
    /// The part of the index's cost that an absent element does not have.
    pub refund: u64,
}

/// A call.
#[derive(Debug, Clone)]
pub struct CallStep {
    /// The name of the function.
    pub function: Arc<str>,
    /// The overloads of which the first that admits the values is called.
    pub overloads: Vec<Arc<Overload>>,
    /// The arguments, a receiver first.
    pub arguments: Vec<Node>,
    /// The cost is that of an overload, and not 1.
    pub has_cost: bool,
}

/// A comprehension.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The list or map.
    pub range: Node,
    /// The comprehension has a variable for the key or index, and one for the value.
    pub has_two: bool,
    /// The place of the accumulator on the stack; the other variables follow.
    pub slot: usize,
    /// The first value of the accumulator.
    pub init: Node,
    /// The body of the loop.
    pub body: Body,
    /// The result.
    pub result: Node,
}

/// The body of a comprehension. The forms that macros create are known, so that lists and maps grow
/// in place.
#[derive(Debug, Clone)]
pub enum Body {
    /// No loop: the accumulator is a variable (`cel.bind`).
    Bind,
    /// All elements satisfy the predicate.
    All(Node),
    /// An element satisfies the predicate.
    Exists(Node),
    /// Appends an element if the filter holds; with the cost of `accumulator + [element]`.
    Append(Option<Node>, Node, u64),
    /// Inserts entries if the filter holds: a key with a value, or those of a map.
    Insert(Option<Node>, Option<Node>, Node),
    /// Any other loop: a condition and a step.
    General(Node, Node),
}
