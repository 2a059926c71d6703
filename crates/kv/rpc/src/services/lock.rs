//! The Lock service.

use super::session;
use crate::context::ServerContext;
use bytes::Bytes;
use proto_etcd::v3lockpb::lock_server;
use proto_etcd::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Implements etcd's Lock service.
pub(crate) struct Lock(pub Arc<ServerContext>);

#[tonic::async_trait]
impl lock_server::Lock for Lock {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let caller = self.0.caller(&request)?;
        let request = request.into_inner();
        let lease = session::ensure_lease(&self.0, &caller, request.lease).await?;
        let (key, created) =
            session::enqueue_key(&self.0, &caller, &request.name, lease, Bytes::new()).await?;
        session::wait_for_turn(&self.0, &caller, &request.name, &key, created).await?;
        Ok(Response::new(LockResponse {
            header: self.0.header(),
            key,
        }))
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let caller = self.0.caller(&request)?;
        session::leave_queue(&self.0, &caller, request.into_inner().key).await?;
        Ok(Response::new(UnlockResponse {
            header: self.0.header(),
        }))
    }
}
