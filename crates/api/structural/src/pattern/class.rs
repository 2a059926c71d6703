//! Character classes and escapes.

use super::input::{Input, PatternError, syntax};

/// An escape: one character, or a class of them.
pub(super) enum Escape {
    Char(char),
    /// Content of a class: in brackets it is a class of its own.
    Class(String),
}

impl Escape {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Char(c) => escape(*c),
            Self::Class(content) => format!("[{content}]"),
        }
    }
}

/// Returns a character as a literal, inside and outside of classes.
pub(super) fn escape(c: char) -> String {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => c.to_string(),
        // A code point has no special meaning anywhere.
        c => format!("\\x{{{:X}}}", u32::from(c)),
    }
}

/// Reads an escape after its backslash.
pub(super) fn translate_escape(input: &mut Input<'_>) -> Result<Escape, PatternError> {
    let Some(c) = input.next() else {
        return syntax("trailing backslash at end of expression", "");
    };
    let class = |content: &str| Ok(Escape::Class(content.to_owned()));
    match c {
        'd' => class("0-9"),
        'D' => class("[^0-9]"),
        's' => class(r"\t\n\f\r\x20"),
        'S' => class(r"[^\t\n\f\r\x20]"),
        'w' => class("0-9A-Za-z_"),
        'W' => class("[^0-9A-Za-z_]"),
        'p' | 'P' => translate_unicode_class(input, c == 'P'),
        'a' => Ok(Escape::Char('\x07')),
        'f' => Ok(Escape::Char('\x0c')),
        'n' => Ok(Escape::Char('\n')),
        'r' => Ok(Escape::Char('\r')),
        't' => Ok(Escape::Char('\t')),
        'v' => Ok(Escape::Char('\x0b')),
        'x' => translate_hex(input),
        '0'..='7' => translate_octal(c, input),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(Escape::Char(c)),
        c => syntax("invalid escape sequence", &format!("\\{c}")),
    }
}

fn translate_hex(input: &mut Input<'_>) -> Result<Escape, PatternError> {
    let mut digits = String::new();
    let braced = input.next_if_eq(&'{').is_some();
    let wanted = if braced { 8 } else { 2 };
    while digits.len() < wanted {
        match input.next_if(char::is_ascii_hexdigit) {
            Some(digit) => digits.push(digit),
            None => break,
        }
    }
    let closed = !braced || input.next_if_eq(&'}').is_some();
    let complete = if braced {
        !digits.is_empty()
    } else {
        digits.len() == 2
    };
    let code = u32::from_str_radix(&digits, 16)
        .ok()
        .and_then(char::from_u32);
    match code {
        Some(c) if closed && complete => Ok(Escape::Char(c)),
        _ => syntax("invalid escape sequence", "\\x"),
    }
}

fn translate_octal(first: char, input: &mut Input<'_>) -> Result<Escape, PatternError> {
    let octal = |c: &char| ('0'..='7').contains(c);
    // A single digit except zero would be a back reference, which needs exponential time.
    if first != '0' && !input.peek().is_some_and(octal) {
        return syntax("invalid escape sequence", &format!("\\{first}"));
    }
    let mut code = first.to_digit(8).unwrap_or(0);
    for _ in 0..2 {
        match input.next_if(octal) {
            Some(digit) => code = code * 8 + digit.to_digit(8).unwrap_or(0),
            None => break,
        }
    }
    Ok(Escape::Char(char::from_u32(code).unwrap_or('\0')))
}

fn translate_unicode_class(input: &mut Input<'_>, negated: bool) -> Result<Escape, PatternError> {
    let name: String = match input.next() {
        Some('{') => {
            let name: String = input.clone().take_while(|c| *c != '}').collect();
            // The name and the closing brace.
            if input.nth(name.chars().count()).is_none() {
                return syntax("invalid character class range", "\\p{");
            }
            name
        }
        Some(c) => c.to_string(),
        None => return syntax("invalid character class range", "\\p"),
    };
    let (name, negated) = match name.strip_prefix('^') {
        Some(name) => (name, !negated),
        None => (name.as_str(), negated),
    };
    // `name=value` is an extension of the `regex` crate.
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '-');
    if name.is_empty() || !name.chars().all(word) {
        return syntax("invalid character class range", &format!("\\p{{{name}}}"));
    }
    let letter = if negated { 'P' } else { 'p' };
    Ok(Escape::Class(format!("\\{letter}{{{name}}}")))
}

/// Reads a class after its opening bracket.
pub(super) fn translate_class(input: &mut Input<'_>, source: &str) -> Result<String, PatternError> {
    let mut out = "[".to_owned();
    if input.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match input.next() {
            None => return syntax("missing closing ]", source),
            // A closing bracket at the start is a literal.
            Some(']') if !first => break,
            Some('[') if input.peek() == Some(&':') => out.push_str(&translate_posix_class(input)?),
            Some(c) => push_range(c, input, &mut out, source)?,
        }
        first = false;
    }
    out.push(']');
    Ok(out)
}

fn push_range(
    c: char,
    input: &mut Input<'_>,
    out: &mut String,
    source: &str,
) -> Result<(), PatternError> {
    let low = match read_class_char(c, input)? {
        Escape::Char(low) => low,
        Escape::Class(content) => {
            out.push_str(&content);
            return Ok(());
        }
    };
    out.push_str(&escape(low));
    let mut ahead = input.clone();
    let is_range = ahead.next() == Some('-') && !matches!(ahead.next(), Some(']') | None);
    if !is_range {
        return Ok(());
    }
    input.next();
    let Some(c) = input.next() else {
        return syntax("missing closing ]", source);
    };
    let escaped = input.peek().copied().filter(|_| c == '\\');
    match read_class_char(c, input)? {
        Escape::Class(_) => {
            let class = escaped.unwrap_or_default();
            syntax("invalid escape sequence", &format!("\\{class}"))
        }
        Escape::Char(high) if low <= high => {
            out.push('-');
            out.push_str(&escape(high));
            Ok(())
        }
        _ => syntax("invalid character class range", &format!("{low}-{c}")),
    }
}

fn read_class_char(c: char, input: &mut Input<'_>) -> Result<Escape, PatternError> {
    match c {
        '\\' => translate_escape(input),
        c => Ok(Escape::Char(c)),
    }
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

fn translate_posix_class(input: &mut Input<'_>) -> Result<String, PatternError> {
    let rest: String = input.clone().take(16).collect();
    let Some(end) = rest.find(":]") else {
        // Without an end it is a set that contains a bracket.
        return Ok(escape('['));
    };
    let name = rest.get(1..end).unwrap_or_default();
    if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return syntax("invalid character class range", &format!("[:{name}:]"));
    }
    input.nth(end + 1);
    Ok(format!("[:{name}:]"))
}
