//! Servers behind the gateway. Their responses show what they received.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base_task::Tasks;
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Returns an address of this machine that is not on loopback, where the gateway connects to no
/// endpoint. The connection of a datagram socket sends no packet.
pub(crate) fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

/// Starts a server that responds with its name, the request line, headers and body.
pub(crate) async fn start_server(name: &str, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (name, group) = (name.to_owned(), tasks.clone());
    tasks.spawn("server", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (name, inner) = (name.clone(), group.clone());
            group.spawn_isolated("connection", async move {
                let service = service_fn(|request| describe(name.clone(), inner.clone(), request));
                let server = hyper::server::conn::http1::Builder::new();
                let connection = server.serve_connection(TokioIo::new(stream), service);
                let _ = connection.with_upgrades().await;
            });
        }
    });
    address
}

/// Starts a server of HTTP/2 that responds with its name, the request, and trailers; below
/// `/endless` without an end. Each response says how many connections there were. A connection has
/// `streams` requests at a time.
pub(crate) async fn start_http2_server(name: &str, streams: u32, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (name, group) = (name.to_owned(), tasks.clone());
    tasks.spawn("server", async move {
        let mut count = 0;
        while let Ok((stream, _)) = listener.accept().await {
            count += 1;
            let name = format!("{name}\nconnection: {count}");
            group.spawn_isolated("connection", async move {
                let service = service_fn(|request| describe_http2(name.clone(), request));
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.max_concurrent_streams(streams);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// Starts a server that responds to each request at once and reads no body; of HTTP/2 if the
/// `appProtocol` is one of it.
pub(crate) async fn start_unread_server(protocol: &str, tasks: &Tasks) -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind((own_address(), 0).into()).unwrap();
    let listener = socket.listen(16).unwrap();
    let address = listener.local_addr().unwrap();
    let (group, is_http2) = (tasks.clone(), protocol != "http");
    tasks.spawn("server", async move {
        while let Ok((stream, _)) = listener.accept().await {
            group.spawn_isolated("connection", async move {
                let _ = match is_http2 {
                    true => respond_without_window(stream, b"").await,
                    false => respond_without_reading(stream).await,
                };
            });
        }
    });
    address
}

async fn respond_without_reading(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 1024];
    while stream.read(&mut request).await? > 0 {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(response).await?;
        if request.starts_with(b"POST") {
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

/// Starts a server of HTTP/2 that takes no further request of a connection after its first one.
/// `open` is the number of its connections.
pub(crate) async fn start_single_use_server(open: &Arc<AtomicUsize>, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (group, open) = (tasks.clone(), open.clone());
    tasks.spawn("server", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let open = open.clone();
            open.fetch_add(1, Ordering::Relaxed);
            group.spawn_isolated("connection", async move {
                // SETTINGS: the limit of concurrent streams (number 3) is 0.
                let limit = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\0";
                let _ = respond_without_window(stream, limit).await;
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    address
}

/// Speaks HTTP/2 (RFC 9113) without a window for bodies. Sends `more` frames after each response.
async fn respond_without_window(mut stream: TcpStream, more: &[u8]) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?;
    // The initial window of streams (number 4) has no bytes.
    let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
    stream.write_all(settings).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream_id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        let reply = match (kind, flags & 1) {
            // HEADERS: the status 200 (entry 8 of the static table), and the end of the stream.
            (1, _) => [b"\0\0\x01\x01\x05".as_slice(), &stream_id, b"\x88", more].concat(),
            // SETTINGS and PING are acknowledged.
            (4, 0) => b"\0\0\0\x04\x01\0\0\0\0".to_vec(),
            (6, 0) => [b"\0\0\x08\x06\x01\0\0\0\0".as_slice(), &payload].concat(),
            _ => Vec::new(),
        };
        stream.write_all(&reply).await?;
    }
}

async fn describe_http2(
    name: String,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (parts, body) = request.into_parts();
    if parts.uri.path().starts_with("/endless") {
        let part = || Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])));
        let body = StreamBody::new(futures::stream::repeat_with(part));
        return Ok(Response::new(BodyExt::boxed(body)));
    }
    let mut text = format!(
        "{name}\n{} {} {:?}\n",
        parts.method, parts.uri, parts.version
    );
    for (header, value) in &parts.headers {
        text.push_str(&format!("{header}: {}\n", value.to_str().unwrap_or("?")));
    }
    let body = body.collect().await.unwrap();
    text.push_str(&format!("trailers: {}\n", body.trailers().is_some()));
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    text.push_str(&format!("body: {body}\n"));
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-end", "1".parse().unwrap());
    let frames = [Ok(Frame::data(text.into())), Ok(Frame::trailers(trailers))];
    let body = StreamBody::new(futures::stream::iter(frames));
    Ok(Response::new(BodyExt::boxed(body)))
}

async fn describe(
    name: String,
    tasks: Tasks,
    mut request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key(UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        tasks.spawn_isolated("echo", async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..count]).await.unwrap();
            }
        });
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket");
        return Ok(response.body(Full::default()).unwrap());
    }
    let (parts, body) = request.into_parts();
    let mut text = format!("{name}\n{} {}\n", parts.method, parts.uri);
    for (header, value) in &parts.headers {
        text.push_str(&format!("{header}: {}\n", value.to_str().unwrap_or("?")));
    }
    let body = body.collect().await.unwrap().to_bytes();
    text.push_str(&format!("body: {}\n", String::from_utf8_lossy(&body)));
    let response = Response::builder()
        .header("x-backend", name)
        .header("keep-alive", "timeout=5");
    Ok(response.body(Full::new(text.into())).unwrap())
}
