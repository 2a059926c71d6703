//! A client that grants leases, attaches keys to them, keeps some alive and revokes others.

use crate::client::Surroundings;
use crate::entropy::Rng;
use crate::history::{Answer, Request};
use crate::serve::Line;
use bytes::Bytes;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::lease_client::LeaseClient;
use proto_etcd::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
};
use std::time::Duration;
use tonic::Status;

/// A client that holds leases.
pub(crate) struct Holder {
    pub id: u64,
    pub around: Surroundings,
    pub rng: Rng,
}

/// Returns the key that is attached to a lease.
pub(crate) fn lease_key(lease: i64) -> Bytes {
    Bytes::from(format!("lease/{lease}"))
}

impl Holder {
    pub async fn run(mut self) {
        let mut number = 0;
        while !self.around.is_over() {
            number += 1;
            let lease = i64::try_from(self.id * 1_000 + number).unwrap_or(1);
            self.run_lease(lease).await;
            tokio::time::sleep(Duration::from_millis(self.rng.below(200))).await;
        }
    }

    /// Runs one lease from its grant until it ends or is left to expire.
    async fn run_lease(&mut self, lease: i64) {
        let ttl = 1 + i64::try_from(self.rng.below(self.around.plan.longest_ttl)).unwrap_or(0);
        if self
            .carry_out(Request::Grant { lease, ttl })
            .await
            .is_none()
        {
            return;
        }
        let put = PutRequest {
            key: lease_key(lease),
            value: lease_key(lease),
            lease,
            ..PutRequest::default()
        };
        if self.carry_out(Request::Put(put)).await.is_none() {
            return;
        }
        for _ in 0..self.rng.below(8) {
            tokio::time::sleep(Duration::from_millis(100 + self.rng.below(400))).await;
            if !matches!(
                self.carry_out(Request::KeepAlive(lease)).await,
                Some(Answer::Alive(1..))
            ) {
                return;
            }
        }
        if self.rng.once_in(2) {
            self.carry_out(Request::Revoke(lease)).await;
        }
    }

    async fn carry_out(&mut self, request: Request) -> Option<Answer> {
        let line = self.around.random_line(&mut self.rng);
        self.around
            .clone()
            .carry_out(request.clone(), send_request(line, request))
            .await
    }
}

async fn send_request(line: Line, request: Request) -> Result<Answer, Status> {
    let mut leases = LeaseClient::new(line.clone());
    let revision =
        |header: Option<proto_etcd::etcdserverpb::ResponseHeader>| header.map_or(0, |h| h.revision);
    Ok(match request {
        Request::Grant { lease: id, ttl } => {
            let answer = leases
                .lease_grant(LeaseGrantRequest { id, ttl })
                .await?
                .into_inner();
            Answer::Done(revision(answer.header))
        }
        Request::Revoke(id) => {
            let answer = leases
                .lease_revoke(LeaseRevokeRequest { id })
                .await?
                .into_inner();
            Answer::Done(revision(answer.header))
        }
        Request::KeepAlive(id) => {
            let requests = tokio_stream::iter([LeaseKeepAliveRequest { id }]);
            let mut answers = leases.lease_keep_alive(requests).await?.into_inner();
            let answer = answers
                .message()
                .await?
                .ok_or_else(|| Status::unavailable("no answer"))?;
            Answer::Alive(answer.ttl)
        }
        Request::Put(request) => Answer::Put(KvClient::new(line).put(request).await?.into_inner()),
        _ => return Err(Status::internal("not a request of this service")),
    })
}
