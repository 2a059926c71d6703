//! Label selectors: the query string's form (`a=b,c in (d,e),!f`) and `metav1.LabelSelector`.
//!
//! Invariant: an empty selector matches everything; `!=` and `notin` match objects without the key.

use serde_json::Value;
use std::fmt;

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `in`, `=`, `==`
    In,
    /// `notin`, `!=`
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>1`
    GreaterThan,
    /// `key<1`
    LessThan,
}

/// A requirement on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values, sorted.
    pub values: Vec<String>,
}

/// A label selector. All requirements must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The requirements; an empty list matches everything.
    pub requirements: Vec<Requirement>,
}

/// A selector that can't be parsed, with upstream's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl Operator {
    /// Returns the operator of an API object's selector, None if the name is unknown. Label
    /// selectors have no `Gt` and `Lt`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::GreaterThan,
            "Lt" => Operator::LessThan,
            _ => return None,
        })
    }

    /// Returns whether a value matches a requirement with this operator; `None` means that the key
    /// is absent.
    pub fn matches(self, values: &[String], value: Option<&str>) -> bool {
        let is_listed = |v: &str| values.iter().any(|x| x == v);
        // Values that are no integers match neither order. Upstream logs them at a high verbosity
        // and continues.
        let compare = || match values {
            [bound] => Some((value?.parse::<i64>().ok()?, bound.parse::<i64>().ok()?)),
            _ => None,
        };
        match self {
            Operator::In => value.is_some_and(is_listed),
            // An absent key is in no list. Users rely on `env!=prod` to match objects without the
            // label.
            Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => compare().is_some_and(|(value, bound)| value > bound),
            Operator::LessThan => compare().is_some_and(|(value, bound)| value < bound),
        }
    }
}

impl Requirement {
    /// Returns whether `value` matches the requirement; `None` means that the key is absent.
    pub fn matches(&self, value: Option<&str>) -> bool {
        self.operator.matches(&self.values, value)
    }
}

impl Selector {
    /// Returns whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the labels match all requirements. `get` returns a label's value.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.matches(get(&r.key)))
    }

    /// Returns whether a map of labels matches all requirements; `None` means no labels.
    pub fn matches_map(&self, labels: Option<&serde_json::Map<String, Value>>) -> bool {
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// Parses the query string's form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::parse(text)
    }

    /// Converts a `metav1.LabelSelector`. `None` or null matches nothing, like upstream's
    /// `LabelSelectorAsSelector`.
    pub fn from_label_selector(selector: &Value) -> Result<Option<Self>, SelectorError> {
        let Some(map) = selector.as_object() else {
            // An absent selector selects nothing and an empty one everything. The difference
            // decides which pods a controller adopts.
            return Ok(None);
        };
        let mut requirements = Vec::new();
        for (key, value) in map
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values,
            });
        }
        for e in map
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            requirements.push(parse_expression(e)?);
        }
        Ok(Some(Selector { requirements }))
    }
}

fn parse_expression(e: &Value) -> Result<Requirement, SelectorError> {
    let name = e
        .get("operator")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let operator = Operator::from_name(name)
        // The type LabelSelectorOperator has no such values: only node selectors compare numbers.
        .filter(|o| !matches!(o, Operator::GreaterThan | Operator::LessThan))
        .ok_or_else(|| SelectorError(format!("{name:?} is not a valid label selector operator")))?;
    let values = e
        .get("values")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut values: Vec<String> = values
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    // Upstream keeps values as a sorted set, which is visible in the text of a selector.
    values.sort();
    let key = e
        .get("key")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    Ok(Requirement {
        key,
        operator,
        values,
    })
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement {
            key,
            operator,
            values,
        } = self;
        let all = values.join(",");
        match (operator, values.len()) {
            // Upstream writes a set with one value as `=` or `!=`.
            (Operator::In, 1) => write!(f, "{key}={all}"),
            (Operator::In, _) => write!(f, "{key} in ({all})"),
            (Operator::NotIn, 1) => write!(f, "{key}!={all}"),
            (Operator::NotIn, _) => write!(f, "{key} notin ({all})"),
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
            (Operator::GreaterThan, _) => write!(f, "{key}>{all}"),
            (Operator::LessThan, _) => write!(f, "{key}<{all}"),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{r}")?;
        }
        Ok(())
    }
}

mod parse {
    //! The grammar of the query string's form: tokens first, then requirements.

    use super::{Operator, Requirement, Selector, SelectorError};
    use crate::names;

    #[derive(Clone, Debug, PartialEq)]
    enum Token {
        Word(String),
        Symbol(&'static str),
    }

    // `!=` and `==` stand before their first characters, which would match as well.
    const SYMBOLS: [&str; 9] = ["!=", "==", "!", "=", "(", ")", ",", ">", "<"];

    fn split_tokens(text: &str) -> Vec<Token> {
        let mut out = Vec::new();
        let mut rest = text;
        loop {
            // kubectl passes on what the user typed, with blanks after commas.
            rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            if rest.is_empty() {
                return out;
            }
            if let Some(symbol) = SYMBOLS.into_iter().find(|s| rest.starts_with(s)) {
                out.push(Token::Symbol(symbol));
                rest = &rest[symbol.len()..];
                continue;
            }
            let end = rest
                .find(|c: char| c.is_ascii_whitespace() || "!=(),<>".contains(c))
                .unwrap_or(rest.len());
            out.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }

    struct Parser {
        tokens: Vec<Token>,
        at: usize,
    }

    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        let mut parser = Parser {
            tokens: split_tokens(text),
            at: 0,
        };
        Ok(Selector {
            requirements: parser.parse_requirements()?,
        })
    }

    impl Parser {
        fn peek(&self) -> Option<&Token> {
            self.tokens.get(self.at)
        }

        fn next(&mut self) -> Option<Token> {
            let token = self.tokens.get(self.at).cloned();
            self.at += 1;
            token
        }

        fn take_symbol(&mut self, symbol: &str) -> bool {
            let found = matches!(self.peek(), Some(Token::Symbol(s)) if *s == symbol);
            self.at += usize::from(found);
            found
        }

        fn parse_requirements(&mut self) -> Result<Vec<Requirement>, SelectorError> {
            let mut all = Vec::new();
            if self.peek().is_none() {
                return Ok(all);
            }
            loop {
                if !matches!(self.peek(), Some(Token::Word(_) | Token::Symbol("!"))) {
                    return Err(expected_error(
                        self.peek(),
                        "!, identifier, or 'end of string'",
                    ));
                }
                let requirement = self.parse_requirement();
                all.push(
                    requirement.map_err(|e| {
                        SelectorError(format!("unable to parse requirement: {}", e.0))
                    })?,
                );
                match self.next() {
                    None => return Ok(all),
                    // Upstream rejects a comma at the end: a list with an empty part is likely a
                    // mistake of a script, and it would select too much.
                    Some(Token::Symbol(",")) => match self.peek() {
                        Some(Token::Word(_) | Token::Symbol("!")) => {}
                        other => return Err(expected_error(other, "identifier after ','")),
                    },
                    other => return Err(expected_error(other.as_ref(), "',' or 'end of string'")),
                }
            }
        }

        fn parse_requirement(&mut self) -> Result<Requirement, SelectorError> {
            let absent = self.take_symbol("!");
            let key = match self.next() {
                Some(Token::Word(word)) => word,
                other => return Err(expected_error(other.as_ref(), "identifier")),
            };
            // Upstream has no field path here and prints the nil one.
            check_problems(names::qualified_name(&key), "<nil>", &key)?;
            if absent {
                return Ok(Requirement {
                    key,
                    operator: Operator::DoesNotExist,
                    values: Vec::new(),
                });
            }
            let operator = match self.peek() {
                None | Some(Token::Symbol(",")) => {
                    return Ok(Requirement {
                        key,
                        operator: Operator::Exists,
                        values: Vec::new(),
                    });
                }
                Some(token) => operator_of(token)?,
            };
            let set = matches!(self.next(), Some(Token::Word(_)));
            let mut values = if set {
                self.parse_set()?
            } else {
                vec![self.parse_value()]
            };
            for value in &values {
                if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
                    value.parse::<i64>().map_err(|_| {
                        SelectorError(format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"))
                    })?;
                } else {
                    check_problems(
                        names::label_value(value),
                        &format!("values[0][{key}]"),
                        value,
                    )?;
                }
            }
            values.sort();
            // Values are a set upstream: equal selectors must have equal texts.
            values.dedup();
            Ok(Requirement {
                key,
                operator,
                values,
            })
        }

        fn parse_value(&mut self) -> String {
            match self.peek() {
                Some(Token::Word(word)) => {
                    let word = word.clone();
                    self.at += 1;
                    word
                }
                // `key=` matches labels with an empty value, which are valid.
                _ => String::new(),
            }
        }

        fn parse_set(&mut self) -> Result<Vec<String>, SelectorError> {
            if !self.take_symbol("(") {
                let found = expected_error(self.peek(), "'('")
                    .0
                    .replace("', expected", "' expected");
                return Err(SelectorError(found));
            }
            let mut values = Vec::new();
            loop {
                match self.next() {
                    Some(Token::Word(word)) => {
                        values.push(word);
                        match self.next() {
                            Some(Token::Symbol(","))
                                if matches!(self.peek(), Some(Token::Symbol(")"))) =>
                            {
                                // Upstream reads an empty place in a set, as in `(a,)`, as the
                                // empty value.
                                values.push(String::new());
                            }
                            Some(Token::Symbol(",")) => {}
                            Some(Token::Symbol(")")) => return Ok(values),
                            other => return Err(expected_error(other.as_ref(), "',' or ')'")),
                        }
                    }
                    Some(Token::Symbol(",")) => {
                        values.push(String::new());
                        if self.take_symbol(")") {
                            values.push(String::new());
                            return Ok(values);
                        }
                    }
                    Some(Token::Symbol(")")) => {
                        if values.is_empty() {
                            values.push(String::new());
                        }
                        return Ok(values);
                    }
                    other => return Err(expected_error(other.as_ref(), "',', ')' or identifier")),
                }
            }
        }
    }

    fn operator_of(token: &Token) -> Result<Operator, SelectorError> {
        match token {
            Token::Symbol("=" | "==") => Ok(Operator::In),
            Token::Symbol("!=") => Ok(Operator::NotIn),
            Token::Symbol(">") => Ok(Operator::GreaterThan),
            Token::Symbol("<") => Ok(Operator::LessThan),
            Token::Word(w) if w == "in" => Ok(Operator::In),
            Token::Word(w) if w == "notin" => Ok(Operator::NotIn),
            other => Err(expected_error(Some(other), "in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn expected_error(found: Option<&Token>, expected: &str) -> SelectorError {
        let found = match found {
            Some(Token::Word(w)) => w.as_str(),
            Some(Token::Symbol(s)) => s,
            None => "",
        };
        SelectorError(format!("found '{found}', expected: {expected}"))
    }

    fn check_problems(
        problems: Vec<String>,
        field: &str,
        value: &str,
    ) -> Result<(), SelectorError> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(SelectorError(format!(
            "{field}: Invalid value: {value:?}: {}",
            problems.join("; ")
        )))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn selectors_match() {
        let labels = serde_json::json!({"a": "1", "b": "x", "e": ""});
        let check = |text: &str, expect: bool| {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.matches_map(labels.as_object()), expect, "{text}");
        };
        check("", true);
        check("a=1", true);
        check("a==1,b!=y", true);
        check("b in (x, y)", true);
        check("b notin (x,y)", false);
        check("c notin (x)", true);
        check("c!=x", true);
        check("!c", true);
        check("a,!b", false);
        check("e=", true);
        check("e in (,z)", true);
        check("a>0", true);
        check("a<1", false);
    }

    #[test]
    fn malformed_selector_is_rejected() {
        for bad in ["a in b", ",a", "a,", "a=b=c", "a in (b", "!", "=x", "a b"] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
