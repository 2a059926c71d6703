//! The codec of all calls: a message to send is encoded by its own code, a received one stays
//! bytes.

use bytes::{Buf, Bytes};
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Response, Status};

/// A message that is encoded when it is sent.
trait EncodableMessage: Send + Sync {
    fn encode_into(&self, buffer: &mut EncodeBuf<'_>) -> Result<(), Status>;
}

impl<M: Message> EncodableMessage for M {
    fn encode_into(&self, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        self.encode(buffer)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

/// A message to send.
pub(crate) struct OutgoingMessage(Box<dyn EncodableMessage>);

impl OutgoingMessage {
    pub(crate) fn new(message: impl Message + 'static) -> Self {
        Self(Box::new(message))
    }
}

/// Decodes a received message. A field of bytes shares its buffer.
pub(crate) fn decode_message<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// Decodes the message of a request.
pub(crate) fn decode_request<M: Message + Default>(
    request: Request<Bytes>,
) -> Result<Request<M>, Status> {
    let (metadata, extensions, bytes) = request.into_parts();
    Ok(Request::from_parts(
        metadata,
        extensions,
        decode_message(bytes)?,
    ))
}

/// Decodes the message of a response.
pub(crate) fn decode_response<M: Message + Default>(
    response: Response<Bytes>,
) -> Result<Response<M>, Status> {
    let (metadata, bytes, extensions) = response.into_parts();
    Ok(Response::from_parts(
        metadata,
        decode_message(bytes)?,
        extensions,
    ))
}

pub(crate) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = OutgoingMessage;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = OutgoingMessage;
    type Error = Status;

    fn encode(
        &mut self,
        message: OutgoingMessage,
        buffer: &mut EncodeBuf<'_>,
    ) -> Result<(), Status> {
        message.0.encode_into(buffer)
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
