//! Field paths and field errors, with the messages of upstream's `field.Error`.
//!
//! A `Path` is a linked list on the stack: validating a valid object allocates nothing. The text is
//! built when an error needs it.

use api_meta::names::shorten_name;
use api_meta::{ApiError, Cause};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A field path.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Segment<'a> {
    Empty,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// Path of the object itself.
    pub const ROOT: Path<'static> = Path {
        parent: None,
        segment: Segment::Empty,
    };

    /// Returns the path of a field. A name with dots adds several fields.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            segment: Segment::Name(name),
        }
    }

    /// Returns the path of an element of the list at this path.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            segment: Segment::Index(index),
        }
    }

    /// Returns the path of an entry of the map at this path.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            segment: Segment::Key(key),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The root has no name, so the first segment has no dot before it.
        let nested = match self.parent {
            Some(parent) => {
                parent.fmt(f)?;
                !matches!(parent.segment, Segment::Empty)
            }
            None => false,
        };
        match self.segment {
            Segment::Empty => Ok(()),
            Segment::Name(name) if nested => write!(f, ".{name}"),
            // An empty name at the root is upstream's path for errors of the whole object, such as
            // a size.
            Segment::Name("") => f.write_str("[]"),
            Segment::Name(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{}]", shorten_name(key)),
        }
    }
}

/// Type of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The value refers to a missing object.
    NotFound,
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
    /// The list is too long.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value can't be processed.
    Internal,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "Not found",
            ErrorKind::Required => "Required value",
            ErrorKind::Duplicate => "Duplicate value",
            // Both have the same text upstream. Only the reason tells them apart.
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
            ErrorKind::Internal => "Internal error",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "FieldValueNotFound",
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::NotSupported => "FieldValueNotSupported",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            ErrorKind::Internal => "InternalError",
        }
    }
}

/// A field error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Type of the error.
    pub kind: ErrorKind,
    /// Field path, such as `spec.containers[0].image`.
    pub field: String,
    /// The value, if the message shows it.
    pub value: Option<Value>,
    /// Further information for humans.
    pub detail: String,
}

