//! The reader as a source of serde.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::error::Error;
use super::item::{Encoding, Item, Reader, bytes_to_text};

impl<'de> Reader<'de> {
    fn visit<V: Visitor<'de>>(
        &mut self,
        item: Item<'de>,
        encoding: Option<Encoding>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match item {
            Item::Null => visitor.visit_unit(),
            Item::Bool(value) => visitor.visit_bool(value),
            Item::Integer(value) => visitor.visit_i64(value),
            Item::Float(value) => visitor.visit_f64(value),
            Item::Text(text) => visit_text(text, visitor),
            Item::Bytes(bytes) => match encoding {
                Some(encoding) => visitor.visit_string(encoding.encode(&bytes)),
                None => visit_text(bytes_to_text(bytes), visitor),
            },
            Item::Array(length) => self.nest(|reader| {
                reader.within(encoding, |reader| {
                    let mut left = Left(length);
                    let value = visitor.visit_seq(Elements(reader, &mut left))?;
                    left.finish(reader)?;
                    Ok(value)
                })
            }),
            Item::Map(length) => self.nest(|reader| {
                reader.within(encoding, |reader| {
                    let mut left = Left(length);
                    let members = Members {
                        reader: &mut *reader,
                        left: &mut left,
                        keys: HashSet::new(),
                    };
                    let value = visitor.visit_map(members)?;
                    left.finish(reader)?;
                    Ok(value)
                })
            }),
        }
    }

    /// Calls `run` inside a container, to whose byte strings the encoding applies.
    fn within<T>(
        &mut self,
        encoding: Option<Encoding>,
        run: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outer = std::mem::replace(&mut self.encoding, encoding);
        let result = run(self);
        self.encoding = outer;
        result
    }
}

fn visit_text<'de, V: Visitor<'de>>(text: Cow<'de, str>, visitor: V) -> Result<V::Value, Error> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (item, encoding) = self.item()?;
        self.visit(item, encoding, visitor)
    }

    /// Reads bytes. Those without an expected encoding are base64 already, as in JSON.
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.item()? {
            (Item::Bytes(bytes), Some(_)) => visitor.visit_bytes(&bytes),
            (Item::Text(_), _) => Err(Error::custom(
                "cannot unmarshal UTF-8 text string into Go value of type []uint8",
            )),
            (item, encoding) => self.visit(item, encoding, visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    /// Bytes are no text here.
    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Elements or members that are still to be read: a number, or all before the break.
struct Left(Option<u64>);

impl Left {
    /// Returns whether another one follows.
    fn advance(&mut self, reader: &mut Reader<'_>) -> Result<bool, Error> {
        match &mut self.0 {
            Some(0) => return Ok(false),
            Some(left) => *left -= 1,
            None if reader.take_break()? => {
                self.0 = Some(0);
                return Ok(false);
            }
            None => {}
        }
        reader.count_value()?;
        Ok(true)
    }

    /// Checks that the visitor has read all.
    fn finish(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        if self.advance(reader)? {
            return Err(Error::custom("too many elements"));
        }
        Ok(())
    }
}

struct Elements<'r, 'de>(&'r mut Reader<'de>, &'r mut Left);

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if !self.1.advance(self.0)? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.0).map(Some)
    }

    /// Unknown: visitors would allocate an announced length.
    fn size_hint(&self) -> Option<usize> {
        None
    }
}

struct Members<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: &'r mut Left,
    keys: HashSet<Cow<'de, str>>,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if !self.left.advance(self.reader)? {
            return Ok(None);
        }
        let key = match self.reader.item()? {
            (Item::Text(text), _) => text,
            (Item::Bytes(bytes), None) => bytes_to_text(bytes),
            (Item::Bytes(bytes), Some(encoding)) => Cow::Owned(encoding.encode(&bytes)),
            _ => return Err(Error::custom("a key of a map is no string")),
        };
        // Upstream rejects them whatever `fieldValidation` is: such a map is not valid CBOR.
        if !self.keys.insert(key.clone()) {
            return Err(Error::custom(format!("found duplicate map key {key:?}")));
        }
        seed.deserialize(CowStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        None
    }
}
