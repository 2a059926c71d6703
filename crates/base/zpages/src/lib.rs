//! `/statusz` and `/flagz`, the pages on which a component shows its process and its flags.
//!
//! Both are text unless the client requests `Statusz` or `Flagz` of `config.k8s.io` as JSON, YAML
//! or, if the server has it, CBOR. KEPs 4827 and 4828 describe them.
//!
//! Invariant: [`FlagValues`] never holds a value that may be a secret.

mod flags;
mod negotiate;
mod pages;

pub use flags::{FlagValues, flag_values, record_flags};
pub use pages::{AcceptedTypes, FLAGZ, Process, STATUSZ, respond_flagz, respond_statusz};
