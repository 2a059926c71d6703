//! WebSockets of clients that kubelets don't speak: the kubelet is asked for SPDY, and what is said is translated.

use super::backend::{FORWARDED_FOR, dial, refused, unreachable};
use super::connect::Target;
use crate::body::Body;
use crate::context::Context;
use api_meta::ApiError;
use apiserver_streams::{Protocol, Streams, accept, relay};
use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// Opens the kubelet's side first, so that what it refuses is answered in plain HTTP; then accepts the client's.
pub async fn translate(
    context: &Context,
    target: Target,
    protocol: Protocol,
    client: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    let Some((status, headers)) = accept(&context.headers, protocol) else {
        return Err(ApiError::bad_request("the header Sec-WebSocket-Key is missing"));
    };
    let mut sender = dial(&target).await?;
    let request = request(context, &target, protocol)?;
    let mut answer = sender.send_request(request).await.map_err(|e| unreachable(&target, &e))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(answer).await);
    }
    let upstream = hyper::upgrade::on(&mut answer);
    let flag = |name| context.query.flag(name);
    let streams = Streams { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr"), tty: flag("tty") };
    tokio::spawn(async move {
        let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else { return };
        relay(protocol, streams, TokioIo::new(client), TokioIo::new(upstream)).await;
    });
    let mut response = Response::new(crate::body::full(""));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

fn request(context: &Context, target: &Target, protocol: Protocol) -> Result<Request<Empty<Bytes>>, ApiError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&target.path)
        .header(HOST, &target.address)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header("x-stream-protocol-version", protocol.upstream());
    if let Some(peer) = &context.peer {
        request = request.header(FORWARDED_FOR, peer.addr.ip().to_string());
    }
    request.body(Empty::new()).map_err(|_| ApiError::bad_request("the path can't be passed on"))
}
