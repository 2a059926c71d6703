//! Decodes YAML.
//!
//! YAML is first parsed to a tree, which is then checked like JSON. Aliases are limited by the
//! parser's repetition limit and nesting by its recursion limit. Several documents in one body are
//! an error. The parser's time grows with nesting times length, and it checks the limit last, so
//! input that could take long is rejected beforehand.

use std::cell::RefCell;
use std::fmt;

use api_schema::Message;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::{DecodeError, Problem, Strictness};

mod plain;
mod write;

use plain::{Plain, resolve_plain};

pub use write::encode;

/// Maximum number of reported duplicate keys.
const MAX_DUPLICATES: usize = 20;
/// Maximum product of brackets and bytes passed to the parser, which takes about 1 s for it.
const MAX_WORK: usize = 1 << 30;

/// Decodes a YAML body as an object of the type, in canonical form.
pub fn decode(
    message: &'static Message,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    let (value, mut problems) = parse(bytes)?;
    let (value, more) = crate::json::check(message, value)?;
    problems.extend(more);
    // Duplicate keys were collected before the request's `fieldValidation` was considered.
    if !strictness.reports() {
        problems.clear();
    }
    Ok((value, problems))
}

/// Parses YAML without a type. Returns duplicate keys too.
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<Problem>), DecodeError> {
    if let Some(read) = parse_json(bytes) {
        return read.map(|value| (value, Vec::new()));
    }
    if count_brackets(bytes).saturating_mul(bytes.len()) > MAX_WORK {
        let text = "yaml: too many brackets for a document of this length; send it as JSON, or without brackets";
        return Err(DecodeError::TooDeep(text.to_owned()));
    }
    let text = String::from_utf8_lossy(bytes);
    let keys = RefCell::new(Vec::new());
    let value = Node {
        text: &text,
        duplicates: &keys,
        stop_at: None,
    }
    .deserialize(serde_yaml::Deserializer::from_str(&text))
    .map_err(syntax_error)?;
    let keys = keys.into_inner();
    let problems = locate_duplicates(&text, keys);
    Ok((value, problems))
}

/// Parses YAML that is also JSON, at a fraction of the cost. Returns `None` if it is not JSON, or
/// has duplicate keys.
fn parse_json(bytes: &[u8]) -> Option<Result<Value, DecodeError>> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    // A document that begins otherwise cannot be an object in JSON.
    if !matches!(first, b'{' | b'[') {
        return None;
    }
    let keys = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = Node {
        text: "",
        duplicates: &keys,
        stop_at: None,
    }
    .deserialize(&mut reader);
    match read.and_then(|value| reader.end().map(|()| value)) {
        // Duplicates need the line numbers that only the YAML parser has.
        Ok(value) => keys.borrow().is_empty().then_some(Ok(value)),
        Err(e) if e.to_string().contains("recursion limit") => {
            Some(Err(DecodeError::TooDeep("exceeded max depth".to_owned())))
        }
        Err(_) => None,
    }
}

/// Returns the number of opening brackets, an upper bound of the nesting.
fn count_brackets(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .filter(|byte| matches!(byte, b'{' | b'['))
        .count()
}

/// Adds line numbers to duplicate keys. The parser reports lines only with errors, so a key without
/// an offset in the text costs another pass. Only the first one is located, because otherwise a
/// client could have a document parsed many times.
fn locate_duplicates(text: &str, keys: Vec<Duplicate>) -> Vec<Problem> {
    let line_of = |offset: usize| {
        1 + text
            .bytes()
            .take(offset)
            .filter(|byte| *byte == b'\n')
            .count()
    };
    // Quoted keys are copies and not slices of the text, so their place is unknown.
    let again = keys.iter().position(|duplicate| duplicate.offset.is_none());
    let line = again.map_or(0, |index| line_of_duplicate(text, index));
    let located = keys.into_iter().enumerate().map(|(index, duplicate)| {
        let line = duplicate
            .offset
            .map_or(if again == Some(index) { line } else { 0 }, line_of);
        Problem::YamlDuplicate {
            line,
            key: duplicate.key,
        }
    });
    located.collect()
}

/// Parses again up to the duplicate with that index and returns its line.
fn line_of_duplicate(text: &str, index: usize) -> usize {
    let keys = RefCell::new(Vec::new());
    let seed = Node {
        text,
        duplicates: &keys,
        stop_at: Some(index),
    };
    let error = seed
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err();
    error
        .and_then(|error| error.location())
        .map_or(0, |location| location.line())
}

/// A key that its map already has.
struct Duplicate {
    key: String,
    /// Offset in the text, if the parser returned a slice of the text.
    offset: Option<usize>,
}

fn syntax_error(error: serde_yaml::Error) -> DecodeError {
    let text = error.to_string();
    // The parser has no error codes either, so its texts are compared.
    if text.contains("recursion limit") || text.contains("repetition limit") {
        return DecodeError::TooDeep(format!("yaml: {text}"));
    }
    DecodeError::Syntax(format!("error converting YAML to JSON: yaml: {text}"))
}

