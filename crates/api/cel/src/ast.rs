//! Expressions, and the macros that rewrite them while they are parsed.

use crate::value::Value;

/// The id of an expression, which is also the key of its position and its type.
pub type ExprId = u32;

/// The name of the variable in which comprehensions collect their result. No identifier can have
/// it.
pub const ACCUMULATOR: &str = "@result";

/// An expression with its id.
#[derive(Debug, Clone)]
pub struct Expr {
    /// The id.
    pub id: ExprId,
    /// The expression itself.
    pub kind: ExprKind,
}

/// An expression without its id.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A place at which the parser reported an error.
    Unspecified,
    /// A literal.
    Literal(Value<'static>),
    /// An identifier; with a leading dot if it is absolute.
    Ident(String),
    /// The field of an object or map, or the presence test of one.
    Select(Select),
    /// A call of a function, operators included (`_+_`).
    Call(Call),
    /// A list literal.
    List(ListLiteral),
    /// A map literal.
    Map(Vec<MapEntry>),
    /// An object literal.
    Struct(StructLiteral),
    /// A comprehension, the result of a macro.
    Comprehension(Box<Comprehension>),
}

/// `operand.field`, or `has(operand.field)`.
#[derive(Debug, Clone)]
pub struct Select {
    /// The object or map.
    pub operand: Box<Expr>,
    /// The name of the field.
    pub field: String,
    /// A presence test.
    pub test_only: bool,
}

/// A call of a function.
#[derive(Debug, Clone)]
pub struct Call {
    /// The receiver.
    pub target: Option<Box<Expr>>,
    /// The name of the function or operator.
    pub function: String,
    /// The arguments without the receiver.
    pub arguments: Vec<Expr>,
}

/// `[a, ?b]`.
#[derive(Debug, Clone)]
pub struct ListLiteral {
    /// The elements.
    pub elements: Vec<Expr>,
    /// The indices of elements that are optional values.
    pub optional: Vec<usize>,
}

/// `key: value` of a map literal.
#[derive(Debug, Clone)]
pub struct MapEntry {
    /// The id.
    pub id: ExprId,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// The value is an optional value (`?key: value`).
    pub optional: bool,
}

/// `Name{field: value}`.
#[derive(Debug, Clone)]
pub struct StructLiteral {
    /// The name of the type.
    pub name: String,
    /// The fields.
    pub fields: Vec<StructField>,
}

/// `field: value` of an object literal.
#[derive(Debug, Clone)]
pub struct StructField {
    /// The id.
    pub id: ExprId,
    /// The name of the field.
    pub name: String,
    /// The value.
    pub value: Expr,
    /// The value is an optional value (`?field: value`).
    pub optional: bool,
}

/// A loop over a list or map that computes one result.
#[derive(Debug, Clone)]
pub struct Comprehension {
    /// The list or map.
    pub range: Expr,
    /// The variable of an element or key.
    pub variable: String,
    /// The variable of a value, if the macro has two variables.
    pub variable2: Option<String>,
    /// The name of the accumulator.
    pub accumulator: String,
    /// The first value of the accumulator.
    pub init: Expr,
    /// The loop ends when this is false.
    pub condition: Expr,
    /// The next value of the accumulator.
    pub step: Expr,
    /// The result.
    pub result: Expr,
}

/// An error of a macro, at an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacroError {
    /// The expression.
    pub id: ExprId,
    /// The message.
    pub message: String,
}

/// Creates expressions for macros; each has a new id at the position of the macro's call.
pub trait ExprFactory {
    /// Creates an expression.
    fn create(&mut self, kind: ExprKind) -> Expr;

    /// Creates a copy of an expression with new ids.
    fn copy(&mut self, expr: &Expr) -> Expr;

    /// Creates a literal.
    fn literal(&mut self, value: Value<'static>) -> Expr {
        self.create(ExprKind::Literal(value))
    }

    /// Creates an identifier.
    fn ident(&mut self, name: &str) -> Expr {
        self.create(ExprKind::Ident(name.to_owned()))
    }

    /// Creates a call of a global function or an operator.
    fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.create(ExprKind::Call(Call {
            target: None,
            function: function.to_owned(),
            arguments,
        }))
    }

    /// Creates a call of a receiver's function.
    fn member_call(&mut self, target: Expr, function: &str, arguments: Vec<Expr>) -> Expr {
        let target = Some(Box::new(target));
        self.create(ExprKind::Call(Call {
            target,
            function: function.to_owned(),
            arguments,
        }))
    }

    /// Creates a list literal.
    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.create(ExprKind::List(ListLiteral {
            elements,
            optional: Vec::new(),
        }))
    }

    /// Creates a comprehension.
    fn comprehension(&mut self, comprehension: Comprehension) -> Expr {
        self.create(ExprKind::Comprehension(Box::new(comprehension)))
    }
}

/// Expands a macro.
pub type Expand = fn(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Result<Expr, Unexpanded>;

/// A call that a macro did not expand.
#[derive(Debug)]
pub enum Unexpanded {
    /// The call is no use of the macro: the parser keeps it.
    Call(Option<Expr>, Vec<Expr>),
    /// The call is a wrong use of the macro.
    Error(MacroError),
}

/// A macro: a call that is rewritten by the parser.
#[derive(Debug, Clone, Copy)]
pub struct Macro {
    /// The name of the function.
    pub name: &'static str,
    /// Called on a receiver.
    pub receiver: bool,
    /// The number of arguments; `None` for any number.
    pub arguments: Option<usize>,
    /// The expansion.
    pub expand: Expand,
}
