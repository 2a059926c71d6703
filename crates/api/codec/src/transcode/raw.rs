//! JSON inside a message that can be copied: it is written as this crate would write it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use crate::proto::wire::{Reader, Wire};

/// Returns the JSON of a message that holds nothing else, if it is canonical: valid, without white
/// space, with names in ascending order, whole numbers, and the escapes of Go.
pub(super) fn find_canonical(message: &[u8]) -> Option<&str> {
    let mut fields = Reader::new(message);
    let Ok(Some((1, Wire::Bytes(json)))) = fields.field() else {
        return None;
    };
    let json = std::str::from_utf8(json).ok()?;
    (fields.is_empty() && has_only_canonical_text(json) && is_ordered(json)).then_some(json)
}

/// Returns whether no byte must be removed or escaped.
fn has_only_canonical_text(json: &str) -> bool {
    let mut bytes = json.bytes();
    let mut is_inside = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_inside = !is_inside,
            // Other escapes may stand for text that is written without one.
            b'\\' if !matches!(bytes.next(), Some(b'"' | b'\\')) => return false,
            // Written as an escape. 0xe2 begins U+2028 and U+2029, among others.
            b'<' | b'>' | b'&' | 0xe2 | 0..=0x1f => return false,
            b' ' if !is_inside => return false,
            _ => {}
        }
    }
    true
}

fn is_ordered(json: &str) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Ordered.deserialize(&mut deserializer).is_ok() && deserializer.end().is_ok()
}

/// Accepts objects whose names ascend, and no fractions.
struct Ordered;

impl<'de> DeserializeSeed<'de> for Ordered {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Ordered {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("canonical JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Ordered)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut last: Option<Cow<'de, str>> = None;
        while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
            if last.is_some_and(|last| last >= name) {
                return Err(A::Error::custom("names do not ascend"));
            }
            last = Some(name);
            map.next_value_seed(Ordered)?;
        }
        Ok(())
    }
}

/// A name, borrowed unless it has an escape.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::write_bytes;

    #[test]
    fn canonical_json_is_found_and_no_other() {
        for (json, is_canonical) in [
            (r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#, true),
            (r#"{"k:{\"type\":\"Ready\"}":{"f:status":{}}}"#, true),
            (r#"[1,-2,"a b",null,true,{"a":"ä"}]"#, true),
            (r#"{"b":1,"a":2}"#, false),
            (r#"{"a":1,"a":2}"#, false),
            (r#"{"a": 1}"#, false),
            (r#"{"a":1.0}"#, false),
            (r#"{"a":1e3}"#, false),
            (r#"{"a":"<"}"#, false),
            (r#"{"a":"\u003c"}"#, false),
            (r#"{"a":"\/"}"#, false),
            ("{\"a\":\"\u{2028}\"}", false),
            (r#"{"a":1}{}"#, false),
            (r#"{"a""#, false),
            ("", false),
        ] {
            let mut message = Vec::new();
            write_bytes(1, json.as_bytes(), &mut message);
            let expect = is_canonical.then_some(json);
            assert_eq!(find_canonical(&message), expect, "{json}");
        }
    }
}
