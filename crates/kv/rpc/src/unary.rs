//! Calls of the KV service on the hand-written gRPC path.
//!
//! tonic gets compressed requests only, and rejects them. So this is the only place that executes
//! these calls (ADR 8).

use crate::call_end::CallEnd;
use crate::context::ServerContext;
use crate::method::Method;
use crate::metrics::Call;
use crate::request_summary;
use crate::services::kv;
use crate::slow_request::{self, Phase};
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use kv_transport::{
    MemoryReservation, RequestBody, decode_message, frame_message, receive_message, unary_response,
};
use proto_etcd::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};
use std::sync::Arc;
use tonic::Status;
use tonic::body::Body;
use tracing::Instrument;

/// Handles a call.
pub(crate) async fn respond_unary<B: RequestBody>(
    core: Arc<ServerContext>,
    method: Method,
    request: Request<B>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let call = Call::from_path(parts.uri.path());
    let end = CallEnd::new(&*core.metrics, call);
    let span = tracing::debug_span!("call", method = call.path());
    let mut received = Bytes::new();
    let (result, notes) =
        slow_request::track_phases(execute_call(&core, method, parts, body, &mut received))
            .instrument(span)
            .await;
    let code = result
        .as_ref()
        .map_or_else(Status::code, |_| tonic::Code::Ok);
    slow_request::report_slow(core.bounds.slow, call, notes, code, || {
        request_summary::summarize_call(method, &received, result.as_ref().ok())
    });
    // Counted before the response is sent, so that a client which sees its answer also finds it in
    // the metrics.
    end.finish(code);
    match result {
        Ok(message) => unary_response(&core.traffic, message),
        Err(status) => status.into_http(),
    }
}

/// Executes a call. `received` is set to the request's message, for the slow-request log.
async fn execute_call(
    core: &ServerContext,
    method: Method,
    parts: Parts,
    body: impl RequestBody,
    received: &mut Bytes,
) -> Result<Bytes, Status> {
    // Reserved until the request is executed.
    let mut held = MemoryReservation::for_request(&core.traffic, &parts.extensions);
    let message = receive_message(&core.traffic, &mut held, body).await?;
    slow_request::record_phase(Phase::Received);
    // A reference count, not a copy. The text is only made for slow requests.
    *received = message.clone();
    // After the message has arrived: a token that expires during a slow upload must not be
    // accepted.
    let caller = core.http_caller(parts)?;
    match method {
        // The only response that can be large, so its records are copied without decoding.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::method::unary_method;

    #[test]
    fn uncompressed_calls_of_four_methods_take_the_fast_path() {
        for (path, encoding, expect) in [
            ("/etcdserverpb.KV/Range", None, Some(Method::Range)),
            ("/etcdserverpb.KV/Put", Some("identity"), Some(Method::Put)),
            ("/etcdserverpb.KV/Txn", None, Some(Method::Txn)),
            (
                "/etcdserverpb.KV/DeleteRange",
                None,
                Some(Method::DeleteRange),
            ),
            ("/etcdserverpb.KV/Put", Some("gzip"), None),
            ("/etcdserverpb.KV/Compact", None, None),
            ("/etcdserverpb.KV/Range/", None, None),
        ] {
            let mut request = Request::post(path);
            if let Some(encoding) = encoding {
                request = request.header("grpc-encoding", encoding);
            }
            let request = request.body(()).unwrap();
            assert_eq!(unary_method(&request), expect, "{path} {encoding:?}");
        }
    }
}
