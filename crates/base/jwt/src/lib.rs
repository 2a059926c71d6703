//! Signatures of JSON Web Tokens (RFC 7518) with ring: HS256 to HS512, RS256 to RS512, PS256 to
//! PS512, ES256, ES384 and EdDSA with Ed25519.
//!
//! [`install_provider`] connects `jsonwebtoken` with these functions. A crate calls it before it
//! loads a key.

mod der;
mod provider;
mod sign;
mod verify;

pub use provider::{check_signing_key, install_provider};
