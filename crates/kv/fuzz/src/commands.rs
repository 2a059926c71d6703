//! Target: decodes, checks and applies commands from the log or from peers.

use bytes::{Bytes, BytesMut};
use kv_engine::MemoryEngine;
use kv_machine::{Command, Envelope, Machine, Options, decode_batch, encode_into};
use kv_mvcc::{Limits, check_request};
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::request_op::Request;
use std::sync::Arc;
use std::time::Duration;

/// Applies commands that can be decoded and pass the checks of a service.
pub fn commands(data: &[u8]) {
    let Some(envelopes) = decode_batch(Bytes::copy_from_slice(data)) else {
        return;
    };
    let limits = Limits { max_txn_ops: 128 };
    let passes = |request: Request| check_request(&request, limits).is_ok();
    let mut batch = BytesMut::new();
    for envelope in envelopes {
        let fine = match &envelope.command {
            Some(Command::Put(request)) => passes(Request::RequestPut(request.clone())),
            Some(Command::DeleteRange(request)) => {
                passes(Request::RequestDeleteRange(request.clone()))
            }
            Some(Command::Txn(request)) => passes(Request::RequestTxn(request.clone())),
            _ => true,
        };
        if fine {
            encode_into(&mut batch, &envelope);
        }
    }
    let options = Options {
        member: 1,
        max_txn_ops: 128,
        max_learners: 1,
        value_cache: 1_000,
        own_thread: false,
        token_ttl: std::time::Duration::from_secs(300),
        on_store: Arc::new(|_| {}),
        slow_apply: Duration::MAX,
    };
    let Ok(machine) = Machine::open(Arc::new(MemoryEngine::default()), options) else {
        return;
    };
    machine.apply(
        1,
        Bytes::from_static(b"position"),
        None,
        Some(batch.freeze()),
    );
    machine.drain_queue();
    let all = pb::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..Default::default()
    };
    assert!(
        machine.store().range(&all).is_ok(),
        "what was applied can't be read"
    );
}

/// Returns valid batches.
pub fn commands_corpus() -> Vec<Vec<u8>> {
    let put = pb::PutRequest {
        key: "key".into(),
        value: "value".into(),
        prev_kv: true,
        ..Default::default()
    };
    let read = pb::RangeRequest {
        key: "a".into(),
        range_end: "z".into(),
        limit: 3,
        ..Default::default()
    };
    let delete = pb::DeleteRangeRequest {
        key: "a".into(),
        range_end: "l".into(),
        prev_kv: true,
    };
    let op = |request| pb::RequestOp {
        request: Some(request),
    };
    let txn = pb::TxnRequest {
        compare: vec![pb::Compare {
            key: "key".into(),
            range_end: "l".into(),
            ..Default::default()
        }],
        success: vec![
            op(Request::RequestPut(put.clone())),
            op(Request::RequestRange(read)),
        ],
        failure: vec![op(Request::RequestDeleteRange(delete.clone()))],
    };
    let nested = pb::TxnRequest {
        success: vec![op(Request::RequestTxn(txn.clone()))],
        ..Default::default()
    };
    let commands = [
        Command::LeaseGrant(pb::LeaseGrantRequest { id: 7, ttl: 60 }),
        Command::Put(put),
        Command::Txn(txn),
        Command::Txn(nested),
        Command::DeleteRange(delete),
        Command::Compact(pb::CompactionRequest {
            revision: 2,
            physical: true,
        }),
        Command::LeaseRevoke(pb::LeaseRevokeRequest { id: 7 }),
        Command::RoleAdd(pb::AuthRoleAddRequest {
            name: "role".to_owned(),
        }),
        Command::MemberAdd(pb::Member {
            id: 2,
            peer_ur_ls: vec!["http://b:2380".to_owned()],
            ..Default::default()
        }),
    ];
    let encode = |commands: &[Command]| {
        let mut batch = BytesMut::new();
        for (at, command) in commands.iter().enumerate() {
            let command = Some(command.clone());
            encode_into(
                &mut batch,
                &Envelope {
                    request: at as u64,
                    command,
                    ..Default::default()
                },
            );
        }
        batch.to_vec()
    };
    commands
        .iter()
        .map(|command| encode(std::slice::from_ref(command)))
        .chain([encode(&commands)])
        .collect()
}
