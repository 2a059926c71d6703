//! From text to an expression tree with macros expanded.

mod aggregates;
mod grammar;
mod lexer;
mod literal;
mod operators;
mod settings;
mod token;

use crate::source::{CompileError, Issue};

pub use settings::{MAX_DEPTH, MAX_LENGTH, Parsed, Settings};

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
