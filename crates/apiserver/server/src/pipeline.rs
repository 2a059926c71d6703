//! The handler chain: request info, authentication, audit, impersonation, concurrency limit, flow
//! classification, authorization, then the handler of the path (admission and the registry follow
//! inside writes).

use crate::audit;
use crate::authorize::{authorize_and_annotate, authorize_verb, opens_stream, request_attributes};
use crate::body::{Body, Payload, omit_body};
use crate::context::Context;
use crate::durations::parse_duration;
use crate::exempt::is_long_running;
use crate::request_info::BadPath;
use crate::server::Server;
use crate::{audit_record, credentials, impersonate, respond, route};
use api_meta::{ApiError, Reason};
use apiserver_request::User;
use futures::FutureExt;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum time for sending a response.
const LEAST_SENDING: Duration = Duration::from_secs(1);

/// Handles a request. The response to HEAD has no body.
pub async fn handle_request(server: Arc<Server>, request: Request<Incoming>) -> Response<Body> {
    let is_head = request.method() == Method::HEAD;
    let is_http1 = request.version() <= Version::HTTP_11;
    let stopping = server.stopping.clone();
    let mut response = respond_to(server, request).await;
    if is_http1 && stopping.is_cancelled() {
        leave_connection(&mut response);
    }
    if is_head {
        omit_body(response)
    } else {
        response
    }
}

/// Tells an HTTP/1 client to send its next request on another connection. HTTP/2 clients get GOAWAY
/// at the end, but an HTTP/1 connection that is closed while a request arrives fails that request.
fn leave_connection(response: &mut Response<Body>) {
    // An upgraded connection is no longer HTTP/1.
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

/// Runs the handler chain, and counts the request.
async fn respond_to(server: Arc<Server>, mut request: Request<Incoming>) -> Response<Body> {
    let begun = Instant::now();
    // Taken now: `into_parts` below consumes the request, and with it the upgrade.
    let upgrade = request
        .headers()
        .contains_key("upgrade")
        .then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let mut context = match Context::new(parts) {
        Ok(context) => context,
        Err(bad) => return reject_path(&bad),
    };
    let short = server.inflight.short.begin_request(&context.info);
    // Before authentication, so that rejected requests are counted, too.
    let guard = server.metrics.begin_request(&context);
    // Not read yet: the handler decides whether to buffer the body or to stream it, and neither
    // happens for a request that is not authorized.
    let mut payload = Payload::new(body);
    context.annotations = server.audit.as_ref().map(|_| Default::default());
    let annotations = context.annotations.clone();
    let work = recover_panic(run_in_time(&server, &mut context, &mut payload, upgrade));
    let result = audit::collect_annotations(annotations, work).await;
    let response = match result {
        Ok(response) => response,
        Err(Failure::Error(error)) => reject_request(&context, &error),
        Err(Failure::Panic(error)) => {
            let response = reject_request(&context, &error);
            audit::audit_panic(&mut context).await;
            response
        }
    };
    let response = respond::with_warnings(response, &context.warnings.take());
    let mut response = count_response(&server, &context, response);
    if let Some(flow) = &context.flow {
        // Errors are marked, too: a rejected request was classified before its authorization.
        flow.mark_response(&mut response);
    }
    let audit_id = context.audit_id.clone();
    response.headers_mut().insert("audit-id", audit_id);
    let response = audit::conclude_audit(&mut context, response).await;
    // Before the response: a client that is still sending its body would see a reset connection
    // instead of the response.
    payload.discard_rest().await;
    server.metrics.end_request(
        guard,
        server.caches.served().resources(),
        &context,
        response.status().as_u16(),
        http_body::Body::size_hint(response.body()).exact(),
        begun.elapsed(),
    );
    limit_response(&server, &context, &response, begun);
    let sent = short.map(|request| server.inflight.short.begin_sending(request));
    response.map(|body| body.with_sent(sent))
}

/// Builds the response of a request that failed. A client that accepts no known form still gets its
/// error, in JSON.
fn reject_request(context: &Context, error: &ApiError) -> Response<Body> {
    audit_record::audit_error(context, error);
    respond::error_response(context.error_media_type(), error)
}

/// Counts the bytes of the body until they are sent.
fn count_response(server: &Server, context: &Context, response: Response<Body>) -> Response<Body> {
    let (info, user) = (&context.info, &context.user);
    let bytes = response.body().uncounted();
    // Requests in flight may have reached the limit meanwhile. A write is done, and its client must
    // learn that.
    let is_read = context.method == Method::GET && response.status().is_success();
    if bytes > 0
        && is_read
        && let Err(error) = server.response_budget.check(info, user)
    {
        return reject_request(context, &error);
    }
    match server.response_budget.count(user, bytes) {
        Some(counted) => response.map(|body| body.with_counted(counted)),
        None => response,
    }
}

/// Limits the time for sending the response to the rest of the request's: a client that does not
/// read would hold the response forever.
fn limit_response(server: &Server, context: &Context, response: &Response<Body>, begun: Instant) {
    // An upgraded connection ends with either side, like other streams.
    if is_long_running(&context.info) || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let limit = time_limit(server, context).unwrap_or(server.request_timeout);
    // A response that took all of the time is sent if the client reads at once.
    let rest = limit.saturating_sub(begun.elapsed()).max(LEAST_SENDING);
    base_serve::limit_sending(rest);
}

/// The failure of a request, with the error for the client.
#[derive(Debug)]
enum Failure {
    Error(ApiError),
    Panic(ApiError),
}

/// Turns a panic of a handler into a 500. Without this, the panic would end the connection, and on
/// HTTP/2 with it the requests of every other stream.
async fn recover_panic<T>(work: impl Future<Output = Result<T, ApiError>>) -> Result<T, Failure> {
    // A panic may leave shared state half changed; its locks do not poison. Upstream accepts this,
    // too, because ending the process would fail all requests for the fault of one.
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result.map_err(Failure::Error),
        Err(_) => {
            tracing::error!("a request panicked; the panic message is on standard error");
            Err(Failure::Panic(ApiError::internal(
                "this request caused the API server to panic; its log has the details",
            )))
        }
    }
}

