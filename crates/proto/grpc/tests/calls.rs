//! Calls of a client to a server without a connection between them.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use proto_grpc::{
    CallFuture, GrpcClient, MessageLimits, MessageStream, MethodName, reject_unknown,
    respond_client_streaming, respond_server_streaming, respond_streaming, respond_unary,
};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Request, Response, Status};

#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// A string field with a byte that no UTF-8 text has.
const DAMAGED: &[u8] = &[0x0a, 1, 0xff];
const SERVER_LIMIT: usize = 100;

fn text(text: &str) -> Text {
    Text { text: text.into() }
}

/// A type of its own in the extensions of a request, as the certificate of a peer is.
#[derive(Clone)]
struct Peer(&'static str);

/// A server of one method of each kind, which send back the received text.
#[derive(Clone)]
struct Echo;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> CallFuture {
        let limits = MessageLimits {
            decoding: Some(SERVER_LIMIT),
            encoding: None,
        };
        request.extensions_mut().insert(Peer("member"));
        match request.uri().path() {
            "/test.Echo/One" => respond_unary(limits, request, respond_once),
            "/test.Echo/Repeat" => respond_server_streaming(limits, request, repeat),
            "/test.Echo/Join" => respond_client_streaming(limits, request, join),
            "/test.Echo/Each" => respond_streaming(limits, request, respond_each),
            "/test.Echo/Damaged" => Box::pin(ready(Ok(send_frames(&[
                &[0x0a, 1, b'a'],
                DAMAGED,
                &[0x0a, 1, b'c'],
            ])))),
            _ => reject_unknown(),
        }
    }
}

fn respond_once(request: Request<Text>) -> Ready<Result<Response<Text>, Status>> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let name = request
        .metadata()
        .get("name")
        .map(|name| name.to_str().unwrap().to_owned());
    let received = request.into_inner().text;
    ready(match received.as_str() {
        "fail" => {
            let mut status = Status::not_found("no such text");
            status
                .metadata_mut()
                .insert("hint", "look again".parse().unwrap());
            Err(status)
        }
        _ => {
            let mut response =
                Response::new(text(&format!("{received} {}", peer.unwrap_or_default())));
            if let Some(name) = name {
                response
                    .metadata_mut()
                    .insert("name", name.parse().unwrap());
            }
            Ok(response)
        }
    })
}

type Texts = stream::BoxStream<'static, Result<Text, Status>>;

fn repeat(request: Request<Text>) -> Ready<Result<Response<Texts>, Status>> {
    let received = request.into_inner();
    if received.text == "fail" {
        return ready(Err(Status::permission_denied("no")));
    }
    let messages = [
        Ok(received.clone()),
        Ok(received),
        Err(Status::aborted("enough")),
    ];
    ready(Ok(Response::new(stream::iter(messages).boxed())))
}

async fn join(request: Request<MessageStream<Text>>) -> Result<Response<Text>, Status> {
    let mut messages = request.into_inner();
    let mut joined = String::new();
    while let Some(message) = messages.message().await? {
        joined.push_str(&message.text);
    }
    Ok(Response::new(text(&joined)))
}

fn respond_each(request: Request<MessageStream<Text>>) -> Ready<Result<Response<Texts>, Status>> {
    ready(Ok(Response::new(request.into_inner().boxed())))
}

/// Returns a response with these messages, whether they can be decoded or not.
fn send_frames(messages: &[&[u8]]) -> http::Response<Body> {
    let body = Full::from(frames(messages));
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let body = body.with_trailers(ready(Some(Ok(trailers))));
    let response = http::Response::builder().header("content-type", "application/grpc");
    response.body(Body::new(body)).unwrap()
}

fn frames(messages: &[&[u8]]) -> Bytes {
    let mut frames = Vec::new();
    for message in messages {
        frames.push(0);
        frames.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frames.extend(*message);
    }
    frames.into()
}

fn method(name: &'static str, path: &'static str) -> MethodName {
    MethodName::new("test.Echo", name, path)
}

async fn call_one(
    client: &mut GrpcClient<Echo>,
    request: Request<Text>,
) -> Result<Response<Text>, Status> {
    client
        .call_unary(method("One", "/test.Echo/One"), request)
        .await
}

