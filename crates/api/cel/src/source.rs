//! Source text, positions in it, and the messages that point at them.

use std::fmt;

/// At most this many errors are reported for one expression.
// Both limits are those of cel-go's error list.
pub const MAX_ISSUES: usize = 100;
/// A line with more bytes is not printed below its error.
const MAX_SNIPPET: usize = 16_384;

/// An error of the parser or of the checker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The offset in code points; `None` if the error concerns the whole expression.
    pub offset: Option<u32>,
    /// The message.
    pub message: String,
}

/// The text of an expression with the errors that were found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    source: String,
    /// The errors by position.
    pub issues: Vec<Issue>,
    /// The expression is valid, but a computation with literals in it fails.
    pub is_instantiation: bool,
}

impl CompileError {
    /// Creates the error of an expression; at most 100 issues are kept.
    pub fn new(source: &str, mut issues: Vec<Issue>) -> CompileError {
        // cel-go keeps the errors that were found first and sorts them afterwards.
        let truncated = issues.len().saturating_sub(MAX_ISSUES);
        issues.truncate(MAX_ISSUES);
        issues.sort_by_key(|issue| issue.offset.map_or(-1, i64::from));
        if truncated > 0 {
            let message = format!("{truncated} more errors were truncated");
            issues.push(Issue {
                offset: None,
                message,
            });
        }
        CompileError {
            source: source.to_owned(),
            issues,
            is_instantiation: false,
        }
    }

    /// Creates the error of a valid expression whose literals fail to compute.
    pub fn instantiation(error: &dyn fmt::Display) -> CompileError {
        let issues = vec![Issue {
            offset: None,
            message: error.to_string(),
        }];
        CompileError {
            source: String::new(),
            issues,
            is_instantiation: true,
        }
    }
}

impl std::error::Error for CompileError {}

impl fmt::Display for CompileError {
    /// Writes each error with its line and a mark below the position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match issue.offset {
                // The count of the errors that were left out has no position.
                None if self.is_instantiation || index == MAX_ISSUES => {
                    f.write_str(&issue.message)?;
                }
                None => write!(f, "ERROR: <input>:-1:0: {}", issue.message)?,
                Some(offset) => write_issue(f, &self.source, offset as usize, &issue.message)?,
            }
        }
        Ok(())
    }
}

fn write_issue(
    f: &mut fmt::Formatter<'_>,
    source: &str,
    offset: usize,
    message: &str,
) -> fmt::Result {
    let (line_number, column, line) = find_line(source, offset);
    write!(f, "ERROR: <input>:{line_number}:{}: {message}", column + 1)?;
    // Without the source there is no line to show, and a very long one would fill the response.
    if source.is_empty() || line.len() > MAX_SNIPPET {
        return Ok(());
    }
    // The mark below is placed by columns, so a tab must be one column wide.
    write!(f, "\n | {}\n | ", line.replace('\t', " "))?;
    let mut characters = line.chars();
    for character in characters.by_ref().take(column) {
        // Below a wide character stands a wide dot, so that the mark stays in its column.
        f.write_str(if character.len_utf8() > 1 {
            "\u{ff0e}"
        } else {
            "."
        })?;
    }
    let is_wide = characters
        .next()
        .is_some_and(|character| character.len_utf8() > 1);
    f.write_str(if is_wide { "\u{ff3e}" } else { "^" })
}

/// Returns the number of the line (from 1), the column (from 0) and the line.
fn find_line(source: &str, offset: usize) -> (usize, usize, &str) {
    let mut start = 0;
    let mut last = (1, 0, "");
    for (index, line) in source.split('\n').enumerate() {
        let length = line.chars().count();
        last = (index + 1, offset - start, line);
        if offset <= start + length {
            break;
        }
        start += length + 1;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, offset: u32) -> String {
        let issues = vec![Issue {
            offset: Some(offset),
            message: "m".into(),
        }];
        CompileError::new(source, issues).to_string()
    }

    #[test]
    fn error_points_at_line_and_column() {
        assert_eq!(
            render("a && x", 5),
            "ERROR: <input>:1:6: m\n | a && x\n | .....^"
        );
        assert_eq!(render("a\n\tb", 3), "ERROR: <input>:2:2: m\n |  b\n | .^");
    }

    #[test]
    fn wide_characters_have_wide_marks() {
        assert_eq!(
            render("é + é", 4),
            "ERROR: <input>:1:5: m\n | é + é\n | ．...＾"
        );
    }

    #[test]
    fn errors_beyond_a_hundred_are_counted() {
        let issues = (0..103)
            .map(|_| Issue {
                offset: Some(0),
                message: "m".into(),
            })
            .collect();
        let text = CompileError::new("x", issues).to_string();
        assert!(text.ends_with("\n3 more errors were truncated"), "{text}");
    }
}
