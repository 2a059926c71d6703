//! The KV service.

use super::COMPRESSED;
use crate::context::{ServerContext, to_status};
use bytes::{BufMut, Bytes, BytesMut};
use kv_machine::{Command, Outcome};
use kv_mvcc::{MvccError, Records, Store, check_put, check_request};
use kv_transport::{PREFIX, frame_message, put_prefix};
use prost::{Message, encoding};
use proto_etcd::etcdserverpb::kv_server;
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, ResponseHeader, TxnRequest, TxnResponse,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// tonic's part of etcd's KV service.
pub(crate) struct Kv(pub Arc<ServerContext>);

type RpcResult<T> = Result<Response<T>, Status>;

pub(crate) fn of_store(error: MvccError) -> Status {
    to_status(error.into())
}

fn unexpected_outcome() -> Status {
    Status::internal("the answer does not fit the request")
}

/// Checks a range request, waits until a read is linearizable if it must be, and reads. `answer`
/// gets the store and returns the response; a second check follows it.
async fn read_checked<T>(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
    answer: impl FnOnce(&Store) -> Result<T, Status>,
) -> Result<T, Status> {
    core.machine
        .check_range(caller, request)
        .map_err(to_status)?;
    if !request.serializable {
        core.not_for_learners()?;
        core.read_index().await?;
    }
    let answered = answer(core.store())?;
    // The permissions may have changed during the wait.
    core.machine
        .check_range(caller, request)
        .map_err(to_status)?;
    Ok(answered)
}

/// Executes a range request after a permission check.
pub(crate) async fn execute_range(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
) -> Result<RangeResponse, Status> {
    read_checked(core, caller, request, |store| {
        let (mut response, revision) = store.range(request).map_err(of_store)?;
        response.header = core.header_at(revision);
        Ok(response)
    })
    .await
}

/// Executes a range request and returns the encoded response.
pub(crate) async fn encoded_range(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
) -> Result<Bytes, Status> {
    read_checked(core, caller, request, |store| {
        match store.range_records(request).map_err(of_store)? {
            Some(found) => Ok(encode_records(&found, core.header_at(found.revision))),
            None => {
                let (mut response, revision) = store.range(request).map_err(of_store)?;
                response.header = core.header_at(revision);
                Ok(frame_message(&response))
            }
        }
    })
    .await
}

/// Encodes a response. The stored pairs are copied without decoding.
fn encode_records(found: &Records, header: Option<ResponseHeader>) -> Bytes {
    let head = RangeResponse {
        header,
        kvs: Vec::new(),
        more: found.more,
        count: found.count,
    };
    let pairs: usize = found
        .records
        .iter()
        .map(|record| 1 + encoding::encoded_len_varint(record.len() as u64) + record.len())
        .sum();
    let length = head.encoded_len() + pairs;
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    put_prefix(&mut bytes, length);
    // The capacity is sufficient, so this can't fail.
    let _ = head.encode(&mut bytes);
    for record in &found.records {
        encoding::encode_key(KVS, encoding::WireType::LengthDelimited, &mut bytes);
        encoding::encode_varint(record.len() as u64, &mut bytes);
        bytes.put_slice(record);
    }
    bytes.freeze()
}

/// Number of the field `kvs` in a `RangeResponse`.
const KVS: u32 = 2;

/// Returns whether every operation of every branch is a read.
fn only_reads(request: &TxnRequest) -> bool {
    request
        .success
        .iter()
        .chain(&request.failure)
        .all(|op| match &op.request {
            Some(Op::RequestRange(_)) => true,
            Some(Op::RequestTxn(nested)) => only_reads(nested),
            _ => false,
        })
}

fn all_serializable(request: &TxnRequest) -> bool {
    request
        .success
        .iter()
        .chain(&request.failure)
        .all(|op| match &op.request {
            Some(Op::RequestRange(range)) => range.serializable,
            _ => false,
        })
}

/// Executes a transaction.
pub(crate) async fn execute_txn(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: TxnRequest,
) -> Result<TxnResponse, Status> {
    let mut op = Op::RequestTxn(request);
    check_request(&op, core.machine.limits()).map_err(of_store)?;
    let Op::RequestTxn(request) = &mut op else {
        return Err(unexpected_outcome());
    };
    let request = std::mem::take(request);
    if only_reads(&request) {
        core.machine
            .check_txn(caller, &request)
            .map_err(to_status)?;
        if !all_serializable(&request) || !request.compare.is_empty() && request.success.is_empty()
        {
            core.not_for_learners()?;
            core.read_index().await?;
        }
        let mut answer = core.store().read_txn(&request).map_err(of_store)?;
        // The permissions may have changed during the wait.
        core.machine
            .check_txn(caller, &request)
            .map_err(to_status)?;
        let revision = answer.header.map_or(0, |header| header.revision);
        answer.header = core.header_at(revision);
        return Ok(answer);
    }
    core.not_for_learners()?;
    match core.submit(caller, Command::Txn(request)).await? {
        (Outcome::Txn(answer), header) => Ok(TxnResponse { header, ..answer }),
        _ => Err(unexpected_outcome()),
    }
}

/// Executes a put.
pub(crate) async fn execute_put(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: PutRequest,
) -> Result<PutResponse, Status> {
    core.not_for_learners()?;
    check_put(&request).map_err(of_store)?;
    match core.submit(caller, Command::Put(request)).await? {
        (Outcome::Put(answer), header) => Ok(PutResponse { header, ..answer }),
        _ => Err(unexpected_outcome()),
    }
}

/// Executes a range deletion.
pub(crate) async fn delete_range(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: DeleteRangeRequest,
) -> Result<DeleteRangeResponse, Status> {
    core.not_for_learners()?;
    let op = Op::RequestDeleteRange(request);
    check_request(&op, core.machine.limits()).map_err(of_store)?;
    let Op::RequestDeleteRange(request) = op else {
        return Err(unexpected_outcome());
    };
    match core.submit(caller, Command::DeleteRange(request)).await? {
        (Outcome::DeleteRange(answer), header) => Ok(DeleteRangeResponse { header, ..answer }),
        _ => Err(unexpected_outcome()),
    }
}

/// tonic's KV service. The hand-written path executes the other methods (`unary`), so only their
/// compressed requests arrive here, and tonic has rejected those.
#[tonic::async_trait]
impl kv_server::Kv for Kv {
    async fn range(&self, _: Request<RangeRequest>) -> RpcResult<RangeResponse> {
        Err(Status::unimplemented(COMPRESSED))
    }

    async fn put(&self, _: Request<PutRequest>) -> RpcResult<PutResponse> {
        Err(Status::unimplemented(COMPRESSED))
    }

    async fn delete_range(&self, _: Request<DeleteRangeRequest>) -> RpcResult<DeleteRangeResponse> {
        Err(Status::unimplemented(COMPRESSED))
    }

    async fn txn(&self, _: Request<TxnRequest>) -> RpcResult<TxnResponse> {
        Err(Status::unimplemented(COMPRESSED))
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> RpcResult<CompactionResponse> {
        let caller = self.0.caller(&request)?;
        self.0.not_for_learners()?;
        let CompactionRequest { revision, physical } = *request.get_ref();
        let (_, header) = self
            .0
            .submit(&caller, Command::Compact(request.into_inner()))
            .await?;
        if physical {
            self.0.store().wait_for_compaction(revision).await;
        }
        Ok(Response::new(CompactionResponse { header }))
    }
}
