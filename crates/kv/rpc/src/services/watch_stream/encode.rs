//! Encodes responses from stored bytes: an event is encoded once for all watchers of its key.

use bytes::{BufMut, BytesMut};
use kv_mvcc::Event;
use prost::{Message, encoding};
use proto_etcd::mvccpb;
use proto_etcd::mvccpb::event::EventType;

/// Field numbers of `WatchResponse` and `Event`.
pub const HEADER: u32 = 1;
const WATCH_ID: u32 = 2;
const EVENTS: u32 = 11;
const TYPE: u32 = 1;
const KV: u32 = 2;
/// Maximum encoded size of a watch ID.
pub const ID: usize = 11;

/// Splits events into parts of less than `limit` bytes each.
pub fn split_events(events: Vec<mvccpb::Event>, limit: usize) -> Vec<Vec<mvccpb::Event>> {
    let mut parts: Vec<Vec<mvccpb::Event>> = Vec::new();
    let mut bytes = 0;
    for event in events {
        let size = event.encoded_len();
        match parts.last_mut() {
            // A part has at least one event: one that exceeds the limit is sent alone.
            Some(part) if bytes + size < limit => part.push(event),
            _ => {
                bytes = 0;
                parts.push(vec![event]);
            }
        }
        bytes += size;
    }
    parts
}

/// Writes a field of bytes: key, length, content.
pub fn put_field(out: &mut BytesMut, number: u32, content: &[u8]) {
    encoding::encode_key(number, encoding::WireType::LengthDelimited, out);
    encoding::encode_varint(content.len() as u64, out);
    out.put_slice(content);
}

/// Encodes an event as a field of a `WatchResponse`, without the previous value. The pair is copied
/// as it is stored.
pub fn encode_event(out: &mut BytesMut, event: &Event) {
    let mut body = BytesMut::with_capacity(event.record.len() + 16);
    if event.mark.is_tombstone() {
        encoding::int32::encode(TYPE, &EventType::Delete.into(), &mut body);
    }
    put_field(&mut body, KV, &event.record);
    put_field(out, EVENTS, &body);
}

/// Encodes a watch ID as a field. 0 is omitted, as proto3 requires.
pub fn encoded_id(room: &mut [u8; ID], id: i64) -> &[u8] {
    if id == 0 {
        return &[];
    }
    let mut rest = room.as_mut_slice();
    encoding::int64::encode(WATCH_ID, &id, &mut rest);
    let left = rest.len();
    room.get(..room.len() - left).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kv_mvcc::Mark;
    use proto_etcd::etcdserverpb::WatchResponse;
    use proto_etcd::mvccpb::KeyValue;

    fn test_event(tombstone: bool) -> Event {
        let kv = KeyValue {
            key: "k".into(),
            mod_revision: 7,
            ..KeyValue::default()
        };
        Event {
            mark: Mark::new(7, 0, tombstone),
            record: kv.encode_to_vec().into(),
            kv,
            previous: None,
            previous_record: None,
        }
    }

    #[test]
    fn copied_events_and_id_are_the_encoding_of_the_response() {
        for id in [0, 1, 300, i64::MAX, -1] {
            let (put, delete) = (test_event(false), test_event(true));
            let mut bytes = BytesMut::new();
            let mut room = [0; ID];
            bytes.put_slice(encoded_id(&mut room, id));
            encode_event(&mut bytes, &put);
            encode_event(&mut bytes, &delete);
            let response = WatchResponse::decode(bytes.freeze()).unwrap();
            let expect = |event: &Event, kind: EventType| mvccpb::Event {
                r#type: kind.into(),
                kv: Some(event.kv.clone()),
                prev_kv: None,
            };
            assert_eq!(response.watch_id, id);
            assert_eq!(
                response.events,
                [
                    expect(&put, EventType::Put),
                    expect(&delete, EventType::Delete)
                ]
            );
        }
    }

    #[test]
    fn events_are_split_below_the_limit_and_keep_their_order() {
        let event = |size: usize| mvccpb::Event {
            kv: Some(KeyValue {
                key: vec![b'k'; size].into(),
                ..KeyValue::default()
            }),
            ..mvccpb::Event::default()
        };
        let overhead = event(10).encoded_len() - 10;
        for (sizes, limit, expect) in [
            (&[][..], 100, vec![]),
            (&[10, 20, 30], 1_000, vec![vec![10, 20, 30]]),
            (&[10, 20, 30], 45, vec![vec![10, 20], vec![30]]),
            (&[10, 90, 10], 50, vec![vec![10], vec![90], vec![10]]),
            (&[10, 10], 0, vec![vec![10], vec![10]]),
        ] {
            let events = sizes.iter().map(|size| event(*size)).collect();
            let parts: Vec<Vec<usize>> = split_events(events, limit)
                .iter()
                .map(|part| part.iter().map(|e| e.encoded_len() - overhead).collect())
                .collect();
            assert_eq!(parts, expect, "{sizes:?}, limit {limit}");
        }
    }
}
