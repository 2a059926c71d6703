//! Fast path for unary KV RPCs that bypasses tonic: one message in, one message out, no routing, no
//! stream buffers.
//!
//! Compressed requests are left to tonic. Responses and errors are the same on both paths.

use crate::context::ServerContext;
use crate::grpc::kv;
use crate::grpc_stream::{PREFIX, RequestBody, announced_length, too_large};
use crate::metrics::{Call, StoreMetrics};
use crate::request_limits::{self, MemoryReservation};
use crate::request_summary;
use crate::slow_request::{self, Phase};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use kv_machine::Caller;
use prost::Message;
use proto_etcd::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tracing::Instrument;

/// The methods of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Range,
    Put,
    Txn,
    DeleteRange,
}

/// Returns the method of a request, if the fast path handles it.
pub(crate) fn unary_method<B>(request: &Request<B>) -> Option<Method> {
    if is_compressed(request.headers()) {
        return None;
    }
    Some(match request.uri().path() {
        "/etcdserverpb.KV/Range" => Method::Range,
        "/etcdserverpb.KV/Put" => Method::Put,
        "/etcdserverpb.KV/Txn" => Method::Txn,
        "/etcdserverpb.KV/DeleteRange" => Method::DeleteRange,
        _ => return None,
    })
}

/// Returns whether messages may be compressed. tonic rejects those.
pub(crate) fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}

/// Counts a call when it ends or is cancelled.
struct CallGuard<'a> {
    metrics: &'a StoreMetrics,
    call: Option<Call>,
    began: Instant,
}

impl<'a> CallGuard<'a> {
    fn new(metrics: &'a StoreMetrics, call: Call) -> Self {
        metrics.started(call);
        CallGuard {
            metrics,
            call: Some(call),
            began: Instant::now(),
        }
    }

    fn end(&mut self, code: tonic::Code) {
        if let Some(call) = self.call.take() {
            self.metrics.handled(call, code, self.began.elapsed());
        }
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.end(tonic::Code::Cancelled);
    }
}

/// Handles a call.
pub(crate) async fn respond_unary<B: RequestBody>(
    core: Arc<ServerContext>,
    method: Method,
    request: Request<B>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let call = Call::of(parts.uri.path());
    let mut call_guard = CallGuard::new(&core.metrics, call);
    let span = tracing::debug_span!("call", method = call.path());
    let mut came = Bytes::new();
    let (result, notes) =
        slow_request::track_phases(execute(&core, method, parts, body, &mut came))
            .instrument(span)
            .await;
    let code = result
        .as_ref()
        .map_or_else(Status::code, |_| tonic::Code::Ok);
    slow_request::report_slow(&core, call, notes, code, || {
        request_summary::summarize_call(method, &came, result.as_ref().ok())
    });
    call_guard.end(code);
    match result {
        Ok(message) => {
            core.metrics
                .sent
                .fetch_add(message.len() as u64, Ordering::Relaxed);
            let mut response = Response::new(Body::new(UnaryBody {
                message: Some(message),
                over: false,
            }));
            let kind = HeaderValue::from_static("application/grpc");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, kind);
            response
        }
        Err(status) => status.into_http(),
    }
}

/// Executes a call. `came` is set to the request's message, for the slow-request log.
async fn execute(
    core: &ServerContext,
    method: Method,
    parts: Parts,
    body: impl RequestBody,
    came: &mut Bytes,
) -> Result<Bytes, Status> {
    // Reserved until the request is executed.
    let mut held = MemoryReservation::of(core, &parts.extensions);
    let received = tokio::time::timeout(
        request_limits::DEADLINE,
        receive_message(core, &mut held, body),
    )
    .await;
    let message = received.unwrap_or_else(|_| Err(request_limits::too_slow()))?;
    slow_request::record_phase(Phase::Received);
    *came = message.clone();
    let caller = authenticate_caller(core, parts)?;
    match method {
        Method::Range => {
            kv::encoded_range(core, &caller, &decode_message::<RangeRequest>(message)?).await
        }
        Method::Put => Ok(frame_message(
            &kv::execute_put(core, &caller, decode_message::<PutRequest>(message)?).await?,
        )),
        Method::Txn => Ok(frame_message(
            &kv::execute_txn(core, &caller, decode_message::<TxnRequest>(message)?).await?,
        )),
        Method::DeleteRange => Ok(frame_message(
            &kv::delete_range(
                core,
                &caller,
                decode_message::<DeleteRangeRequest>(message)?,
            )
            .await?,
        )),
    }
}

/// Returns the token of a request.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let token = headers
        .get("token")
        .or_else(|| headers.get("authorization"))?;
    Some(token.to_str().unwrap_or_default().to_owned())
}

/// Returns the identity of a request's caller.
pub(crate) fn authenticate_caller(core: &ServerContext, parts: Parts) -> Result<Caller, Status> {
    if !core.machine.with_auth(|auth| auth.enabled) {
        return Ok(Caller::default());
    }
    let metadata = MetadataMap::from_headers(parts.headers);
    core.caller(&tonic::Request::from_parts(metadata, parts.extensions, ()))
}

fn decode_message<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|e| Status::internal(e.to_string()))
}

/// Encodes a message with its prefix.
pub(crate) fn frame_message(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.encoded_len());
    frame_into(&mut bytes, message);
    bytes.freeze()
}

/// Appends a message with its prefix.
pub(crate) fn frame_into(bytes: &mut BytesMut, message: &impl Message) {
    let length = message.encoded_len();
    bytes.reserve(PREFIX + length);
    put_prefix(bytes, length);
    // The capacity is sufficient, so this can't fail.
    let _ = message.encode(bytes);
}

/// Appends the prefix of a message of this length.
pub(crate) fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Receives the only message of a call.
async fn receive_message(
    core: &ServerContext,
    held: &mut MemoryReservation,
    mut body: impl RequestBody,
) -> Result<Bytes, Status> {
    let limit = crate::grpc::decoding_limit(core);
    let mut bytes = Bytes::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::internal(e.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        core.metrics
            .received
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        held.more(data.len())?;
        bytes = if bytes.is_empty() {
            data
        } else {
            join_chunks(bytes, &data)
        };
        if let Some(length) = announced_length(&bytes)?
            && length > limit
        {
            return Err(too_large(length, limit));
        }
        if http_body::Body::is_end_stream(&body) {
            break;
        }
    }
    match announced_length(&bytes)? {
        None => Err(Status::internal("Missing request message.")),
        Some(length) if bytes.len() != PREFIX + length => {
            Err(Status::internal("Unexpected EOF decoding stream."))
        }
        Some(_) => {
            bytes.advance(PREFIX);
            Ok(bytes)
        }
    }
}

/// Joins received chunks. The buffer grows with the received data, not with the announced length.
fn join_chunks(first: Bytes, more: &[u8]) -> Bytes {
    let mut whole = first
        .try_into_mut()
        .unwrap_or_else(|first| BytesMut::from(first.as_ref()));
    whole.extend_from_slice(more);
    whole.freeze()
}

/// Body with one message and the status OK.
struct UnaryBody {
    message: Option<Bytes>,
    over: bool,
}

impl http_body::Body for UnaryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.over, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}
