//! The semantics of the API in their simplest form: a copy of all pairs for each revision.

use bytes::Bytes;
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::range_request::{SortOrder, SortTarget};
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::response_op::Response;
use proto_etcd::etcdserverpb::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use proto_etcd::mvccpb::KeyValue;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

pub type Rows = BTreeMap<Bytes, KeyValue>;
type Refused = &'static str;

/// A change of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub deleted: bool,
    pub kv: KeyValue,
    pub previous: Option<KeyValue>,
}

/// The whole history. Revision 1 is empty.
pub struct Naive {
    pub rows: Vec<Rows>,
    pub changes: Vec<Vec<Change>>,
    pub compacted: i64,
    pub leases: BTreeSet<i64>,
}

/// A command in execution.
pub struct Step {
    pub rows: Rows,
    pub changes: Vec<Change>,
    /// Revision before the command.
    current: i64,
}

impl Step {
    fn revision(&self) -> i64 {
        self.current + i64::from(!self.changes.is_empty())
    }

    fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            revision: self.revision(),
            ..ResponseHeader::default()
        })
    }

    pub fn delete(&mut self, key: &Bytes) -> Option<KeyValue> {
        let previous = self.rows.remove(key)?;
        let kv = KeyValue {
            key: key.clone(),
            mod_revision: self.current + 1,
            ..KeyValue::default()
        };
        self.changes.push(Change {
            deleted: true,
            kv,
            previous: Some(previous.clone()),
        });
        Some(previous)
    }
}

pub fn within(key: &Bytes, from: &Bytes, end: &Bytes) -> bool {
    match &end[..] {
        b"" => key == from,
        b"\0" => key >= from,
        _ => key >= from && key < end,
    }
}

impl Naive {
    pub fn new() -> Naive {
        Naive {
            rows: vec![Rows::new()],
            changes: vec![Vec::new()],
            compacted: 0,
            leases: BTreeSet::new(),
        }
    }

    pub fn current(&self) -> i64 {
        self.rows.len() as i64
    }

    pub fn now(&self) -> &Rows {
        self.rows.last().unwrap()
    }

    pub fn step(&self) -> Step {
        Step {
            rows: self.now().clone(),
            changes: Vec::new(),
            current: self.current(),
        }
    }

    pub fn commit(&mut self, step: Step) {
        if !step.changes.is_empty() {
            self.rows.push(step.rows);
            self.changes.push(step.changes);
        }
    }

    pub fn put(&self, step: &mut Step, request: &PutRequest) -> Result<PutResponse, Refused> {
        let previous = step.rows.get(&request.key).cloned();
        if previous.is_none() && (request.ignore_value || request.ignore_lease) {
            return Err("key not found");
        }
        if request.lease != 0 && !self.leases.contains(&request.lease) {
            return Err("requested lease not found");
        }
        let before = previous.clone().unwrap_or_default();
        let revision = self.current() + 1;
        let kv = KeyValue {
            key: request.key.clone(),
            create_revision: if previous.is_some() {
                before.create_revision
            } else {
                revision
            },
            mod_revision: revision,
            version: before.version + 1,
            value: if request.ignore_value {
                before.value
            } else {
                request.value.clone()
            },
            lease: if request.ignore_lease {
                before.lease
            } else {
                request.lease
            },
        };
        step.rows.insert(request.key.clone(), kv.clone());
        step.changes.push(Change {
            deleted: false,
            kv,
            previous: previous.clone(),
        });
        Ok(PutResponse {
            header: step.header(),
            prev_kv: previous.filter(|_| request.prev_kv),
        })
    }

    pub fn delete_range(
        &self,
        step: &mut Step,
        request: &DeleteRangeRequest,
    ) -> DeleteRangeResponse {
        let keys = step
            .rows
            .keys()
            .filter(|key| within(key, &request.key, &request.range_end));
        let keys: Vec<Bytes> = keys.cloned().collect();
        let gone: Vec<KeyValue> = keys.iter().filter_map(|key| step.delete(key)).collect();
        let deleted = gone.len() as i64;
        let prev_kvs = if request.prev_kv { gone } else { Vec::new() };
        DeleteRangeResponse {
            header: step.header(),
            deleted,
            prev_kvs,
        }
    }

