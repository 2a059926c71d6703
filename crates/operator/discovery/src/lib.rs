//! Discovery: how a machine that joins a cluster learns the address and the CA of the API server,
//! and verifies both, before it sends a credential.
//!
//! With a bootstrap token, the machine reads the ConfigMap `cluster-info` from a server that it
//! can't verify yet. The signature of the token vouches for the text, and a pinned public key for
//! the CA in it. Then the text is read again over a connection that only the pinned CA can verify.
//! The formats are those of kubeadm, so that either can join the clusters of the other.
//!
//! **Invariant:** the secret part of the token is not sent before the CA is verified, by its pinned
//! key or by a file. `Trust::TokenOnly`, which has to be asked for, gives this up.

mod cluster;
mod discover;
mod endpoint;
mod error;
mod pin;

pub use cluster::{Cluster, verify_cluster_info};
pub use discover::{Trust, discover_cluster};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use error::Error;
pub use pin::{InvalidPin, KeyPin, pin_certificates, retain_pinned};
