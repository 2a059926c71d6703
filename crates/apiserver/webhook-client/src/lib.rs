//! The client of webhooks: their addresses, credentials and connections. Admission, conversion,
//! audit and authorization call their servers by it, and token issuers are reached the same way.
//!
//! Knows nothing of what it sends. Services are resolved by the watch caches (`resolver`), users
//! are found in a kubeconfig (`kubeconfig`, `credentials`), and `transport` has the connections.
//!
//! Invariant: no server is trusted without verification of its certificate, and no content of a
//! request, a credential or a CA bundle is logged.

mod credentials;
mod endpoint;
mod kubeconfig;
mod resolver;
mod review_version;
mod transport;

pub use credentials::Credentials;
pub use endpoint::{Endpoint, ServiceName};
pub use kubeconfig::Kubeconfig;
pub use resolver::{Address, ClusterIpResolver, EndpointResolver, ServiceResolver};
pub use review_version::ReviewVersion;
pub use transport::{CallError, Post, Transport, describe_tls, verified_client};
