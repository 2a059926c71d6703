//! From text to tokens.

use super::literal::unescape;
use super::token::{Positioned, Token};
use crate::source::Issue;

/// Longer symbols first, because the first that matches is taken.
const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Splits an expression into tokens; the last is `Token::End`.
pub fn split_tokens(characters: &[char]) -> (Vec<Positioned>, Vec<Issue>) {
    let mut lexer = Lexer {
        characters,
        position: 0,
        tokens: Vec::new(),
        issues: Vec::new(),
    };
    while lexer.peek(0).is_some() {
        lexer.read_token();
    }
    lexer.push(Token::End, characters.len(), "<EOF>".to_owned());
    (lexer.tokens, lexer.issues)
}

struct Lexer<'s> {
    characters: &'s [char],
    position: usize,
    tokens: Vec<Positioned>,
    issues: Vec<Issue>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn peek_is(&self, ahead: usize, test: impl Fn(char) -> bool) -> bool {
        self.peek(ahead).is_some_and(test)
    }

    fn text_from(&self, start: usize) -> String {
        self.characters
            .get(start..self.position)
            .unwrap_or_default()
            .iter()
            .collect()
    }

    fn push(&mut self, token: Token, start: usize, text: String) {
        self.tokens.push(Positioned {
            token,
            offset: start as u32,
            text,
        });
    }

    fn read_token(&mut self) {
        let start = self.position;
        let Some(first) = self.peek(0) else { return };
        if matches!(first, ' ' | '\t' | '\r' | '\n' | '\u{c}') {
            self.position += 1;
        } else if first == '/' && self.peek(1) == Some('/') {
            self.skip_while(|c| c != '\n');
        } else if self.starts_string() {
            self.read_string(start);
        } else if first.is_ascii_digit()
            || (first == '.' && self.peek_is(1, |c| c.is_ascii_digit()))
        {
            self.read_number(start);
        } else if first.is_ascii_alphabetic() || first == '_' {
            self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
            let text = self.text_from(start);
            let word = WORDS.iter().find(|word| **word == text);
            let token = word.map_or_else(|| Token::Ident(text.clone()), |w| Token::Symbol(w));
            self.push(token, start, text);
        } else if first == '`' {
            self.read_escaped(start);
        } else {
            self.read_symbol(start);
        }
    }

    fn skip_while(&mut self, test: impl Fn(char) -> bool) {
        while self.peek_is(0, &test) {
            self.position += 1;
        }
    }

    fn read_symbol(&mut self, start: usize) {
        let matches = |symbol: &&&str| {
            symbol
                .chars()
                .enumerate()
                .all(|(index, c)| self.peek(index) == Some(c))
        };
        match SYMBOLS.iter().find(matches) {
            Some(symbol) => {
                self.position += symbol.len();
                self.push(Token::Symbol(symbol), start, (*symbol).to_owned());
            }
            None => {
                self.position += 1;
                self.report_unrecognized(start);
            }
        }
    }

    fn report_unrecognized(&mut self, start: usize) {
        let text = self.text_from(start).replace('\n', "\\n");
        let message = format!("Syntax error: token recognition error at: '{text}'");
        self.issues.push(Issue {
            offset: Some(start as u32),
            message,
        });
    }

    fn read_escaped(&mut self, start: usize) {
        self.position += 1;
        self.skip_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
        let name = self.text_from(start + 1);
        if self.peek(0) != Some('`') || name.is_empty() {
            return self.report_unrecognized(start);
        }
        self.position += 1;
        let text = self.text_from(start);
        self.push(Token::EscapedIdent(name), start, text);
    }

    fn read_number(&mut self, start: usize) {
        // Without a digit after it, `0x` is a zero and a name.
        if self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek_is(2, |c| c.is_ascii_hexdigit())
        {
            self.position += 2;
            self.skip_while(|c| c.is_ascii_hexdigit());
            return self.push_whole(start);
        }
        self.skip_while(|c| c.is_ascii_digit());
        let mut is_double = false;
        // A dot without a digit after it is a selection.
        if self.peek(0) == Some('.') && self.peek_is(1, |c| c.is_ascii_digit()) {
            is_double = true;
            self.position += 1;
            self.skip_while(|c| c.is_ascii_digit());
        }
        // An `e` without digits is no exponent, but starts a name.
        if self.peek_is(0, |c| matches!(c, 'e' | 'E')) {
            let signed = usize::from(self.peek_is(1, |c| matches!(c, '+' | '-')));
            if self.peek_is(1 + signed, |c| c.is_ascii_digit()) {
                is_double = true;
                self.position += 1 + signed;
                self.skip_while(|c| c.is_ascii_digit());
            }
        }
        if !is_double {
            return self.push_whole(start);
        }
        let text = self.text_from(start);
        self.push(Token::Double(text.clone()), start, text);
    }

    fn push_whole(&mut self, start: usize) {
        let digits = self.text_from(start);
        if self.peek_is(0, |c| matches!(c, 'u' | 'U')) {
            self.position += 1;
            let text = self.text_from(start);
            return self.push(Token::Uint(digits), start, text);
        }
        self.push(Token::Int(digits.clone()), start, digits);
    }

    fn starts_string(&self) -> bool {
        let is_quote = |c: char| matches!(c, '"' | '\'');
        let prefix = |at: usize, letters: &[char]| self.peek_is(at, |c| letters.contains(&c));
        self.peek_is(0, is_quote)
            || (prefix(0, &['r', 'R', 'b', 'B']) && self.peek_is(1, is_quote))
            || (prefix(0, &['b', 'B']) && prefix(1, &['r', 'R']) && self.peek_is(2, is_quote))
    }

    /// Returns the length of an escape sequence, or the number of characters up to where it is
    /// wrong.
    fn escape_length(&self) -> Result<usize, usize> {
        let (first, count, radix) = match self.peek(1) {
            Some('x' | 'X') => (2, 2, 16),
            Some('u') => (2, 4, 16),
            Some('U') => (2, 8, 16),
            // Three octal digits up to 377, because a byte holds no more.
            Some('0'..='3') => (2, 2, 8),
            Some(letter) if r#"abfnrtv"'\?`"#.contains(letter) => (2, 0, 10),
            _ => return Err(2),
        };
        match (first..first + count).find(|at| !self.peek_is(*at, |c| c.is_digit(radix))) {
            Some(wrong) => Err(wrong + 1),
            None => Ok(first + count),
        }
    }

    fn read_string(&mut self, start: usize) {
        let is_bytes = self.peek_is(0, |c| matches!(c, 'b' | 'B'));
        self.position += usize::from(is_bytes);
        let is_raw = self.peek_is(0, |c| matches!(c, 'r' | 'R'));
        self.position += usize::from(is_raw);
        let Some(quote) = self.peek(0) else { return };
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.position += width;
        let content_start = self.position;
        loop {
            match self.peek(0) {
                None => return self.report_unrecognized(start),
                // Only literals in triple quotes may span lines.
                Some('\n' | '\r') if !triple => return self.report_unrecognized(start),
                Some('\\') if !is_raw => match self.escape_length() {
                    Ok(length) => self.position += length,
                    Err(length) => {
                        self.position = (self.position + length).min(self.characters.len());
                        return self.report_unrecognized(start);
                    }
                },
                Some(c) if c == quote && (0..width).all(|i| self.peek(i) == Some(quote)) => break,
                Some(_) => self.position += 1,
            }
        }
        let content = self.text_from(content_start);
        self.position += width;
        // Line ends depend on the editor. As in cel-go, they do not change the value.
        let content = content.replace("\r\n", "\n").replace('\r', "\n");
        let text = self.text_from(start);
        match unescape(&content, is_raw, is_bytes) {
            Ok(bytes) if is_bytes => self.push(Token::Bytes(bytes), start, text),
            Ok(bytes) => {
                let string = String::from_utf8_lossy(&bytes).into_owned();
                self.push(Token::String(string), start, text);
            }
            Err(reason) => {
                let message = format!("Syntax error: {reason}");
                self.issues.push(Issue {
                    offset: Some(start as u32),
                    message,
                });
                // The parser continues with an empty string, and finds further problems.
                self.push(Token::String(String::new()), start, text);
            }
        }
    }
}
