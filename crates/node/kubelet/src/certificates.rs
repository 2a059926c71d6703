//! The kubelet's own certificates, requested from the cluster: the client certificate (TLS
//! bootstrap with a token, then renewal with the certificate itself) and the serving certificate.
//!
//! Keys are made here and never leave the node: only certificate requests do. Files and names are
//! those of upstream's kubelet, so that either can continue with the certificates of the other one.

mod bootstrap;
mod check;
mod desired;
mod error;
mod request;
mod rotation;
mod store;

pub(crate) use bootstrap::{adopt_identity, ensure_kubeconfig};
pub(crate) use error::CertificateError;
pub(crate) use rotation::{keep_client_certificate, keep_serving_certificate};
pub(crate) use store::PairStore;

use std::path::Path;

use jiff::Timestamp;
use rcgen::CertificateParams;

/// Name of the files of the client certificate.
const CLIENT: &str = "kubelet-client";
/// Name of the files of the serving certificate.
const SERVING: &str = "kubelet-server";

/// Opens the store of the client certificate.
pub(crate) fn open_client_store(folder: &Path) -> PairStore {
    PairStore::new(folder, CLIENT)
}

/// Opens the store of the serving certificate.
pub(crate) fn open_serving_store(folder: &Path) -> PairStore {
    PairStore::new(folder, SERVING)
}

/// Ensures that the store has a pair: a self-signed one serves until the cluster has issued the
/// first. Clients that verify certificates reject it.
pub(crate) fn ensure_self_signed_pair(
    store: &PairStore,
    names: Vec<String>,
) -> Result<(), CertificateError> {
    if store.current_validity().is_some() {
        return Ok(());
    }
    let (certificate, key) = base_tls::create_self_signed_pair(|| CertificateParams::new(names))?;
    store.save(&certificate, &key, Timestamp::now())
}
