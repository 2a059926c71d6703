//! The Election service.

use super::{kv, session};
use crate::context::ServerContext;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, try_unfold};
use kv_machine::Caller;
use proto_etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::{Compare, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use proto_etcd::v3electionpb::election_server;
use proto_etcd::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ProclaimResponse, ResignRequest, ResignResponse,
};
use std::sync::Arc;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// Implements etcd's Election service.
pub(crate) struct Election(pub Arc<ServerContext>);

/// Returns a transaction that executes `op` only while the leadership holds.
fn while_leading(leader: &LeaderKey, op: Op) -> TxnRequest {
    let still = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: leader.key.clone(),
        range_end: bytes::Bytes::new(),
        target_union: Some(TargetUnion::CreateRevision(leader.rev)),
    };
    TxnRequest {
        compare: vec![still],
        success: vec![RequestOp { request: Some(op) }],
        failure: Vec::new(),
    }
}

/// One caller of `Observe`; the response's body drives it.
struct Observer {
    core: Arc<ServerContext>,
    caller: Caller,
    name: Bytes,
    revisions: watch::Receiver<i64>,
    /// Key and revision of the leader that was sent last.
    seen: Option<(Bytes, i64)>,
}

impl Observer {
    /// Waits for a leader other than the last one; None when the member stops.
    async fn next_leader(&mut self) -> Result<Option<LeaderResponse>, Status> {
        loop {
            tokio::select! {
                changed = self.revisions.changed() => if changed.is_err() { return Ok(None) },
                () = self.core.shutdown.cancelled() => return Ok(None),
            }
            let leader = session::first_in_queue(&self.core, &self.caller, &self.name).await?;
            let seen = leader.as_ref().map(|kv| (kv.key.clone(), kv.mod_revision));
            // Writes to other keys wake the observer too.
            if leader.is_some() && seen != self.seen {
                self.seen = seen;
                return Ok(Some(LeaderResponse {
                    header: self.core.header(),
                    kv: leader,
                }));
            }
        }
    }
}

fn missing_leader_status() -> Status {
    Status::invalid_argument("\"leader\" field must be provided")
}

#[tonic::async_trait]
impl election_server::Election for Election {
    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        let caller = self.0.caller(&request)?;
        let request = request.into_inner();
        let lease = session::ensure_lease(&self.0, &caller, request.lease).await?;
        let (key, rev) =
            session::enqueue_key(&self.0, &caller, &request.name, lease, request.value).await?;
        session::wait_for_turn(&self.0, &caller, &request.name, &key, rev).await?;
        let leader = Some(LeaderKey {
            name: request.name,
            key,
            rev,
            lease,
        });
        Ok(Response::new(CampaignResponse {
            header: self.0.header(),
            leader,
        }))
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let caller = self.0.caller(&request)?;
        let request = request.into_inner();
        let leader = request.leader.ok_or_else(missing_leader_status)?;
        let put = PutRequest {
            key: leader.key.clone(),
            value: request.value,
            lease: leader.lease,
            ..PutRequest::default()
        };
        let answer = kv::execute_txn(
            &self.0,
            &caller,
            while_leading(&leader, Op::RequestPut(put)),
        )
        .await?;
        if !answer.succeeded {
            return Err(Status::failed_precondition("election: session expired"));
        }
        Ok(Response::new(ProclaimResponse {
            header: answer.header,
        }))
    }

    async fn leader(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<LeaderResponse>, Status> {
        let caller = self.0.caller(&request)?;
        let kv = session::first_in_queue(&self.0, &caller, &request.get_ref().name).await?;
        let kv = Some(kv.ok_or_else(|| Status::not_found("election: no leader"))?);
        Ok(Response::new(LeaderResponse {
            header: self.0.header(),
            kv,
        }))
    }

    type ObserveStream = BoxStream<'static, Result<LeaderResponse, Status>>;

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let caller = self.0.caller(&request)?;
        let name = request.into_inner().name;
        let mut revisions = self.0.store().subscribe_revisions();
        // The present leader is the first message.
        revisions.mark_changed();
        let observer = Observer {
            core: self.0.clone(),
            caller,
            name,
            revisions,
            seen: None,
        };
        let leaders = try_unfold(observer, |mut observer| async move {
            let next = observer.next_leader().await?;
            Ok(next.map(|leader| (leader, observer)))
        });
        Ok(Response::new(leaders.boxed()))
    }

    async fn resign(
        &self,
        request: Request<ResignRequest>,
    ) -> Result<Response<ResignResponse>, Status> {
        let caller = self.0.caller(&request)?;
        let leader = request
            .into_inner()
            .leader
            .ok_or_else(missing_leader_status)?;
        let delete = DeleteRangeRequest {
            key: leader.key.clone(),
            ..DeleteRangeRequest::default()
        };
        let answer = kv::execute_txn(
            &self.0,
            &caller,
            while_leading(&leader, Op::RequestDeleteRange(delete)),
        )
        .await?;
        Ok(Response::new(ResignResponse {
            header: answer.header,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_acts_only_while_its_key_is_the_one_that_won() {
        let leader = LeaderKey {
            key: "election/1".into(),
            rev: 7,
            ..LeaderKey::default()
        };
        let txn = while_leading(&leader, Op::RequestPut(PutRequest::default()));
        let compare = &txn.compare[0];
        assert_eq!(compare.key, leader.key);
        assert_eq!(compare.target(), CompareTarget::Create);
        assert_eq!(compare.result(), CompareResult::Equal);
        assert_eq!(compare.target_union, Some(TargetUnion::CreateRevision(7)));
        assert_eq!((txn.success.len(), txn.failure.len()), (1, 0));
    }
}
