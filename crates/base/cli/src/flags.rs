//! Upstream's flags that make no sense here: accepted, named in a warning, not silently eaten.

use crate::run::Arguments;
use std::ffi::OsString;

/// Arguments without the ignored flags, and the names of those that were left out.
#[derive(Debug, Default)]
pub struct Accepted {
    /// What is left for the parser.
    pub arguments: Arguments,
    /// Flags that were left out, as given.
    pub ignored: Vec<String>,
}

/// Leaves `ignored` (names without dashes) out of `arguments`; both `--flag value` and `--flag=value` are known. A value
/// that follows is taken when it does not start with a dash.
pub fn accept_upstream_flags(arguments: impl Iterator<Item = OsString>, ignored: &[&str]) -> Accepted {
    let mut accepted = Accepted::default();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let name = text.strip_prefix("--").map(|t| t.split_once('=').map_or(t, |(name, _)| name));
        if !name.is_some_and(|n| ignored.contains(&n)) {
            accepted.arguments.push(argument);
            continue;
        }
        let takes_next = !text.contains('=') && arguments.peek().is_some_and(|a| !a.to_string_lossy().starts_with('-'));
        accepted.ignored.push(text.split('=').next().unwrap_or_default().to_owned());
        if takes_next {
            arguments.next();
        }
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_flags_are_named_and_left_out() {
        let words =
            ["x", "--keep", "1", "--feature-gates", "A=true", "--profiling=false", "--contention-profiling", "--z"];
        let accepted = accept_upstream_flags(
            words.iter().map(OsString::from),
            &["feature-gates", "profiling", "contention-profiling"],
        );
        assert_eq!(accepted.arguments, ["x", "--keep", "1", "--z"]);
        assert_eq!(accepted.ignored, ["--feature-gates", "--profiling", "--contention-profiling"]);
    }
}
