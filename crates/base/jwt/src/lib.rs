//! Signatures of JSON Web Tokens (RFC 7518) with ring: HS256 to HS512, RS256 to RS512, PS256 to
//! PS512, ES256, ES384 and EdDSA with Ed25519.
//!
//! [`install_provider`] connects `jsonwebtoken` with these functions. A crate calls it before it
//! loads a key.

//!
//! [`UnverifiedToken`] reads the tokens of other issuers, whose keys [`parse_key_set`] reads.

mod der;
mod key_set;
mod provider;
mod sign;
mod token;
mod verify;

pub use key_set::{KeySetError, PublicKey, parse_key_set};
pub use provider::{check_signing_key, install_provider};
pub use token::{MAX_TOKEN_BYTES, UnverifiedToken, VerifyError};
