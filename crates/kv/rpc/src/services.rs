//! Services of the etcd v3 API, and tonic's routes to them.

mod auth;
mod cluster;
mod compression;
mod election;
pub(crate) mod kv;
pub(crate) mod lease;
mod lock;
mod maintenance;
mod session;
mod snapshot;
pub(crate) mod watch;
mod watch_stream;

use crate::context::ServerContext;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::{v3electionpb, v3lockpb};
use std::sync::Arc;
use tonic::service::Routes;

/// Returns the maximum length of a decoded message. It exceeds the allowed request size by 512 KiB;
/// the exact limit is checked when a request is proposed.
pub fn decoding_limit(max_request: usize) -> usize {
    max_request + (512 << 10)
}

/// Returns the routes of all client services.
pub fn grpc_routes(core: &Arc<ServerContext>) -> Routes {
    let limit = core.traffic.max_message;
    let mut routes = Routes::builder();
    macro_rules! sized {
        ($service:expr) => {
            $service
                .max_decoding_message_size(limit)
                .max_encoding_message_size(usize::MAX)
        };
    }
    routes.add_service(sized!(pb::kv_server::KvServer::new(kv::Kv(core.clone()))));
    routes.add_service(sized!(pb::watch_server::WatchServer::new(watch::Watch)));
    routes.add_service(sized!(pb::lease_server::LeaseServer::new(lease::Lease(
        core.clone()
    ))));
    routes.add_service(sized!(pb::cluster_server::ClusterServer::new(
        cluster::Cluster(core.clone())
    )));
    routes.add_service(sized!(pb::maintenance_server::MaintenanceServer::new(
        maintenance::Maintenance(core.clone())
    )));
    routes.add_service(sized!(pb::auth_server::AuthServer::new(auth::Auth(
        core.clone()
    ))));
    routes.add_service(sized!(v3lockpb::lock_server::LockServer::new(lock::Lock(
        core.clone()
    ))));
    routes.add_service(sized!(v3electionpb::election_server::ElectionServer::new(
        election::Election(core.clone())
    )));
    routes.routes()
}
