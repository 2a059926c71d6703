//! Calls that a server handles.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::{HeaderValue, header};
use prost::Message;
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::{
    ClientStreamingService, Grpc, ServerStreamingService, StreamingService, UnaryService,
};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::codec::{BytesCodec, OutgoingMessage, decode_request};
use crate::stream::MessageStream;

/// The maximum sizes of a service's messages, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageLimits {
    /// Of a received message. None: 4 MiB.
    pub decoding: Option<usize>,
    /// Of a sent message. None: unlimited.
    pub encoding: Option<usize>,
}

/// The response to a call.
pub type CallFuture = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

type HandlerFuture<T> = BoxFuture<'static, Result<Response<T>, Status>>;
/// A handler of one call, from a message or a stream of them to a message or a stream of them.
type CallHandler<Q, A> = Box<dyn FnOnce(Request<Q>) -> HandlerFuture<A> + Send>;

/// Handles a call with one request and one response. The message is decoded after the client has
/// ended the request.
pub fn respond_unary<Q, A, F>(
    limits: MessageLimits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<Q>) -> F + Send + 'static,
) -> CallFuture
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
{
    let handler: CallHandler<Bytes, OutgoingMessage> =
        Box::new(|request| match decode_request(request) {
            Ok(request) => box_message(handle(request)),
            Err(status) => Box::pin(ready(Err(status))),
        });
    serve_unary(limits, request, handler)
}

/// Handles a call with one request and a stream of responses.
pub fn respond_server_streaming<Q, A, S, F>(
    limits: MessageLimits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<Q>) -> F + Send + 'static,
) -> CallFuture
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
    F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
{
    let handler: CallHandler<Bytes, OutgoingStream> =
        Box::new(|request| match decode_request(request) {
            Ok(request) => box_stream(handle(request)),
            Err(status) => Box::pin(ready(Err(status))),
        });
    serve_server_streaming(limits, request, handler)
}

/// Handles a call with a stream of requests and one response.
pub fn respond_client_streaming<Q, A, F>(
    limits: MessageLimits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<MessageStream<Q>>) -> F + Send + 'static,
) -> CallFuture
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
{
    let handler: CallHandler<Streaming<Bytes>, OutgoingMessage> =
        Box::new(|request| box_message(handle(request.map(MessageStream::new))));
    serve_client_streaming(limits, request, handler)
}

/// Handles a call with streams in both directions.
pub fn respond_streaming<Q, A, S, F>(
    limits: MessageLimits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<MessageStream<Q>>) -> F + Send + 'static,
) -> CallFuture
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
    F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
{
    let handler: CallHandler<Streaming<Bytes>, OutgoingStream> =
        Box::new(|request| box_stream(handle(request.map(MessageStream::new))));
    serve_streaming(limits, request, handler)
}

/// Rejects a call of a method that the service does not have.
pub fn reject_unknown() -> CallFuture {
    let mut response = http::Response::new(Body::default());
    let headers = response.headers_mut();
    let code = HeaderValue::from(Code::Unimplemented as i32);
    headers.insert(Status::GRPC_STATUS, code);
    headers.insert(header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
    Box::pin(ready(Ok(response)))
}

// tonic's server is called in functions without type parameters, so that it is compiled once.

fn serve_unary(
    limits: MessageLimits,
    request: http::Request<Body>,
    handler: CallHandler<Bytes, OutgoingMessage>,
) -> CallFuture {
    let call = SingleCallService(Some(handler));
    Box::pin(async move { Ok(new_grpc(limits).unary(call, request).await) })
}

fn serve_server_streaming(
    limits: MessageLimits,
    request: http::Request<Body>,
    handler: CallHandler<Bytes, OutgoingStream>,
) -> CallFuture {
    let call = SingleCallService(Some(handler));
    Box::pin(async move { Ok(new_grpc(limits).server_streaming(call, request).await) })
}

fn serve_client_streaming(
    limits: MessageLimits,
    request: http::Request<Body>,
    handler: CallHandler<Streaming<Bytes>, OutgoingMessage>,
) -> CallFuture {
    let call = SingleCallService(Some(handler));
    Box::pin(async move { Ok(new_grpc(limits).client_streaming(call, request).await) })
}

fn serve_streaming(
    limits: MessageLimits,
    request: http::Request<Body>,
    handler: CallHandler<Streaming<Bytes>, OutgoingStream>,
) -> CallFuture {
    let call = SingleCallService(Some(handler));
    Box::pin(async move { Ok(new_grpc(limits).streaming(call, request).await) })
}

fn new_grpc(limits: MessageLimits) -> Grpc<BytesCodec> {
    Grpc::new(BytesCodec).apply_max_message_size_config(limits.decoding, limits.encoding)
}

fn box_message<A: Message + 'static>(
    response: impl Future<Output = Result<Response<A>, Status>> + Send + 'static,
) -> HandlerFuture<OutgoingMessage> {
    Box::pin(async move { Ok(response.await?.map(OutgoingMessage::new)) })
}

fn box_stream<A, S>(
    response: impl Future<Output = Result<Response<S>, Status>> + Send + 'static,
) -> HandlerFuture<OutgoingStream>
where
    A: Message + 'static,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
{
    let outgoing = |message: Result<A, Status>| message.map(OutgoingMessage::new);
    Box::pin(async move {
        Ok(response
            .await?
            .map(|stream| OutgoingStream(stream.map(outgoing).boxed())))
    })
}

/// Messages to send.
struct OutgoingStream(BoxStream<'static, Result<OutgoingMessage, Status>>);

impl Stream for OutgoingStream {
    type Item = Result<OutgoingMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

/// A handler as tonic calls it.
struct SingleCallService<Q, A>(Option<CallHandler<Q, A>>);

impl<Q, A: Send + 'static> SingleCallService<Q, A> {
    fn call_handler(&mut self, request: Request<Q>) -> HandlerFuture<A> {
        match self.0.take() {
            Some(handler) => handler(request),
            None => Box::pin(ready(Err(Status::internal("the call was handled before")))),
        }
    }
}

impl UnaryService<Bytes> for SingleCallService<Bytes, OutgoingMessage> {
    type Response = OutgoingMessage;
    type Future = HandlerFuture<OutgoingMessage>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.call_handler(request)
    }
}

impl ServerStreamingService<Bytes> for SingleCallService<Bytes, OutgoingStream> {
    type Response = OutgoingMessage;
    type ResponseStream = OutgoingStream;
    type Future = HandlerFuture<OutgoingStream>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.call_handler(request)
    }
}

impl ClientStreamingService<Bytes> for SingleCallService<Streaming<Bytes>, OutgoingMessage> {
    type Response = OutgoingMessage;
    type Future = HandlerFuture<OutgoingMessage>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        self.call_handler(request)
    }
}

impl StreamingService<Bytes> for SingleCallService<Streaming<Bytes>, OutgoingStream> {
    type Response = OutgoingMessage;
    type ResponseStream = OutgoingStream;
    type Future = HandlerFuture<OutgoingStream>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        self.call_handler(request)
    }
}
