//! The flags that name CAs: those that sign, and the one that is published.

use std::path::PathBuf;

use anyhow::bail;
use base_tls::CertificateFiles;

use super::Options;

impl Options {
    /// Returns certificate and key file of each signer that this process serves: its own pair or
    /// the general one.
    ///
    /// # Errors
    /// Only half a pair is given, or own pairs in addition to the general one.
    pub fn signers(&self) -> anyhow::Result<Vec<(&'static str, &PathBuf, &PathBuf)>> {
        let own = [
            (
                controllers_certificates::KUBELET_SERVING,
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
            ),
            (
                controllers_certificates::KUBELET_CLIENT,
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
            ),
            (
                controllers_certificates::CLIENT,
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            ),
            (
                controllers_certificates::LEGACY,
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
            ),
        ];
        let general = require_pair(
            &self.cluster_signing_cert_file,
            &self.cluster_signing_key_file,
            "cluster-signing",
        )?;
        let mut signers = Vec::new();
        for (signer, certificate, key) in own {
            let own = require_pair(
                certificate,
                key,
                &format!("cluster-signing flags of {signer}"),
            )?;
            // With both it is ambiguous who signs for the remaining signers. Upstream rejects the
            // combination as well.
            if own.is_some() && general.is_some() {
                bail!(
                    "--cluster-signing-cert-file and the flags of single signers exclude each other"
                );
            }
            // A signer without a pair is not served here: its requests stay for another signer in
            // the cluster.
            signers.extend(
                own.or(general)
                    .map(|(certificate, key)| (signer, certificate, key)),
            );
        }
        Ok(signers)
    }

    /// Returns the files of the CAs that are published or that sign.
    #[must_use]
    pub fn list_certificate_files(&self) -> CertificateFiles {
        let files = [
            ("root-ca-file", &self.root_ca_file),
            ("cluster-signing-cert-file", &self.cluster_signing_cert_file),
            (
                "cluster-signing-kubelet-serving-cert-file",
                &self.cluster_signing_kubelet_serving_cert_file,
            ),
            (
                "cluster-signing-kubelet-client-cert-file",
                &self.cluster_signing_kubelet_client_cert_file,
            ),
            (
                "cluster-signing-kube-apiserver-client-cert-file",
                &self.cluster_signing_kube_apiserver_client_cert_file,
            ),
            (
                "cluster-signing-legacy-unknown-cert-file",
                &self.cluster_signing_legacy_unknown_cert_file,
            ),
        ];
        let named = files.map(|(flag, path)| Some((flag, path.clone()?)));
        CertificateFiles::new(named.into_iter().flatten().collect())
    }
}

/// Returns certificate and key file: both or none.
fn require_pair<'f>(
    certificate: &'f Option<PathBuf>,
    key: &'f Option<PathBuf>,
    what: &str,
) -> anyhow::Result<Option<(&'f PathBuf, &'f PathBuf)>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => bail!("{what}: the cert-file and the key-file go together"),
    }
}
