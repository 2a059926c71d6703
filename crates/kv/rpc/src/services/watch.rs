//! The Watch service.

use super::compression::COMPRESSED;
use super::watch_stream::WatchStream;
use crate::context::ServerContext;
use crate::stream_caller::StreamCaller;
use http::{Request, Response};
use kv_transport::{MemoryReservation, RequestBody, Requests, streaming_response};
use proto_etcd::MessageStream;
use proto_etcd::etcdserverpb::watch_server;
use proto_etcd::etcdserverpb::{WatchRequest, WatchResponse};
use std::sync::Arc;
use tonic::Status;
use tonic::body::Body;

/// Path of the watch RPC.
pub(crate) const PATH: &str = "/etcdserverpb.Watch/Watch";

/// Handles a watch stream.
pub(crate) fn handle_watch<B: RequestBody>(
    core: &Arc<ServerContext>,
    request: Request<B>,
) -> Result<Response<Body>, Status> {
    core.not_for_learners()?;
    let (parts, body) = request.into_parts();
    let held = MemoryReservation::for_request(&core.traffic, &parts.extensions);
    let caller = StreamCaller::new(core, parts)?;
    let requests = Requests::new(core.traffic.clone(), held, body);
    let core = core.clone();
    Ok(streaming_response(|answers| {
        WatchStream::new(core, caller, answers).run(requests)
    }))
}

/// tonic's Watch service. It only rejects compressed streams.
pub(crate) struct Watch;

#[tonic::async_trait]
impl watch_server::Watch for Watch {
    type WatchStream = tokio_stream::Empty<Result<WatchResponse, Status>>;

    async fn watch(
        &self,
        _: tonic::Request<MessageStream<WatchRequest>>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented(COMPRESSED))
    }
}
