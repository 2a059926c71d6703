//! Tokens of other issuers, by an AuthenticationConfiguration of `apiserver.config.k8s.io` or the
//! flags `--oidc-*`.
//!
//! Decisions are pure: reading (`config`, `file`), validation with compilation (`validate`), claims
//! to users (`mapping`). IO is in `keys`, through
//! [`KeyFetcher`].

mod authenticator;
mod config;
mod environment;
mod expression;
mod file;
mod keys;
mod mapping;
mod mapping_error;
mod metrics;
mod reload;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

pub use config::{
    AuthenticationConfiguration, ClaimMappings, ClaimRule, ExtraMapping, IssuerConfig, JwtConfig,
    PrefixedMapping, UidMapping, UserRule,
};
pub use environment::{FetchError, IssuerEnvironment, KeyFetcher, MAX_DOCUMENT};
pub use file::{LoadedConfiguration, check_authentication_config, read_authentication_config};
pub use metrics::JwtMetrics;
pub use reload::JwtTokens;
