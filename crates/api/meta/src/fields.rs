//! Field selectors: `metadata.name=x,spec.nodeName!=y`.
//!
//! Invariant: an absent field equals its zero value (`spec.unschedulable=false`, `spec.nodeName=`).

use crate::labels::SelectorError;

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Field path, such as `spec.nodeName`.
    pub field: String,
    /// The value to compare with, unescaped.
    pub value: String,
    /// True if the operator is `!=`.
    pub negated: bool,
}

/// A field selector. All terms must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The terms; an empty list matches everything.
    pub terms: Vec<Term>,
}

impl FieldSelector {
    /// Parses the query string's form; `\\`, `\,` and `\=` are escapes.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let parts = split_terms(text);
        let terms = parts
            .iter()
            // Upstream skips empty terms here, although it rejects them in label selectors.
            .filter(|p| !p.is_empty())
            .map(|p| parse_term(p, text))
            .collect::<Result<_, _>>()?;
        Ok(FieldSelector { terms })
    }

    /// Returns whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether the fields match all terms. `get` returns a field's value; an absent field
    /// has its zero value.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<std::borrow::Cow<'a, str>>) -> bool {
        self.terms
            .iter()
            .all(|t| (get(&t.field).unwrap_or_default() == t.value.as_str()) != t.negated)
    }

    /// Returns the value that `field` must equal, if there is such a term.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.field == field && !t.negated)
            .map(|t| t.value.as_str())
    }
}

fn split_terms(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
        // A backslash escapes one character, and an escaped backslash escapes nothing.
        escaped = c == '\\' && !escaped;
    }
    parts
}

fn parse_term(part: &str, whole: &str) -> Result<Term, SelectorError> {
    let invalid = || {
        SelectorError(format!(
            "invalid selector: '{whole}'; can't understand '{part}'"
        ))
    };
    let mut escaped = false;
    for (i, c) in part.char_indices() {
        if !escaped && (c == '=' || c == '!') {
            let rest = &part[i..];
            // The first operator counts; another one in the value must be escaped.
            let (operator, negated) = if rest.starts_with("!=") {
                ("!=", true)
            } else if rest.starts_with("==") {
                ("==", false)
            } else if rest.starts_with('=') {
                ("=", false)
            } else {
                return Err(invalid());
            };
            let value = unescape_value(&rest[operator.len()..])?;
            return Ok(Term {
                field: part[..i].trim().to_owned(),
                value,
                negated,
            });
        }
        escaped = c == '\\' && !escaped;
    }
    Err(invalid())
}

fn unescape_value(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                Some(e) => {
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{e}"
                    )));
                }
                None => {
                    return Err(SelectorError(format!(
                        "invalid field selector: unterminated escape sequence: {value}"
                    )));
                }
            },
            // A forgotten escape would otherwise change the meaning of the selector silently.
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn field_selector_terms_are_parsed() {
        let s = FieldSelector::parse("metadata.name=a,spec.nodeName!=b,x=a\\,b").unwrap();
        assert_eq!(s.exact("metadata.name"), Some("a"));
        assert_eq!(s.exact("spec.nodeName"), None);
        assert_eq!(s.exact("x"), Some("a,b"));
        let get = |f: &str| {
            (f == "metadata.name")
                .then_some("a".into())
                .or((f == "x").then_some("a,b".into()))
        };
        assert!(s.matches(get));
        for bad in ["a", "a!b", "a=b=c", "a=\\x"] {
            assert!(FieldSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
