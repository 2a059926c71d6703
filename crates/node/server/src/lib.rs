//! The kubelet's HTTPS server: who may ask (client certificates, tokens, SubjectAccessReview), logs, streams, and what
//! the node says about itself.
//!
//! Invariant: nothing is answered before authentication and authorisation, but for `/healthz`'s plain twin on
//! localhost. A stream that is a command's is `create`, whatever the HTTP method is.

mod access;
mod backend;
mod logs;
mod reply;
mod route;
mod router;
mod stream;

pub use access::{Access, AccessOptions, AnswersKept};
pub use backend::{Backend, Failure, LogQuery, LogSource, StreamOptions, StreamTarget};
pub use router::Server;
