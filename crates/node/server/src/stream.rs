//! Streams (exec, attach, port-forward): forwards the client's upgrade to the runtime's own
//! streaming server, then copies bytes in both directions. So every protocol of the runtime works
//! (SPDY, WebSocket up to v4).
//!
//! A WebSocket subprotocol that the runtime does not support is rejected before anything starts;
//! clients then fall back.

use crate::backend::Failure;
use crate::reply::{Body, Reply, full_body};
use base_task::Tasks;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use url::Url;

// v5, with which a client can close its input, is known to newer runtimes only.
const SUPPORTED_PROTOCOLS: [&str; 8] = [
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v3.channel.k8s.io",
    "v3.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v2.channel.k8s.io",
    "",
];

/// Rejects WebSocket subprotocols that only newer runtimes support.
pub(crate) fn reject_unknown_protocols<B>(request: &Request<B>) -> Result<(), Failure> {
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|h| h.to_str().ok())
            .unwrap_or_default()
    };
    let upgrade = header("upgrade").to_ascii_lowercase();
    if upgrade.is_empty() {
        return Err(Failure::bad_request("Upgrade request required"));
    }
    if upgrade != "websocket" {
        return Ok(());
    }
    let offered = header("sec-websocket-protocol");
    if offered
        .split(',')
        .map(str::trim)
        .any(|p| SUPPORTED_PROTOCOLS.contains(&p))
    {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::FORBIDDEN,
        format!("unable to upgrade: unsupported protocols {offered:?}"),
    ))
}

/// Forwards the request to the runtime's server at `url`.
pub(crate) async fn forward_stream(
    url: &str,
    mut request: Request<Incoming>,
    tasks: &Tasks,
) -> Result<Reply, Failure> {
    let url = Url::parse(url).map_err(|e| bad_gateway(format!("the runtime's URL: {e}")))?;
    let host = url.host_str().unwrap_or("127.0.0.1").to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|e| bad_gateway(e.to_string()))?;
    // Keystrokes of a terminal are single bytes; Nagle's algorithm would delay each.
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| bad_gateway(e.to_string()))?;
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_isolated("connection to the runtime", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            ended = connection.with_upgrades() => {
                if let Err(e) = ended {
                    tracing::debug!(error = %e, "connection to the runtime ended with an error");
                }
            }
        }
    });
    let response = sender
        .send_request(build_outgoing(&url, &host, port, &request)?)
        .await
        .map_err(|e| bad_gateway(e.to_string()))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return relay_rejection(response).await;
    }
    // The headers choose the subprotocol, so the client must get those of the runtime.
    let headers = response.headers().clone();
    // Completes only after the response below was sent; hence the task.
    let client = hyper::upgrade::on(&mut request);
    let runtime = hyper::upgrade::on(response);
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_isolated("stream", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = relay_bytes(client, runtime) => {}
        }
    });
    let mut response = Response::new(full_body(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Copies bytes in both directions until one side closes.
async fn relay_bytes(client: OnUpgrade, runtime: OnUpgrade) {
    match tokio::try_join!(client, runtime) {
        Ok((client, runtime)) => {
            let (mut client, mut runtime) = (TokioIo::new(client), TokioIo::new(runtime));
            // A broken connection ends the stream like a closed one.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut runtime).await;
        }
        Err(e) => tracing::debug!(error = %e, "a stream could not be upgraded"),
    }
}

fn bad_gateway(why: String) -> Failure {
    Failure::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("error dialing the runtime: {why}"),
    )
}

fn build_outgoing<B>(
    url: &Url,
    host: &str,
    port: u16,
    request: &Request<B>,
) -> Result<Request<Empty<Bytes>>, Failure> {
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let mut out = Request::builder()
        .method(request.method().clone())
        .uri(path)
        .body(Empty::new())
        .map_err(|e| bad_gateway(e.to_string()))?;
    let mut headers: HeaderMap = request.headers().clone();
    // The client's credentials are for the kubelet; the runtime must not get them.
    for name in [
        http::header::AUTHORIZATION,
        http::header::COOKIE,
        CONTENT_LENGTH,
        HOST,
    ] {
        headers.remove(name);
    }
    if let Ok(value) = format!("{host}:{port}").parse() {
        headers.insert(HOST, value);
    }
    *out.headers_mut() = headers;
    Ok(out)
}

/// Returns a response other than an upgrade to the client, and closes the connection.
async fn relay_rejection(response: Response<Incoming>) -> Result<Reply, Failure> {
    let (mut parts, incoming) = response.into_parts();
    let data = Limited::new(incoming, 64 * 1024)
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    // A redirect would lead the client to the runtime's port on the node's loopback.
    if parts.status.is_success() || parts.status.is_redirection() {
        return Err(bad_gateway(format!(
            "the runtime answered {}",
            parts.status
        )));
    }
    for name in [
        UPGRADE,
        CONNECTION,
        CONTENT_LENGTH,
        http::header::TRANSFER_ENCODING,
    ] {
        parts.headers.remove(name);
    }
    let body: Body = full_body(data);
    Ok(Response::from_parts(parts, body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::post("/exec/ns/p/c?command=sh");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    #[test]
    fn stream_needs_an_upgrade_to_a_protocol_of_the_runtime() {
        let websocket = |protocols| {
            [
                ("Upgrade", "websocket"),
                ("Sec-WebSocket-Protocol", protocols),
            ]
        };
        for (headers, status) in [
            (&[][..], Some(400)),
            (&[("Upgrade", "SPDY/3.1")][..], None),
            (&websocket("v4.channel.k8s.io")[..], None),
            (&websocket("v5.channel.k8s.io, v4.channel.k8s.io")[..], None),
            (&websocket("v5.channel.k8s.io")[..], Some(403)),
            (&[("Upgrade", "WebSocket")][..], None),
        ] {
            let rejected = reject_unknown_protocols(&request(headers)).err();
            assert_eq!(rejected.map(|f| f.status.as_u16()), status, "{headers:?}");
        }
    }

    /// The runtime's streaming server is another party: a token of the client would let it act as
    /// that client.
    #[test]
    fn credentials_of_the_client_do_not_reach_the_runtime() {
        let url = Url::parse("http://127.0.0.1:4000/exec/token?x=1").unwrap();
        let incoming = request(&[
            ("Authorization", "Bearer secret"),
            ("Cookie", "session=secret"),
            ("Host", "node:10250"),
            ("Upgrade", "SPDY/3.1"),
        ]);
        let outgoing = build_outgoing(&url, "127.0.0.1", 4000, &incoming).unwrap();
        assert_eq!(outgoing.uri(), "/exec/token?x=1");
        assert_eq!(outgoing.method(), http::Method::POST);
        let headers = outgoing.headers();
        assert_eq!(headers.get(HOST).unwrap(), "127.0.0.1:4000");
        assert_eq!(headers.get(UPGRADE).unwrap(), "SPDY/3.1");
        assert!(!format!("{headers:?}").contains("secret"));
    }
}
