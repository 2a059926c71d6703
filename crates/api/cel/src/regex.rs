//! Regular expressions in RE2 syntax, with a limit of their size.

mod translate;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::error::EvalError;
use translate::translate_pattern;

/// A compiled expression takes at most this many bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// A pattern has at most this many bytes.
const MAX_PATTERN: usize = 16 << 10;
/// Groups nest at most this deep.
const NEST_LIMIT: u32 = 200;
/// Each thread keeps this many compiled patterns, because rules are evaluated again and again.
const CACHED: usize = 64;

type Compiled = Result<Arc<Regex>, EvalError>;

thread_local! {
    static CACHE: RefCell<VecDeque<(Box<str>, Compiled)>> = const { RefCell::new(VecDeque::new()) };
}

/// Compiles a pattern, or returns it from the cache of the thread.
pub fn compile_pattern(pattern: &str) -> Compiled {
    // A linear search is fast enough for so few entries.
    let cached = CACHE.with_borrow(|cache| {
        cache
            .iter()
            .find(|(text, _)| **text == *pattern)
            .map(|(_, compiled)| compiled.clone())
    });
    if let Some(compiled) = cached {
        return compiled;
    }
    // Errors are cached too, so that a bad pattern is not compiled again for each element of a
    // list.
    let compiled = compile(pattern);
    CACHE.with_borrow_mut(|cache| {
        if cache.len() >= CACHED {
            cache.pop_front();
        }
        cache.push_back((pattern.into(), compiled.clone()));
    });
    compiled
}

fn compile(pattern: &str) -> Compiled {
    let fail = |reason: &str| {
        Err(EvalError::message(format!(
            "error parsing regexp: {reason}: `{pattern}`"
        )))
    };
    // The translation is a copy of the pattern, so the size is checked before.
    if pattern.len() > MAX_PATTERN {
        return Err(EvalError::message(
            "error parsing regexp: expression too large",
        ));
    }
    let translated = match translate_pattern(pattern) {
        Ok(translated) => translated,
        Err(reason) => return fail(reason),
    };
    let built = RegexBuilder::new(&translated)
        // Clients choose the pattern, and nested counts make a short one huge.
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        // Code that walks the syntax tree of deeper groups could exhaust the stack.
        .nest_limit(NEST_LIMIT)
        .build();
    match built {
        Ok(regex) => Ok(Arc::new(regex)),
        Err(regex::Error::CompiledTooBig(_)) => Err(EvalError::message(
            "error parsing regexp: expression too large",
        )),
        // The crate's own message differs from Go's, so it isn't shown to clients.
        Err(_) => fail("invalid syntax"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile_pattern(pattern).unwrap().is_match(text)
    }

    #[test]
    fn perl_classes_are_ascii() {
        assert!(matches(r"^\d$", "5"));
        assert!(!matches(r"^\d$", "\u{0665}"));
        assert!(!matches(r"^[\w]$", "é"));
        assert!(matches(r"^\W$", "é"));
    }

    #[test]
    fn set_operators_are_plain_characters() {
        assert!(matches(r"^[a&&b]+$", "&a"));
        assert!(matches(r"^[a[]+$", "[a"));
        assert!(matches(r"^[[:alpha:]-]+$", "a-b"));
        assert!(matches(r"^[]a]+$", "]a"));
    }

    #[test]
    fn named_classes_and_code_points_have_braces() {
        assert!(matches(r"^\p{Greek}+$", "\u{3b1}"));
        assert!(!matches(r"^[\P{Greek}]$", "\u{3b1}"));
        assert!(matches(r"^\x{3b1}\x41$", "\u{3b1}A"));
    }

    #[test]
    fn quoted_text_is_literal() {
        assert!(matches(r"^\Qa.b\E$", "a.b"));
        assert!(!matches(r"^\Qa.b\E$", "axb"));
    }

    #[test]
    fn hostile_patterns_are_rejected() {
        let nested = "(".repeat(500) + &")".repeat(500);
        let big = "a{1000}{1000}".to_owned();
        let long = "a".repeat(20_000);
        for pattern in [
            nested,
            big,
            long,
            "a{1001}".into(),
            "[".into(),
            r"\".into(),
            "(?x)a".into(),
        ] {
            assert!(compile_pattern(&pattern).is_err(), "{pattern:.20}");
        }
    }

    #[test]
    fn cache_forgets_the_oldest_pattern() {
        for number in 0..200 {
            assert!(matches(&format!("^{number}$"), &number.to_string()));
        }
        CACHE.with_borrow(|cache| assert!(cache.len() <= CACHED));
    }
}
