//! Translates Go's syntax of regular expressions to that of the `regex` crate.
//!
//! Both match in linear time and agree on most of the syntax. The translation makes every literal
//! and class explicit, so that characters with a meaning in one syntax only are no trap.

use super::class;
use super::input::{Input, NESTING_LIMIT, PatternError, syntax};

/// Go's limit of a repetition.
const REPEAT_LIMIT: u32 = 1000;

struct Translator<'a> {
    input: Input<'a>,
    source: &'a str,
    out: String,
    depth: u32,
    /// True if the last token can be repeated.
    operand: bool,
    /// The last token, if it is a repetition.
    repeated: Option<String>,
    /// Largest repetition in the group that is open, and in those around it.
    sizes: Vec<u32>,
    /// Largest repetition in the last token.
    size: u32,
}

/// Translates a pattern.
pub(super) fn translate(source: &str) -> Result<String, PatternError> {
    let mut translator = Translator {
        input: source.chars().peekable(),
        source,
        out: String::with_capacity(source.len() + 8),
        depth: 0,
        operand: false,
        repeated: None,
        sizes: vec![1],
        size: 1,
    };
    while let Some(c) = translator.input.next() {
        translator.push_token(c)?;
    }
    if translator.depth > 0 {
        return syntax("missing closing )", source);
    }
    Ok(translator.out)
}

