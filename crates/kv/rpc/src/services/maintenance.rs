//! The Maintenance service: requests of operators to one member.

use crate::context::{ServerContext, to_status};
use crate::data_hash::{self, HashResult};
use kv_config::{API_VERSION, CLUSTER_VERSION};
use kv_machine::{Command, EtcdError, Outcome};
use proto_etcd::etcdserverpb::downgrade_request::DowngradeAction;
use proto_etcd::etcdserverpb::maintenance_server;
use proto_etcd::etcdserverpb::*;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Implements etcd's Maintenance service.
pub(crate) struct Maintenance(pub Arc<ServerContext>);

type RpcResult<T> = Result<Response<T>, Status>;

impl Maintenance {
    fn admin_caller<T>(&self, request: &Request<T>) -> Result<kv_machine::Caller, Status> {
        let caller = self.0.caller(request)?;
        self.0.machine.check_admin(&caller).map_err(to_status)?;
        Ok(caller)
    }
}

#[tonic::async_trait]
impl maintenance_server::Maintenance for Maintenance {
    async fn alarm(&self, request: Request<AlarmRequest>) -> RpcResult<AlarmResponse> {
        let caller = self.0.caller(&request)?;
        match self
            .0
            .submit(&caller, Command::Alarm(*request.get_ref()))
            .await?
        {
            (Outcome::Alarms(alarms), header) => {
                Ok(Response::new(AlarmResponse { header, alarms }))
            }
            _ => Err(Status::internal("the answer does not fit the request")),
        }
    }

    async fn status(&self, request: Request<StatusRequest>) -> RpcResult<StatusResponse> {
        let caller = self.0.caller(&request)?;
        // Every user may read the status: clients choose an endpoint and detect a missing leader by
        // it.
        self.0.machine.check_known(&caller).map_err(to_status)?;
        let core = &self.0;
        let node = core.node.status();
        let size = i64::try_from(core.machine.data_size()).unwrap_or(i64::MAX);
        let mut errors: Vec<String> = core
            .machine
            .list_alarms()
            .iter()
            .map(|alarm| {
                format!(
                    "memberID:{} alarm:{} ",
                    alarm.member_id,
                    alarm.alarm().as_str_name()
                )
            })
            .collect();
        // In the list of errors, not as a failure: the status is needed most when the cluster has
        // no leader.
        if !node.has_leader {
            errors.push(EtcdError::NoLeader.to_string());
        }
        Ok(Response::new(StatusResponse {
            header: core.header(),
            version: API_VERSION.to_owned(),
            db_size: size,
            leader: node.leader.filter(|_| node.has_leader).unwrap_or_default(),
            raft_index: node.last_index.max(node.applied),
            raft_term: node.term,
            raft_applied_index: node.applied,
            errors,
            db_size_in_use: size,
            is_learner: core.is_learner(),
            storage_version: "3.6.0".to_owned(),
            db_size_quota: i64::try_from(core.bounds.quota).unwrap_or(i64::MAX),
            downgrade_info: Some(DowngradeInfo::default()),
        }))
    }

