//! Removes upstream flags that are not implemented from a command line.

use crate::upstream::{Unsupported, Verdict};
use std::ffi::OsString;

/// A command line without the flags that are not implemented, with the resulting warnings and
/// errors.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Arguments for the parser.
    pub arguments: Arguments,
    /// Warnings, one per flag.
    pub warnings: Vec<String>,
    /// Errors that prevent the start.
    pub refusals: Vec<String>,
}

/// Evaluates the flags of `unsupported` in a command line, as `--flag value` or `--flag=value`. A
/// following value is consumed unless it starts with a dash. If a flag occurs twice, the last value
/// counts, as in Go.
pub fn accept_upstream_flags(
    arguments: impl Iterator<Item = OsString>,
    unsupported: &[Unsupported],
) -> Accepted {
    let mut accepted = Accepted::default();
    let mut given: Vec<(&Unsupported, String)> = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let flag = text.strip_prefix("--").map(|t| {
            t.split_once('=')
                .map_or((t, None), |(n, value)| (n, Some(value)))
        });
        let known = flag
            .and_then(|(name, value)| Some((unsupported.iter().find(|u| u.name == name)?, value)));
        // Everything else is left to the parser, typing errors included, so that its messages name
        // them.
        let Some((setting, value)) = known else {
            accepted.arguments.push(argument);
            continue;
        };
        let value = match value {
            Some(value) => value.to_owned(),
            None => arguments
                // Go's boolean flags take no separate value, others do. A following word with a
                // dash is the next flag in either case.
                .next_if(|next| !next.to_string_lossy().starts_with('-'))
                .map_or_else(
                    || "true".to_owned(),
                    |next| next.to_string_lossy().into_owned(),
                ),
        };
        // Go's flag packages let the last occurrence win, and an earlier one may be an installer's
        // default.
        given.retain(|(other, _)| other.name != setting.name);
        given.push((setting, value));
    }
    for (setting, value) in given {
        match setting.evaluate_value(&format!("--{}", setting.name), &value) {
            Verdict::Pass => {}
            Verdict::Warn(warning) => accepted.warnings.push(warning),
            Verdict::Stop(refusal) => accepted.refusals.push(refusal),
        }
    }
    accepted
}

/// A command line.
pub(crate) type Arguments = Vec<OsString>;

#[cfg(test)]
mod tests {
    use super::*;

    const UNSUPPORTED: &[Unsupported] = &[
        Unsupported::no_effect("feature-gates", "there are none"),
        Unsupported::no_effect("profiling", "there are no profiles"),
        Unsupported::no_effect("contention-profiling", "there are no profiles"),
        Unsupported::refused("tls-min-version", &["VersionTLS12"], "it can't be changed"),
    ];

    fn accept(words: &[&str]) -> Accepted {
        accept_upstream_flags(words.iter().map(OsString::from), UNSUPPORTED)
    }

    #[test]
    fn flags_without_effect_are_named_and_left_out() {
        let accepted = accept(&[
            "x",
            "--keep",
            "1",
            "--feature-gates",
            "A=true",
            "--profiling=false",
            "--contention-profiling",
            "--z",
        ]);
        assert_eq!(accepted.arguments, ["x", "--keep", "1", "--z"]);
        assert_eq!(accepted.warnings.len(), 3, "{accepted:?}");
        assert!(accepted.refusals.is_empty());
    }

    #[test]
    fn last_value_of_a_repeated_flag_counts() {
        let accepted = accept(&[
            "x",
            "--tls-min-version=VersionTLS13",
            "--tls-min-version",
            "VersionTLS12",
        ]);
        assert!(accepted.refusals.is_empty(), "{accepted:?}");
        let accepted = accept(&[
            "x",
            "--tls-min-version=VersionTLS12",
            "--tls-min-version=VersionTLS13",
        ]);
        assert_eq!(accepted.refusals.len(), 1, "{accepted:?}");
    }
}
