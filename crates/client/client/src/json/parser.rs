//! The parser: what does not depend on the type that is decoded.

use serde::de::Error as _;
use serde_json::Error;
use std::borrow::Cow;

/// Decoders are recursive, so the stack limits them. An API server accepts bodies with 127 levels;
/// the paths of managed fields nest some deeper, as do lists and events.
const MAX_DEPTH: u8 = 160;

/// The meaning of null and absence.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Nulls {
    /// As the type demands: null in a required field is an error.
    Strict,
    /// By Go's rules: null and absence mean the zero value of a field, even of a required one.
    ///
    /// The types of k8s-openapi reject null in a required field such as
    /// `conditions[].lastTransitionTime`. Servers store and serve it nevertheless, because Go
    /// encodes its zero time as null.
    Zero,
}

/// A number of a document.
pub(super) enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

/// A value that is read in place of the next one in the document.
#[derive(Clone, Copy)]
pub(super) enum Substitute {
    Null,
    Text(&'static str),
}

/// The first character of a value, which determines its type.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Start {
    Null,
    Bool,
    Number,
    Text,
    Array,
    Object,
}

impl Start {
    fn name(self) -> &'static str {
        match self {
            Start::Null => "null",
            Start::Bool => "boolean",
            Start::Number => "number",
            Start::Text => "string",
            Start::Array => "sequence",
            Start::Object => "map",
        }
    }
}

/// A position in a document.
pub(super) struct Parser<'de> {
    input: &'de [u8],
    position: usize,
    depth: u8,
    pub(super) nulls: Nulls,
    pub(super) substitute: Option<Substitute>,
}

impl<'de> Parser<'de> {
    pub(super) fn new(input: &'de [u8]) -> Self {
        Parser {
            input,
            position: 0,
            depth: 0,
            nulls: Nulls::Strict,
            substitute: None,
        }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns to the start of a value at this depth.
    pub(super) fn go_back(&mut self, position: usize, depth: u8) {
        self.position = position;
        self.depth = depth;
        self.substitute = None;
    }

    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    pub(super) fn input_from(&self, start: usize) -> &'de [u8] {
        self.input.get(start..self.position).unwrap_or_default()
    }

    /// Adds the position to an error. It is no line, because lines would have to be counted from
    /// the start of the document for every object that fails.
    #[cold]
    pub(super) fn locate(&self, error: &Error) -> Error {
        Error::custom(format!("{error} at byte {}", self.position))
    }

    fn byte(&self) -> Option<u8> {
        self.input.get(self.position).copied()
    }

    fn skip_whitespace(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.byte() {
            self.position += 1;
        }
        self.byte()
    }

    /// Returns the type of the next value.
    pub(super) fn peek(&mut self) -> Result<Start, Error> {
        match self.substitute {
            Some(Substitute::Null) => return Ok(Start::Null),
            Some(Substitute::Text(_)) => return Ok(Start::Text),
            None => {}
        }
        match self.skip_whitespace() {
            Some(b'n') => Ok(Start::Null),
            Some(b't' | b'f') => Ok(Start::Bool),
            Some(b'-' | b'0'..=b'9') => Ok(Start::Number),
            Some(b'"') => Ok(Start::Text),
            Some(b'[') => Ok(Start::Array),
            Some(b'{') => Ok(Start::Object),
            Some(_) => Err(Error::custom("expected value")),
            None => Err(Error::custom("EOF while parsing a value")),
        }
    }

    fn expect_literal(&mut self, literal: &str) -> Result<(), Error> {
        let rest = self.input.get(self.position..).unwrap_or_default();
        if !rest.starts_with(literal.as_bytes()) {
            return Err(Error::custom("expected ident"));
        }
        self.position += literal.len();
        Ok(())
    }

    /// Reads null, if it is next.
    pub(super) fn take_null(&mut self) -> Result<bool, Error> {
        if self.peek()? != Start::Null {
            return Ok(false);
        }
        if self.substitute.take().is_none() {
            self.expect_literal("null")?;
        }
        Ok(true)
    }

    /// Reads null, if it is next and means the zero value.
    pub(super) fn take_zero(&mut self) -> Result<bool, Error> {
        Ok(self.nulls == Nulls::Zero && self.take_null()?)
    }

    fn expect(&mut self, expected: Start) -> Result<(), Error> {
        let found = self.peek()?;
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (found.name(), expected.name());
        Err(Error::custom(format!(
            "invalid type: {found}, expected {expected}"
        )))
    }

    /// Reads a boolean.
    pub(super) fn read_bool(&mut self) -> Result<bool, Error> {
        if self.take_zero()? {
            return Ok(false);
        }
        self.expect(Start::Bool)?;
        let value = self.byte() == Some(b't');
        self.expect_literal(if value { "true" } else { "false" })?;
        Ok(value)
    }

    fn skip_digits(&mut self) -> Result<(), Error> {
        let start = self.position;
        while let Some(b'0'..=b'9') = self.byte() {
            self.position += 1;
        }
        if self.position == start {
            return Err(Error::custom("invalid number"));
        }
        Ok(())
    }

