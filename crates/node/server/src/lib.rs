//! The kubelet's HTTPS server: authentication (client certificates, tokens), authorization
//! (SubjectAccessReview), logs, streams, stats and metrics.
//!
//! Invariant: no request is served before authentication and authorization, except the plain-text
//! `/healthz` on localhost. A stream that runs a command needs `create`, whatever the HTTP method
//! is.

mod access;
mod backend;
mod logs;
mod reply;
mod route;
mod router;
mod stream;

pub use access::{Access, AccessOptions};
pub use backend::{Backend, Failure, LogQuery, LogSource, StreamOptions, StreamTarget};
pub use router::Server;
