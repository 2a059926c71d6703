//! The harness of the integration tests: a control plane in the test's process, over TLS and HTTP/2.
//!
//! `tests/api` has the tests of the API server on kvstore, `tests/cluster` those of a whole
//! cluster: controllers, scheduler and kubelets on the simulated runtime. Each is one binary with
//! one file per area. Tests that run at the same time share a cluster, and each has a namespace of
//! its own. `tests/api/create.rs` begins with a short test.

mod cluster;
mod http2;
mod objects;
pub mod protobuf;
mod reply;
mod test;
mod wait;
mod watch;

pub use cluster::{Cluster, Components, NODES};
pub use http2::{Http2Client, PatchType};
pub use objects::{
    config_map, deployment, find_condition, grant_rule, has_condition, name_of, node, pod, pod_with,
};
pub use reply::ReplyExt;
pub use test::Test;
pub use testkit_control_plane::{Caller, ControlPlane, Reply};
pub use wait::{DEADLINE, wait_for, wait_for_value};
pub use watch::Watch;
