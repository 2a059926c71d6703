//! ServiceAccount tokens: signed by this cluster, bound to objects that must still exist.

mod bindings;
mod claims;
mod discovery;
mod issuer;
mod keys;
mod verify;

pub use issuer::TokenIssuer;
pub use verify::AccountTokens;

use std::path::PathBuf;

/// `--service-account-*` and `--api-audiences`.
#[derive(Clone, Debug, Default)]
pub struct ServiceAccounts {
    /// Issuers; the first one signs, all are accepted.
    pub issuers: Vec<String>,
    /// Keys (public or private, PEM) that verify tokens.
    pub key_files: Vec<PathBuf>,
    /// The private key that signs.
    pub signing_key_file: Option<PathBuf>,
    /// Audiences of this server; none means the issuers.
    pub audiences: Vec<String>,
    /// Whether tokens that pods mount live longer than they say, so that old clients keep working.
    pub extend_expiration: bool,
    /// `--service-account-max-token-expiration` in seconds: requests for more get this much.
    pub max_expiration_seconds: Option<i64>,
    /// `--service-account-jwks-uri`; empty means this server's own address.
    pub jwks_uri: String,
}

impl ServiceAccounts {
    /// The audiences that a token must name one of.
    pub fn api_audiences(&self) -> Vec<String> {
        if self.audiences.is_empty() { self.issuers.clone() } else { self.audiences.clone() }
    }
}