impl FieldError {
    /// Returns the message without the field.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        let shown = !matches!(
            self.kind,
            // Upstream omits the value for these: it is absent, irrelevant or too long to be shown.
            ErrorKind::Required | ErrorKind::Forbidden | ErrorKind::TooLong
        );
        if let (true, Some(value)) = (shown, &self.value) {
            text.push_str(": ");
            match value {
                Value::String(s) => text.push_str(&go_quote(s)),
                // Upstream formats values with Go's JSON encoder, and conformance tests compare the
                // text.
                other => text.push_str(&escape_html(&other.to_string())),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// Converts the error to a cause of a Status.
    pub fn cause(&self) -> Cause {
        Cause {
            reason: self.kind.reason().into(),
            message: self.body(),
            field: self.field.clone(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Converts the errors of the object `name` to a 422 Status.
pub fn to_api_error(kind: api_meta::Kind<'_>, name: &str, errors: Vec<FieldError>) -> ApiError {
    let mut causes: Vec<Cause> = Vec::with_capacity(errors.len());
    // One cause for each error: kubectl prints them as a list, and programs match reason and field.
    causes.extend(errors.iter().map(FieldError::cause));
    ApiError::invalid(kind.group, kind.kind, name, causes)
}

/// Quotes a string like Go's `%q`.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            // Go's `%q` escapes control characters, and terminals would interpret them.
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Escapes JSON like Go's encoder, which lets it stand in HTML.
fn escape_html(json: &str) -> Cow<'_, str> {
    const ESCAPED: [(char, &str); 5] = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    let mut text = Cow::Borrowed(json);
    // These characters occur in strings only, so that their place need not be known.
    for (c, escape) in ESCAPED {
        if text.contains(c) {
            text = Cow::Owned(text.replace(c, escape));
        }
    }
    text
}

/// Most errors that are collected. Each may show a value as large as the object, and no reader
/// needs more.
const MOST_ERRORS: usize = 500;

/// Collected errors.
#[derive(Debug, Default)]
pub struct Errors(pub Vec<FieldError>);

impl Errors {
    fn add(
        &mut self,
        kind: ErrorKind,
        path: &Path<'_>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) {
        // Further errors are dropped silently, since the object is rejected in any case.
        if self.0.len() >= MOST_ERRORS {
            return;
        }
        self.0.push(FieldError {
            kind,
            field: path.to_string(),
            value,
            detail: detail.into(),
        });
    }

    /// Returns the number of errors so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an error for a missing value.
    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Required, path, None, detail);
    }

    /// Adds an error for a malformed value.
    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(ErrorKind::Invalid, path, Some(value.into()), detail);
    }

    /// Adds an error for each problem of a malformed value.
    pub fn invalid_each(&mut self, path: &Path<'_>, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, problem);
        }
    }

    /// Adds an error for a value that is not in `known`, which is shown in the given order.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, known: &[&str]) {
        // Upstream sorts the values of sets, but not those of lists. So callers give the order.
        let quoted: Vec<String> = known.iter().map(|k| go_quote(k)).collect();
        self.add(
            ErrorKind::NotSupported,
            path,
            Some(value.into()),
            format!("supported values: {}", quoted.join(", ")),
        );
    }

    /// Adds an error for a value that exists already.
    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorKind::Duplicate, path, Some(value.into()), "");
    }

    /// Adds an error for a value that exists already, with a reason.
    pub fn duplicate_because(
        &mut self,
        path: &Path<'_>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) {
        self.add(ErrorKind::Duplicate, path, Some(value.into()), detail);
    }

    /// Adds an error for a value that must not be set.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Forbidden, path, None, detail);
    }

    /// Adds an error for a text above its limit.
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        self.add(
            ErrorKind::TooLong,
            path,
            None,
            format!("may not be more than {max} bytes"),
        );
    }

    /// Adds an error for a list above its limit.
    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        let detail = format!("must have at most {max} items");
        self.add(ErrorKind::TooMany, path, Some(actual.into()), detail);
    }

    /// Adds an error for a value that can't be processed.
    pub fn internal(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Internal, path, None, detail);
    }

    /// Adds an error for a reference to a missing object.
    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorKind::NotFound, path, Some(value.into()), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn number_of_errors_is_bounded() {
        let mut errors = Errors::default();
        for i in 0..2 * MOST_ERRORS {
            errors.required(&Path::ROOT.index(i), "");
        }
        assert_eq!(errors.len(), MOST_ERRORS);
    }

    #[test]
    fn errors_show_path_value_and_detail() {
        let spec = Path::ROOT.child("spec");
        let containers = spec.child("containers");
        let one = containers.index(0);
        let mut errors = Errors::default();
        errors.required(&one.child("image"), "");
        errors.not_supported(&spec.child("type"), "X", &["b", "a"]);
        errors.invalid(&spec.child("labels").key("a/b"), 3, "too small");
        let texts: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.containers[0].image: Required value",
                "spec.type: Unsupported value: \"X\": supported values: \"b\", \"a\"",
                "spec.labels[a/b]: Invalid value: 3: too small",
            ]
        );
        assert_eq!(Path::ROOT.child("").to_string(), "[]");
    }

    #[test]
    fn values_are_shown_as_go_prints_them() {
        for (value, shown) in [
            (json!(null), "null"),
            (json!("<a>"), r#""<a>""#),
            (json!({"a": ["<b>&"]}), r#"{"a":["\u003cb\u003e\u0026"]}"#),
        ] {
            let mut errors = Errors::default();
            errors.invalid(&Path::ROOT.child("x"), value, "bad");
            let texts: Vec<String> = errors.0.iter().map(FieldError::body).collect();
            assert_eq!(texts, [format!("Invalid value: {shown}: bad")]);
        }
    }
}