    /// Defragments without interrupting the service.
    async fn defragment(
        &self,
        request: Request<DefragmentRequest>,
    ) -> RpcResult<DefragmentResponse> {
        // It costs disk throughput on this member, so that only administrators may request it.
        self.admin_caller(&request)?;
        self.0
            .machine
            .release_space()
            .await
            .map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(DefragmentResponse {
            header: self.0.header(),
        }))
    }

    async fn hash(&self, request: Request<HashRequest>) -> RpcResult<HashResponse> {
        self.admin_caller(&request)?;
        // Revision 0 means the current one.
        let hash = data_hash::hash_locally(&self.0, 0)
            .await
            .map_err(to_status)?
            .hash;
        Ok(Response::new(HashResponse {
            header: self.0.header(),
            hash,
        }))
    }

    async fn hash_kv(&self, request: Request<HashKvRequest>) -> RpcResult<HashKvResponse> {
        self.admin_caller(&request)?;
        let hashed = data_hash::hash_locally(&self.0, request.get_ref().revision)
            .await
            .map_err(to_status)?;
        let HashResult {
            hash,
            revision: hash_revision,
            compacted: compact_revision,
        } = hashed;
        let header = self
            .0
            .header_at(hash_revision.max(self.0.store().current_revision()));
        Ok(Response::new(HashKvResponse {
            header,
            hash,
            compact_revision,
            hash_revision,
        }))
    }

    type SnapshotStream = ReceiverStream<Result<SnapshotResponse, Status>>;

    async fn snapshot(&self, request: Request<SnapshotRequest>) -> RpcResult<Self::SnapshotStream> {
        self.admin_caller(&request)?;
        Ok(Response::new(
            super::snapshot::stream_snapshot(&self.0).await?,
        ))
    }

    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> RpcResult<MoveLeaderResponse> {
        self.admin_caller(&request)?;
        let target = request.get_ref().target_id;
        let node = self.0.node.status();
        // Not forwarded, as in etcd: operators address the leader to be sure which member loses its
        // role.
        if !node.leading {
            return Err(to_status(EtcdError::NotLeader));
        }
        let voter = self
            .0
            .machine
            .with_members(|members| members.get(target).is_some_and(|member| !member.is_learner));
        // Both lists: a member that was promoted a moment ago is a voter of the store, but not yet
        // of Raft.
        if !voter || !node.voters.contains(&target) {
            return Err(to_status(EtcdError::BadTransferee));
        }
        if target != self.0.identity.member {
            let moved = self
                .0
                .node
                // Longer than an election with the default timeout, so that the client learns the
                // result.
                .transfer_leadership(target, Duration::from_secs(6))
                .await;
            moved.map_err(|_| to_status(EtcdError::TimedOutLostLeader))?;
        }
        Ok(Response::new(MoveLeaderResponse {
            header: self.0.header(),
        }))
    }

    async fn downgrade(&self, request: Request<DowngradeRequest>) -> RpcResult<DowngradeResponse> {
        self.admin_caller(&request)?;
        let (action, target) = (
            request.get_ref().action(),
            parse_version(&request.get_ref().version),
        );
        // etcd checks the version before it asks the other members.
        let target = match action {
            DowngradeAction::Cancel => None,
            _ => Some(
                target
                    .ok_or(EtcdError::BadDowngradeVersion)
                    .map_err(to_status)?,
            ),
        };
        // As in etcd, a member without a quorum validates nothing.
        self.0.read_index().await?;
        let allowed = target.is_none_or(|target| may_downgrade(action, target));
        if !allowed {
            return Err(to_status(EtcdError::InvalidDowngrade));
        }
        Ok(Response::new(DowngradeResponse {
            header: self.0.header(),
            version: CLUSTER_VERSION.to_owned(),
        }))
    }
}

/// Parses major and minor number of a version. A patch number and suffixes are ignored.
fn parse_version(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version
        .split(['-', '+'])
        .next()?
        .split('.')
        .map(|number| number.parse::<u64>().ok());
    let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next());
    (patch != Some(None) && numbers.next().is_none()).then_some((major, minor))
}

/// Returns whether a downgrade may be validated: for etcd, to the version before this one. No older
/// version can read these data directories, so a downgrade can be validated but not enabled.
fn may_downgrade(action: DowngradeAction, target: (u64, u64)) -> bool {
    let (major, minor) = self::parse_version(API_VERSION).unwrap_or_default();
    action == DowngradeAction::Validate
        && Some(target.1) == minor.checked_sub(1)
        && target.0 == major
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downgrade_to_the_previous_minor_is_validated_and_never_enabled() {
        for (text, expect) in [
            ("3.5", Some((3, 5))),
            ("3.5.0", Some((3, 5))),
            ("3.5.0-rc.1", Some((3, 5))),
            ("", None),
            ("3", None),
            ("3.x", None),
            ("3.5.0.1", None),
            ("v3.5", None),
        ] {
            assert_eq!(parse_version(text), expect, "{text}");
        }
        assert!(may_downgrade(DowngradeAction::Validate, (3, 5)));
        assert!(!may_downgrade(DowngradeAction::Validate, (3, 6)));
        assert!(!may_downgrade(DowngradeAction::Enable, (3, 5)));
        assert!(API_VERSION.starts_with(CLUSTER_VERSION));
    }
}
