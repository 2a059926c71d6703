//! Shared parts of API objects: `Status` and `ApiError`, metadata accessors over a JSON tree,
//! quantities, resourceVersions, label and field selectors, names and times.
//!
//! Invariant: all functions are pure, so that server, components and tests agree on their results.

pub mod certificate_request;
pub mod fields;
pub mod kind;
pub mod labels;
pub mod meta;
pub mod names;
pub mod pem;
pub mod quantity;
pub mod resource_version;
pub mod semantic;
pub mod status;
pub mod text;
pub mod time;
pub mod tree;

pub use certificate_request::CertificateRequest;
pub use kind::Kind;
pub use labels::Selector;
pub use meta::Meta;
pub use quantity::Quantity;
pub use status::{ApiError, Cause, Details, Reason, Status};
