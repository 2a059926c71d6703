//! Authentication: finds the user of a request.
//!
//! `Authn` tries its authenticators in the stock server's order (front proxy headers, client
//! certificate, bearer tokens) and falls back to the anonymous user if that is allowed.
//! `TokenIssuer` issues ServiceAccount tokens.
//!
//! Invariants: secrets are compared in constant time; no token or part of one appears in an error
//! or a log; a request with an invalid token is rejected and never anonymous; front-proxy headers
//! count only with a certificate of the front proxies' own CA.

mod anonymous;
mod authn;
mod bootstrap_token;
mod ca_bundle;
mod jwt;
mod life;
mod options_error;
mod pem_block;
mod request_header;
mod review;
mod secret;
mod service_account;
mod token_file;
mod x509;

pub use anonymous::Anonymous;
pub use authn::{Authn, Options};
pub use ca_bundle::combine_ca_bundles;
pub use jwt::{
    AuthenticationConfiguration, ClaimMappings, ClaimRule, ExtraMapping, FetchError, IssuerConfig,
    IssuerEnvironment, JwtConfig, JwtMetrics, JwtTokens, KeyFetcher, LoadedConfiguration,
    MAX_DOCUMENT, PrefixedMapping, UidMapping, UserRule, check_authentication_config,
    read_authentication_config,
};
pub use life::CertificateLife;
pub use options_error::OptionsError;
pub use request_header::RequestHeader;
pub use service_account::{
    AccountTokens, LAST_USED, LegacyUses, ServiceAccounts, TokenIssuer, TokenMetrics, UsedSecret,
    is_recorded, to_day,
};

#[cfg(test)]
mod tests;
