//! Malicious requests.

use crate::member::Member;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto_etcd::etcdserverpb::auth_client::AuthClient;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::watch_client::WatchClient;
use proto_etcd::etcdserverpb::watch_request::RequestUnion;
use proto_etcd::etcdserverpb::{AuthUserAddRequest, PutRequest, WatchCreateRequest, WatchRequest};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

const MIB: usize = 1 << 20;

#[track_caller]
fn too_large(refused: &Status) {
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let said = refused.message();
    assert!(
        said.starts_with("grpc: received message larger than max (3145")
            && said.contains(" vs. 2097152)"),
        "{said}"
    );
}

#[tokio::test]
async fn message_above_the_limit_has_the_error_of_grpc_go() {
    let member = Member::start(&[]).await;
    let channel = member.channel().await;
    let long = Bytes::from(vec![b'x'; 3 * MIB]);
    let put = PutRequest {
        key: "k".into(),
        value: long.clone(),
        ..PutRequest::default()
    };
    too_large(&KvClient::new(channel.clone()).put(put).await.unwrap_err());
    let name = String::from_utf8(long.to_vec()).unwrap();
    let user = AuthUserAddRequest {
        name,
        ..AuthUserAddRequest::default()
    };
    too_large(
        &AuthClient::new(channel.clone())
            .user_add(user)
            .await
            .unwrap_err(),
    );
    let create = WatchCreateRequest {
        key: long,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let stream = futures::stream::iter([request]).chain(futures::stream::pending());
    let mut answers = WatchClient::new(channel.clone())
        .watch(stream)
        .await
        .unwrap()
        .into_inner();
    too_large(&answers.message().await.unwrap_err());
    // Above the limit of a request and below that of a message: etcd's own error text.
    let put = PutRequest {
        key: "k".into(),
        value: vec![b'x'; 1_600_000].into(),
        ..PutRequest::default()
    };
    let refused = KvClient::new(channel).put(put).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: request is too large")
    );
    member.stop().await;
}

type Parts = ReceiverStream<Result<Frame<Bytes>, Infallible>>;
type Part = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

async fn connection(port: u16) -> http2::SendRequest<StreamBody<Parts>> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// Starts a call with a message of 1 MiB whose last byte never arrives.
async fn begin(
    sender: &mut http2::SendRequest<StreamBody<Parts>>,
    path: &str,
) -> (Part, BoxFuture<'static, Response<Incoming>>) {
    let (part, parts) = mpsc::channel(1);
    let request = Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(ReceiverStream::new(parts)))
        .unwrap();
    sender.ready().await.unwrap();
    let answer = sender.send_request(request);
    let mut message = vec![0; MIB + 4];
    message[1..5].copy_from_slice(&(MIB as u32).to_be_bytes());
    part.send(Ok(Frame::data(message.into()))).await.unwrap();
    (part, Box::pin(async { answer.await.unwrap() }))
}

/// Returns code and text of a call's status.
async fn end(answer: Response<Incoming>) -> (String, String) {
    let mut ending = answer.headers().clone();
    if !ending.contains_key("grpc-status") {
        ending = answer
            .into_body()
            .collect()
            .await
            .unwrap()
            .trailers()
            .cloned()
            .unwrap();
    }
    let text = |name| {
        ending
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    };
    (text("grpc-status"), text("grpc-message"))
}

async fn first_end(port: u16, path: &str) -> (String, String) {
    let mut sender = connection(port).await;
    let (mut kept, mut ends) = (Vec::new(), FuturesUnordered::new());
    for _ in 0..40 {
        let (part, answer) = begin(&mut sender, path).await;
        kept.push(part);
        ends.push(async { end(answer.await).await });
    }
    tokio::time::timeout(Duration::from_secs(60), ends.next())
        .await
        .expect("one is refused")
        .unwrap()
}

#[tokio::test]
async fn unfinished_requests_of_a_connection_are_bounded() {
    let member = Member::start(&[]).await;
    for path in [
        "/etcdserverpb.KV/Put",
        "/etcdserverpb.Auth/UserAdd",
        "/etcdserverpb.Watch/Watch",
    ] {
        let refused = (
            "8".to_owned(),
            "etcdserver:%20too%20many%20requests".to_owned(),
        );
        assert_eq!(first_end(member.port, path).await, refused, "{path}");
        let put = PutRequest {
            key: "k".into(),
            ..PutRequest::default()
        };
        KvClient::new(member.channel().await)
            .put(put)
            .await
            .expect("others go on");
    }
    member.stop().await;
}
