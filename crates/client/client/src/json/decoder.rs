//! The deserializer: what is compiled for each type, and as little as possible.

use super::parser::{Nulls, Number, Parser, Start, Substitute};
use serde::de::value::CowStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};
use serde_json::Error;
use std::borrow::Cow;

/// Go's zero `metav1.Time` after a round trip.
pub(super) const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Decodes the values of a document one after another.
pub(crate) struct Decoder<'de>(Parser<'de>);

impl<'de> Decoder<'de> {
    pub(crate) fn new(input: &'de [u8]) -> Self {
        Decoder(Parser::new(input))
    }

    /// Begins an object.
    pub(crate) fn begin_object(&mut self) -> Result<(), Error> {
        self.0.begin(Start::Object).map(drop)
    }

    /// Begins an array, or returns false in place of null.
    pub(crate) fn begin_array(&mut self) -> Result<bool, Error> {
        Ok(!self.0.take_null()? && self.0.begin(Start::Array)?)
    }

    /// Goes to the next item of an array.
    pub(crate) fn next_item(&mut self, first: &mut bool) -> Result<bool, Error> {
        self.0.next_item(first)
    }

    /// Reads the next key of an object.
    pub(crate) fn next_key(&mut self, first: &mut bool) -> Result<Option<Cow<'de, str>>, Error> {
        self.0.next_key(first)
    }

    /// Reads a value of any type and drops it.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        self.0.skip()
    }

    /// Returns the text of the next value, which is read.
    pub(crate) fn take_text(&mut self) -> Result<&'de [u8], Error> {
        self.0.peek()?;
        let start = self.0.position();
        self.0.skip()?;
        Ok(self.0.input_from(start))
    }

    /// Checks that nothing follows.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.0.finish().map_err(|error| self.0.locate(&error))
    }

    /// Decodes the next value: strictly, and if that fails by Go's rules. A value that fails is not
    /// read.
    ///
    /// # Errors
    /// The value is not JSON, or a field has the wrong type.
    pub(crate) fn decode<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let (start, depth) = (self.0.position(), self.0.depth());
        T::deserialize(&mut *self).or_else(|_| {
            self.0.go_back(start, depth);
            self.0.nulls = Nulls::Zero;
            let result = T::deserialize(&mut *self);
            self.0.nulls = Nulls::Strict;
            result.map_err(|error| {
                let error = self.0.locate(&error);
                self.0.go_back(start, depth);
                error
            })
        })
    }

    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        match self.0.read_number()? {
            Number::Unsigned(number) => visitor.visit_u64(number),
            Number::Signed(number) => visitor.visit_i64(number),
            Number::Float(number) => visitor.visit_f64(number),
        }
    }

    fn visit_object<V: Visitor<'de>>(
        &mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut members = Members::begin(self, fields)?;
        let value = visitor.visit_map(&mut members)?;
        members.finish()?;
        Ok(value)
    }
}

/// The methods of numbers.
macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.visit_number(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = Error;

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.peek()? {
            Start::Null => {
                self.0.take_null()?;
                visitor.visit_unit()
            }
            Start::Bool => visitor.visit_bool(self.0.read_bool()?),
            Start::Number => self.visit_number(visitor),
            Start::Text => visitor.visit_string(self.0.read_text()?.into_owned()),
            Start::Array => self.deserialize_seq(visitor),
            Start::Object => self.visit_object(&[], visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.0.read_bool()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(&self.0.read_text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0.read_text()?.into_owned())
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(self.0.read_text()?.as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.take_null()? {
            visitor.visit_unit()
        } else {
            Err(Error::custom("expected null"))
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.take_null()? {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.0.take_zero()? {
            self.0.substitute = Some(match name {
                // Wrapper types of k8s-openapi, whose inner decoder does not accept an empty
                // string.
                "Time" | "MicroTime" => Substitute::Text(ZERO_TIME),
                "Quantity" => Substitute::Text("0"),
                _ => Substitute::Null,
            });
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut items = Items {
            is_open: self.0.begin(Start::Array)?,
            first: true,
            decoder: self,
        };
        let value = visitor.visit_seq(&mut items)?;
        items.finish()?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_object(&[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.visit_object(fields, visitor)
    }

    /// Variants without content, as strings.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.read_text()?.into_deserializer())
    }
}

/// The items of an array.
struct Items<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    first: bool,
    is_open: bool,
}

impl Items<'_, '_> {
    /// Checks that the visitor read all; that of a tuple does not look for the end.
    fn finish(&mut self) -> Result<(), Error> {
        if self.is_open && self.decoder.0.next_item(&mut self.first)? {
            return Err(Error::custom("expected the end of the array"));
        }
        Ok(())
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.is_open = self.is_open && self.decoder.0.next_item(&mut self.first)?;
        if !self.is_open {
            return Ok(None);
        }
        seed.deserialize(&mut *self.decoder).map(Some)
    }
}

/// The members of an object.
struct Members<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    first: bool,
    is_open: bool,
    /// Fields of the type that were not read yet, by Go's rules; they are read as null.
    absent: Vec<&'static str>,
}

impl<'a, 'de> Members<'a, 'de> {
    fn begin(
        decoder: &'a mut Decoder<'de>,
        fields: &'static [&'static str],
    ) -> Result<Self, Error> {
        let is_open = decoder.0.begin(Start::Object)?;
        let mut absent = Vec::new();
        if decoder.0.nulls == Nulls::Zero {
            // Kind and version of a typed struct are constants; null would be compared with them
            // and fail. List items lack both.
            let may_be_null = |field: &&&str| !matches!(**field, "apiVersion" | "kind");
            absent.extend(fields.iter().filter(may_be_null));
        }
        Ok(Members {
            decoder,
            first: true,
            is_open,
            absent,
        })
    }

    /// Checks that the visitor read all.
    fn finish(&mut self) -> Result<(), Error> {
        if self.is_open && self.decoder.0.next_key(&mut self.first)?.is_some() {
            return Err(Error::custom("expected the end of the object"));
        }
        Ok(())
    }

    /// Reads the next key, or returns that of an absent field, whose value is then null.
    fn advance(&mut self) -> Result<Option<Cow<'de, str>>, Error> {
        if self.is_open {
            if let Some(key) = self.decoder.0.next_key(&mut self.first)? {
                self.absent.retain(|field| *field != key);
                return Ok(Some(key));
            }
            self.is_open = false;
        }
        let absent = self.absent.pop();
        if absent.is_some() {
            self.decoder.0.substitute = Some(Substitute::Null);
        }
        Ok(absent.map(Cow::Borrowed))
    }
}

impl<'de> MapAccess<'de> for &mut Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        match self.advance()? {
            Some(key) => seed.deserialize(CowStrDeserializer::new(key)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.decoder)
    }
}
