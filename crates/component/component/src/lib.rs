//! Frame of the components beside the API server: the parts that all of them have in the same form,
//! as in upstream's `component-base` and in the generic part of its API server.
//!
//! - [`Endpoints`] are the pages of a component's own server: health, metrics,
//!   `/statusz` and `/flagz`, its own ones.
//! - [`ServingFlags`], [`AccessFlags`] and [`LeaderElectionFlags`] are flattened into a component's
//!   command line, and start or build what they describe.
//! - [`DelegatedAccess`] checks the callers of a component's own server.
//! - [`self_signed_pair`] makes a serving certificate that is kept for the next start.
//! - [`host_name`] names the machine.
//!
//! Invariant: the crate knows no component. What differs between components is an argument.

mod access_flags;
mod certificate_metric;
mod delegated;
mod election_flags;
mod endpoints;
mod host_name;
mod self_signed;
mod serving_flags;

pub use access_flags::AccessFlags;
pub use base_tls::SelfSignedError;
pub use base_zpages::flag_values;
pub use delegated::{AnswerLifetimes, DelegatedAccess, ReviewError};
pub use election_flags::{InvalidLease, LeaderElectionFlags};
pub use endpoints::{Check, Endpoints, Page, json_page, text_page};
pub use host_name::host_name;
pub use self_signed::self_signed_pair;
pub use serving_flags::{HttpVersions, ServeError, ServingFlags};
