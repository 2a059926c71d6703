//! A control plane in the test's own process: kvstore with an in-memory engine, an API server on
//! loopback over TLS and, if a test requests them, the controller manager, the scheduler and
//! kubelets on the simulated runtime.
//!
//! The kernel picks every port, and all files are in a directory of the test, so tests can run
//! concurrently. Tests access the API server like clients: through [`Caller`], with their own
//! certificates or tokens.

mod caller;
mod certificates;
mod control_plane;
mod extension;
mod reply;
mod webhook;

pub use caller::Caller;
pub use control_plane::{ApiServer, ControlPlane, Options};
pub use extension::{ExtensionRequest, ExtensionServer};
pub use reply::Reply;
pub use webhook::{
    ClientCertificates, ClientIdentity, ReceivedReview, WebhookReply, WebhookServer,
};
