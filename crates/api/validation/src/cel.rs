//! The outer form of CEL expressions: balanced brackets, and no names that nobody declares.
//!
//! This is no compiler: types are not checked. It refuses what can never run, so that a policy with a misspelled root is
//! refused when it is written, not ignored when it should act.

use crate::field::{Errors, Path};
use crate::tree::{list, text};
use serde_json::Value;

/// Names that every expression knows: literals, types, and functions that stand alone.
const BUILT_IN: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "type",
    "dyn",
    "timestamp",
    "duration",
    "google",
    "Object",
];
const MACROS: [&str; 9] =
    ["all", "exists", "exists_one", "map", "filter", "transformList", "transformMap", "sortBy", "bind"];

/// Checks `item.expression` (or another field) of each element of a list.
pub fn each(parent: &Value, list_field: &str, field: &str, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(list_field);
    for (i, item) in list(parent, list_field).iter().enumerate() {
        let expression = text(item, field);
        let verdict = list_field != "variables" && numeric(expression);
        let problem =
            if verdict { Some("must evaluate to bool or string".to_owned()) } else { problem(expression, known) };
        if let Some(problem) = problem.filter(|_| !expression.is_empty()) {
            errors.invalid(&at.index(i).child(field), expression, problem);
        }
    }
}

/// Whether an expression is arithmetic on numbers: neither a verdict nor a message.
fn numeric(expression: &str) -> bool {
    let plain = |c: char| c.is_ascii_digit() || c.is_whitespace() || "+-*/%.()".contains(c);
    expression.contains(|c: char| c.is_ascii_digit()) && expression.chars().all(plain)
}

/// What is wrong with an expression that may use `known` names.
pub fn problem(expression: &str, known: &[&str]) -> Option<String> {
    let tokens = tokens(expression);
    let mut open: Vec<char> = Vec::new();
    let mut bound: Vec<&str> = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol(c @ ('(' | '[' | '{')) => open.push(*c),
            Token::Symbol(c @ (')' | ']' | '}')) => {
                let pair = match c {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if open.pop() != Some(pair) {
                    return Some(format!("compilation failed: ERROR: <input>: Syntax error: mismatched '{c}'"));
                }
            }
            Token::Name(name) => {
                let before = i.checked_sub(1).and_then(|j| tokens.get(j));
                let next = tokens.get(i + 1);
                if MACROS.contains(name) && next == Some(&Token::Symbol('(')) {
                    bound.extend(macro_variables(&tokens, i + 2));
                }
                let free = before != Some(&Token::Symbol('.')) && !matches!(next, Some(Token::Symbol('(' | ':' | '{')));
                let declared = BUILT_IN.contains(name) || known.contains(name) || bound.contains(name);
                if free && !declared {
                    return Some(format!(
                        "compilation failed: ERROR: <input>: undeclared reference to '{name}' (in container '')"
                    ));
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() || matches!(tokens.last(), Some(Token::Symbol('.' | '+' | '*' | '&' | '|'))) {
        return Some("compilation failed: ERROR: <input>: Syntax error: mismatched input '<EOF>'".into());
    }
    None
}

/// The variables that a macro binds: the names before its first commas.
fn macro_variables<'a>(tokens: &[Token<'a>], start: usize) -> Vec<&'a str> {
    let mut out = Vec::new();
    let mut at = start;
    while let (Some(Token::Name(name)), Some(Token::Symbol(','))) = (tokens.get(at), tokens.get(at + 1)) {
        out.push(*name);
        at += 2;
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Symbol(char),
    Literal,
}

fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' | '\'' => {
                out.push(Token::Literal);
                quoted(rest, c)
            }
            c if c.is_ascii_digit() => {
                out.push(Token::Literal);
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len())
            }
            c if c.is_alphabetic() || c == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let prefix = matches!(name, "r" | "b" | "R" | "B" | "br" | "rb") && after.starts_with(['"', '\'']);
                if !prefix {
                    out.push(Token::Name(name));
                }
                end
            }
            c => {
                if !c.is_whitespace() {
                    out.push(Token::Symbol(c));
                }
                c.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    out
}

/// The length of a string literal with its quotes, escapes counted.
fn quoted(text: &str, quote: char) -> usize {
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    if let Some(inner) = text.strip_prefix(triple.as_str()) {
        return inner.find(triple.as_str()).map_or(text.len(), |end| end + 6);
    }
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return i + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn forms() {
        let known = ["object", "request", "params"];
        for good in [
            "true",
            "object.spec.replicas <= params.max",
            "object.items.all(x, x.name != 'a b' && has(x.y))",
            "{'a': 1}.size() > 0 && request.name in ['x']",
            "Object{spec: Object.spec{replicas: 3}}",
            "object.m.map(k, object.m[k]) == [] ? \"it's\" : r'\\d'",
        ] {
            assert_eq!(problem(good, &known), None, "{good}");
        }
        for bad in ["object.spec.(", "nothing.here", "(object", "object.x)", "object."] {
            assert!(problem(bad, &known).is_some(), "{bad}");
        }
    }
}
