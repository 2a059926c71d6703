//! From text to an expression tree with macros expanded.

mod aggregates;
mod grammar;
mod lexer;
mod literal;
mod token;

use crate::ast::{Expr, Macro};
use crate::source::{CompileError, Issue};

/// Expressions nest at most this deep, chains of operators and selections included.
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

/// Parses an expression.
pub fn parse(source: &str, settings: &Settings) -> Result<Parsed, CompileError> {
    let characters: Vec<char> = source.chars().take(MAX_LENGTH + 1).collect();
    if characters.len() > MAX_LENGTH {
        let size = source.chars().count();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}");
        return Err(CompileError::new(
            "",
            vec![Issue {
                offset: None,
                message,
            }],
        ));
    }
    let (tokens, issues) = lexer::split_tokens(&characters);
    grammar::parse_tokens(tokens, issues, settings)
        .map_err(|issues| CompileError::new(source, issues))
}

#[cfg(test)]
mod tests;
