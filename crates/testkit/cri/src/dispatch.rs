//! Answers the calls of both services by their method. The generated servers would compile tonic's code
//! for a call once for each of their 41 methods; here it is compiled once, for bytes.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, BufMut, Bytes};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use prost::Message;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};

use crate::images::Images;
use crate::runtime::Runtime;
use crate::state::State;

const EVENTS: &str = "GetContainerEvents";

type Events = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Handles a call of the runtime or the image service.
pub(crate) async fn handle_call(
    state: Arc<State>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    state.calls.fetch_add(1, Ordering::Relaxed);
    // The names of methods differ between the services.
    let path = request.uri().path().to_owned();
    let method = path.rsplit('/').next().unwrap_or_default().to_owned();
    let runtime = Runtime(state);
    let mut grpc = Grpc::new(BytesCodec);
    if method == EVENTS {
        return grpc.server_streaming(EventCall(runtime), request).await;
    }
    grpc.unary(UnaryCall { runtime, method }, request).await
}

struct UnaryCall {
    runtime: Runtime,
    method: String,
}

impl UnaryService<Bytes> for UnaryCall {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let answer = answer_call(&self.runtime, &self.method, &request.into_inner());
        ready(answer.map(Response::new))
    }
}

struct EventCall(Runtime);

impl ServerStreamingService<Bytes> for EventCall {
    type Response = Bytes;
    type ResponseStream = Events;
    type Future = BoxFuture<'static, Result<Response<Events>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        let events = self.0.container_events();
        let encoded = events.map(|event| Ok(Bytes::from(event.encode_to_vec())));
        Box::pin(ready(Ok(Response::new(encoded.boxed() as Events))))
    }
}

fn answer_call(runtime: &Runtime, method: &str, body: &[u8]) -> Result<Bytes, Status> {
    match method {
        "Version" => answer(body, |request| runtime.version(request)),
        "Status" => answer(body, |request| runtime.status(request)),
        "RunPodSandbox" => answer(body, |request| runtime.run_pod_sandbox(request)),
        "StopPodSandbox" => answer(body, |request| runtime.stop_pod_sandbox(request)),
        "RemovePodSandbox" => answer(body, |request| runtime.remove_pod_sandbox(request)),
        "PodSandboxStatus" => answer(body, |request| runtime.pod_sandbox_status(request)),
        "ListPodSandbox" => answer(body, |request| runtime.list_pod_sandbox(request)),
        "CreateContainer" => answer(body, |request| runtime.create_container(request)),
        "StartContainer" => answer(body, |request| runtime.start_container(request)),
        "StopContainer" => answer(body, |request| runtime.stop_container(request)),
        "RemoveContainer" => answer(body, |request| runtime.remove_container(request)),
        "ListContainers" => answer(body, |request| runtime.list_containers(request)),
        "ContainerStatus" => answer(body, |request| runtime.container_status(request)),
        "UpdateContainerResources" => {
            answer(body, |request| runtime.update_container_resources(request))
        }
        "ReopenContainerLog" => answer(body, |request| runtime.reopen_container_log(request)),
        "ExecSync" => answer(body, |request| runtime.exec_sync(request)),
        "ListContainerStats" => answer(body, |request| runtime.list_container_stats(request)),
        "ListImages" => answer(body, Images::list_images),
        "ImageStatus" => answer(body, Images::image_status),
        "PullImage" => answer(body, Images::pull_image),
        "RemoveImage" => answer(body, Images::remove_image),
        "ImageFsInfo" => answer(body, Images::image_fs_info),
        _ => Err(Status::unimplemented(format!(
            "the simulated runtime does not know {method}"
        ))),
    }
}

fn answer<Q: Message + Default, A: Message>(
    body: &[u8],
    handle: impl FnOnce(Q) -> Result<A, Status>,
) -> Result<Bytes, Status> {
    let request = Q::decode(body)
        .map_err(|error| Status::internal(format!("the request can't be decoded: {error}")))?;
    Ok(handle(request)?.encode_to_vec().into())
}

/// Messages as they are on the wire.
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
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
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use base_task::{CancellationToken, Tasks};
    use proto_cri::v1::{VersionRequest, VersionResponse};

    use super::*;

    fn runtime() -> Runtime {
        let tasks = Tasks::new(CancellationToken::new());
        Runtime(State::new(tasks, Ipv4Addr::new(10, 88, 0, 0)))
    }

    #[test]
    fn unknown_method_and_damaged_request_get_an_error() {
        let runtime = runtime();
        let body = VersionRequest::default().encode_to_vec();
        let version = answer_call(&runtime, "Version", &body).unwrap();
        let version = VersionResponse::decode(version).unwrap();
        assert_eq!(version.runtime_name, "simulated");
        let code =
            |method: &str, body: &[u8]| answer_call(&runtime, method, body).unwrap_err().code();
        assert_eq!(code("Attach", &[]), tonic::Code::Unimplemented);
        assert_eq!(code("RunPodSandbox", &[0xff]), tonic::Code::Internal);
        assert_eq!(code("RunPodSandbox", &[]), tonic::Code::InvalidArgument);
    }
}
