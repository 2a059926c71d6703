//! Parser of paths.

use super::step::{Filter, Operator, PathError, Slice, Step};
use serde_json::Value;

/// Maximum depth of filters and unions inside of each other.
const NESTING_LIMIT: usize = 8;
/// Maximum length of a path, in bytes.
const LENGTH_LIMIT: usize = 4096;

fn syntax<T>(text: impl Into<String>) -> Result<T, PathError> {
    Err(PathError::Syntax(text.into()))
}

pub(super) fn parse_steps(text: &str, depth: usize) -> Result<Vec<Step>, PathError> {
    if depth > NESTING_LIMIT || text.len() > LENGTH_LIMIT {
        return syntax("the path is too long or nested too deeply");
    }
    let mut parser = Parser {
        rest: text,
        steps: Vec::new(),
        depth,
    };
    while !parser.rest.is_empty() {
        parser.parse_step()?;
    }
    Ok(parser.steps)
}

struct Parser<'a> {
    rest: &'a str,
    steps: Vec<Step>,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Removes and returns the first `len` bytes.
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn parse_step(&mut self) -> Result<(), PathError> {
        if self.rest.starts_with("[?(") {
            return self.parse_filter();
        }
        if let Some(rest) = self.rest.strip_prefix("..") {
            if self.steps.last() == Some(&Step::Recursive) {
                return syntax("invalid multiple recursive descent");
            }
            self.rest = rest;
            self.steps.push(Step::Recursive);
            let word = |c: char| c == '_' || c.is_alphanumeric();
            if rest.starts_with(word) {
                self.parse_field();
            }
            return Ok(());
        }
        match self.rest.chars().next() {
            Some(' ' | '@' | '$') => {
                self.take(1);
            }
            Some('[') => return self.parse_brackets(),
            Some(quote @ ('"' | '\'')) => return self.parse_quoted(quote),
            Some('.') => {
                self.take(1);
                self.parse_field();
            }
            Some('+' | '-' | '0'..='9') => return self.parse_number(),
            Some(c) if c.is_alphanumeric() || c == '_' => return self.parse_word(),
            Some(c) => return syntax(format!("unrecognized character in action: {c:?}")),
            None => {}
        }
        Ok(())
    }

    fn parse_field(&mut self) {
        let mut escaped = false;
        let end = self.rest.find(|c: char| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = c == '\\';
            is_terminator(c)
        });
        let name = self.take(end.unwrap_or(self.rest.len()));
        self.steps.push(match name {
            "*" => Step::Wildcard,
            name => Step::Field(name.replace('\\', "")),
        });
    }

    fn parse_word(&mut self) -> Result<(), PathError> {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        match self.take(end) {
            "true" => self.steps.push(Step::Literal(true.into())),
            "false" => self.steps.push(Step::Literal(false.into())),
            // Ranges print several values, and a column has one.
            other => return syntax(format!("unrecognized identifier {other}")),
        }
        Ok(())
    }

    fn parse_number(&mut self) -> Result<(), PathError> {
        let body = self.rest.get(1..).unwrap_or_default();
        let end = body
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .map_or(self.rest.len(), |n| n + 1);
        let text = self.take(end);
        let number = match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(n), _) => Value::from(n),
            (_, Ok(f)) => Value::from(f),
            _ => return syntax(format!("cannot parse number {text}")),
        };
        self.steps.push(Step::Literal(number));
        Ok(())
    }

    fn parse_quoted(&mut self, quote: char) -> Result<(), PathError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '\n' => break,
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, c @ ('\\' | '"' | '\''))) => text.push(c),
                    _ => {
                        return syntax(format!(
                            "unquote string {} error invalid syntax",
                            self.rest
                        ));
                    }
                },
                c if c == quote => {
                    self.take(i + 1);
                    self.steps.push(Step::Literal(text.into()));
                    return Ok(());
                }
                c => text.push(c),
            }
        }
        syntax("unterminated quoted string")
    }

    fn parse_brackets(&mut self) -> Result<(), PathError> {
        let Some(end) = self.rest.find(']') else {
            return syntax("unterminated array");
        };
        let inside = self.take(end + 1).get(1..end).unwrap_or_default();
        if inside.contains(',') {
            let part =
                |part: &str| parse_steps(&format!("[{}]", part.trim_matches(' ')), self.depth + 1);
            let all: Result<Vec<_>, _> = inside.split(',').map(part).collect();
            self.steps.push(Step::Union(all?));
            return Ok(());
        }
        let key = inside
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            // A key in brackets is a field, in which dots must be escaped.
            self.steps
                .extend(parse_steps(&format!(".{key}"), self.depth + 1)?);
            return Ok(());
        }
        self.steps.push(Step::Slice(parse_slice(inside)?));
        Ok(())
    }

    fn parse_filter(&mut self) -> Result<(), PathError> {
        let body = self.rest.get(3..).unwrap_or_default();
        let Some(end) = find_filter_end(body) else {
            return syntax("unterminated filter");
        };
        let expression = body.get(..end).unwrap_or_default();
        if !body
            .get(end + 1..)
            .is_some_and(|rest| rest.starts_with(']'))
        {
            return syntax("unclosed array expect ]");
        }
        // `[?(`, the expression, and `)]`.
        self.take(end + 5);
        let operator_char = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let start = expression.find(operator_char).filter(|at| *at > 0);
        // Without an operator, the filter tests that the path exists.
        let Some((left, rest)) = start.map(|at| expression.split_at(at)) else {
            let left = parse_steps(expression, self.depth + 1)?;
            let filter = Filter {
                left,
                comparison: None,
            };
            self.steps.push(Step::Filter(Box::new(filter)));
            return Ok(());
        };
        let right = rest.trim_start_matches(operator_char);
        let operator = match rest.strip_suffix(right).unwrap_or_default() {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            other => return syntax(format!("unrecognized filter operator {other}")),
        };
        let filter = Filter {
            left: parse_steps(left, self.depth + 1)?,
            comparison: Some((operator, parse_steps(right, self.depth + 1)?)),
        };
        self.steps.push(Step::Filter(Box::new(filter)));
        Ok(())
    }
}

/// Returns the position of the closing parenthesis, which isn't in quotes.
fn find_filter_end(body: &str) -> Option<usize> {
    let mut quote = None;
    let mut before = ' ';
    for (i, c) in body.char_indices() {
        match (quote, c) {
            (None, ')') => return Some(i),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open && before != '\\' => quote = None,
            _ => {}
        }
        before = c;
    }
    None
}

fn is_terminator(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn parse_slice(text: &str) -> Result<Slice, PathError> {
    if text == "*" {
        return Ok(Slice::default());
    }
    let parts: Vec<&str> = text.split(':').collect();
    let mut numbers = [None; 3];
    if parts.len() > numbers.len() || text.is_empty() {
        return syntax(format!("invalid array index {text}"));
    }
    for (number, part) in numbers.iter_mut().zip(&parts) {
        let digits = part.strip_prefix('-').unwrap_or(part);
        if !part.is_empty() && !digits.bytes().all(|b| b.is_ascii_digit()) {
            return syntax(format!("invalid array index {text}"));
        }
        if !part.is_empty() {
            let Ok(n) = part.parse() else {
                return syntax(format!("array index {part} is not a number"));
            };
            *number = Some(n);
        }
    }
    let [start, end, step] = numbers;
    Ok(Slice {
        start,
        end,
        step,
        single: parts.len() == 1,
    })
}
