//! The Cluster service: every member lists the members, the leader changes them.

use crate::context::{ServerContext, to_status};
use crate::leader_requests::request_membership_change;
use crate::peer_rpc::{Change, MembershipResult};
use kv_config::{CLOSED, PeerAccess};
use proto_etcd::etcdserverpb::cluster_server;
use proto_etcd::etcdserverpb::{
    MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Implements etcd's Cluster service.
pub(crate) struct Cluster(pub Arc<ServerContext>);

impl Cluster {
    async fn submit_change<T>(
        &self,
        request: &Request<T>,
        change: Change,
    ) -> Result<MembershipResult, Status> {
        let caller = self.0.caller(request)?;
        self.0.machine.check_admin(&caller).map_err(to_status)?;
        self.0.not_for_learners()?;
        if self.0.bounds.access == PeerAccess::Closed && matches!(change, Change::Add(_)) {
            return Err(Status::failed_precondition(CLOSED));
        }
        request_membership_change(&self.0, change)
            .await
            .map_err(to_status)
    }
}

#[tonic::async_trait]
impl cluster_server::Cluster for Cluster {
    async fn member_add(
        &self,
        request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        let change = Change::Add(request.get_ref().clone());
        let (members, member) = self.submit_change(&request, change).await?;
        Ok(Response::new(MemberAddResponse {
            header: self.0.header(),
            member,
            members,
        }))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        let change = Change::Remove(*request.get_ref());
        let (members, _) = self.submit_change(&request, change).await?;
        Ok(Response::new(MemberRemoveResponse {
            header: self.0.header(),
            members,
        }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let change = Change::Update(request.get_ref().clone());
        let (members, _) = self.submit_change(&request, change).await?;
        Ok(Response::new(MemberUpdateResponse {
            header: self.0.header(),
            members,
        }))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let caller = self.0.caller(&request)?;
        if request.get_ref().linearizable && !self.0.is_learner() {
            self.0.read_index().await?;
        }
        self.0.machine.check_known(&caller).map_err(to_status)?;
        let members = self.0.machine.with_members(|members| members.list());
        let members = if members.is_empty() {
            self.0.initial.clone()
        } else {
            members
        };
        Ok(Response::new(MemberListResponse {
            header: self.0.header(),
            members,
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        let change = Change::Promote(*request.get_ref());
        let (members, _) = self.submit_change(&request, change).await?;
        Ok(Response::new(MemberPromoteResponse {
            header: self.0.header(),
            members,
        }))
    }
}
