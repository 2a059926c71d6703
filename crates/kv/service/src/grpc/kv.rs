//! The KV service.

use crate::context::{ServerContext, to_status};
use crate::grpc_unary;
use bytes::{BufMut, Bytes, BytesMut};
use kv_machine::{Command, Outcome};
use kv_mvcc::{MvccError, check_put, check_request};
use prost::{Message, encoding};
use proto_etcd::etcdserverpb::kv_server;
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Implements etcd's KV service.
pub(crate) struct Kv(pub Arc<ServerContext>);

type RpcResult<T> = Result<Response<T>, Status>;

pub(crate) fn of_store(error: MvccError) -> Status {
    to_status(error.into())
}

fn unexpected_outcome() -> Status {
    Status::internal("the answer does not fit the request")
}

/// Executes a range request after a permission check.
pub(crate) async fn execute_range(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
) -> Result<RangeResponse, Status> {
    core.machine
        .check_range(caller, request)
        .map_err(to_status)?;
    if !request.serializable {
        core.not_for_learners()?;
        core.read_index().await?;
    }
    let (mut answer, revision) = core.store().range(request).map_err(of_store)?;
    // The permissions may have changed during the wait.
    core.machine
        .check_range(caller, request)
        .map_err(to_status)?;
    answer.header = core.header_at(revision);
    Ok(answer)
}

/// Executes a range request and returns the encoded response. The stored pairs are copied without
/// decoding.
pub(crate) async fn encoded_range(
    core: &ServerContext,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
) -> Result<Bytes, Status> {
    core.machine
        .check_range(caller, request)
        .map_err(to_status)?;
    if !request.serializable {
        core.not_for_learners()?;
        core.read_index().await?;
    }
    let Some(found) = core.store().range_records(request).map_err(of_store)? else {
        let (mut answer, revision) = core.store().range(request).map_err(of_store)?;
        core.machine
            .check_range(caller, request)
            .map_err(to_status)?;
        answer.header = core.header_at(revision);
        return Ok(grpc_unary::frame_message(&answer));
    };
    // The permissions may have changed during the wait.
    core.machine
        .check_range(caller, request)
        .map_err(to_status)?;
    let head = RangeResponse {
        header: core.header_at(found.revision),
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
    let mut bytes = BytesMut::with_capacity(length + 5);
    grpc_unary::put_prefix(&mut bytes, length);
    // The capacity is sufficient, so this can't fail.
    let _ = head.encode(&mut bytes);
    for record in &found.records {
        encoding::encode_key(KVS, encoding::WireType::LengthDelimited, &mut bytes);
        encoding::encode_varint(record.len() as u64, &mut bytes);
        bytes.put_slice(record);
    }
    Ok(bytes.freeze())
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

#[tonic::async_trait]
impl kv_server::Kv for Kv {
    async fn range(&self, request: Request<RangeRequest>) -> RpcResult<RangeResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            execute_range(&self.0, &caller, request.get_ref()).await?,
        ))
    }

    async fn put(&self, request: Request<PutRequest>) -> RpcResult<PutResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            execute_put(&self.0, &caller, request.into_inner()).await?,
        ))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> RpcResult<DeleteRangeResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            delete_range(&self.0, &caller, request.into_inner()).await?,
        ))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> RpcResult<TxnResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            execute_txn(&self.0, &caller, request.into_inner()).await?,
        ))
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
