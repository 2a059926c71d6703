//! Events of a watch.

use crate::json::Decoder;
use crate::object_key::identify;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};

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

impl<K> WatchEvent<K> {
    /// Converts the object, if the event has one.
    pub(crate) fn map_object<T>(self, convert: impl FnOnce(K) -> T) -> WatchEvent<T> {
        match self {
            Self::Added(object) => WatchEvent::Added(convert(object)),
            Self::Modified(object) => WatchEvent::Modified(convert(object)),
            Self::Deleted(object) => WatchEvent::Deleted(convert(object)),
            Self::Undecodable(object) => WatchEvent::Undecodable(object),
            Self::Bookmark {
                resource_version,
                initial_events_end,
            } => WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            },
            Self::Error(status) => WatchEvent::Error(status),
        }
    }
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkMetadata {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
}

/// Decodes the object of a bookmark. It has the kind of the watched objects, but metadata only, and
/// the decoder of the kind would reject it for missing fields.
fn decode_bookmark<K>(decoder: &mut Decoder<'_>) -> serde_json::Result<WatchEvent<K>> {
    let meta = decoder.decode::<BookmarkMetadata>()?.metadata;
    let end = |marks: &std::collections::BTreeMap<String, String>| {
        marks
            .get("k8s.io/initial-events-end")
            .is_some_and(|value| value == "true")
    };
    Ok(WatchEvent::Bookmark {
        initial_events_end: meta.annotations.as_ref().is_some_and(end),
        resource_version: meta.resource_version.unwrap_or_default(),
    })
}

/// Describes an object that can't be decoded. Without a version the watch could not be resumed
/// after this event, so the caller must relist.
fn describe(text: &[u8], kind: Kind, error: serde_json::Error) -> serde_json::Result<Undecodable> {
    let (key, resource_version) = identify(text);
    if resource_version.is_empty() {
        return Err(error);
    }
    Ok(Undecodable {
        key,
        resource_version,
        deleted: kind == Kind::Deleted,
        error: error.to_string(),
    })
}

fn decode_object<K: DeserializeOwned>(
    decoder: &mut Decoder<'_>,
    kind: Kind,
) -> serde_json::Result<WatchEvent<K>> {
    let object = match kind {
        Kind::Bookmark => return decode_bookmark(decoder),
        Kind::Error => return Ok(WatchEvent::Error(Box::new(decoder.decode()?))),
        Kind::Added | Kind::Modified | Kind::Deleted => decoder.decode(),
    };
    Ok(match (kind, object) {
        (Kind::Deleted, Ok(object)) => WatchEvent::Deleted(object),
        (Kind::Modified, Ok(object)) => WatchEvent::Modified(object),
        (_, Ok(object)) => WatchEvent::Added(object),
        (kind, Err(error)) => {
            WatchEvent::Undecodable(Box::new(describe(decoder.take_text()?, kind, error)?))
        }
    })
}

/// Decodes an event.
///
/// # Errors
/// The line is not a watch event.
pub(crate) fn decode_line<K: DeserializeOwned>(line: &[u8]) -> serde_json::Result<WatchEvent<K>> {
    let mut decoder = Decoder::new(line);
    let (mut first, mut kind, mut event, mut early) = (true, None, None, None);
    decoder.begin_object()?;
    while let Some(key) = decoder.next_key(&mut first)? {
        match (key.as_ref(), kind) {
            ("type", _) => kind = Some(decoder.decode()?),
            ("object", Some(kind)) => event = Some(decode_object(&mut decoder, kind)?),
            // Other servers may write the fields in alphabetical order, with the object first.
            ("object", None) => early = Some(decoder.take_text()?),
            _ => decoder.skip()?,
        }
    }
    decoder.finish()?;
    if let (Some(object), Some(kind)) = (early, kind) {
        event = Some(decode_object(&mut Decoder::new(object), kind)?);
    }
    event.ok_or_else(|| serde_json::Error::custom("an event needs a type and an object"))
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
        decode_line(line.as_bytes())
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
            "null",
            "",
        ] {
            assert!(decode_pod(line).is_err(), "{line}");
        }
    }
}
