//! Keys, their history, and the transactions that change them.

use bytes::Bytes;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::mvccpb::{Event, KeyValue, event::EventType};
use std::collections::BTreeMap;

/// A key and everything that happened to it.
type History = Vec<KeyValue>;

/// The keys at all revisions since the last compaction.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    pub(crate) leases: Vec<pb::LeaseGrantRequest>,
    /// A deleted key has a version of 0.
    keys: BTreeMap<Bytes, History>,
    /// Every change, with its revision.
    events: Vec<Event>,
}

impl State {
    pub(crate) fn new() -> Self {
        State {
            revision: 1,
            ..State::default()
        }
    }

    pub(crate) fn header(&self) -> Option<pb::ResponseHeader> {
        Some(pb::ResponseHeader {
            revision: self.revision,
            ..Default::default()
        })
    }

    pub(crate) fn get(&self, key: &[u8], revision: i64) -> Option<KeyValue> {
        let history = self.keys.get(key)?;
        let at = history
            .iter()
            .rev()
            .find(|kv| kv.mod_revision <= revision)?;
        (at.version > 0).then(|| at.clone())
    }

    pub(crate) fn range(&self, request: &pb::RangeRequest) -> pb::RangeResponse {
        let revision = match request.revision {
            0 => self.revision,
            revision => revision,
        };
        let keys = self.keys.keys();
        let found: Vec<KeyValue> = keys
            .filter(|key| is_in_range(key, &request.key, &request.range_end))
            .filter_map(|key| self.get(key, revision))
            .collect();
        let count = found.len();
        let limit = match usize::try_from(request.limit) {
            Ok(limit) if limit > 0 => limit,
            _ => count,
        };
        pb::RangeResponse {
            header: self.header(),
            more: !request.count_only && count > limit,
            count: i64::try_from(count).unwrap_or(i64::MAX),
            kvs: if request.count_only {
                Vec::new()
            } else {
                found.into_iter().take(limit).collect()
            },
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], lease: i64) {
        self.revision += 1;
        let old = self.get(key, self.revision);
        let kv = KeyValue {
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
            create_revision: old
                .as_ref()
                .map_or(self.revision, |old| old.create_revision),
            mod_revision: self.revision,
            version: old.map_or(0, |old| old.version) + 1,
            lease,
        };
        self.record(EventType::Put, kv);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        if self.get(key, self.revision).is_none() {
            return false;
        }
        self.revision += 1;
        let kv = KeyValue {
            key: Bytes::copy_from_slice(key),
            mod_revision: self.revision,
            ..Default::default()
        };
        self.record(EventType::Delete, kv);
        true
    }

    fn record(&mut self, kind: EventType, kv: KeyValue) {
        self.keys
            .entry(kv.key.clone())
            .or_default()
            .push(kv.clone());
        self.events.push(Event {
            r#type: kind.into(),
            kv: Some(kv),
            prev_kv: None,
        });
    }

    /// Returns the changes after `revision` within a range.
    pub(crate) fn events_after(&self, revision: i64, key: &[u8], end: &[u8]) -> Vec<Event> {
        let selected = |event: &&Event| {
            event
                .kv
                .as_ref()
                .is_some_and(|kv| kv.mod_revision > revision && is_in_range(&kv.key, key, end))
        };
        self.events.iter().filter(selected).cloned().collect()
    }

    pub(crate) fn transact(&mut self, request: &pb::TxnRequest) -> pb::TxnResponse {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let operations = if succeeded {
            &request.success
        } else {
            &request.failure
        };
        let responses = operations.iter().map(|op| self.execute(op)).collect();
        pb::TxnResponse {
            header: self.header(),
            succeeded,
            responses,
        }
    }

    fn holds(&self, compare: &pb::Compare) -> bool {
        let current = self.get(&compare.key, self.revision).unwrap_or_default();
        match compare.target_union {
            Some(pb::compare::TargetUnion::ModRevision(expected)) => {
                current.mod_revision == expected
            }
            Some(pb::compare::TargetUnion::Version(expected)) => current.version == expected,
            Some(pb::compare::TargetUnion::CreateRevision(expected)) => {
                current.create_revision == expected
            }
            _ => false,
        }
    }

    fn execute(&mut self, op: &pb::RequestOp) -> pb::ResponseOp {
        use pb::request_op::Request;
        use pb::response_op::Response;
        let response = match &op.request {
            Some(Request::RequestRange(range)) => Response::ResponseRange(self.range(range)),
            Some(Request::RequestPut(put)) => {
                self.put(&put.key, &put.value, put.lease);
                Response::ResponsePut(pb::PutResponse::default())
            }
            Some(Request::RequestDeleteRange(delete)) => {
                let deleted = self.delete(&delete.key).into();
                Response::ResponseDeleteRange(pb::DeleteRangeResponse {
                    deleted,
                    ..Default::default()
                })
            }
            _ => return pb::ResponseOp::default(),
        };
        pb::ResponseOp {
            response: Some(response),
        }
    }
}

/// Returns whether a key is in a range of etcd: an empty end is one key, a zero byte is no end.
fn is_in_range(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}
