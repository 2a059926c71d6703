//! Types and traits shared by the stages of the handler chain: user (`User`), request
//! (`RequestInfo`, `Attributes`), the traits that stages implement (`Authenticator`, `Authorizer`,
//! `Admission`), and read access to cached objects (`Objects`).
//!
//! Invariant: this crate does no IO and knows no concrete stage; stages depend on this crate, never
//! on each other.

mod admission;
mod annotations;
mod authn;
mod authz;
mod info;
mod limits;
mod objects;
mod reinvocation;
#[cfg(feature = "testing")]
pub mod testing;
mod warnings;

pub use admission::{Admission, AdmissionRequest, Operation};
pub use annotations::{AuditAnnotations, annotate_audit, annotate_audit_content};
pub use authn::{Authenticator, AuthnError, Credentials, User};
pub use authz::{
    Attributes, Authorizer, Decision, DecisionFuture, Failure, LocalAuthorizer, UserRules,
};
pub use info::RequestInfo;
pub use objects::{GroupResource, ObjectEvent, Objects, Observer};
pub use reinvocation::{Invocations, Reinvocation};
pub use warnings::Warnings;

#[cfg(test)]
mod tests;
