//! ServiceAccount tokens: signed by this cluster, bound to existing objects.

mod bindings;
mod claims;
mod discovery;
mod issuer;
mod keys;
mod legacy;
mod verify;

pub use issuer::TokenIssuer;
pub use legacy::{LAST_USED, LegacyUses, TokenMetrics, UsedSecret, is_recorded, to_day};
pub use verify::AccountTokens;

use std::path::PathBuf;

/// `--service-account-*` and `--api-audiences`.
#[derive(Clone, Debug, Default)]
pub struct ServiceAccounts {
    /// Issuers; the first one signs, all are accepted.
    pub issuers: Vec<String>,
    /// Keys (public or private, PEM) that verify tokens.
    pub key_files: Vec<PathBuf>,
    /// The private key that signs tokens.
    pub signing_key_file: Option<PathBuf>,
    /// Audiences of this server; an empty list means the issuers.
    pub audiences: Vec<String>,
    /// Tokens that pods mount live longer than their nominal lifetime, so that old clients keep
    /// working.
    pub extend_expiration: bool,
    /// `--service-account-max-token-expiration` in seconds: longer requests are shortened to this.
    pub max_expiration_seconds: Option<i64>,
    /// `--service-account-jwks-uri`; empty means this server's own address.
    pub jwks_uri: String,
}

impl ServiceAccounts {
    /// Returns the audiences of which a token must name one.
    pub fn api_audiences(&self) -> Vec<String> {
        if self.audiences.is_empty() {
            // All issuers: tokens of a former issuer name it as their audience.
            self.issuers.clone()
        } else {
            self.audiences.clone()
        }
    }
}
