//! Dispatches gRPC calls: to the hand-written path, or to tonic's routes for all others.

use crate::call_end::CallEnd;
use crate::context::{ServerContext, bearer_token};
use crate::method::unary_method;
use crate::metrics::{Call, StoreMetrics};
use crate::required_leader::{LeaderLoss, find_leader_loss, no_leader};
use crate::services::{lease, watch};
use crate::slow_request;
use crate::unary;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use kv_transport::{ClientTraffic, LimitedBody, MemoryReservation, RequestBody, is_compressed};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;
use tracing::Instrument;

/// Handles a gRPC call.
pub fn grpc_request<B: RequestBody>(
    routes: &Routes,
    core: &Arc<ServerContext>,
    request: Request<B>,
) -> BoxFuture<'static, Response<Body>> {
    let login =
        // Without auth, a leftover token of a client must not delay its requests.
        bearer_token(request.headers()).filter(|_| core.machine.with_auth(|auth| auth.enabled));
    let answer = grpc_answer(routes, core.clone(), request);
    let Some(token) = login else { return answer };
    let core = core.clone();
    Box::pin(async move {
        // The client may log in at one member and send its next request to another.
        core.login_applied(&token).await;
        answer.await
    })
}

/// Returns a future of its own for each kind of call. A single future for all kinds would have the
/// size of the largest, and the frequent small ones would be moved at that size.
fn grpc_answer<B: RequestBody>(
    routes: &Routes,
    core: Arc<ServerContext>,
    request: Request<B>,
) -> BoxFuture<'static, Response<Body>> {
    let loss = match find_leader_loss(&core, request.headers(), request.uri().path()) {
        Ok(loss) => loss,
        Err(status) => return Box::pin(reject_call(core, request.uri().path(), status)),
    };
    if let Some(method) = unary_method(&request) {
        return Box::pin(unary::respond_unary(core, method, request));
    }
    // Compressed streams go to tonic, which rejects them.
    let by_hand = match request.uri().path() {
        _ if is_compressed(request.headers()) => None,
        watch::PATH => Some(watch::handle_watch as StreamHandler<B>),
        lease::PATH => Some(lease::keep_alive as StreamHandler<B>),
        _ => None,
    };
    let Some(streamed) = by_hand else {
        return Box::pin(route_request(routes.clone(), core, request, loss));
    };
    Box::pin(async move {
        let end = CallEnd::new(core.metrics.clone(), Call::from_path(request.uri().path()));
        watch_response(
            core.traffic.clone(),
            end,
            loss,
            streamed(&core, request).unwrap_or_else(Status::into_http),
        )
    })
}

/// Responds to a call with an error, and counts it.
fn reject_call(
    core: Arc<ServerContext>,
    path: &str,
    status: Status,
) -> std::future::Ready<Response<Body>> {
    CallEnd::new(&*core.metrics, Call::from_path(path)).finish(status.code());
    std::future::ready(status.into_http())
}

/// Handles a call with tonic's routes.
async fn route_request<B: RequestBody>(
    routes: Routes,
    core: Arc<ServerContext>,
    request: Request<B>,
    loss: Option<LeaderLoss>,
) -> Response<Body> {
    // Counted before routing, so that calls of unknown methods are counted too.
    let end = CallEnd::new(core.metrics.clone(), Call::from_path(request.uri().path()));
    // Not recorded unless debug logs are enabled.
    let span = tracing::debug_span!("call", method = request.uri().path());
    let traffic = core.traffic.clone();
    let held = MemoryReservation::for_request(&traffic, request.extensions());
    let routed = routes
        .oneshot(request.map(|body| Body::new(LimitedBody::new(traffic.clone(), held, body))));
    // Routing can't fail: an unknown method gets a response as well.
    let (Ok(response), notes) = slow_request::track_phases(routed).instrument(span).await;
    // A stream or a lock that waits for an event is slow by design and must not fill the log.
    if let Some(call) = end.call().filter(|call| call.is_prompt()) {
        let code = response.headers().get("grpc-status");
        let code = code.map_or(tonic::Code::Ok, |code| {
            tonic::Code::from_bytes(code.as_bytes())
        });
        slow_request::report_slow(core.bounds.slow, call, notes, code, String::new);
    }
    watch_response(core.traffic.clone(), end, loss, response)
}

/// Handler of a streaming call.
type StreamHandler<B> = fn(&Arc<ServerContext>, Request<B>) -> Result<Response<Body>, Status>;

fn watch_response(
    traffic: Arc<ClientTraffic>,
    end: CallEnd<Arc<StoreMetrics>>,
    loss: Option<LeaderLoss>,
    response: Response<Body>,
) -> Response<Body> {
    // A response without a body has its status in the headers (gRPC's Trailers-Only).
    if let Some(code) = response.headers().get("grpc-status") {
        let code = tonic::Code::from_bytes(code.as_bytes());
        end.finish(code);
        return response;
    }
    response.map(|body| {
        Body::new(WatchedBody {
            body,
            traffic,
            end,
            loss,
        })
    })
}

/// A response body that counts bytes and records the status of the call.
struct WatchedBody {
    body: Body,
    traffic: Arc<ClientTraffic>,
    end: CallEnd<Arc<StoreMetrics>>,
    /// Completes when the call must end for want of a leader.
    loss: Option<LeaderLoss>,
}

impl WatchedBody {
    /// Ends the call for want of a leader.
    fn end_leaderless(&mut self) -> Result<Frame<Bytes>, Status> {
        self.loss = None;
        // Ends the work for this stream.
        self.body = Body::empty();
        let status = no_leader();
        self.end.count(status.code());
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if let Some(loss) = &mut self.loss
            && loss.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(self.end_leaderless()));
        }
        let frame = task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.traffic.count_sent(data.len());
                }
                if let Some(code) = frame
                    .trailers_ref()
                    .and_then(|trailers| trailers.get("grpc-status"))
                {
                    let code = tonic::Code::from_bytes(code.as_bytes());
                    self.end.count(code);
                }
            }
            // hyper resets the stream then, and the client sees no status.
            Some(Err(_)) => self.end.count(tonic::Code::Unknown),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_hand_written_streams_are_methods_of_the_metrics() {
        for path in [watch::PATH, lease::PATH] {
            let call = Call::from_path(path);
            assert_eq!((call.path(), call.kind()), (path, "bidi_stream"));
        }
    }
}
