//! The KV service.

use crate::context::{Core, status};
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
pub(crate) struct Kv(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

pub(crate) fn of_store(error: MvccError) -> Status {
    status(error.into())
}

fn unexpected() -> Status {
    Status::internal("the answer does not fit the request")
}

/// Executes a range request after a permission check.
pub(crate) async fn range(
    core: &Core,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
) -> Result<RangeResponse, Status> {
    core.machine.check_range(caller, request).map_err(status)?;
    if !request.serializable {
        core.not_for_learners()?;
        core.read_index().await?;
    }
    let (mut answer, revision) = core.store().range(request).map_err(of_store)?;
    // The permissions may have changed during the wait.
    core.machine.check_range(caller, request).map_err(status)?;
    answer.header = core.header_at(revision);
    Ok(answer)
}

/// Executes a range request and returns the encoded response. The stored pairs are copied without
/// decoding.
pub(crate) async fn encoded_range(
    core: &Core,
    caller: &kv_machine::Caller,
    request: &RangeRequest,
) -> Result<Bytes, Status> {
    core.machine.check_range(caller, request).map_err(status)?;
    if !request.serializable {
        core.not_for_learners()?;
        core.read_index().await?;
    }
    let Some(found) = core.store().records(request).map_err(of_store)? else {
        let (mut answer, revision) = core.store().range(request).map_err(of_store)?;
        core.machine.check_range(caller, request).map_err(status)?;
        answer.header = core.header_at(revision);
        return Ok(grpc_unary::framed(&answer));
    };
    // The permissions may have changed during the wait.
    core.machine.check_range(caller, request).map_err(status)?;
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
    grpc_unary::prefix(&mut bytes, length);
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
pub(crate) async fn txn(
    core: &Core,
    caller: &kv_machine::Caller,
    request: TxnRequest,
) -> Result<TxnResponse, Status> {
    let mut op = Op::RequestTxn(request);
    check_request(&op, core.machine.limits()).map_err(of_store)?;
    let Op::RequestTxn(request) = &mut op else {
        return Err(unexpected());
    };
    let request = std::mem::take(request);
    if only_reads(&request) {
        core.machine.check_txn(caller, &request).map_err(status)?;
        if !all_serializable(&request) || !request.compare.is_empty() && request.success.is_empty()
        {
            core.not_for_learners()?;
            core.read_index().await?;
        }
        let mut answer = core.store().read_txn(&request).map_err(of_store)?;
        // The permissions may have changed during the wait.
        core.machine.check_txn(caller, &request).map_err(status)?;
        let revision = answer.header.map_or(0, |header| header.revision);
        answer.header = core.header_at(revision);
        return Ok(answer);
    }
    core.not_for_learners()?;
    match core.submit(caller, Command::Txn(request)).await? {
        (Outcome::Txn(answer), header) => Ok(TxnResponse { header, ..answer }),
        _ => Err(unexpected()),
    }
}

/// Executes a put.
pub(crate) async fn put(
    core: &Core,
    caller: &kv_machine::Caller,
    request: PutRequest,
) -> Result<PutResponse, Status> {
    core.not_for_learners()?;
    check_put(&request).map_err(of_store)?;
    match core.submit(caller, Command::Put(request)).await? {
        (Outcome::Put(answer), header) => Ok(PutResponse { header, ..answer }),
        _ => Err(unexpected()),
    }
}

/// Executes a range deletion.
pub(crate) async fn delete_range(
    core: &Core,
    caller: &kv_machine::Caller,
    request: DeleteRangeRequest,
) -> Result<DeleteRangeResponse, Status> {
    core.not_for_learners()?;
    let op = Op::RequestDeleteRange(request);
    check_request(&op, core.machine.limits()).map_err(of_store)?;
    let Op::RequestDeleteRange(request) = op else {
        return Err(unexpected());
    };
    match core.submit(caller, Command::DeleteRange(request)).await? {
        (Outcome::DeleteRange(answer), header) => Ok(DeleteRangeResponse { header, ..answer }),
        _ => Err(unexpected()),
    }
}

#[tonic::async_trait]
impl kv_server::Kv for Kv {
    async fn range(&self, request: Request<RangeRequest>) -> Answer<RangeResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            range(&self.0, &caller, request.get_ref()).await?,
        ))
    }

    async fn put(&self, request: Request<PutRequest>) -> Answer<PutResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            put(&self.0, &caller, request.into_inner()).await?,
        ))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Answer<DeleteRangeResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            delete_range(&self.0, &caller, request.into_inner()).await?,
        ))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Answer<TxnResponse> {
        let caller = self.0.caller(&request)?;
        Ok(Response::new(
            txn(&self.0, &caller, request.into_inner()).await?,
        ))
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> Answer<CompactionResponse> {
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
