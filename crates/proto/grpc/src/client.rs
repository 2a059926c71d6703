//! Calls that a client makes.

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::{GrpcMethod, Request, Response, Status, Streaming};

use crate::codec::{BytesCodec, OutgoingMessage, decode_response};
use crate::stream::MessageStream;

/// The part of a generated client that does not depend on its service.
#[derive(Clone, Debug)]
pub struct GrpcClient<T> {
    inner: Grpc<T>,
}

impl<T> GrpcClient<T> {
    /// Creates a client of a service.
    pub fn new(inner: T) -> Self {
        Self {
            inner: Grpc::new(inner),
        }
    }

    /// Sets the maximum size of a received message in bytes. Default: 4 MiB.
    #[must_use]
    pub fn max_decoding_message_size(self, limit: usize) -> Self {
        Self {
            inner: self.inner.max_decoding_message_size(limit),
        }
    }

    /// Sets the maximum size of a sent message in bytes. Default: unlimited.
    #[must_use]
    pub fn max_encoding_message_size(self, limit: usize) -> Self {
        Self {
            inner: self.inner.max_encoding_message_size(limit),
        }
    }
}

impl<T> GrpcClient<T>
where
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// Sends a message and receives one.
    ///
    /// # Errors
    /// The server or the connection failed the call, or the response can't be decoded.
    pub async fn call_unary<Q, A>(
        &mut self,
        method: MethodName,
        request: Request<Q>,
    ) -> Result<Response<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        let request = request.map(OutgoingMessage::new);
        decode_response(self.send_message(method, request).await?)
    }

    /// Sends a message and receives a stream of them.
    ///
    /// # Errors
    /// The server or the connection failed the call, or the response can't be decoded.
    pub async fn call_server_streaming<Q, A>(
        &mut self,
        method: MethodName,
        request: Request<Q>,
    ) -> Result<Response<MessageStream<A>>, Status>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        let request = request.map(OutgoingMessage::new);
        let response = self.send_message_for_stream(method, request).await?;
        Ok(response.map(MessageStream::new))
    }

    /// Sends a stream of messages and receives one.
    ///
    /// # Errors
    /// The server or the connection failed the call, or the response can't be decoded.
    pub async fn call_client_streaming<Q, A>(
        &mut self,
        method: MethodName,
        request: Request<impl Stream<Item = Q> + Send + 'static>,
    ) -> Result<Response<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        decode_response(self.send_stream(method, request.map(box_messages)).await?)
    }

    /// Sends a stream of messages and receives another one.
    ///
    /// # Errors
    /// The server or the connection failed the call, or the response can't be decoded.
    pub async fn call_streaming<Q, A>(
        &mut self,
        method: MethodName,
        request: Request<impl Stream<Item = Q> + Send + 'static>,
    ) -> Result<Response<MessageStream<A>>, Status>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        let request = request.map(box_messages);
        let response = self.send_stream_for_stream(method, request).await?;
        Ok(response.map(MessageStream::new))
    }

    async fn send_message(
        &mut self,
        method: MethodName,
        request: Request<OutgoingMessage>,
    ) -> Result<Response<Bytes>, Status> {
        let request = self.prepare(method, request).await?;
        self.inner.unary(request, method.path(), BytesCodec).await
    }

    async fn send_message_for_stream(
        &mut self,
        method: MethodName,
        request: Request<OutgoingMessage>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        let request = self.prepare(method, request).await?;
        self.inner
            .server_streaming(request, method.path(), BytesCodec)
            .await
    }

    async fn send_stream(
        &mut self,
        method: MethodName,
        request: Request<BoxStream<'static, OutgoingMessage>>,
    ) -> Result<Response<Bytes>, Status> {
        let request = self.prepare(method, request).await?;
        self.inner
            .client_streaming(request, method.path(), BytesCodec)
            .await
    }

    async fn send_stream_for_stream(
        &mut self,
        method: MethodName,
        request: Request<BoxStream<'static, OutgoingMessage>>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        let request = self.prepare(method, request).await?;
        self.inner
            .streaming(request, method.path(), BytesCodec)
            .await
    }

    /// Waits until the connection is ready for a call.
    async fn prepare<R>(
        &mut self,
        method: MethodName,
        mut request: Request<R>,
    ) -> Result<Request<R>, Status> {
        self.inner
            .ready()
            .await
            .map_err(|error| Status::unknown(format!("Service was not ready: {}", error.into())))?;
        let name = GrpcMethod::new(method.service, method.name);
        request.extensions_mut().insert(name);
        Ok(request)
    }
}

/// A method of a service.
#[derive(Clone, Copy, Debug)]
pub struct MethodName {
    service: &'static str,
    name: &'static str,
    path: &'static str,
}

impl MethodName {
    /// Creates the description of a method; `path` is `/SERVICE/NAME`.
    #[must_use]
    pub const fn new(service: &'static str, name: &'static str, path: &'static str) -> Self {
        Self {
            service,
            name,
            path,
        }
    }

    fn path(self) -> PathAndQuery {
        PathAndQuery::from_static(self.path)
    }
}

fn box_messages<Q: Message + 'static>(
    messages: impl Stream<Item = Q> + Send + 'static,
) -> BoxStream<'static, OutgoingMessage> {
    messages.map(OutgoingMessage::new).boxed()
}
