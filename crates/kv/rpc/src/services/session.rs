//! Shared parts of locks and elections: session leases and queues.

use super::kv;
use crate::context::{ServerContext, to_status};
use bytes::Bytes;
use kv_machine::{Caller, Command, EtcdError, Outcome};
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::range_request::{SortOrder, SortTarget};
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::response_op::Response as Answer;
use proto_etcd::etcdserverpb::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use proto_etcd::mvccpb::KeyValue;
use rand::Rng;
use tonic::Status;

/// TTL in seconds of a lease that the service grants itself.
const SESSION_TTL: i64 = 60;

/// Completes a lease request with an ID and the minimum TTL.
pub(crate) fn with_identifier(
    core: &ServerContext,
    mut request: LeaseGrantRequest,
) -> LeaseGrantRequest {
    if request.id == 0 {
        // Chosen here and not when the command is applied: that must give the same lease on every
        // member.
        request.id = rand::rng().random_range(1..i64::MAX);
    }
    request.ttl = request.ttl.max(core.bounds.min_lease_ttl);
    request
}

/// Returns the caller's lease, or grants a new one.
pub(crate) async fn ensure_lease(
    core: &ServerContext,
    caller: &Caller,
    lease: i64,
) -> Result<i64, Status> {
    if lease != 0 {
        return Ok(lease);
    }
    let request = with_identifier(
        core,
        LeaseGrantRequest {
            ttl: SESSION_TTL,
            id: 0,
        },
    );
    match core.submit(caller, Command::LeaseGrant(request)).await? {
        (Outcome::LeaseGrant { id, .. }, _) => Ok(id),
        _ => Err(Status::internal("the answer does not fit the request")),
    }
}

fn wrap_op(request: Op) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

/// Returns the key of a lease in a queue.
fn queue_key(name: &[u8], lease: i64) -> Bytes {
    [name, format!("/{lease:x}").as_bytes()].concat().into()
}

/// Returns the end of the range of keys with this prefix.
pub(crate) fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(&[0])
}

/// Returns `name/`, the prefix of all keys in a queue.
pub(crate) fn queue_prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// Adds a key to the queue. Returns it with its create revision.
pub(crate) async fn enqueue_key(
    core: &ServerContext,
    caller: &Caller,
    name: &[u8],
    lease: i64,
    value: Bytes,
) -> Result<(Bytes, i64), Status> {
    let key = queue_key(name, lease);
    // Create revision 0: the key does not exist. A client that repeats its request after a timeout
    // keeps its place.
    let absent = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::CreateRevision(0)),
    };
    let put = PutRequest {
        key: key.clone(),
        value,
        lease,
        ..PutRequest::default()
    };
    let get = RangeRequest {
        key: key.clone(),
        ..RangeRequest::default()
    };
    let request = TxnRequest {
        compare: vec![absent],
        success: vec![wrap_op(Op::RequestPut(put))],
        failure: vec![wrap_op(Op::RequestRange(get))],
    };
    let answer = kv::execute_txn(core, caller, request).await?;
    let revision = answer.header.map_or(0, |header| header.revision);
    if answer.succeeded {
        return Ok((key, revision));
    }
    match answer
        .responses
        .into_iter()
        .next()
        .and_then(|op| op.response)
    {
        Some(Answer::ResponseRange(range)) => {
            let created = range.kvs.first().map_or(0, |kv| kv.create_revision);
            Ok((key, created))
        }
        _ => Err(Status::internal("the answer does not fit the request")),
    }
}

/// Deletes a key from the queue.
pub(crate) async fn leave_queue(
    core: &ServerContext,
    caller: &Caller,
    key: Bytes,
) -> Result<(), Status> {
    let request = DeleteRangeRequest {
        key,
        ..DeleteRangeRequest::default()
    };
    core.submit(caller, Command::DeleteRange(request))
        .await
        .map(drop)
}

/// Waits until no key in the queue is older than `created`. Returns an error if the caller's own
/// key was deleted.
pub(crate) async fn wait_for_turn(
    core: &ServerContext,
    caller: &Caller,
    name: &[u8],
    key: &Bytes,
    created: i64,
) -> Result<(), Status> {
    let prefix = queue_prefix(name);
    let mut revisions = core.store().subscribe_revisions();
    loop {
        revisions.borrow_and_update();
        let before = RangeRequest {
            key: prefix.clone(),
            range_end: prefix_end(&prefix),
            max_create_revision: created - 1,
            // This member's state is enough: `revisions` reports each later change, and the
            // ReadIndex at the end makes the result linearizable.
            serializable: true,
            keys_only: true,
            ..RangeRequest::default()
        };
        let earlier = kv::execute_range(core, caller, &before).await?.kvs;
        let own = RangeRequest {
            key: key.clone(),
            serializable: true,
            ..RangeRequest::default()
        };
        let mine = kv::execute_range(core, caller, &own).await?.kvs;
        if mine.first().is_none_or(|kv| kv.create_revision != created) {
            // The lease expired during the wait.
            return Err(to_status(EtcdError::LeaseNotFound));
        }
        if earlier.is_empty() {
            core.read_index().await?;
            return Ok(());
        }
        tokio::select! {
            changed = revisions.changed() => changed.map_err(|_| to_status(EtcdError::Stopped))?,
            () = core.shutdown.cancelled() => return Err(to_status(EtcdError::Stopped)),
        }
    }
}

/// Returns the oldest key in the queue.
pub(crate) async fn first_in_queue(
    core: &ServerContext,
    caller: &Caller,
    name: &[u8],
) -> Result<Option<KeyValue>, Status> {
    let prefix = queue_prefix(name);
    let request = RangeRequest {
        key: prefix.clone(),
        range_end: prefix_end(&prefix),
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        limit: 1,
        ..RangeRequest::default()
    };
    Ok(kv::execute_range(core, caller, &request)
        .await?
        .kvs
        .into_iter()
        .next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_prefix_is_the_next_prefix() {
        for (prefix, expect) in [
            (&b"a"[..], &b"b"[..]),
            (b"a/", b"a0"),
            (b"a\xff", b"b"),
            (b"\xff\xff", b"\0"),
            (b"", b"\0"),
        ] {
            assert_eq!(prefix_end(prefix), expect, "{prefix:?}");
        }
    }

    #[test]
    fn key_in_a_queue_is_the_name_and_the_lease_in_hexadecimal() {
        // As in etcd's concurrency package, so that its clients and this service share queues.
        assert_eq!(queue_key(b"lock", 0x1a2b), "lock/1a2b");
        assert!(queue_key(b"lock", 1).starts_with(&queue_prefix(b"lock")));
    }
}
