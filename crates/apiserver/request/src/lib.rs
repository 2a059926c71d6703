//! What every stage of the request pipeline sees: who asks (`User`), what for (`RequestInfo`, `Attributes`), and the
//! traits that stages implement (`Authenticator`, `Authorizer`, `Admission`) together with the read access to cached
//! objects that they are given (`Objects`).
//!
//! Invariant: nothing here does IO or knows a concrete stage; stages depend on this crate, never on each other.

mod admission;
mod authn;
mod authz;
mod info;
mod objects;

pub use admission::{Admission, AdmissionRequest, Operation};
pub use authn::{Authenticator, AuthnError, Credentials, User};
pub use authz::{Attributes, Authorizer, Decision};
pub use info::RequestInfo;
pub use objects::{GroupResource, ObjectEvent, Objects, Observer};
