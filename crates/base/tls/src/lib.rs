//! rustls configurations from PEM files. The server side notices changed files and uses them for
//! the next handshake, so certificates rotate without a restart.
//!
//! Invariant: one crypto provider (ring), TLS 1.2 and 1.3 only; private keys are read, never
//! logged.

mod certificate_files;
mod client;
mod files;
mod followed;
mod offer;
mod pem;
mod self_signed;
mod server;
mod signing_key;
pub mod testing;

pub use certificate_files::CertificateFiles;
pub use client::{ClientTls, client_config};
pub use files::{write_file_atomically, write_file_for_group};
pub use followed::Followed;
pub use offer::Offer;
pub use pem::{
    TlsError, find_first_expiration, parse_certificates, parse_private_key, parse_roots, read_file,
};
pub use rustls;
pub use self_signed::{SelfSignedError, create_self_signed_pair, ensure_self_signed_pair};
pub use server::{
    ClientAuth, ClientCa, ServerTls, certified_key_of_pem, resolving_config, self_signed_config,
    self_signed_key, server_config, server_config_of, server_config_with,
};
pub use signing_key::load_signing_key;

use std::sync::Arc;

/// Returns the crypto provider of every TLS connection.
pub fn crypto_provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
