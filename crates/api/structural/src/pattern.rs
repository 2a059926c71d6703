//! Patterns: regular expressions in the syntax of Go, compiled with limits.

mod cache;
mod class;
mod compile;
mod input;
mod translate;

use parking_lot::Mutex;
use regex::bytes::Regex;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};

pub use input::PatternError;

/// Size of the different patterns of one schema, in bytes when compiled.
const SCHEMA_LIMIT: usize = 64 << 20;

/// A pattern that is compiled when it is used.
pub struct Pattern {
    source: Box<str>,
    // Most patterns of most definitions are never used, and a compiled one has up to megabytes: the
    // cache of the process owns them.
    compiled: Mutex<Weak<Regex>>,
}

impl Pattern {
    /// Returns the pattern, not compiled.
    pub fn new(source: &str) -> Self {
        Self {
            source: source.into(),
            compiled: Mutex::default(),
        }
    }

    /// Returns the text of the pattern.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Checks the pattern without keeping its compiled form.
    pub fn check(&self) -> Result<(), PatternError> {
        cache::find_or_compile(&self.source).map(drop)
    }

    /// Returns whether the text has a match.
    pub fn is_match(&self, text: &str) -> Result<bool, PatternError> {
        let kept = self.compiled.lock().upgrade();
        let regex = match kept {
            Some(regex) => regex,
            None => {
                let (regex, _) = cache::find_or_compile(&self.source)?;
                *self.compiled.lock() = Arc::downgrade(&regex);
                regex
            }
        };
        Ok(regex.is_match(text.as_bytes()))
    }
}

/// Returns whether patterns are small enough together. Each takes up to a tenth of a second, and a
/// definition may have thousands.
pub(crate) fn fit_together<'s>(sources: impl Iterator<Item = &'s str>) -> bool {
    let mut seen = HashSet::new();
    let mut left = SCHEMA_LIMIT;
    for source in sources.filter(|source| seen.insert(*source)) {
        let size = match cache::find_or_compile(source) {
            Ok((_, size)) => size,
            // Found only by compiling up to the limit.
            Err(PatternError::TooLarge) => input::SIZE_LIMIT,
            Err(PatternError::Syntax(_)) => 0,
        };
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.source)
    }
}

/// Compiles a pattern of this crate.
pub(crate) fn compile_fixed(source: &str) -> Option<Regex> {
    compile::compile_within(source, input::SIZE_LIMIT).ok()
}

#[cfg(test)]
mod tests;
