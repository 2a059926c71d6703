//! The KV service.

use super::compression::COMPRESSED;
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
    // A learner may lag behind without bound, so that it serves serializable reads only.
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
        // Lists of the API server are large; decoding and encoding each pair would dominate their
        // cost.
        match store.range_records(request).map_err(of_store)? {
            Some(found) => Ok(encode_records(&found, core.header_at(found.revision))),
            // Sorted, filtered or without values: those need decoded pairs.
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
    // Before the log: an invalid command would cost every member an entry.
    check_request(&op, core.machine.limits()).map_err(of_store)?;
    let Op::RequestTxn(request) = &mut op else {
        return Err(unexpected_outcome());
    };
    let request = std::mem::take(request);
    if only_reads(&request) {
        core.machine
            .check_txn(caller, &request)
            .map_err(to_status)?;
        // etcd's rule for transactions of serializable reads. One that only compares is
        // linearizable here, because its result is a read too.
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
        // The log only orders the compaction. `physical` waits for this member's engine, as in
        // etcd.
        if physical {
            self.0.store().wait_for_compaction(revision).await;
        }
        Ok(Response::new(CompactionResponse { header }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proto_etcd::etcdserverpb::RequestOp;
    use proto_etcd::mvccpb::KeyValue;

    fn range(serializable: bool) -> RequestOp {
        RequestOp {
            request: Some(Op::RequestRange(RangeRequest {
                serializable,
                ..RangeRequest::default()
            })),
        }
    }

    fn put() -> RequestOp {
        RequestOp {
            request: Some(Op::RequestPut(PutRequest::default())),
        }
    }

    fn nested(op: RequestOp) -> RequestOp {
        RequestOp {
            request: Some(Op::RequestTxn(txn(vec![op], Vec::new()))),
        }
    }

    fn txn(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> TxnRequest {
        TxnRequest {
            success,
            failure,
            ..TxnRequest::default()
        }
    }

    #[test]
    fn transaction_with_a_write_in_any_branch_goes_through_the_log() {
        for (request, expect) in [
            (txn(vec![], vec![]), true),
            (txn(vec![range(false)], vec![range(true)]), true),
            (txn(vec![nested(range(false))], vec![]), true),
            (txn(vec![put()], vec![]), false),
            (txn(vec![range(false)], vec![put()]), false),
            (txn(vec![nested(put())], vec![]), false),
            (txn(vec![RequestOp { request: None }], vec![]), false),
        ] {
            assert_eq!(only_reads(&request), expect, "{request:?}");
        }
    }

    #[test]
    fn transaction_is_serializable_only_if_all_its_reads_are() {
        for (request, expect) in [
            (txn(vec![range(true)], vec![range(true)]), true),
            (txn(vec![range(true)], vec![range(false)]), false),
            (txn(vec![nested(range(true))], vec![]), false),
        ] {
            assert_eq!(all_serializable(&request), expect, "{request:?}");
        }
    }

    #[test]
    fn copied_records_are_the_encoding_of_the_response() {
        let pair = |key: &'static str| KeyValue {
            key: key.into(),
            value: vec![7; 300].into(),
            version: 1,
            ..KeyValue::default()
        };
        let header = Some(ResponseHeader {
            revision: 9,
            ..ResponseHeader::default()
        });
        for kvs in [vec![], vec![pair("a")], vec![pair("a"), pair("b")]] {
            let records = Records {
                records: kvs.iter().map(|kv| kv.encode_to_vec().into()).collect(),
                more: true,
                count: 5,
                revision: 9,
            };
            let response = RangeResponse {
                header,
                kvs,
                more: true,
                count: 5,
            };
            let encoded = encode_records(&records, header);
            assert_eq!(
                encoded[..PREFIX],
                frame_message(&response)[..PREFIX],
                "length"
            );
            assert_eq!(RangeResponse::decode(&encoded[PREFIX..]).unwrap(), response);
        }
    }
}
