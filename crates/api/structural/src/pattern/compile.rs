//! Compilation of one pattern.

use super::input::{NESTING_LIMIT, PatternError, SOURCE_LIMIT, STATES_LIMIT};
use super::translate::translate;
use regex::bytes::{Regex, RegexBuilder};

/// Compiles a pattern unless it takes more bytes than `size`.
pub(super) fn compile_within(source: &str, size: usize) -> Result<Regex, PatternError> {
    if source.len() > SOURCE_LIMIT {
        return Err(PatternError::TooLarge);
    }
    let translated = translate(source)?;
    RegexBuilder::new(&translated)
        .size_limit(size)
        .dfa_size_limit(STATES_LIMIT)
        .nest_limit(NESTING_LIMIT)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
            // The only remaining errors are Unicode classes with unknown names.
            _ => PatternError::Syntax(format!("invalid character class range: `{source}`")),
        })
}
