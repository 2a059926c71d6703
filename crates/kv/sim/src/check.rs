//! Strict serializability: responses must agree with a replay in the order of revisions, and that
//! order must respect real time.
//!
//! Every write has its own revision, so no search is needed: a write takes place at its revision,
//! and a read directly after the revision in its header.

use crate::history::{Answer, Operation, Request};
use crate::lease_client::lease_key;
use crate::ledger::{Change, Ledger, Row, Rows};
use bytes::Bytes;
use proto_etcd::etcdserverpb::compare::TargetUnion;
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::response_op::Response;
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};
use proto_etcd::mvccpb::KeyValue;
use std::collections::BTreeMap;

/// Results of a run.
pub(crate) struct Evidence<'a> {
    pub ledger: &'a Ledger,
    pub states: Vec<Rows>,
    pub operations: &'a [Operation],
    /// Maximum drift of a member's clock in thousandths.
    pub drift: u64,
}

type Verdict = Result<(), String>;

/// Position of an operation in the total order.
struct Place {
    revision: i64,
    writes: bool,
}

fn in_span(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    if end.is_empty() {
        key == from
    } else {
        key >= from && key < end
    }
}

fn to_row(kv: &KeyValue) -> Row {
    Row {
        value: kv.value.clone(),
        create: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

fn same_pair(kv: Option<&KeyValue>, wanted: Option<&Row>) -> bool {
    kv.map(to_row).as_ref() == wanted
}

fn header_revision(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// Checks all guarantees.
pub(crate) fn check_history(evidence: &Evidence<'_>) -> Verdict {
    evidence.values_once()?;
    let mut places = Vec::new();
    for operation in evidence.operations {
        let Some(answer) = &operation.answer else {
            continue;
        };
        let place = evidence
            .explain(&operation.request, answer)
            .map_err(|e| format!("{e}\n  {operation:?}"))?;
        places.extend(place.map(|place| (operation, place)));
    }
    real_time(&places)?;
    evidence.check_space()?;
    evidence.check_leases()
}

impl Evidence<'_> {
    fn state_at(&self, revision: i64) -> Result<&Rows, String> {
        let at = usize::try_from(revision - 1).ok();
        at.and_then(|at| self.states.get(at))
            .ok_or_else(|| format!("no member ever had revision {revision}"))
    }

    fn changes_at(&self, revision: i64) -> Result<&[Change], String> {
        let entry = self.ledger.get(revision);
        entry
            .map(|entry| entry.changes.as_slice())
            .ok_or_else(|| format!("no member ever had revision {revision}"))
    }

    /// Checks that every value is written at most once, and only after a client requested it.
    fn values_once(&self) -> Verdict {
        let mut asked: BTreeMap<Bytes, u64> = BTreeMap::new();
        for operation in self.operations {
            let mut ask = |value: &Bytes| {
                asked.insert(value.clone(), operation.begun_ms);
            };
            match &operation.request {
                Request::Put(put) => ask(&put.value),
                Request::Txn(txn) => {
                    for op in &txn.success {
                        if let Some(Op::RequestPut(put)) = &op.request {
                            ask(&put.value);
                        }
                    }
                }
                _ => {}
            }
        }
        for entry in &self.ledger.entries {
            for change in &entry.changes {
                let Some(value) = &change.value else { continue };
                match asked.remove(value) {
                    None => return Err(format!("written twice, or never asked for: {change:?}")),
                    Some(begun) if begun > entry.seen_ms => {
                        return Err(format!("written before it was asked: {change:?}"));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn explain(&self, request: &Request, answer: &Answer) -> Result<Option<Place>, String> {
        match (request, answer) {
            (Request::Put(put), Answer::Put(answer)) => self.explain_put(put, answer).map(Some),
            (Request::Delete(delete), Answer::Delete(answer)) => {
                self.explain_delete(delete, answer).map(Some)
            }
            (Request::Range(range), Answer::Range(answer)) => {
                let at = header_revision(answer.header.as_ref());
                self.explain_range(range, answer, at, self.state_at(at)?)?;
                // A serializable read may be stale.
                Ok((!range.serializable).then_some(Place {
                    revision: at,
                    writes: false,
                }))
            }
            (Request::Txn(txn), Answer::Txn(answer)) => self.explain_txn(txn, answer).map(Some),
            (
                Request::Compact(_) | Request::Grant { .. } | Request::Revoke(_),
                Answer::Done(at),
            ) => {
                self.state_at(*at)?;
                // The header's revision may already be that of a later command.
                Ok(Some(Place {
                    revision: *at,
                    writes: false,
                }))
            }
            (Request::KeepAlive(_), Answer::Alive(_)) => Ok(None),
            _ => Err("an answer to something else".to_owned()),
        }
    }

    fn explain_put(&self, put: &PutRequest, answer: &PutResponse) -> Result<Place, String> {
        let at = header_revision(answer.header.as_ref());
        let [change] = self.changes_at(at)? else {
            return Err(format!("revision {at} has more than the put"));
        };
        if change.key != put.key
            || change.value.as_ref() != Some(&put.value)
            || change.lease != put.lease
        {
            return Err(format!(
                "revision {at} is not the acknowledged put but {change:?}"
            ));
        }
        if put.prev_kv
            && !same_pair(
                answer.prev_kv.as_ref(),
                self.state_at(at - 1)?.get(&put.key),
            )
        {
            return Err(format!("not what was there before revision {at}"));
        }
        Ok(Place {
            revision: at,
            writes: true,
        })
    }

    fn explain_delete(
        &self,
        delete: &DeleteRangeRequest,
        answer: &DeleteRangeResponse,
    ) -> Result<Place, String> {
        let at = header_revision(answer.header.as_ref());
        let before = if answer.deleted > 0 { at - 1 } else { at };
        let rows = self.state_at(before)?;
        let there: Vec<_> = rows
            .iter()
            .filter(|(k, _)| in_span(k, &delete.key, &delete.range_end))
            .collect();
        if there.len() as i64 != answer.deleted {
            return Err(format!("{} keys were there at {before}", there.len()));
        }
        let pairs = answer
            .prev_kvs
            .iter()
            .map(|kv| (kv.key.clone(), to_row(kv)));
        if delete.prev_kv
            && !pairs.eq(there
                .iter()
                .map(|(key, row)| ((*key).clone(), (*row).clone())))
        {
            return Err(format!("not the pairs that were there at {before}"));
        }
        if answer.deleted > 0 {
            let keys = self
                .changes_at(at)?
                .iter()
                .map(|change| (&change.key, change.value.is_none()));
            if !keys.eq(there.iter().map(|(key, _)| (*key, true))) {
                return Err(format!("revision {at} is not the acknowledged deletion"));
            }
        }
        Ok(Place {
            revision: at,
            writes: answer.deleted > 0,
        })
    }

    fn explain_range(
        &self,
        range: &RangeRequest,
        answer: &RangeResponse,
        at: i64,
        present: &Rows,
    ) -> Verdict {
        let rows = if range.revision > 0 {
            self.state_at(range.revision)?
        } else {
            present
        };
        if range.revision > at {
            return Err(format!("revision {} read at {at}", range.revision));
        }
        let found: Vec<_> = rows
            .iter()
            .filter(|(key, _)| in_span(key, &range.key, &range.range_end))
            .collect();
        let limit = usize::try_from(range.limit)
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or(usize::MAX);
        let wanted = found
            .iter()
            .take(limit)
            .map(|(key, row)| ((*key).clone(), (*row).clone()));
        if !answer
            .kvs
            .iter()
            .map(|kv| (kv.key.clone(), to_row(kv)))
            .eq(wanted)
        {
            return Err(format!("at {at} the range has {found:?}"));
        }
        if answer.count != found.len() as i64 || answer.more != (found.len() > limit) {
            return Err(format!("at {at} there are {} keys", found.len()));
        }
        Ok(())
    }

    fn explain_txn(&self, txn: &TxnRequest, answer: &TxnResponse) -> Result<Place, String> {
        let at = header_revision(answer.header.as_ref());
        let branch = if answer.succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let puts = |op: &RequestOp| matches!(op.request, Some(Op::RequestPut(_)));
        let writes = branch.iter().any(puts);
        let before = self.state_at(if writes { at - 1 } else { at })?;
        let holds = txn.compare.iter().all(|compare| {
            let modified = before.get(&compare.key).map_or(0, |row| row.modified);
            matches!(compare.target_union, Some(TargetUnion::ModRevision(wanted)) if wanted == modified)
        });
        if holds != answer.succeeded {
            return Err(format!("the comparison is {holds} before revision {at}"));
        }
        if branch.len() != answer.responses.len() {
            return Err("not an answer to every operation".to_owned());
        }
        let mut rows = before.clone();
        let mut changes = Vec::new();
        for (op, response) in branch.iter().zip(&answer.responses) {
            match (&op.request, &response.response) {
                (Some(Op::RequestPut(put)), Some(Response::ResponsePut(answer))) => {
                    if put.prev_kv && !same_pair(answer.prev_kv.as_ref(), rows.get(&put.key)) {
                        return Err(format!("not what was there before revision {at}"));
                    }
                    let after = self.state_at(at)?.get(&put.key).cloned();
                    let after =
                        after.ok_or_else(|| format!("revision {at} lacks {:?}", put.key))?;
                    rows.insert(put.key.clone(), after);
                    changes.push((put.key.clone(), Some(put.value.clone())));
                }
                (Some(Op::RequestRange(range)), Some(Response::ResponseRange(answer))) => {
                    self.explain_range(range, answer, at, &rows)?;
                }
                _ => return Err("an answer to another operation".to_owned()),
            }
        }
        if writes {
            let made = self
                .changes_at(at)?
                .iter()
                .map(|change| (change.key.clone(), change.value.clone()));
            if !made.eq(changes) {
                return Err(format!("revision {at} is not the acknowledged transaction"));
            }
        }
        Ok(Place {
            revision: at,
            writes,
        })
    }

    /// Checks that requests which free space are never rejected for lack of it.
    fn check_space(&self) -> Verdict {
        let frees = |request: &Request| {
            !matches!(
                request,
                Request::Put(_) | Request::Txn(_) | Request::Grant { .. }
            )
        };
        let refused = |operation: &&Operation| {
            frees(&operation.request)
                && operation
                    .refusal
                    .as_ref()
                    .is_some_and(|refusal| refusal.contains("database space exceeded"))
        };
        match self.operations.iter().find(refused) {
            Some(operation) => Err(format!("refused for want of space: {operation:?}")),
            None => Ok(()),
        }
    }

    /// Checks that no lease ends early: its key may only be deleted by its expiry or revocation.
    fn check_leases(&self) -> Verdict {
        let mut least: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
        let mut revoked: BTreeMap<i64, u64> = BTreeMap::new();
        for operation in self.operations {
            match (&operation.request, &operation.answer) {
                (Request::Grant { lease, ttl }, Some(_)) => {
                    least.insert(*lease, (operation.begun_ms, *ttl));
                }
                (Request::KeepAlive(lease), Some(Answer::Alive(1..))) => {
                    if let Some((since, _)) = least.get_mut(lease) {
                        *since = operation.begun_ms;
                    }
                }
                (Request::Revoke(lease), _) => drop(revoked.insert(*lease, operation.begun_ms)),
                _ => {}
            }
        }
        for (lease, (since, ttl)) in least {
            let key = lease_key(lease);
            let ended = self.ledger.entries.iter().find(|entry| {
                entry
                    .changes
                    .iter()
                    .any(|change| change.key == key && change.value.is_none())
            });
            let Some(ended) = ended else { continue };
            let due = since + ttl.cast_unsigned() * 1_000_000 / (1_000 + self.drift);
            let asked = revoked
                .get(&lease)
                .is_some_and(|asked| *asked <= ended.seen_ms);
            if ended.seen_ms < due && !asked {
                return Err(format!(
                    "lease {lease} of {ttl} s, renewed at {since} ms, ended at {} ms",
                    ended.seen_ms
                ));
            }
        }
        Ok(())
    }
}

/// Checks that an operation which ended before another one started precedes it in the order.
fn real_time(places: &[(&Operation, Place)]) -> Verdict {
    // Starts and ends in real-time order.
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (at, (operation, _)) in places.iter().enumerate() {
        moments.push((operation.begun, false, at));
        moments.extend(operation.ended.map(|ended| (ended, true, at)));
    }
    moments.sort_unstable();
    let mut floors = vec![(0, 0); places.len()];
    let mut highest = (0, 0);
    for (_, ends, at) in moments {
        let (operation, place) = &places[at];
        if !ends {
            floors[at] = highest;
            continue;
        }
        let (floor, by) = floors[at];
        if place.revision < floor || place.writes && place.revision == floor {
            let earlier = &places[by].0;
            return Err(format!(
                "revision {floor} was seen before this began, which is at {}:\n  {operation:?}\n  after {earlier:?}",
                place.revision
            ));
        }
        if place.revision > highest.0 {
            highest = (place.revision, at);
        }
    }
    Ok(())
}
