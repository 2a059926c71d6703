//! Reader of data items. Tags are resolved here: times and expected encodings change the item, big
//! numbers are rejected, and other tags are skipped.
//!
//! Memory is bounded by the body, not by announced lengths: nothing is allocated for a length.
//! Nesting and the number of values are limited as in JSON.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use super::error::Error;
use super::float::decode_float;
use super::head::{
    ARRAY, BREAK, BYTES, Head, MAP, NEGATIVE, SIMPLE, TAG, TEXT, UNSIGNED, split_head,
};
use crate::scalars;

/// Maximum levels of arrays and maps, as serde_json has it for JSON.
const MAX_DEPTH: u8 = 127;
/// Maximum number of elements and of members in all: as many as a JSON body of 3 MiB can have. A
/// value takes one byte here, and 32 in a tree.
const MAX_VALUES: usize = 3 << 19;

/// An item whose tags are resolved.
#[derive(Debug, PartialEq)]
pub(super) enum Item<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// The number of elements; `None` for an indefinite length.
    Array(Option<u64>),
    /// The number of members.
    Map(Option<u64>),
}

/// Text encoding that a tag around a byte string expects (RFC 8949, section 3.4.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Base64Url,
    Base64,
    Base16,
}

impl Encoding {
    pub(super) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
            Self::Base64 => scalars::base64_encode(bytes),
            Self::Base16 => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// The rest of the bytes.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    depth: u8,
    values: usize,
    /// Of the arrays and maps around the next item: such a tag applies to all byte strings inside.
    pub(super) encoding: Option<Encoding>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            depth: 0,
            values: 0,
            encoding: None,
        }
    }

    /// Checks that nothing follows.
    pub(super) fn end(&self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(Error::item(format!("{more} bytes of extraneous data"))),
        }
    }

    /// Calls `run` one level deeper.
    pub(super) fn nest<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // All code that walks or drops a tree is recursive and relies on the limit.
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    /// Counts an element or a member.
    pub(super) fn count_value(&mut self) -> Result<(), Error> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Error::TooMany);
        }
        Ok(())
    }

    /// Consumes the break of an item of indefinite length, if it is next.
    pub(super) fn take_break(&mut self) -> Result<bool, Error> {
        let (first, rest) = self.rest.split_first().ok_or(Error::End)?;
        if *first != BREAK {
            return Ok(false);
        }
        self.rest = rest;
        Ok(true)
    }

    /// Reads an item, of arrays and maps the head only. Also returns the expected encoding of the
    /// item, or of the byte strings inside.
    pub(super) fn item(&mut self) -> Result<(Item<'a>, Option<Encoding>), Error> {
        let mut encoding = self.encoding;
        let mut head = self.head()?;
        while head.major == TAG {
            let number = head.argument.unwrap_or_default();
            head = self.head()?;
            match number {
                0 => return Ok((self.text_time(head)?, encoding)),
                1 => return Ok((self.epoch_time(head)?, encoding)),
                // Trees have no number that holds them.
                2 | 3 => return Err(Error::item("a bignum is not accepted")),
                21 => encoding = Some(Encoding::Base64Url),
                22 => encoding = Some(Encoding::Base64),
                23 => encoding = Some(Encoding::Base16),
                _ => {}
            }
        }
        Ok((self.content(head)?, encoding))
    }

    fn head(&mut self) -> Result<Head, Error> {
        let (head, rest) = split_head(self.rest)?;
        self.rest = rest;
        Ok(head)
    }

    fn content(&mut self, head: Head) -> Result<Item<'a>, Error> {
        Ok(match head.major {
            UNSIGNED => Item::Integer(signed(head)?),
            NEGATIVE => Item::Integer(-1 - signed(head)?),
            BYTES => Item::Bytes(self.bytes(head)?),
            TEXT => Item::Text(self.text(head)?),
            ARRAY => Item::Array(head.argument),
            MAP => Item::Map(head.argument),
            _ => match (head.argument, decode_float(head)?) {
                (_, Some(number)) => Item::Float(number),
                (Some(20), _) => Item::Bool(false),
                (Some(21), _) => Item::Bool(true),
                (Some(22), _) => Item::Null,
                (other, _) => {
                    let value = other.unwrap_or_default();
                    return Err(Error::item(format!(
                        "simple value {value} is not recognized"
                    )));
                }
            },
        })
    }

    fn bytes(&mut self, head: Head) -> Result<Cow<'a, [u8]>, Error> {
        if let Some(length) = head.argument {
            return self.take(length).map(Cow::Borrowed);
        }
        let mut whole = Vec::new();
        while let Some(part) = self.chunk(head.major)? {
            whole.extend_from_slice(part);
        }
        Ok(Cow::Owned(whole))
    }

    fn text(&mut self, head: Head) -> Result<Cow<'a, str>, Error> {
        if let Some(length) = head.argument {
            return decode_utf8(self.take(length)?).map(Cow::Borrowed);
        }
        let mut whole = String::new();
        // No character may be split among chunks.
        while let Some(part) = self.chunk(head.major)? {
            whole.push_str(decode_utf8(part)?);
        }
        Ok(Cow::Owned(whole))
    }

    /// Reads a chunk of a string of indefinite length; `None` at its end.
    fn chunk(&mut self, major: u8) -> Result<Option<&'a [u8]>, Error> {
        if self.take_break()? {
            return Ok(None);
        }
        let head = self.head()?;
        match head.argument {
            Some(length) if head.major == major => self.take(length).map(Some),
            _ => Err(Error::item("wrong chunk of a string of indefinite length")),
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Error> {
        let length = usize::try_from(length).map_err(|_| Error::End)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Error::End)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads the content of tag 0.
    fn text_time(&mut self, head: Head) -> Result<Item<'a>, Error> {
        if head.major != TEXT {
            return Err(Error::item("tag number 0 must be followed by text string"));
        }
        let text = self.text(head)?;
        scalars::canonical_time(&text).map_err(Error::Item)?;
        Ok(Item::Text(text))
    }

    /// Reads the content of tag 1: seconds since 1970.
    fn epoch_time(&mut self, head: Head) -> Result<Item<'a>, Error> {
        let (seconds, nanos) = match self.epoch(head)? {
            Item::Integer(seconds) => (seconds, 0),
            // The conversion saturates, and times far away are rejected below.
            Item::Float(number) => (number.trunc() as i64, (number.fract() * 1e9) as i32),
            _ => {
                let text = "tag number 1 must be followed by integer or floating-point number";
                return Err(Error::item(text));
            }
        };
        let at = Timestamp::new(seconds, nanos).map(|at| at.to_string());
        match at {
            // Years before 0 begin with a sign.
            Ok(text) if !text.starts_with('-') => Ok(Item::Text(Cow::Owned(text))),
            _ => Err(Error::item("year outside of range [0,9999]")),
        }
    }

    fn epoch(&mut self, head: Head) -> Result<Item<'a>, Error> {
        match head.major {
            UNSIGNED | NEGATIVE | SIMPLE => self.content(head),
            _ => Ok(Item::Null),
        }
    }
}

/// Returns the argument of an integer, which must fit in 64 bits with a sign.
fn signed(head: Head) -> Result<i64, Error> {
    let argument = head.argument.unwrap_or_default();
    let sign = if head.major == NEGATIVE { "-1-" } else { "" };
    i64::try_from(argument)
        .map_err(|_| Error::item(format!("{sign}{argument} overflows a 64-bit integer")))
}

fn decode_utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::item("invalid UTF-8 string"))
}

/// Decodes a byte string as text. Upstream's encoder writes all text so; invalid UTF-8 is replaced,
/// as in JSON.
pub(super) fn bytes_to_text(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Cow::Owned(text),
            Err(error) => Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        },
    }
}
