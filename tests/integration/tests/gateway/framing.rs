//! Requests whose end, or whose headers, servers read differently, as bytes and frames that no
//! client library sends: none of them brings a second request to an endpoint.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ingress::{ingress, rule};
use crate::setting::Setting;

const HOST: &str = "Host: a.example.com\r\n";
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a.example.com\r\n\r\n";

async fn start() -> Setting {
    // Ends connections that wait for another request.
    let setting = Setting::start_with(&["--header-timeout=1s"]).await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let spec = json!({"rules": [rule("a.example.com", "/", "web")]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    setting
}

/// Sends bytes and returns all that is received until the connection ends.
async fn exchange(setting: &Setting, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut received = Vec::new();
    // The connection may be reset, since the rest of a bad request is not read.
    let _ = stream.read_to_end(&mut received).await;
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_request_of_http1_is_refused() {
    let setting = start().await;
    let post = |headers: &str, body: &str| {
        format!("POST /first HTTP/1.1\r\n{HOST}{headers}\r\n{body}{HIDDEN}")
    };
    let long = format!("X: {}\r\n", "a".repeat(40 * 1024));
    for (request, status) in [
        (post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), "400"),
        (post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), "400"),
        (
            post("Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n"),
            "400",
        ),
        (
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                "0\r\n\r\n",
            ),
            "400",
        ),
        (post("Transfer-Encoding: identity\r\n", ""), "400"),
        (post("Content-Length: +0\r\n", ""), "400"),
        (post("Content-Length: 0x0\r\n", ""), "400"),
        (post("Content-Length: 0 0\r\n", ""), "400"),
        (post("Content-Length: -1\r\n", ""), "400"),
        (post("X: a\rb\r\n", ""), "400"),
        (post("X: a\0b\r\n", ""), "400"),
        (post("X : a\r\n", ""), "400"),
        (post(" X: a\r\n", ""), "400"),
        (post(&long, ""), "431"),
        (
            format!(
                "POST /first HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"
            ),
            "400",
        ),
        (format!("GET /a b HTTP/1.1\r\n{HOST}\r\n"), "400"),
        (format!("GET /\x01 HTTP/1.1\r\n{HOST}\r\n"), "400"),
        (format!("G@T / HTTP/1.1\r\n{HOST}\r\n"), "400"),
        (
            format!("GET / HTTP/1.1\r\n{HOST}Host: b.example.com\r\n\r\n"),
            "400",
        ),
        (
            format!("GET http://a.example.com@b.example.com/ HTTP/1.1\r\n{HOST}\r\n"),
            "400",
        ),
    ] {
        let received = exchange(&setting, request.as_bytes()).await;
        let shown: String = request.chars().take(200).collect();
        assert!(
            received.starts_with(&format!("HTTP/1.1 {status}")),
            "{shown:?}: {received}"
        );
        assert!(!received.contains("/hidden"), "{shown:?}: {received}");
    }
}

/// A body that ends in another place than the sender meant: what follows is either the next request
/// of the connection, as for the endpoint, or the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_body_of_http1_is_no_request() {
    let setting = start().await;
    for (body, is_request) in [
        (format!("3\r\nabc\r\n0\r\n\r\n{HIDDEN}"), true),
        (format!("3\nabc\r\n0\r\n\r\n{HIDDEN}"), false),
        (format!("3\r\nabcX\r\n0\r\n\r\n{HIDDEN}"), false),
        (format!("fffffffffffffffff\r\n{HIDDEN}"), false),
        (format!("-1\r\n{HIDDEN}"), false),
        (format!("0x3\r\nabc\r\n0\r\n\r\n{HIDDEN}"), false),
        (format!("3 ;x\nabc\r\n0\r\n\r\n{HIDDEN}"), false),
        (format!("31;a=\"\r\n{HIDDEN}\"\n{HIDDEN}"), false),
        (format!("0\r\nX: \r\n a\r\n{HIDDEN}"), false),
    ] {
        let request =
            format!("POST /first HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}");
        let received = exchange(&setting, request.as_bytes()).await;
        let is_second = received.contains("GET /hidden\n");
        assert_eq!(is_second, is_request, "{body:?}: {received}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn line_feed_alone_ends_a_line_for_the_gateway_and_is_not_forwarded() {
    let setting = start().await;
    let request = "POST /first HTTP/1.1\nHost: a.example.com\nContent-Length: 3\nX: a\nTransfer-Encoding: chunked\n\n0\r\n\r\n";
    let received = exchange(&setting, request.as_bytes()).await;
    assert!(received.contains("POST /first\n"), "{received}");
    assert!(
        !received.contains("content-length: 3\n"),
        "the encoding counts: {received}"
    );
    assert!(received.contains("\nx: a\n"), "{received}");
}

const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "a.example.com"),
    (":path", "/first"),
];

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![
        length[1], length[2], length[3], kind, flags, 0, 0, 0, stream,
    ];
    frame.extend_from_slice(payload);
    frame
}

