//! Patterns: regular expressions in the syntax of Go, compiled with limits.

mod class;
mod input;
mod translate;

use input::{NESTING_LIMIT, SIZE_LIMIT, SOURCE_LIMIT, STATES_LIMIT};
use regex::bytes::{Regex, RegexBuilder};
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use input::PatternError;

/// A pattern that is compiled at its first use.
pub struct Pattern {
    source: Box<str>,
    // Most patterns of most definitions are never used, and a compiled one has up to megabytes.
    compiled: OnceLock<Result<Arc<Regex>, PatternError>>,
}

impl Pattern {
    /// Returns the pattern, not compiled.
    pub fn new(source: &str) -> Self {
        Self {
            source: source.into(),
            compiled: OnceLock::new(),
        }
    }

    /// Returns the text of the pattern.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Checks the pattern without keeping its compiled form.
    pub fn check(&self) -> Result<(), PatternError> {
        compile(&self.source).map(|_| ())
    }

    /// Returns whether the text has a match.
    pub fn is_match(&self, text: &str) -> Result<bool, PatternError> {
        match self
            .compiled
            .get_or_init(|| compile(&self.source).map(Arc::new))
        {
            Ok(regex) => Ok(regex.is_match(text.as_bytes())),
            Err(error) => Err(error.clone()),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.source)
    }
}

fn compile(source: &str) -> Result<Regex, PatternError> {
    if source.len() > SOURCE_LIMIT {
        return Err(PatternError::TooLarge);
    }
    let translated = translate::translate(source)?;
    RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(STATES_LIMIT)
        .nest_limit(NESTING_LIMIT)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
            // The only remaining errors are Unicode classes with unknown names.
            _ => PatternError::Syntax(format!("invalid character class range: `{source}`")),
        })
}

/// Compiles a pattern of this crate.
pub(crate) fn compile_fixed(source: &str) -> Option<Regex> {
    compile(source).ok()
}

#[cfg(test)]
mod tests;
