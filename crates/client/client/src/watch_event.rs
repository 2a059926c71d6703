//! Events of a watch.

use crate::lenient::from_tree;
use crate::object_key::key_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::marker::PhantomData;

/// A watch event.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<K> {
    /// The object was created, or started to match the selectors.
    Added(K),
    /// The object changed.
    Modified(K),
    /// The object was deleted, or stopped matching the selectors. Contains its last state.
    Deleted(K),
    /// One of the above for an object that can't be decoded.
    Undecodable(Box<Undecodable>),
    /// A bookmark: there are no more events up to this version.
    Bookmark {
        /// Version from which to resume.
        resource_version: String,
        /// The initial state was sent completely.
        initial_events_end: bool,
    },
    /// The watch failed.
    Error(Box<Status>),
}

/// Known data of an object that can't be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecodable {
    /// Key of the object (`namespace/name`).
    pub key: String,
    /// Resource version of the event.
    pub resource_version: String,
    /// True if the event is the object's deletion.
    pub deleted: bool,
    /// The decoding error.
    pub error: String,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Field {
    Type,
    Object,
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkMetadata {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
}

fn decode_object<'de, K: DeserializeOwned, D: Deserializer<'de>>(
    kind: Kind,
    from: D,
) -> Result<WatchEvent<K>, D::Error> {
    Ok(match kind {
        Kind::Added => WatchEvent::Added(K::deserialize(from)?),
        Kind::Modified => WatchEvent::Modified(K::deserialize(from)?),
        Kind::Deleted => WatchEvent::Deleted(K::deserialize(from)?),
        Kind::Error => WatchEvent::Error(Box::new(Status::deserialize(from)?)),
        Kind::Bookmark => read_bookmark(from)?.into_event(),
    })
}

/// The content of a bookmark.
struct Bookmark {
    resource_version: String,
    initial_events_end: bool,
}

impl Bookmark {
    fn into_event<K>(self) -> WatchEvent<K> {
        WatchEvent::Bookmark {
            resource_version: self.resource_version,
            initial_events_end: self.initial_events_end,
        }
    }
}

/// Decodes the object of a bookmark. It has the kind of the watched objects, but metadata only, and
/// the decoder of the kind would reject it for missing fields.
fn read_bookmark<'de, D: Deserializer<'de>>(from: D) -> Result<Bookmark, D::Error> {
    let meta = BookmarkMetadata::deserialize(from)?.metadata;
    let end = |marks: &std::collections::BTreeMap<String, String>| {
        marks
            .get("k8s.io/initial-events-end")
            .is_some_and(|value| value == "true")
    };
    Ok(Bookmark {
        initial_events_end: meta.annotations.as_ref().is_some_and(end),
        resource_version: meta.resource_version.unwrap_or_default(),
    })
}

/// Decodes `object` of an event whose type is known.
struct Seed<K>(Kind, PhantomData<K>);

impl<'de, K: DeserializeOwned> serde::de::DeserializeSeed<'de> for Seed<K> {
    type Value = WatchEvent<K>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        decode_object(self.0, from)
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for WatchEvent<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<K>(PhantomData<K>);

        impl<'de, K: DeserializeOwned> Visitor<'de> for Fields<K> {
            type Value = WatchEvent<K>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a watch event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut kind, mut event) = (None, None);
                while let Some(field) = map.next_key::<Field>()? {
                    match (field, kind) {
                        (Field::Type, _) => kind = Some(map.next_value::<Kind>()?),
                        (Field::Object, Some(kind)) => {
                            event = Some(map.next_value_seed(Seed(kind, PhantomData))?);
                        }
                        // Other servers may write the fields in alphabetical order, with the
                        // object first. `decode_leniently` reads such events.
                        (Field::Object, None) => return Err(A::Error::missing_field("type")),
                        (Field::Other, _) => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                event.ok_or_else(|| A::Error::missing_field("object"))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// Decodes an event.
///
/// # Errors
/// The line is not a watch event.
pub(crate) fn decode_line<K: DeserializeOwned>(line: &[u8]) -> serde_json::Result<WatchEvent<K>> {
    // The strict decoder is fast and nearly always right, so the tree is built for failures only.
    serde_json::from_slice(line).or_else(|_| decode_leniently(line))
}

/// Decodes an event that strict decoding rejected.
///
/// # Errors
/// The line is not a watch event.
fn decode_leniently<K: DeserializeOwned>(line: &[u8]) -> serde_json::Result<WatchEvent<K>> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(rename = "type")]
        kind: Kind,
        object: Value,
    }
    let Raw { kind, object: tree } = serde_json::from_slice(line)?;
    let event = |tree: Value| {
        Ok(match kind {
            Kind::Added => WatchEvent::Added(from_tree(tree)?),
            Kind::Modified => WatchEvent::Modified(from_tree(tree)?),
            Kind::Deleted => WatchEvent::Deleted(from_tree(tree)?),
            // Not by `decode_object`, which would be compiled for a third decoder of every kind.
            Kind::Bookmark => read_bookmark(tree)?.into_event(),
            Kind::Error => WatchEvent::Error(Box::new(from_tree(tree)?)),
        })
    };
    let key = key_of(&tree);
    let resource_version = tree
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .map(str::to_owned);
    event(tree).or_else(|error: serde_json::Error| match (kind, resource_version) {
        // Without a version the watch could not be resumed after this event, so the caller must
        // relist.
        (Kind::Bookmark | Kind::Error, _) | (_, None) => Err(error),
        (_, Some(resource_version)) => Ok(WatchEvent::Undecodable(Box::new(Undecodable {
            key,
            resource_version,
            deleted: kind == Kind::Deleted,
            error: error.to_string(),
        }))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::object::{DynamicObject, ObjectExt};

    #[test]
    fn events_are_decoded_in_either_order_of_fields() {
        let decode = |text: &str| decode_line::<DynamicObject>(text.as_bytes());
        for text in [
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            r#"{"object":{"metadata":{"name":"a"}},"x":1,"type":"ADDED"}"#,
        ] {
            let WatchEvent::Added(object) = decode(text).unwrap() else {
                panic!("{text}")
            };
            assert_eq!(object.name(), "a");
        }
        let text = r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7",
            "annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null}}}"#;
        let want = WatchEvent::Bookmark {
            resource_version: "7".into(),
            initial_events_end: true,
        };
        assert_eq!(decode(text).unwrap(), want);
        let text = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        let WatchEvent::Error(status) = decode(text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(status.code, Some(410));
        assert!(decode(r#"{"type":"ADDED"}"#).is_err());
    }

    fn decode_pod(line: &str) -> serde_json::Result<WatchEvent<k8s_openapi::api::core::v1::Pod>> {
        decode_leniently(line.as_bytes())
    }

    #[test]
    fn undecodable_object_is_reported_by_key_with_its_version() {
        for (kind, deleted) in [("ADDED", false), ("MODIFIED", false), ("DELETED", true)] {
            let line = format!(
                r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"n","name":"p","resourceVersion":"7"}},"spec":5}}}}"#
            );
            let WatchEvent::Undecodable(found) = decode_pod(&line).unwrap() else {
                panic!("{kind}")
            };
            let known = (
                found.key.as_str(),
                found.resource_version.as_str(),
                found.deleted,
            );
            assert_eq!(known, ("n/p", "7", deleted), "{kind}");
            assert!(!found.error.is_empty());
        }
    }

    #[test]
    fn undecodable_object_without_a_version_is_an_error() {
        let line = r#"{"type":"MODIFIED","object":{"metadata":{"name":"p"},"spec":5}}"#;
        assert!(decode_pod(line).is_err());
    }

    #[test]
    fn line_that_is_no_watch_event_is_an_error() {
        for line in [
            r#"{"type":"CHANGED","object":{"metadata":{"resourceVersion":"7"}}}"#,
            r#"{"kind":"Status","code":500}"#,
            "<html>",
        ] {
            assert!(decode_pod(line).is_err(), "{line}");
        }
    }
}
