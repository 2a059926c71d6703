//! The Lease service.

use super::compression::COMPRESSED;
use super::session;
use crate::context::{ServerContext, to_status};
use crate::leader_requests;
use crate::stream_caller::StreamCaller;
use kv_machine::{Access, Command, EtcdError, Outcome};
use kv_transport::{
    MemoryReservation, RequestBody, Requests, ResponseSender, frame_message, streaming_response,
};
use proto_etcd::MessageStream;
use proto_etcd::etcdserverpb::lease_server;
use proto_etcd::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use std::pin::pin;
use std::sync::Arc;
use tonic::body::Body;
use tonic::{Request, Response, Status};

/// Implements etcd's Lease service.
pub(crate) struct Lease(pub Arc<ServerContext>);

#[tonic::async_trait]
impl lease_server::Lease for Lease {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let caller = self.0.caller(&request)?;
        self.0.not_for_learners()?;
        let grant = session::with_identifier(&self.0, request.into_inner());
        match self.0.submit(&caller, Command::LeaseGrant(grant)).await? {
            (Outcome::LeaseGrant { id, ttl }, header) => Ok(Response::new(LeaseGrantResponse {
                header,
                id,
                ttl,
                error: String::new(),
            })),
            _ => Err(Status::internal("the answer does not fit the request")),
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let caller = self.0.caller(&request)?;
        self.0.not_for_learners()?;
        let (_, header) = self
            .0
            .submit(&caller, Command::LeaseRevoke(request.into_inner()))
            .await?;
        Ok(Response::new(LeaseRevokeResponse { header }))
    }

    type LeaseKeepAliveStream = tokio_stream::Empty<Result<LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        _: Request<MessageStream<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        // Uncompressed streams are handled by `keep_alive`.
        Err(Status::unimplemented(COMPRESSED))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let caller = self.0.caller(&request)?;
        self.0.not_for_learners()?;
        let request = request.into_inner();
        if request.keys {
            self.0
                .machine
                // The response names keys, which a caller without read permission must not learn.
                .check_lease(&caller, request.id, Access::Read)
                .map_err(to_status)?;
        } else {
            self.0.machine.check_known(&caller).map_err(to_status)?;
        }
        // A lease that this member has not seen yet must not be reported as missing.
        self.0.read_index().await?;
        let (granted_ttl, ttl) = leader_requests::request_time_to_live(&self.0, request.id)
            .await
            .map_err(to_status)?;
        let keys = if request.keys {
            self.0
                .machine
                .with_leases(|leases| leases.attached_keys(request.id))
        } else {
            Vec::new()
        };
        let header = self.0.header();
        Ok(Response::new(LeaseTimeToLiveResponse {
            header,
            id: request.id,
            ttl,
            granted_ttl,
            keys,
        }))
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let caller = self.0.caller(&request)?;
        self.0.not_for_learners()?;
        self.0.machine.check_known(&caller).map_err(to_status)?;
        self.0.read_index().await?;
        // After the wait, because it covers the keys of all leases that are listed now.
        self.0.machine.check_leases(&caller).map_err(to_status)?;
        let ids = self.0.machine.with_leases(|leases| leases.lease_ids());
        let leases = ids.into_iter().map(|id| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse {
            header: self.0.header(),
            leases,
        }))
    }
}

/// Path of the keep-alive RPC.
pub(crate) const PATH: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// Handles a stream of keep-alive requests.
pub(crate) fn keep_alive<B: RequestBody>(
    core: &Arc<ServerContext>,
    request: http::Request<B>,
) -> Result<http::Response<Body>, Status> {
    core.not_for_learners()?;
    let (parts, body) = request.into_parts();
    let held = MemoryReservation::for_request(&core.traffic, &parts.extensions);
    let caller = StreamCaller::new(core, parts)?;
    caller
        .current(core)
        .and_then(|caller| core.machine.check_known(&caller))
        .map_err(to_status)?;
    let requests = Requests::new(core.traffic.clone(), held, body);
    let core = core.clone();
    Ok(streaming_response(|answers| {
        renew_all(core, caller, requests, answers)
    }))
}

async fn renew_all<B: RequestBody>(
    core: Arc<ServerContext>,
    caller: StreamCaller,
    mut requests: Requests<LeaseKeepAliveRequest, B>,
    answers: ResponseSender,
) {
    let mut end = pin!(core.shutdown.cancelled());
    loop {
        let next = tokio::select! {
            // Requests that arrived before the stop are still renewed.
            biased;
            next = requests.message() => next,
            () = &mut end => return,
        };
        let answer = match next {
            Ok(Some(LeaseKeepAliveRequest { id })) => match renew_lease(&core, &caller, id).await {
                Ok(ttl) => Ok(frame_message(&LeaseKeepAliveResponse {
                    header: core.header(),
                    id,
                    ttl,
                })),
                Err(refusal) => Err(to_status(refusal)),
            },
            Ok(None) => return,
            Err(refused) => Err(refused),
        };
        // etcd ends the stream with the first error; its client opens another one.
        let over = answer.is_err();
        answers.send(answer).await;
        if over {
            return;
        }
    }
}

/// Renews a lease. The caller needs write permission for the lease's keys at each renewal.
async fn renew_lease(
    core: &Arc<ServerContext>,
    caller: &StreamCaller,
    id: i64,
) -> Result<i64, EtcdError> {
    core.machine
        .check_lease(&caller.current(core)?, id, Access::Write)?;
    leader_requests::request_renewal(core, id).await
}
