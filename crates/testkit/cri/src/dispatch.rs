//! Dispatches the calls of both services by their method. The generated servers would require the
//! 18 methods that a simulated runtime does not have.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use prost::Message;
use proto_cri::v1::GetEventsRequest;
use proto_grpc::{CallFuture, MessageLimits, respond_server_streaming, respond_unary};
use tonic::body::Body;
use tonic::{Request, Response, Status};

use crate::images::Images;
use crate::runtime::Runtime;
use crate::state::State;

/// Handles a call of the runtime or the image service.
pub(crate) fn handle_call(state: Arc<State>, request: http::Request<Body>) -> CallFuture {
    state.calls.fetch_add(1, Ordering::Relaxed);
    // The names of methods differ between the services.
    let path = request.uri().path().to_owned();
    let method = path.rsplit('/').next().unwrap_or_default();
    call_method(Runtime(state), method, request)
}

fn call_method(runtime: Runtime, method: &str, request: http::Request<Body>) -> CallFuture {
    match method {
        "GetContainerEvents" => send_events(runtime, request),
        "Version" => respond(request, move |message| runtime.version(message)),
        "Status" => respond(request, move |message| runtime.status(message)),
        "RunPodSandbox" => respond(request, move |message| runtime.run_pod_sandbox(message)),
        "StopPodSandbox" => respond(request, move |message| runtime.stop_pod_sandbox(message)),
        "RemovePodSandbox" => respond(request, move |message| runtime.remove_pod_sandbox(message)),
        "PodSandboxStatus" => respond(request, move |message| runtime.pod_sandbox_status(message)),
        "ListPodSandbox" => respond(request, move |message| runtime.list_pod_sandbox(message)),
        "CreateContainer" => respond(request, move |message| runtime.create_container(message)),
        "StartContainer" => respond(request, move |message| runtime.start_container(message)),
        "StopContainer" => respond(request, move |message| runtime.stop_container(message)),
        "RemoveContainer" => respond(request, move |message| runtime.remove_container(message)),
        "ListContainers" => respond(request, move |message| runtime.list_containers(message)),
        "ContainerStatus" => respond(request, move |message| runtime.container_status(message)),
        "UpdateContainerResources" => respond(request, move |message| {
            runtime.update_container_resources(message)
        }),
        "ReopenContainerLog" => respond(request, move |message| {
            runtime.reopen_container_log(message)
        }),
        "ExecSync" => respond(request, move |message| runtime.exec_sync(message)),
        "ListContainerStats" => respond(request, move |message| {
            runtime.list_container_stats(message)
        }),
        "ListImages" => respond(request, Images::list_images),
        "ImageStatus" => respond(request, Images::image_status),
        "PullImage" => respond(request, Images::pull_image),
        "RemoveImage" => respond(request, Images::remove_image),
        "ImageFsInfo" => respond(request, Images::image_fs_info),
        _ => reject_method(method),
    }
}

fn respond<Q: Message + Default + 'static, A: Message + 'static>(
    request: http::Request<Body>,
    handle: impl FnOnce(Q) -> Result<A, Status> + Send + 'static,
) -> CallFuture {
    respond_unary(MessageLimits::default(), request, |request: Request<Q>| {
        ready(handle(request.into_inner()).map(Response::new))
    })
}

fn reject_method(method: &str) -> CallFuture {
    let status = Status::unimplemented(format!("the simulated runtime does not know {method}"));
    Box::pin(ready(Ok(status.into_http())))
}

fn send_events(runtime: Runtime, request: http::Request<Body>) -> CallFuture {
    respond_server_streaming(
        MessageLimits::default(),
        request,
        move |_: Request<GetEventsRequest>| {
            let events = runtime.container_events().map(Ok);
            ready(Ok(Response::new(events)))
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use base_task::{CancellationToken, Tasks};
    use http_body_util::BodyExt;
    use proto_cri::v1::VersionResponse;
    use tonic::Code;

    use super::*;

    /// Returns the response to a call with a message of these bytes.
    async fn call(method: &str, message: &[u8]) -> Result<Vec<u8>, Code> {
        let tasks = Tasks::new(CancellationToken::new());
        let state = State::new(tasks, Ipv4Addr::new(10, 88, 0, 0));
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let frame = [&[0], length.as_slice(), message].concat();
        let body = Body::new(http_body_util::Full::from(frame));
        let request = http::Request::post(format!("/runtime.v1.RuntimeService/{method}"));
        let response = handle_call(state, request.body(body).unwrap())
            .await
            .unwrap();
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status.code());
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Ok(body.get(5..).unwrap().to_vec())
    }

    #[tokio::test]
    async fn unknown_method_and_damaged_request_get_an_error() {
        let version = call("Version", &[]).await.unwrap();
        let version = VersionResponse::decode(version.as_slice()).unwrap();
        assert_eq!(version.runtime_name, "simulated");
        for (method, message, expected) in [
            ("Attach", &[][..], Code::Unimplemented),
            ("RunPodSandbox", &[0xff], Code::Internal),
            ("RunPodSandbox", &[], Code::InvalidArgument),
        ] {
            assert_eq!(call(method, message).await, Err(expected), "{method}");
        }
    }
}