    pub fn range(&self, step: &Step, request: &RangeRequest) -> Result<RangeResponse, Refused> {
        let rows = match request.revision {
            ..=0 => &step.rows,
            revision if revision > self.current() => {
                return Err("required revision is a future revision");
            }
            revision if revision < self.compacted => {
                return Err("required revision has been compacted");
            }
            revision => &self.rows[revision as usize - 1],
        };
        let mut kvs: Vec<KeyValue> = rows.values().cloned().collect();
        kvs.retain(|kv| within(&kv.key, &request.key, &request.range_end));
        let count = kvs.len() as i64;
        let bounds =
            |has: i64, min: i64, max: i64| (min == 0 || has >= min) && (max == 0 || has <= max);
        kvs.retain(|kv| {
            bounds(
                kv.mod_revision,
                request.min_mod_revision,
                request.max_mod_revision,
            ) && bounds(
                kv.create_revision,
                request.min_create_revision,
                request.max_create_revision,
            )
        });
        kvs.sort_by(|a, b| {
            let order = match request.sort_target() {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            };
            if request.sort_order() == SortOrder::Descend {
                order.reverse()
            } else {
                order
            }
        });
        if request.count_only {
            kvs.clear();
        }
        let more = request.limit > 0 && kvs.len() as i64 > request.limit;
        if more {
            kvs.truncate(request.limit as usize);
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        Ok(RangeResponse {
            header: step.header(),
            kvs,
            more,
            count,
        })
    }

    /// Executes a transaction. All comparisons see the state before the first operation.
    pub fn txn(&self, step: &mut Step, request: &TxnRequest) -> Result<TxnResponse, Refused> {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let mut responses = Vec::new();
        for op in if succeeded {
            &request.success
        } else {
            &request.failure
        } {
            let response = match op.request.as_ref().unwrap() {
                Request::RequestRange(request) => {
                    Response::ResponseRange(self.range(step, request)?)
                }
                Request::RequestPut(request) => Response::ResponsePut(self.put(step, request)?),
                Request::RequestDeleteRange(request) => {
                    Response::ResponseDeleteRange(self.delete_range(step, request))
                }
                Request::RequestTxn(request) => Response::ResponseTxn(self.txn(step, request)?),
            };
            responses.push(ResponseOp {
                response: Some(response),
            });
        }
        Ok(TxnResponse {
            header: step.header(),
            succeeded,
            responses,
        })
    }

    /// Compares each pair of the range. An empty range is compared as one pair with zeros, which
    /// has no value.
    fn holds(&self, compare: &Compare) -> bool {
        let mut found = self
            .now()
            .values()
            .filter(|kv| within(&kv.key, &compare.key, &compare.range_end))
            .peekable();
        if found.peek().is_some() {
            return found.all(|kv| fulfils(compare, kv));
        }
        compare.target() != CompareTarget::Value && fulfils(compare, &KeyValue::default())
    }
}

fn fulfils(compare: &Compare, kv: &KeyValue) -> bool {
    let ordering = match compare.target_union.as_ref().unwrap() {
        TargetUnion::Version(wanted) => kv.version.cmp(wanted),
        TargetUnion::CreateRevision(wanted) => kv.create_revision.cmp(wanted),
        TargetUnion::ModRevision(wanted) => kv.mod_revision.cmp(wanted),
        TargetUnion::Value(wanted) => kv.value.cmp(wanted),
        TargetUnion::Lease(wanted) => kv.lease.cmp(wanted),
    };
    match compare.result() {
        CompareResult::Equal => ordering == Ordering::Equal,
        CompareResult::Greater => ordering == Ordering::Greater,
        CompareResult::Less => ordering == Ordering::Less,
        CompareResult::NotEqual => ordering != Ordering::Equal,
    }
}