/// Responds within the request timeout, or the client's if that is shorter.
async fn run_in_time(
    server: &Arc<Server>,
    context: &mut Context,
    body: &mut Payload,
    upgrade: Option<hyper::upgrade::OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    // Watches end by their own timeout, streams with either side.
    // On the heap: the layers around it move their futures, and this one has kilobytes.
    if is_long_running(&context.info) {
        return Box::pin(run_chain(server, context, body, upgrade)).await;
    }
    let limit = match time_limit(server, context) {
        Ok(limit) => limit,
        Err(error) => {
            audit::audit_unauthenticated(server, context, &error).await;
            return Err(error);
        }
    };
    let chain = Box::pin(run_chain(server, context, body, upgrade));
    match tokio::time::timeout(limit, chain).await {
        Ok(response) => response,
        Err(_) => Err(ApiError::new(
            Reason::Timeout,
            "the request did not complete within the allotted timeout",
        )),
    }
}

/// Returns the time limit of the request. The client may shorten the server's, but not extend it.
fn time_limit(server: &Server, context: &Context) -> Result<Duration, ApiError> {
    let requested = request_timeout(context)?.unwrap_or(server.request_timeout);
    Ok(requested.min(server.request_timeout))
}

/// Returns the timeout in the client's request.
fn request_timeout(context: &Context) -> Result<Option<Duration>, ApiError> {
    let requested = context.query.text("timeout");
    if requested.is_empty() {
        return Ok(None);
    }
    let invalid = |_| {
        ApiError::bad_request(format!(
            "invalid timeout specified in the request URL: {requested:?}"
        ))
    };
    parse_duration("timeout", requested)
        // Upstream reads 0 as no limit from the client; the server's limit applies.
        .map(|requested| Some(requested).filter(|requested| !requested.is_zero()))
        .map_err(invalid)
}

async fn run_chain(
    server: &Arc<Server>,
    context: &mut Context,
    body: &mut Payload,
    upgrade: Option<hyper::upgrade::OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    // The order is upstream's: the limit needs the user, and authorization comes last, because its
    // decision is about the impersonated user.
    context.user = authenticate_request(server, context).await?;
    audit::begin_audit(server, context).await?;
    if let Some(other) = impersonate::take_target(&mut context.headers)? {
        // From here on, every decision and every log is about the impersonated user.
        let switching = impersonate::switch_user(server, &context.user, other);
        context.user = Box::pin(switching).await?;
        audit_record::audit_impersonation(context);
    }
    server.response_budget.check(&context.info, &context.user)?;
    // Held until the response head is complete. Waiting requests hold no other resource.
    let _seat = server.inflight.acquire_seat(context).await?;
    let attributes = request_attributes(context);
    context.flow = server.flow.classify(&attributes);
    authorize_and_annotate(server, &attributes).await?;
    // Since 1.35, upstream also checks `create` for streams that begin with GET.
    if opens_stream(&context.info) && context.info.verb != "create" {
        Box::pin(authorize_verb(server, context, "create")).await?;
    }
    if context.info.is_resource {
        context.formats = server.formats;
    }
    route::dispatch_request(server, context, body, upgrade).await
}

async fn authenticate_request(server: &Server, context: &mut Context) -> Result<User, ApiError> {
    let credentials = credentials::take_credentials(context, &server.identity_headers);
    let identified = server
        .authn
        .identify(&context.info.path, &credentials)
        .await;
    server.metrics.count_authentication(identified.is_ok());
    match identified {
        Ok(user) => Ok(user),
        Err(error) => {
            tracing::debug!(%error, path = context.info.path, "a request is not authenticated");
            // The response does not say why: the reason would help to guess tokens.
            let error = ApiError::new(Reason::Unauthorized, "Unauthorized");
            audit::audit_unauthenticated(server, context, &error).await;
            Err(error)
        }
    }
}

fn reject_path(bad: &BadPath) -> Response<Body> {
    match bad {
        BadPath::Malformed => respond::text_response(400, "400 Bad Request"),
        // A redirect, so that the path which is authorized is always the one that is served.
        BadPath::Unclean(clean) => {
            let mut response = respond::text_response(301, "");
            if let Ok(value) = HeaderValue::from_str(clean) {
                response.headers_mut().insert("location", value);
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn panic_of_a_handler_becomes_an_internal_error() {
        let failed: Result<(), _> = recover_panic(async { panic!("secret detail") }).await;
        let Err(Failure::Panic(error)) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(error.code(), 500);
        assert!(!error.message.contains("secret detail"), "{error}");
        assert_eq!(recover_panic(async { Ok(7) }).await.unwrap(), 7);
    }
}
