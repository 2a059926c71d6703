//! Limits, settings and the result of the parser.

use crate::ast::{Expr, Macro};

/// Expressions nest at most this deep, chains of operators and selections included.
// Both limits are cel-go's defaults, which Kubernetes does not change.
pub const MAX_DEPTH: u16 = 250;
/// An expression has at most this many code points.
pub const MAX_LENGTH: usize = 100_000;

/// Settings of the parser.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The macros; of several with the same form the last counts.
    pub macros: Vec<Macro>,
    /// `a.?b`, `a[?b]`, `[?a]` and `{?a: b}` are allowed.
    pub optional_syntax: bool,
    /// Field names between backquotes are allowed.
    pub escaped_identifiers: bool,
}

/// A parsed expression.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The expression.
    pub expr: Expr,
    /// The offset of each expression in code points, by its id.
    pub positions: Vec<u32>,
}
