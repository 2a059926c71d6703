//! WebSocket protocols that kubelets don't support: the server speaks SPDY to the kubelet and
//! translates.

use super::backend::{FORWARDED_FOR, broken_error, dial_target, upgrade_error};
use crate::body::Body;
use crate::connect::Target;
use crate::context::Context;
use api_meta::ApiError;
use apiserver_streams::{Protocol, Reader, Streams, accept_upgrade, relay_streams, send_stream};
use base_task::Tasks;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// A stream between a client and a kubelet that have no protocol in common.
pub struct Session {
    /// The kubelet.
    pub target: Target,
    /// The client's protocol.
    pub protocol: Protocol,
    /// The streams that the kubelet opens.
    pub streams: Streams,
}

/// Opens the kubelet's side first, so that its errors become plain HTTP responses; then accepts the
/// client's upgrade.
pub async fn translate_upgrade(
    tasks: &Tasks,
    context: &Context,
    session: Session,
    client: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    let Session {
        target,
        protocol,
        streams,
    } = session;
    // Before the kubelet is dialed: no command may start for a client that can't be accepted.
    let Some((status, headers)) = accept_upgrade(&context.headers, Some(protocol.subprotocol()))
    else {
        return Err(ApiError::bad_request(
            "the header Sec-WebSocket-Key is missing",
        ));
    };
    let mut sender = dial_target(tasks, &target).await?;
    let request = upgrade_request(context, &target, protocol)?;
    let mut response = sender
        .send_request(request)
        .await
        .map_err(|e| broken_error(&target, &e))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(upgrade_error(response).await);
    }
    let upstream = hyper::upgrade::on(&mut response);
    // The request is complete for the audit when the stream ends.
    let record = context.audit.clone();
    tasks.spawn_isolated("translated stream", async move {
        let _record = record;
        let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
            return;
        };
        relay_streams(
            protocol,
            streams,
            TokioIo::new(client),
            TokioIo::new(upstream),
        )
        .await;
    });
    let mut response = Response::new(crate::body::full_body(""));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Requests a log from the kubelet in plain HTTP and sends it to the client in WebSocket messages.
pub async fn send_log(
    tasks: &Tasks,
    context: &Context,
    target: Target,
    reader: Reader,
    client: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    let missing = || ApiError::bad_request("the header Sec-WebSocket-Key is missing");
    let (status, headers) =
        accept_upgrade(&context.headers, reader.subprotocol()).ok_or_else(missing)?;
    let mut sender = dial_target(tasks, &target).await?;
    let request = to_kubelet(context, &target, Method::GET).body(Empty::<Bytes>::new());
    let request = request.map_err(|_| ApiError::bad_request("the path can't be passed on"))?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| broken_error(&target, &e))?;
    if !response.status().is_success() {
        return Err(upgrade_error(response).await);
    }
    let record = context.audit.clone();
    tasks.spawn_isolated("log over a WebSocket", async move {
        let _record = record;
        // hyper closes the kubelet's connection when its sender is dropped.
        let _sender = sender;
        if let Ok(client) = client.await {
            send_stream(
                reader,
                TokioIo::new(client),
                response.into_body().into_data_stream(),
            )
            .await;
        }
    });
    let mut response = Response::new(crate::body::full_body(""));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Ok(response)
}

fn to_kubelet(context: &Context, target: &Target, method: Method) -> http::request::Builder {
    let request = Request::builder()
        .method(method)
        .uri(&target.path)
        .header(HOST, target.address());
    match &context.peer {
        Some(peer) => request.header(FORWARDED_FOR, peer.addr.ip().to_string()),
        None => request,
    }
}

fn upgrade_request(
    context: &Context,
    target: &Target,
    protocol: Protocol,
) -> Result<Request<Empty<Bytes>>, ApiError> {
    let request = to_kubelet(context, target, Method::POST)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header("x-stream-protocol-version", protocol.kubelet_protocol());
    request
        .body(Empty::new())
        .map_err(|_| ApiError::bad_request("the path can't be passed on"))
}