/// Encodes headers as literals that are not indexed (RFC 7541, 6.2.2).
fn encode(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "longer texts have another length");
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Sends a request of HTTP/2 and returns the body of the response; empty if the stream or the
/// connection ended.
async fn exchange_http2(setting: &Setting, headers: &[(&str, &str)], body: &[u8]) -> String {
    let mut stream = TcpStream::connect(setting.http).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, 4, 1, &encode(headers)));
    bytes.extend(frame(0, 1, 1, body));
    stream.write_all(&bytes).await.unwrap();
    let mut data = Vec::new();
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            break;
        }
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut payload).await.is_err() {
            break;
        }
        if kind == 0 {
            data.extend(payload);
        }
        // The end of the stream in DATA or HEADERS, RST_STREAM or GOAWAY.
        let has_ended = matches!(kind, 0 | 1) && flags & 1 != 0;
        if has_ended || matches!(kind, 3 | 7) {
            break;
        }
    }
    String::from_utf8_lossy(&data).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_request_of_http2_reaches_no_endpoint() {
    let setting = start().await;
    let plain = exchange_http2(&setting, &POST, b"x").await;
    assert!(plain.starts_with("web\nPOST /first\n"), "{plain}");
    let with = |more: &[(&'static str, &'static str)]| {
        let mut headers = POST.to_vec();
        for (name, value) in more {
            match headers.iter_mut().find(|known| known.0 == *name) {
                Some(known) if name.starts_with(':') => known.1 = value,
                _ => headers.push((name, value)),
            }
        }
        headers
    };
    let mut repeated = POST.to_vec();
    repeated.insert(0, (":path", "/hidden"));
    for headers in [
        repeated,
        with(&[(
            ":path",
            "/first HTTP/1.1\r\nX: y\r\n\r\nGET /hidden HTTP/1.1\r\nX: ",
        )]),
        with(&[(":path", "/a b")]),
        with(&[(":path", "first")]),
        with(&[(":path", "")]),
        with(&[(":path", "*")]),
        with(&[(":path", "/x/../hidden")]),
        with(&[(":method", "GET /hidden HTTP/1.1\r\nX:")]),
        with(&[(":authority", "b.example.com")]),
        with(&[(":authority", "a.example.com/x")]),
        with(&[(":authority", "x@a.example.com")]),
        with(&[(":authority", "")]),
        with(&[("host", "b.example.com")]),
        with(&[("host", "a.example.com"), ("host", "a.example.com")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("connection", "close")]),
        with(&[("x", "a\r\nGET /hidden HTTP/1.1")]),
        with(&[("x", "a\nb")]),
        with(&[("x\r\ny", "a")]),
        with(&[("x:y", "a")]),
        with(&[("X", "a")]),
        with(&[("content-length", "1"), ("content-length", "2")]),
        with(&[("content-length", "+1")]),
    ] {
        let received = exchange_http2(&setting, &headers, b"x").await;
        assert!(!received.starts_with("web\n"), "{headers:?}: {received}");
    }
    let short = with(&[("content-length", "1")]);
    let received = exchange_http2(&setting, &short, HIDDEN.as_bytes()).await;
    assert!(!received.contains("/hidden"), "{received}");
}
