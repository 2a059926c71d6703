//! One request to a backend, and its answer or its upgraded connection back.

use super::connect::{self, Target};
use crate::body::{Body, BodyError};
use crate::context::Context;
use api_meta::{ApiError, Reason};
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// Bytes of a refusal that are passed on.
const REFUSAL: usize = 64 * 1024;

/// Says who the client is.
pub const FORWARDED_FOR: &str = "x-forwarded-for";

/// Headers of one connection only, or that say who the client is.
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

/// Sends the request on and brings the answer back.
pub async fn forward(
    context: &Context,
    target: Target,
    body: Incoming,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    let mut sender = dial(&target).await?;
    let request = request(context, &target, body, upgrade.is_some())?;
    let mut response = sender.send_request(request).await.map_err(|e| unreachable(&target, &e))?;
    if let (Some(client), StatusCode::SWITCHING_PROTOCOLS) = (upgrade, response.status()) {
        tokio::spawn(splice(client, hyper::upgrade::on(&mut response)));
        let (parts, _) = response.into_parts();
        return Ok(Response::from_parts(parts, crate::body::full("")));
    }
    if context.info.subresource == "log" && !response.status().is_success() {
        return Err(refused(response).await);
    }
    let (mut parts, body) = response.into_parts();
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        parts.headers.remove(name);
    }
    // The connection lives as long as its sender.
    let body = body.map_frame(move |frame| {
        let _ = &sender;
        frame
    });
    Ok(Response::from_parts(parts, body.map_err(|e| Box::new(e) as BodyError).boxed_unsync()))
}

/// A connection to the backend for one request.
pub async fn dial<B>(target: &Target) -> Result<http1::SendRequest<B>, ApiError>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BodyError>,
{
    let io = connect::open(target).await.map_err(|e| unreachable(target, &e))?;
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(|e| unreachable(target, &e))?;
    tokio::spawn(async move {
        // An error ends the answer's body, which is where the client sees it.
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}

fn request(context: &Context, target: &Target, body: Incoming, upgrades: bool) -> Result<Request<Incoming>, ApiError> {
    let mut request = Request::builder().method(context.method.clone()).uri(&target.path).body(body);
    if let Ok(request) = &mut request {
        *request.headers_mut() = headers(context, target, upgrades);
    }
    request.map_err(|_| ApiError::bad_request("the path can't be passed on"))
}

fn headers(context: &Context, target: &Target, upgrades: bool) -> HeaderMap {
    let keep = |name: &HeaderName| {
        let name = name.as_str();
        !DROPPED.contains(&name) && !name.starts_with("impersonate-") && !name.starts_with("x-remote-")
    };
    let mut headers: HeaderMap = context
        .headers
        .iter()
        .filter(|(name, _)| keep(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // A map of headers built from an iterator keeps one value a name; protocols come as several.
    for name in ["sec-websocket-protocol", "x-stream-protocol-version"] {
        headers.remove(name);
        for value in context.headers.get_all(name) {
            if let Ok(name) = HeaderName::try_from(name)
                && !value.as_bytes().starts_with(b"base64url.bearer.authorization.k8s.io.")
            {
                headers.append(name, value.clone());
            }
        }
    }
    if let Ok(value) = HeaderValue::from_str(&target.address) {
        headers.insert(HOST, value);
    }
    if let Some(peer) = &context.peer
        && let Ok(value) = HeaderValue::from_str(&peer.addr.ip().to_string())
    {
        headers.append(FORWARDED_FOR, value);
    }
    if let (true, Some(protocol)) = (upgrades, context.headers.get(UPGRADE)) {
        headers.insert(UPGRADE, protocol.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    headers.remove(AUTHORIZATION);
    headers
}

/// A kubelet refuses in plain words: clients get them as a Status.
pub async fn refused(response: Response<Incoming>) -> ApiError {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL).collect().await.map(|body| body.to_bytes());
    let text = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError::new(Reason::NotFound, text),
        _ => ApiError::new(Reason::InternalError, format!("Internal error occurred: {text}")),
    }
}

/// Copies both ways until both sides are done.
async fn splice(client: OnUpgrade, backend: OnUpgrade) {
    let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
    let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
    // Either end may break off at any time; there is nobody left to tell.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
}

pub fn unreachable(target: &Target, error: &dyn std::error::Error) -> ApiError {
    tracing::debug!(address = target.address, error = %error, "a backend could not be reached");
    let text = format!("error trying to reach service: dial tcp {}: {error}", target.address);
    ApiError::new(Reason::ServiceUnavailable, text)
}
