//! A control plane inside the test's own process: kvstore with its engine in memory, an API server on loopback over
//! real TLS, and, where a test asks for them, the controller manager and kubelets on the simulated runtime.
//!
//! Every port is picked by the kernel and every file lives in a folder of the test, so tests run side by side.
//! Tests talk to the API server as clients do: through [`Caller`], with certificates or tokens of their own.

mod caller;
mod certificates;
mod control_plane;
mod reply;

pub use caller::Caller;
pub use control_plane::{ControlPlane, Options};
pub use reply::Reply;
