//! Field paths and errors, worded as `field.Error` in the stock server.
//!
//! A `Path` is a linked list on the stack: walking a valid object allocates nothing; the text is built when an error needs it.

use api_meta::{ApiError, Cause};
use serde_json::Value;
use std::fmt;

/// A place in an object.
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
    /// The object itself.
    pub const ROOT: Path<'static> = Path { parent: None, segment: Segment::Empty };

    /// A field of the object at this path; dots make no difference.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), segment: Segment::Name(name) }
    }

    /// An element of the list at this path.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), segment: Segment::Index(index) }
    }

    /// An entry of the map at this path.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), segment: Segment::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            Segment::Name("") => f.write_str("[]"),
            Segment::Name(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value refers to something absent.
    NotFound,
    /// The value is missing.
    Required,
    /// The value is already there.
    Duplicate,
    /// The value has the wrong form.
    Invalid,
    /// The value is not among the known ones.
    NotSupported,
    /// The value may not be set here.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list is too long.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::NotFound => "Not found",
            Kind::Required => "Required value",
            Kind::Duplicate => "Duplicate value",
            Kind::Invalid | Kind::TypeInvalid => "Invalid value",
            Kind::NotSupported => "Unsupported value",
            Kind::Forbidden => "Forbidden",
            Kind::TooLong => "Too long",
            Kind::TooMany => "Too many",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Kind::NotFound => "FieldValueNotFound",
            Kind::Required => "FieldValueRequired",
            Kind::Duplicate => "FieldValueDuplicate",
            Kind::Invalid => "FieldValueInvalid",
            Kind::NotSupported => "FieldValueNotSupported",
            Kind::Forbidden => "FieldValueForbidden",
            Kind::TooLong => "FieldValueTooLong",
            Kind::TooMany => "FieldValueTooMany",
            Kind::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: Kind,
    /// Where, as `spec.containers[0].image`.
    pub field: String,
    /// The value, where the message shows it.
    pub value: Option<Value>,
    /// More for people.
    pub detail: String,
}

impl FieldError {
    /// The message without the field.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        let shown = !matches!(self.kind, Kind::Required | Kind::Forbidden | Kind::TooLong);
        if let (true, Some(value)) = (shown, &self.value) {
            text.push_str(": ");
            match value {
                Value::String(s) => text.push_str(&go_quote(s)),
                Value::Null => text.push_str("\"null\""),
                other => text.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// The finding as a cause of a Status.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.kind.reason().into(), message: self.body(), field: self.field.clone() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// The 422 Status for these findings about the object `name`.
pub fn to_api_error(kind: crate::dispatch::Kind<'_>, name: &str, errors: Vec<FieldError>) -> ApiError {
    let mut causes: Vec<Cause> = Vec::with_capacity(errors.len());
    causes.extend(errors.iter().map(FieldError::cause));
    ApiError::invalid(kind.group, kind.kind, name, causes)
}

/// A string as Go's `%q` writes it.
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
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Findings as they are collected.
#[derive(Debug, Default)]
pub struct Errors(pub Vec<FieldError>);

impl Errors {
    fn add(&mut self, kind: Kind, path: &Path<'_>, value: Option<Value>, detail: impl Into<String>) {
        self.0.push(FieldError { kind, field: path.to_string(), value, detail: detail.into() });
    }

    /// The number of findings so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A missing value.
    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(Kind::Required, path, None, detail);
    }

    /// A value of the wrong form.
    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(Kind::Invalid, path, Some(value.into()), detail);
    }

    /// One finding of the wrong form for each problem.
    pub fn invalid_each(&mut self, path: &Path<'_>, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, problem);
        }
    }

    /// A value that is none of `known`.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, known: &[&str]) {
        let mut quoted: Vec<String> = known.iter().map(|k| go_quote(k)).collect();
        quoted.sort();
        self.add(Kind::NotSupported, path, Some(value.into()), format!("supported values: {}", quoted.join(", ")));
    }

    /// A value that is already there.
    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(Kind::Duplicate, path, Some(value.into()), "");
    }

    /// A value that may not be set.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(Kind::Forbidden, path, None, detail);
    }

    /// A text over its limit.
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        self.add(Kind::TooLong, path, None, format!("may not be more than {max} bytes"));
    }

    /// A list over its limit.
    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        let detail = format!("must have at most {max} items");
        self.add(Kind::TooMany, path, Some(actual.into()), detail);
    }

    /// A value of another type.
    pub fn wrong_type(&mut self, path: &Path<'_>, value: impl Into<Value>, wanted: &str) {
        self.add(Kind::TypeInvalid, path, Some(value.into()), format!("must be of type {wanted}"));
    }

    /// A reference to something absent.
    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(Kind::NotFound, path, Some(value.into()), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_texts() {
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
                "spec.type: Unsupported value: \"X\": supported values: \"a\", \"b\"",
                "spec.labels[a/b]: Invalid value: 3: too small",
            ]
        );
        assert_eq!(Path::ROOT.child("").to_string(), "[]");
    }
}