/// Deserializes any node into a JSON tree. Keys become text, as upstream.
#[derive(Clone, Copy)]
struct Node<'a> {
    /// The document, to distinguish plain words from quoted ones; empty for JSON.
    text: &'a str,
    duplicates: &'a RefCell<Vec<Duplicate>>,
    stop_at: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value without tags")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // YAML is converted to JSON upstream, where 1.0 becomes 1. Beyond 2^53 a double is not
        // exact.
        if value.fract() == 0.0 && value.abs() < 9e15 {
            return Ok(Value::from(value as i64));
        }
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Value, E> {
        Ok(match resolve_plain(self.text, value) {
            Plain::Bool(value) => Value::Bool(value),
            Plain::Int(value) => Value::from(value),
            Plain::Text => Value::from(value),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key_seed(Key {
            node: self,
            map: &out,
        })? {
            let value = map.next_value_seed(self)?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Deserializes a key and records duplicates.
struct Key<'a> {
    node: Node<'a>,
    map: &'a Map<String, Value>,
}

impl Key<'_> {
    fn key<E: serde::de::Error>(self, key: String) -> Result<String, E> {
        self.key_at(key, None)
    }

    fn key_at<E: serde::de::Error>(self, key: String, offset: Option<usize>) -> Result<String, E> {
        if self.map.contains_key(&key) {
            let mut duplicates = self.node.duplicates.borrow_mut();
            // The error makes the parser report its position, which it does not show otherwise.
            if self.node.stop_at == Some(duplicates.len()) {
                return Err(E::custom("duplicate"));
            }
            // Warnings are sent in headers, where thousands of them would not fit.
            if duplicates.len() < MAX_DUPLICATES {
                duplicates.push(Duplicate {
                    key: key.clone(),
                    offset,
                });
            }
        }
        Ok(key)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<String, E> {
        self.key(value.to_owned())
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, value: &'de str) -> Result<String, E> {
        let offset = plain::find_offset(self.node.text, value);
        let key = match resolve_plain(self.node.text, value) {
            Plain::Bool(value) => value.to_string(),
            Plain::Int(value) => value.to_string(),
            Plain::Text => value.to_owned(),
        };
        self.key_at(key, offset)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<String, E> {
        self.key(value.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<String, E> {
        self.key(value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<String, E> {
        self.key(value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<String, E> {
        self.key(value.to_string())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<String, E> {
        self.key("null".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn duplicates_have_lines() {
        let (value, problems) = parse(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": 3, "b": {"c": 2}}));
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "line 4: key \"c\" already set in map",
                "line 5: key \"a\" already set in map"
            ]
        );
        let (_, problems) = parse(b"1: 1\n1: 2\n'a': 1\n'a': 2\n").unwrap();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "line 2: key \"1\" already set in map",
                "line 4: key \"a\" already set in map"
            ]
        );
    }

    #[test]
    fn plain_words_have_their_yaml_1_1_meaning() {
        let (value, _) = parse(b"a: yes\nb: 'yes'\nc: \"off\"\nd: [off, Yes, nope]\ne: 0644\nf: '0644'\ng: |\n  on\non: x\n'y': z\nh: 08\n").unwrap();
        let want = serde_json::json!({"a": true, "b": "yes", "c": "off", "d": [false, true, "nope"], "e": 420, "f": "0644",
            "g": "on\n", "true": "x", "y": "z", "h": "08"});
        assert_eq!(value, want);
        assert_eq!(
            parse(b"{\"a\": \"yes\"}").unwrap().0,
            serde_json::json!({"a": "yes"})
        );
        assert_eq!(
            parse(b"{\"a\": \"yes\", b: yes}").unwrap().0,
            serde_json::json!({"a": "yes", "b": true})
        );
    }

    #[test]
    fn alias_bombs_are_rejected() {
        let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (before, here) in ('a'..'i').zip('b'..) {
            bomb += &format!(
                "{here}: &{here} [{}]\n",
                vec![format!("*{before}"); 9].join(",")
            );
        }
        assert!(parse(bomb.as_bytes()).is_err());
        assert!(
            parse(format!("m: {}{}", "{a: ".repeat(20_000), "}".repeat(20_000)).as_bytes())
                .is_err()
        );
        // The refusal comes before the YAML parser, whose time would be quadratic.
        for (nested, reason) in [
            ("{\"a\":", "exceeded max depth"),
            ("[", "exceeded max depth"),
            ("{a: ", "too many brackets"),
        ] {
            let refused = parse(nested.repeat(500_000).as_bytes()).unwrap_err();
            assert!(matches!(refused, DecodeError::TooDeep(_)), "{nested}");
            assert!(refused.to_string().contains(reason), "{nested}: {refused}");
        }
        assert_eq!(
            parse(b" {\"a\": [1, \"x\", null, 2.0]}\n").unwrap().0,
            serde_json::json!({"a": [1, "x", null, 2]})
        );
        assert_eq!(parse(b"{\"a\": 1, \"a\": 2}").unwrap().1.len(), 1);
        assert!(parse(b"metadata: {name: x\n").is_err());
        assert!(parse(b"a: [").is_err());
    }
}