    /// Reads a number.
    pub(super) fn read_number(&mut self) -> Result<Number, Error> {
        if self.take_zero()? {
            return Ok(Number::Unsigned(0));
        }
        self.expect(Start::Number)?;
        let start = self.position;
        let negative = self.byte() == Some(b'-');
        self.position += usize::from(negative);
        if self.byte() == Some(b'0') {
            self.position += 1;
            if let Some(b'0'..=b'9') = self.byte() {
                return Err(Error::custom("invalid number"));
            }
        } else {
            self.skip_digits()?;
        }
        let mut integer = true;
        if self.byte() == Some(b'.') {
            integer = false;
            self.position += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            integer = false;
            self.position += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.position += 1;
            }
            self.skip_digits()?;
        }
        let text = std::str::from_utf8(self.input_from(start)).unwrap_or_default();
        Self::convert_number(text, integer, negative)
    }

    fn convert_number(text: &str, integer: bool, negative: bool) -> Result<Number, Error> {
        // Minus zero has no integer.
        if integer && text != "-0" {
            let number = if negative {
                text.parse().map(Number::Signed)
            } else {
                text.parse().map(Number::Unsigned)
            };
            if let Ok(number) = number {
                return Ok(number);
            }
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Number::Float(number)),
            _ => Err(Error::custom("number out of range")),
        }
    }

    /// Reads a string.
    pub(super) fn read_text(&mut self) -> Result<Cow<'de, str>, Error> {
        if let Some(Substitute::Text(text)) = self.substitute {
            self.substitute = None;
            return Ok(Cow::Borrowed(text));
        }
        if self.take_zero()? {
            return Ok(Cow::Borrowed(""));
        }
        self.expect(Start::Text)?;
        self.read_quoted()
    }

    /// Reads a string whose opening quote is next.
    fn read_quoted(&mut self) -> Result<Cow<'de, str>, Error> {
        let quote = self.position;
        let mut escaped = false;
        self.position += 1;
        loop {
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.position += 2;
                }
                Some(0..0x20) => {
                    return Err(Error::custom(
                        "control character found while parsing a string",
                    ));
                }
                Some(_) => self.position += 1,
                None => {
                    self.position = self.input.len();
                    return Err(Error::custom("EOF while parsing a string"));
                }
            }
        }
        self.position += 1;
        if escaped {
            let text = serde_json::from_slice(self.input_from(quote));
            return text
                .map(Cow::Owned)
                .map_err(|_| Error::custom("invalid escape"));
        }
        let content = self.input.get(quote + 1..self.position - 1);
        std::str::from_utf8(content.unwrap_or_default())
            .map(Cow::Borrowed)
            .map_err(|_| Error::custom("invalid unicode code point"))
    }

    /// Begins an array or object, or returns false in place of an empty one.
    pub(super) fn begin(&mut self, start: Start) -> Result<bool, Error> {
        if self.take_zero()? {
            return Ok(false);
        }
        self.expect(start)?;
        if self.depth == MAX_DEPTH {
            return Err(Error::custom("recursion limit exceeded"));
        }
        self.depth += 1;
        self.position += 1;
        Ok(true)
    }

    /// Goes to the next item of an array or object, or behind its end, and returns whether there is
    /// one.
    fn step(&mut self, first: &mut bool, end: u8) -> Result<bool, Error> {
        let is_first = std::mem::replace(first, false);
        match self.skip_whitespace() {
            Some(byte) if byte == end => {
                self.position += 1;
                Ok(false)
            }
            Some(b',') if !is_first => {
                self.position += 1;
                if self.skip_whitespace() == Some(end) {
                    return Err(Error::custom("trailing comma"));
                }
                Ok(true)
            }
            Some(_) if is_first => Ok(true),
            Some(_) => Err(Error::custom("expected `,` or the end")),
            None => Err(Error::custom("EOF while parsing")),
        }
    }

    fn read_key(&mut self) -> Result<Cow<'de, str>, Error> {
        if self.skip_whitespace() != Some(b'"') {
            return Err(Error::custom("key must be a string"));
        }
        let key = self.read_quoted()?;
        if self.skip_whitespace() != Some(b':') {
            return Err(Error::custom("expected `:`"));
        }
        self.position += 1;
        Ok(key)
    }

    /// Goes to the next item of an array.
    pub(super) fn next_item(&mut self, first: &mut bool) -> Result<bool, Error> {
        let found = self.step(first, b']')?;
        self.depth -= u8::from(!found);
        Ok(found)
    }

    /// Reads the next key of an object.
    pub(super) fn next_key(&mut self, first: &mut bool) -> Result<Option<Cow<'de, str>>, Error> {
        if self.step(first, b'}')? {
            return self.read_key().map(Some);
        }
        self.depth -= 1;
        Ok(None)
    }

    /// Reads a value of any type and drops it. Its depth is not limited, so that an object that is
    /// too deep does not hide those after it.
    pub(super) fn skip(&mut self) -> Result<(), Error> {
        let (mut ends, mut first) = (Vec::new(), true);
        loop {
            match self.peek()? {
                Start::Null => self.take_null().map(drop)?,
                Start::Bool => self.read_bool().map(drop)?,
                Start::Number => self.read_number().map(drop)?,
                Start::Text => self.read_text().map(drop)?,
                start @ (Start::Array | Start::Object) => {
                    ends.push(if start == Start::Array { b']' } else { b'}' });
                    self.position += 1;
                    first = true;
                }
            }
            // Leaves what ends here.
            loop {
                let Some(end) = ends.last() else {
                    return Ok(());
                };
                if self.step(&mut first, *end)? {
                    if *end == b'}' {
                        self.read_key()?;
                    }
                    break;
                }
                ends.pop();
            }
        }
    }

    /// Checks that nothing follows.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self.skip_whitespace() {
            None => Ok(()),
            Some(_) => Err(Error::custom("trailing characters")),
        }
    }
}
