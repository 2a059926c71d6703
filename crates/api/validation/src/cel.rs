//! Outer form of CEL expressions: balanced brackets and declared names.
//!
//! This is no compiler: types are not checked. It rejects expressions that can never be evaluated,
//! so that a policy with a misspelled root is rejected when it is written instead of being ignored
//! when it should apply. In doubt it accepts, because a valid expression must never be rejected.

use crate::field::{Errors, Path};
use api_meta::tree::{list, text};
use serde_json::Value;

/// Names in the scope of every expression: literals, types, and global functions.
const BUILT_IN: [&str; 20] = [
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
    "null_type",
    "optional_type",
];
/// Namespaces of functions and types in the libraries of CEL and Kubernetes.
const NAMESPACES: [&str; 14] = [
    "base64",
    "cel",
    "cidr",
    "format",
    "ip",
    "k8s",
    "kubernetes",
    "lists",
    "math",
    "net",
    "optional",
    "regex",
    "sets",
    "strings",
];

/// Validates `item.expression` (or another field) of each element of a list.
pub fn validate_each_expression(
    parent: &Value,
    list_field: &str,
    field: &str,
    known: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child(list_field);
    for (i, item) in list(parent, list_field).iter().enumerate() {
        let expression = text(item, field);
        // Variables may have any type; conditions, validations and messages may not.
        let is_number = list_field != "variables" && is_numeric(expression);
        let problem = if is_number {
            Some("must evaluate to bool or string".to_owned())
        } else {
            find_problem(expression, known)
        };
        if let Some(problem) = problem.filter(|_| !expression.is_empty()) {
            errors.invalid(&at.index(i).child(field), expression, problem);
        }
    }
}

/// Returns whether an expression is arithmetic on numbers, which is neither a is_number nor a
/// message.
fn is_numeric(expression: &str) -> bool {
    let plain = |c: char| c.is_ascii_digit() || c.is_whitespace() || "+-*/%.()".contains(c);
    expression.contains(|c: char| c.is_ascii_digit()) && expression.chars().all(plain)
}

/// Returns the error of an expression that may use the `known` names.
pub fn find_problem(expression: &str, known: &[&str]) -> Option<String> {
    let tokens = split_tokens(expression);
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
                    return Some(format!(
                        "compilation failed: ERROR: <input>: Syntax error: mismatched '{c}'"
                    ));
                }
            }
            Token::Name(name) => {
                let before = i.checked_sub(1).and_then(|j| tokens.get(j));
                let next = tokens.get(i + 1);
                // Any function may be a macro, because libraries add new ones.
                if next == Some(&Token::Symbol('(')) {
                    bound.extend(list_macro_variables(&tokens, i + 2));
                }
                let earlier = i.checked_sub(2).and_then(|j| tokens.get(j));
                let selected = before == Some(&Token::Symbol('.'))
                    || (before == Some(&Token::Symbol('?'))
                        && earlier == Some(&Token::Symbol('.')));
                let free = !selected && !matches!(next, Some(Token::Symbol('(' | ':' | '{')));
                // Names of libraries are no values, so they are only declared before a dot.
                let namespace = NAMESPACES.contains(name) && next == Some(&Token::Symbol('.'));
                let declared = BUILT_IN.contains(name)
                    || known.contains(name)
                    || bound.contains(name)
                    || namespace;
                if free && !declared {
                    return Some(format!(
                        "compilation failed: ERROR: <input>: undeclared reference to '{name}' (in container '')"
                    ));
                }
            }
            _ => {}
        }
    }
    // The parser of cel-go reports the end of the input for both: an open bracket and an operator
    // without its right side.
    if !open.is_empty()
        || matches!(
            tokens.last(),
            Some(Token::Symbol('.' | '+' | '*' | '&' | '|'))
        )
    {
        return Some(
            "compilation failed: ERROR: <input>: Syntax error: mismatched input '<EOF>'".into(),
        );
    }
    None
}

/// Returns the variables that a macro binds: the names before its first commas.
fn list_macro_variables<'a>(tokens: &[Token<'a>], start: usize) -> Vec<&'a str> {
    let mut out = Vec::new();
    let mut at = start;
    while let (Some(Token::Name(name)), Some(Token::Symbol(','))) =
        (tokens.get(at), tokens.get(at + 1))
    {
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

fn split_tokens(expression: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' | '\'' => {
                out.push(Token::Literal);
                quoted_length(rest, c, false)
            }
            // A field name that is not an identifier.
            '`' => {
                out.push(Token::Literal);
                quoted_length(rest, c, true)
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            c if c.is_ascii_digit() => {
                out.push(Token::Literal);
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
                    .unwrap_or(rest.len())
            }
            c if c.is_alphabetic() || c == '_' => {
                let end = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                // `r` and `b` before a quote are prefixes of a literal and no names.
                let prefix = name.len() <= 2 && name.chars().all(|c| "rRbB".contains(c));
                match after.chars().next() {
                    Some(quote @ ('"' | '\'')) if prefix => {
                        out.push(Token::Literal);
                        end + quoted_length(after, quote, name.contains(['r', 'R']))
                    }
                    _ => {
                        out.push(Token::Name(name));
                        end
                    }
                }
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

/// Returns the length of a string literal with its quotes. In a raw literal a backslash escapes
/// nothing.
fn quoted_length(text: &str, quote: char, raw: bool) -> usize {
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    if let Some(inner) = text.strip_prefix(triple.as_str()) {
        return inner
            .find(triple.as_str())
            .map_or(text.len(), |end| end + 6);
    }
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return i + 1;
        }
        escaped = c == '\\' && !escaped && !raw;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::find_problem;

    #[test]
    fn valid_expressions_are_accepted_and_malformed_ones_rejected() {
        let known = ["object", "request", "params"];
        for good in [
            "true",
            "object.spec.replicas <= params.max",
            "object.items.all(x, x.name != 'a b' && has(x.y))",
            "{'a': 1}.size() > 0 && request.name in ['x']",
            "Object{spec: Object.spec{replicas: 3}}",
            "cel.bind(x, object.spec.replicas, x * x > params.max)",
            "optional.of(1).orValue(2) == 1 && object.?spec.?name.orValue('') != ''",
            "object.?spec.optMap(v, v + 1).hasValue()",
            "sets.contains(['a'], object.l) && math.greatest(1, 2) == 2 && ip.isCanonical('10.0.0.1')",
            "!format.dns1123Label().validate(object.name).hasValue()",
            "object.a == 1 // nothing.here (\n && true",
            "object.x.matches(r'\\') && object.x == b'y'",
            "object.metadata.labels.`a.b/c-d` == 'x'",
            "type(object.q) == kubernetes.Quantity || object.url == 'http://x'",
            "object.m.map(k, object.m[k]) == [] ? \"it's\" : r'\\d'",
        ] {
            assert_eq!(find_problem(good, &known), None, "{good}");
        }
        for bad in [
            "object.spec.(",
            "nothing.here",
            "(object",
            "object.x)",
            "object.",
        ] {
            assert!(find_problem(bad, &known).is_some(), "{bad}");
        }
    }
}