impl Translator<'_> {
    fn push_token(&mut self, c: char) -> Result<(), PatternError> {
        match c {
            '(' => return self.open_group(),
            ')' if self.depth == 0 => return syntax("unexpected )", self.source),
            ')' => {
                self.depth -= 1;
                let size = self.sizes.pop().unwrap_or(1);
                self.push(")", true);
                self.note_size(size);
            }
            '|' => self.push("|", false),
            '*' | '+' | '?' => return self.push_repetition(c.to_string()),
            '{' => return self.push_counted_repetition(),
            '[' => {
                let class = class::translate_class(&mut self.input, self.source)?;
                self.push(&class, true);
            }
            '\\' => return self.push_escape(),
            '.' | '^' | '$' => self.push(c.encode_utf8(&mut [0; 4]), true),
            literal => self.push_literal(literal),
        }
        Ok(())
    }

    fn push(&mut self, text: &str, operand: bool) {
        self.out.push_str(text);
        self.operand = operand;
        self.repeated = None;
        self.size = 1;
    }

    fn note_size(&mut self, size: u32) {
        self.size = size;
        if let Some(group) = self.sizes.last_mut() {
            *group = size.max(*group);
        }
    }

    fn push_literal(&mut self, c: char) {
        let text = class::escape(c);
        self.push(&text, true);
    }

    fn push_repetition(&mut self, mut text: String) -> Result<(), PatternError> {
        if !self.operand {
            return syntax("missing argument to repetition operator", &text);
        }
        if self.input.next_if_eq(&'?').is_some() {
            text.push('?');
        }
        if let Some(before) = &self.repeated {
            return syntax(
                "invalid nested repetition operator",
                &format!("{before}{text}"),
            );
        }
        self.out.push_str(&text);
        self.repeated = Some(text);
        Ok(())
    }

    /// Translates `{n}`, `{n,}` and `{n,m}`. A brace that begins none of these is a literal.
    fn push_counted_repetition(&mut self) -> Result<(), PatternError> {
        let ahead: String = self
            .input
            .clone()
            .take_while(|c| *c != '}')
            .take(32)
            .collect();
        let closed = self.input.clone().nth(ahead.chars().count()) == Some('}');
        let (min, max) = ahead.split_once(',').unwrap_or((&ahead, &ahead));
        // Go accepts no leading zeros here.
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            (digits && (text == "0" || !text.starts_with('0')))
                .then(|| text.parse::<u32>().unwrap_or(u32::MAX))
        };
        let open_end = max.is_empty() && ahead.contains(',');
        let (Some(low), true) = (number(min), closed && (open_end || number(max).is_some())) else {
            self.push_literal('{');
            return Ok(());
        };
        let high = number(max).unwrap_or(low);
        let text = format!("{{{ahead}}}");
        // Repetitions of repetitions multiply, and Go limits the product.
        let size = self.size.saturating_mul(high.max(low).max(1));
        if size > REPEAT_LIMIT || low > high {
            return syntax("invalid repeat count", &text);
        }
        self.input.nth(ahead.chars().count());
        self.push_repetition(text)?;
        self.note_size(size);
        Ok(())
    }

    fn open_group(&mut self) -> Result<(), PatternError> {
        let mut open = "(?:".to_owned();
        if self.input.next_if_eq(&'?').is_some() {
            match self.read_flags()? {
                Some(flags) => open = flags,
                // Flags for the rest of the enclosing group.
                None => return Ok(()),
            }
        }
        self.depth += 1;
        if self.depth > NESTING_LIMIT {
            return Err(PatternError::TooLarge);
        }
        self.push(&open, false);
        self.sizes.push(1);
        Ok(())
    }

    /// Reads what follows `(?`. Returns the opening of a group, or nothing after `(?i)`.
    fn read_flags(&mut self) -> Result<Option<String>, PatternError> {
        let prefixed = self.input.next_if_eq(&'P').is_some();
        let named = prefixed || self.input.peek() == Some(&'<');
        if named && self.input.peek() != Some(&'<') {
            return syntax("invalid or unsupported Perl syntax", "(?P");
        }
        if named {
            return self.read_group_name(prefixed).map(Some);
        }
        let mut flags = String::new();
        loop {
            match self.input.next() {
                Some(':') if !flags.ends_with('-') => return Ok(Some(format!("(?{flags}:"))),
                Some(')') if !flags.ends_with('-') => {
                    if !flags.is_empty() {
                        self.out.push_str(&format!("(?{flags})"));
                    }
                    return Ok(None);
                }
                Some('-') if flags.contains('-') => break,
                Some(c @ ('i' | 'm' | 's' | 'U' | '-')) if !flags.contains(c) => flags.push(c),
                Some('i' | 'm' | 's' | 'U') => {}
                Some(other) => {
                    flags.push(other);
                    break;
                }
                None => break,
            }
        }
        syntax("invalid or unsupported Perl syntax", &format!("(?{flags}"))
    }

    fn read_group_name(&mut self, prefixed: bool) -> Result<String, PatternError> {
        let open = if prefixed { "(?P<" } else { "(?<" };
        self.input.next();
        let name: String = self.input.clone().take_while(|c| *c != '>').collect();
        // The name and the closing bracket. Without one, the rest of the pattern was read once.
        if self.input.nth(name.chars().count()).is_none() {
            return syntax("invalid named capture", &format!("{open}{name}"));
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(word) {
            return syntax("invalid named capture", &format!("{open}{name}>"));
        }
        // Nothing reads captures, and they cost memory.
        Ok("(?:".to_owned())
    }

    fn push_escape(&mut self) -> Result<(), PatternError> {
        match self.input.peek().copied() {
            None => return syntax("trailing backslash at end of expression", ""),
            Some('A') => self.push_assertion(r"\A"),
            Some('z') => self.push_assertion(r"\z"),
            // Words are ASCII in Go.
            Some('b') => self.push_assertion(r"(?-u:\b)"),
            Some('B') => self.push_assertion(r"(?-u:\B)"),
            Some('Q') => {
                self.input.next();
                self.push_quoted();
            }
            _ => {
                let class = class::translate_escape(&mut self.input)?;
                self.push(&class.text(), true);
            }
        }
        Ok(())
    }

    fn push_assertion(&mut self, text: &str) {
        self.input.next();
        self.push(text, true);
    }

    // `\Q` begins a text without special characters that ends at `\E` or at the end.
    fn push_quoted(&mut self) {
        while let Some(c) = self.input.next() {
            if c == '\\' && self.input.next_if_eq(&'E').is_some() {
                return;
            }
            self.push_literal(c);
        }
    }
}
