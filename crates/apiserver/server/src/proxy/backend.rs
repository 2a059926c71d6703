//! Sends one request to a backend; returns its response or its upgraded connection.

use super::rewrite::{Links, quote_path};
use crate::body::{Body, BodyError, stream_body};
use crate::connect::{self, ConnectError, Target};
use crate::context::Context;
use api_meta::{ApiError, Reason};
use apiserver_webhook_client::describe_tls;
use base_task::Tasks;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// Maximum number of bytes of a forwarded error body.
const REFUSAL: usize = 64 * 1024;

/// Header with the client's address.
pub const FORWARDED_FOR: &str = "x-forwarded-for";

/// Headers that are not forwarded: hop-by-hop headers, credentials and `Host`, which is replaced.
const DROPPED: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "authorization",
    "host",
];

/// Forwards the request and returns the response.
pub async fn forward_request(
    tasks: &Tasks,
    context: &Context,
    target: Target,
    body: Incoming,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    // One connection per request: backends are many, and an upgraded connection can't be reused.
    let mut sender = dial_target(tasks, &target).await?;
    let request = backend_request(context, &target, body, upgrade.is_some())?;
    let mut response = sender
        .send_request(request)
        .await
        .map_err(|e| broken_error(&target, &e))?;
    if let (Some(client), StatusCode::SWITCHING_PROTOCOLS) = (upgrade, response.status()) {
        let backend = hyper::upgrade::on(&mut response);
        // The request is complete for the audit when the stream ends.
        let record = context.audit.clone();
        tasks.spawn_isolated("proxied stream", async move {
            let _record = record;
            splice_streams(client, backend).await;
        });
        let (parts, _) = response.into_parts();
        return Ok(Response::from_parts(parts, crate::body::full_body("")));
    }
    // Only the answer to an upgrade. Without one, a proxy in front of this server could take
    // further bytes of its connection for those of another protocol.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let error = std::io::Error::other("unexpected switch of protocols");
        return Err(broken_error(&target, &error));
    }
    // A kubelet's error is plain text, but clients of this API expect a Status.
    let is_log = context.info.subresource == "log" && target.extension.is_none();
    if is_log && !response.status().is_success() {
        return Err(upgrade_error(response).await);
    }
    let (mut parts, body) = response.into_parts();
    // Hop-by-hop headers describe the backend's connection, not the client's.
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        parts.headers.remove(name);
    }
    let response = Response::from_parts(parts, body);
    let response = match page_links(context, &target) {
        Some(links) => links.rewrite_response(response),
        None => response.map(|body| stream_body(body.map_err(|e| Box::new(e) as BodyError), 0)),
    };
    // hyper closes the connection when its sender is dropped, so the sender lives as long as the
    // body.
    Ok(response.map(|body| {
        let body = body.map_frame(move |frame| {
            let _ = &sender;
            frame
        });
        stream_body(body, 0)
    }))
}

/// Returns how to rewrite links: for proxies only, and not for HEAD, whose response has no body.
fn page_links(context: &Context, target: &Target) -> Option<Links> {
    let info = &context.info;
    let rewrites =
        info.subresource == "proxy" && context.method != Method::HEAD && target.extension.is_none();
    let prefix = context
        .raw_path
        .strip_suffix(&info.rest)
        .unwrap_or(&context.raw_path);
    let client = context.header("host").to_owned();
    rewrites.then(|| Links {
        prefix: quote_path(prefix),
        backend: target.address(),
        client,
    })
}

/// Opens a connection to the backend for one request.
pub async fn dial_target<B>(
    tasks: &Tasks,
    target: &Target,
) -> Result<http1::SendRequest<B>, ApiError>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BodyError>,
{
    let io = connect::open_connection(target)
        .await
        .map_err(|e| unreachable_error(target, &e))?;
    let (sender, connection) = http1::handshake(TokioIo::new(io))
        .await
        .map_err(|e| broken_error(target, &e))?;
    tasks.spawn_isolated("connection to a backend", async move {
        // An error also ends the response body, where the client sees it.
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}

fn backend_request(
    context: &Context,
    target: &Target,
    body: Incoming,
    upgrades: bool,
) -> Result<Request<Incoming>, ApiError> {
    let mut request = Request::builder()
        .method(context.method.clone())
        .uri(&target.path)
        .body(body);
    if let Ok(request) = &mut request {
        *request.headers_mut() = backend_headers(context, target, upgrades);
    }
    request.map_err(|_| ApiError::bad_request("the path can't be passed on"))
}

fn backend_headers(context: &Context, target: &Target, upgrades: bool) -> HeaderMap {
    // Contains no credentials: they were removed when the request was read.
    let mut headers = HeaderMap::new();
    for (name, value) in context
        .headers
        .iter()
        .filter(|(name, _)| !DROPPED.contains(&name.as_str()))
    {
        // Appended, because a header may occur several times, such as cookies of HTTP/2.
        headers.append(name.clone(), value.clone());
    }
    // The client's Host names this server, which means nothing to a backend with virtual hosts.
    if let Ok(value) = HeaderValue::from_str(&target.address()) {
        headers.insert(HOST, value);
    }
    if let Some(peer) = &context.peer
        && let Ok(value) = HeaderValue::from_str(&peer.addr.ip().to_string())
    {
        // Appended: earlier proxies may have added theirs.
        headers.append(FORWARDED_FOR, value);
    }
    if let Some(extension) = &target.extension {
        // The client's own headers of these names were removed by authentication.
        headers.extend(extension.identity.clone());
    }
    // Both headers are per connection and were dropped above; this connection needs its own.
    if let (true, Some(protocol)) = (upgrades, context.headers.get(UPGRADE)) {
        headers.insert(UPGRADE, protocol.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    headers
}

/// Converts a kubelet's error, which is plain text, into a Status.
pub async fn upgrade_error(response: Response<Incoming>) -> ApiError {
    let status = response.status();
    // A backend that sends an endless error must not fill the memory.
    let body = Limited::new(response.into_body(), REFUSAL)
        .collect()
        .await
        .map(|body| body.to_bytes());
    let text = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError::new(Reason::NotFound, text),
        _ => ApiError::new(
            Reason::InternalError,
            format!("Internal error occurred: {text}"),
        ),
    }
}

/// Copies bytes in both directions until both sides are done.
async fn splice_streams(client: OnUpgrade, backend: OnUpgrade) {
    let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else {
        return;
    };
    let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
    // Either side may close at any time; there is no receiver for an error.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
}

/// Builds a 503, or a 400 for an address that is not allowed.
pub fn unreachable_error(target: &Target, error: &ConnectError) -> ApiError {
    let address = target.address();
    tracing::debug!(address, %error, "a backend could not be reached");
    match error {
        ConnectError::NotAllowed => ApiError::bad_request(error.to_string()),
        ConnectError::Io(error) => match &target.extension {
            Some(extension) => {
                let why = describe_tls(error, &extension.server_name);
                broken_error(target, &std::io::Error::other(why))
            }
            None => broken_error(target, error),
        },
    }
}

/// Builds a 503 for a broken connection.
pub fn broken_error(target: &Target, error: &dyn std::error::Error) -> ApiError {
    let text = format!(
        "error trying to reach service: dial tcp {}: {error}",
        target.address()
    );
    ApiError::new(Reason::ServiceUnavailable, text)
}
