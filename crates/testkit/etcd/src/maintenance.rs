//! The maintenance service: the version only.

use crate::services::Services;
use proto_etcd::etcdserverpb as pb;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

const ABSENT: &str = "the etcd in memory has only the version";

#[tonic::async_trait]
impl pb::maintenance_server::Maintenance for Services {
    type SnapshotStream = ReceiverStream<Result<pb::SnapshotResponse, Status>>;

    async fn status(
        &self,
        _: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let version = self.0.version.lock().clone();
        Ok(Response::new(pb::StatusResponse {
            version,
            ..Default::default()
        }))
    }

    async fn alarm(
        &self,
        _: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        Err(Status::unimplemented(ABSENT))
    }

    async fn defragment(
        &self,
        _: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        Err(Status::unimplemented(ABSENT))
    }

    async fn hash(
        &self,
        _: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        Err(Status::unimplemented(ABSENT))
    }

    async fn hash_kv(
        &self,
        _: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        Err(Status::unimplemented(ABSENT))
    }

    async fn snapshot(
        &self,
        _: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(Status::unimplemented(ABSENT))
    }

    async fn move_leader(
        &self,
        _: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        Err(Status::unimplemented(ABSENT))
    }

    async fn downgrade(
        &self,
        _: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        Err(Status::unimplemented(ABSENT))
    }
}
