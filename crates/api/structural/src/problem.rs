//! Problems of fields. `api-validation` converts them to its field errors one to one.

use crate::path::FieldPath;
use serde_json::Value;
use std::fmt;

/// Maximum number of problems of one validation. A body of 3 MiB may have a million invalid values.
pub(crate) const MAX_PROBLEMS: usize = 1000;

/// Type of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The value is missing.
    Required,
    /// The value exists already.
    Duplicate,
    /// The value is malformed.
    Invalid,
    /// The value is not one of the known ones.
    NotSupported,
    /// The value may not be set here.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list or map is too long.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
}

impl ProblemKind {
    /// Returns whether rules in CEL are not evaluated because of such a problem: they rely on
    /// types, required fields and limits of sizes.
    pub fn blocks_rules(self) -> bool {
        !matches!(self, Self::Duplicate | Self::Invalid | Self::Forbidden)
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// A problem of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldProblem {
    /// Type of the problem.
    pub kind: ProblemKind,
    /// Field path. The object as a whole is `<nil>`, as upstream prints it.
    pub field: String,
    /// The value, if the message shows it.
    pub value: Option<Value>,
    /// Further information for humans.
    pub detail: String,
}

impl FieldProblem {
    pub(crate) fn new(
        kind: ProblemKind,
        path: &FieldPath<'_>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        let mut field = path.to_string();
        // A path without segments is a nil pointer upstream.
        if field.is_empty() {
            field.push_str("<nil>");
        }
        Self {
            kind,
            field,
            value,
            detail: detail.into(),
        }
    }

    pub(crate) fn required(path: &FieldPath<'_>, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Required, path, None, detail)
    }

    pub(crate) fn forbidden(path: &FieldPath<'_>, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Forbidden, path, None, detail)
    }

    pub(crate) fn invalid(
        path: &FieldPath<'_>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(ProblemKind::Invalid, path, Some(value.into()), detail)
    }

    pub(crate) fn duplicate(path: &FieldPath<'_>, value: impl Into<Value>) -> Self {
        Self::new(ProblemKind::Duplicate, path, Some(value.into()), "")
    }

    pub(crate) fn not_supported<'v>(
        path: &FieldPath<'_>,
        value: impl Into<Value>,
        known: impl IntoIterator<Item = &'v str>,
    ) -> Self {
        let quoted: Vec<String> = known.into_iter().map(quote).collect();
        // Without known values there is nothing to list.
        let detail = match quoted.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", quoted.join(", ")),
        };
        Self::new(ProblemKind::NotSupported, path, Some(value.into()), detail)
    }

    pub(crate) fn too_long(path: &FieldPath<'_>, max: i64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail = match max {
            0.. => format!("may not be more than {max} {unit}"),
            _ => "value is too long".to_owned(),
        };
        Self::new(ProblemKind::TooLong, path, None, detail)
    }

    pub(crate) fn too_many(path: &FieldPath<'_>, actual: usize, max: i64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = match max {
            0.. => format!("must have at most {max} {unit}"),
            _ => "has too many items".to_owned(),
        };
        Self::new(ProblemKind::TooMany, path, Some(actual.into()), detail)
    }
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.kind.text())?;
        let hidden = matches!(
            self.kind,
            ProblemKind::Required | ProblemKind::Forbidden | ProblemKind::TooLong
        );
        match &self.value {
            Some(Value::String(text)) if !hidden => write!(f, ": {}", quote(text))?,
            Some(value) if !hidden => write!(f, ": {value}")?,
            _ => {}
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// Quotes a text like Go's `%q`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_read_like_field_errors() {
        let path = FieldPath::ROOT.child("spec");
        let cases = [
            (FieldProblem::required(&path, ""), "spec: Required value"),
            (
                FieldProblem::invalid(&path, 3, "no"),
                "spec: Invalid value: 3: no",
            ),
            (FieldProblem::forbidden(&path, "no"), "spec: Forbidden: no"),
            (
                FieldProblem::not_supported(&path, "c", ["b", "a"]),
                "spec: Unsupported value: \"c\": supported values: \"b\", \"a\"",
            ),
            (
                FieldProblem::too_long(&path, 1),
                "spec: Too long: may not be more than 1 byte",
            ),
            (
                FieldProblem::too_many(&path, 4, 3),
                "spec: Too many: 4: must have at most 3 items",
            ),
            (
                FieldProblem::duplicate(&FieldPath::ROOT, "x"),
                "<nil>: Duplicate value: \"x\"",
            ),
        ];
        for (problem, text) in cases {
            assert_eq!(problem.to_string(), text);
        }
    }

    #[test]
    fn rules_need_types_required_fields_and_sizes() {
        assert!(ProblemKind::TypeInvalid.blocks_rules());
        assert!(ProblemKind::TooMany.blocks_rules());
        assert!(!ProblemKind::Invalid.blocks_rules());
        assert!(!ProblemKind::Duplicate.blocks_rules());
    }
}