#[tokio::test]
async fn unary_call_carries_message_metadata_and_extensions() {
    let mut client = GrpcClient::new(Echo);
    let mut request = Request::new(text("hello"));
    request
        .metadata_mut()
        .insert("name", "value".parse().unwrap());
    let response = call_one(&mut client, request).await.unwrap();
    assert_eq!(response.metadata().get("name").unwrap(), "value");
    assert_eq!(response.into_inner(), text("hello member"));
}

#[tokio::test]
async fn failed_call_carries_status_and_metadata() {
    let mut client = GrpcClient::new(Echo);
    let status = call_one(&mut client, Request::new(text("fail")))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "no such text")
    );
    assert_eq!(status.metadata().get("hint").unwrap(), "look again");
}

#[tokio::test]
async fn unknown_method_is_unimplemented() {
    let mut client = GrpcClient::new(Echo);
    let other = method("Other", "/test.Echo/Other");
    let response = client
        .call_unary::<Text, Text>(other, Request::new(text("")))
        .await;
    assert_eq!(response.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn messages_over_the_limits_are_rejected() {
    let long = "x".repeat(SERVER_LIMIT);
    let request = || Request::new(text(&long));
    let code = |response: Result<Response<Text>, Status>| response.unwrap_err().code();
    let mut client = GrpcClient::new(Echo);
    assert_eq!(
        code(call_one(&mut client, request()).await),
        Code::OutOfRange
    );
    let mut client = GrpcClient::new(Echo).max_encoding_message_size(10);
    assert_eq!(
        code(call_one(&mut client, request()).await),
        Code::OutOfRange
    );
    let mut client = GrpcClient::new(Echo).max_decoding_message_size(10);
    let request = Request::new(text("hello you"));
    assert_eq!(code(call_one(&mut client, request).await), Code::OutOfRange);
}

#[tokio::test]
async fn server_stream_ends_with_its_status() {
    let mut client = GrpcClient::new(Echo);
    let name = method("Repeat", "/test.Echo/Repeat");
    let response = client
        .call_server_streaming::<_, Text>(name, Request::new(text("a")))
        .await;
    let mut received = response.unwrap().into_inner();
    assert_eq!(received.message().await.unwrap(), Some(text("a")));
    assert_eq!(received.message().await.unwrap(), Some(text("a")));
    let status = received.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "enough"));
    assert_eq!(received.message().await.unwrap(), None);
    let response = client
        .call_server_streaming::<_, Text>(name, Request::new(text("fail")))
        .await;
    assert_eq!(response.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn client_streams_arrive_in_order() {
    let mut client = GrpcClient::new(Echo);
    let sent = || Request::new(stream::iter([text("a"), text("b"), text("c")]));
    let name = method("Join", "/test.Echo/Join");
    let joined = client.call_client_streaming::<_, Text>(name, sent()).await;
    assert_eq!(joined.unwrap().into_inner(), text("abc"));
    let name = method("Each", "/test.Echo/Each");
    let each = client
        .call_streaming::<_, Text>(name, sent())
        .await
        .unwrap();
    let each: Vec<_> = each.into_inner().map(Result::unwrap).collect().await;
    assert_eq!(each, [text("a"), text("b"), text("c")]);
}

#[tokio::test]
async fn stream_ends_at_a_message_that_cannot_be_decoded() {
    let mut client = GrpcClient::new(Echo);
    let name = method("Damaged", "/test.Echo/Damaged");
    let response = client
        .call_server_streaming::<_, Text>(name, Request::new(text("")))
        .await;
    let mut received = response.unwrap().into_inner();
    assert_eq!(received.message().await.unwrap(), Some(text("a")));
    assert_eq!(received.message().await.unwrap_err().code(), Code::Internal);
    assert_eq!(received.message().await.unwrap(), None);
}

#[tokio::test]
async fn damaged_messages_are_rejected() {
    for (path, expected) in [
        ("/test.Echo/One", "13"),
        ("/test.Echo/Repeat", "13"),
        ("/test.Echo/Join", "13"),
    ] {
        let body = Body::new(Full::from(frames(&[DAMAGED])));
        let request = http::Request::post(path).body(body).unwrap();
        let response = Echo.call(request).await.unwrap();
        assert_eq!(
            response.headers().get("grpc-status").unwrap(),
            expected,
            "{path}"
        );
    }
    let mut client = GrpcClient::new(Echo);
    let name = method("Damaged", "/test.Echo/Damaged");
    let response = client
        .call_unary::<Text, Text>(name, Request::new(text("")))
        .await;
    assert_eq!(response.unwrap().into_inner(), text("a"));
}
