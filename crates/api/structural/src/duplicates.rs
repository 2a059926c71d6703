//! Duplicate fields of JSON bodies without a type, for strict field validation.

use api_meta::names::shorten_name;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::fmt::Write as _;

/// Upstream's limit of strict errors.
const LIMIT: usize = 100;

/// Returns the paths of fields that occur more than once, such as `spec.list[0].name`, in the order
/// of the document. A malformed body, which the caller rejects, yields those before the error.
pub fn list_duplicate_fields(body: &str) -> Vec<String> {
    let mut search = Search::default();
    let mut deserializer = serde_json::Deserializer::from_str(body);
    // The caller has parsed the body and knows its errors.
    let _ = Node(&mut search).deserialize(&mut deserializer);
    search.found
}

#[derive(Default)]
struct Search {
    path: String,
    found: Vec<String>,
}

struct Node<'s>(&'s mut Search);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        let before = self.0.path.len();
        while let Some(name) = map.next_key::<String>()? {
            if before > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(shorten_name(&name));
            if !names.insert(name) && self.0.found.len() < LIMIT {
                let path = self.0.path.clone();
                // A field that occurs three times is reported once.
                if !self.0.found.contains(&path) {
                    self.0.found.push(path);
                }
            }
            map.next_value_seed(Node(self.0))?;
            self.0.path.truncate(before);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let before = self.0.path.len();
        for i in 0_usize.. {
            // Writing to a String can't fail.
            let _ = write!(self.0.path, "[{i}]");
            let next = all.next_element_seed(Node(self.0))?;
            self.0.path.truncate(before);
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_occur_twice_are_listed() {
        let cases = [
            (r#"{"a": 1, "b": [true, null, "x", -1, 1.5]}"#, vec![]),
            (r#"{"a": 1, "a": 2, "a": 3}"#, vec!["a"]),
            (
                r#"{"spec": {"l": [{}, {"x": 1, "y": 2, "x": 3}]}, "spec": {}}"#,
                vec!["spec.l[1].x", "spec"],
            ),
            (r#"[{"a": 1, "a": 1}]"#, vec!["[0].a"]),
            (r#"{"a": 1, "\u0061": 2}"#, vec!["a"]),
        ];
        for (body, expected) in cases {
            assert_eq!(list_duplicate_fields(body), expected, "{body}");
        }
    }

    #[test]
    fn number_of_paths_is_limited() {
        let fields: Vec<String> = (0..500)
            .map(|i| format!("\"f{i}\": 1, \"f{i}\": 2"))
            .collect();
        assert_eq!(
            list_duplicate_fields(&format!("{{{}}}", fields.join(","))).len(),
            LIMIT
        );
    }

    #[test]
    fn malformed_and_deep_bodies_end_the_search() {
        assert_eq!(list_duplicate_fields("{\"a\": 1, \"a\": "), ["a"]);
        assert!(list_duplicate_fields(&"[".repeat(1_000_000)).is_empty());
    }
}
