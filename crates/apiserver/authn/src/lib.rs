//! Authentication: who sent a request.
//!
//! `Authn` asks its authenticators in the stock server's order (front proxy headers, client certificate, bearer tokens) and
//! falls back to the anonymous user where that is allowed. `TokenIssuer` makes ServiceAccount tokens.
//!
//! Invariants: secrets are compared in constant time; neither a token nor a part of one stands in an error or a log; a
//! request with a bad token is refused, never anonymous; front-proxy headers count only for certificates of their own CA.

mod authn;
mod bootstrap_token;
mod life;
mod request_header;
mod review;
mod secret;
mod service_account;
mod token_file;
mod x509;

pub use authn::{Anonymous, Authn, Options, OptionsError};
pub use life::{CertificateLife, Counts};
pub use request_header::RequestHeader;
pub use review::user_info;
pub use service_account::{AccountTokens, ServiceAccounts, TokenIssuer};
