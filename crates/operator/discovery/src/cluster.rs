//! The API server of a cluster, as a joining machine knows it: URL and CA, read from a kubeconfig
//! without credentials.

use std::path::Path;

use api_bootstrap::{BootstrapToken, KUBECONFIG_KEY, SIGNATURE_PREFIX, is_signature_valid};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::pin::{KeyPin, pin_certificates, retain_pinned};

const CLUSTER_INFO: &str = "the kubeconfig in cluster-info";

/// The API server of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Address of the API server.
    pub server: Endpoint,
    /// CA certificates in PEM.
    pub ca: String,
}

impl Cluster {
    /// Reads the only cluster of a kubeconfig, or that of its current context. Users are ignored.
    ///
    /// # Errors
    /// The text has no such cluster, or one without a CA or with a server without TLS.
    pub fn from_kubeconfig(text: &str, what: &str) -> Result<Self, Error> {
        let failed = |defect: &str| Error::Kubeconfig {
            what: what.to_owned(),
            defect: defect.to_owned(),
        };
        let cluster = client::read_cluster(text).map_err(|_| failed("is no kubeconfig"))?;
        let cluster = cluster.ok_or_else(|| {
            failed("must have exactly one cluster, or a current context that names one of several")
        })?;
        if cluster.insecure_skip_tls_verify {
            return Err(failed("must not have insecure-skip-tls-verify"));
        }
        let server = Endpoint::from_url(&cluster.server)
            .map_err(|_| failed("must have a server of the form https://HOST:PORT"))?;
        let ca = cluster
            .certificate_authority_data
            .and_then(|data| STANDARD.decode(data.trim()).ok())
            .and_then(|pem| String::from_utf8(pem).ok())
            .filter(|pem| !pin_certificates(pem.as_bytes()).is_empty())
            .ok_or_else(|| failed("must have CA certificates as certificate-authority-data"))?;
        Ok(Self { server, ca })
    }

    /// Reads a discovery file: a kubeconfig that came from the cluster over a trusted channel. If
    /// there are pins, only the CA certificates with a pinned key are returned.
    ///
    /// # Errors
    /// The file can't be read, lacks something, or has no certificate with a pinned key.
    pub async fn from_file(path: &Path, pins: &[KeyPin]) -> Result<Self, Error> {
        let text = tokio::fs::read_to_string(path).await;
        let text = text.map_err(|source| Error::File {
            path: path.display().to_string(),
            source,
        })?;
        let mut cluster = Self::from_kubeconfig(&text, &path.display().to_string())?;
        if !pins.is_empty() {
            cluster.ca = cluster.pinned_ca(pins)?;
        }
        Ok(cluster)
    }

    /// Returns the CA certificates with a pinned key.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn pinned_ca(&self, pins: &[KeyPin]) -> Result<String, Error> {
        let ca = retain_pinned(self.ca.as_bytes(), pins);
        if !ca.is_empty() {
            return Ok(ca);
        }
        let found = pin_certificates(self.ca.as_bytes());
        let found: Vec<_> = found.iter().map(KeyPin::to_string).collect();
        Err(Error::NotPinned {
            found: found.join(", "),
        })
    }
}

/// Returns the kubeconfig of a cluster-info ConfigMap if the token has signed it.
///
/// # Errors
/// The map has no kubeconfig, no signature of the token, or another one.
pub fn verify_cluster_info<'a>(
    map: &'a ConfigMap,
    token: &BootstrapToken,
) -> Result<&'a str, Error> {
    let value = |key: &str| map.data.as_ref().and_then(|data| data.get(key));
    let id = || token.id().to_owned();
    let text = value(KUBECONFIG_KEY)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Error::Kubeconfig {
            what: "the ConfigMap cluster-info".to_owned(),
            defect: "has no kubeconfig: the cluster is not set up for joining".to_owned(),
        })?;
    let signature = value(&format!("{SIGNATURE_PREFIX}{}", token.id()))
        .ok_or_else(|| Error::Unsigned { id: id() })?;
    if !is_signature_valid(signature, text, token) {
        return Err(Error::Signature { id: id() });
    }
    Ok(text)
}

/// Reads the cluster of a verified cluster-info.
pub(crate) fn read_cluster_info(text: &str) -> Result<Cluster, Error> {
    Cluster::from_kubeconfig(text, CLUSTER_INFO)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_bootstrap::sign_content;

    const CA: &str = include_str!("pin_tests_ca.pem");

    fn kubeconfig(server: &str, ca: &str, more: &str) -> String {
        let ca = STANDARD.encode(ca);
        format!(
            "clusters:\n- name: \"\"\n  cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n{more}"
        )
    }

    #[test]
    fn cluster_needs_a_server_with_tls_and_a_ca() {
        let url = "https://192.0.2.1:6443";
        let two = "- name: b\n  cluster: {server: 'https://192.0.2.2:6443'}\n";
        let skip = "    insecure-skip-tls-verify: true\n";
        for (text, expected) in [
            (kubeconfig(url, CA, ""), "ok"),
            (kubeconfig(url, CA, "users: null\ncontexts: null\n"), "ok"),
            (
                kubeconfig("http://192.0.2.1:6443", CA, ""),
                "https://HOST:PORT",
            ),
            (
                kubeconfig("https://u@192.0.2.1", CA, ""),
                "https://HOST:PORT",
            ),
            (kubeconfig(url, "", ""), "CA certificates"),
            (kubeconfig(url, "no PEM", ""), "CA certificates"),
            (kubeconfig(url, CA, skip), "insecure-skip-tls-verify"),
            (kubeconfig(url, CA, two), "exactly one cluster"),
            ("clusters: []".to_owned(), "exactly one cluster"),
            ("{}".to_owned(), "exactly one cluster"),
            ("[".to_owned(), "is no kubeconfig"),
        ] {
            match Cluster::from_kubeconfig(&text, "f") {
                Ok(cluster) => {
                    assert_eq!(expected, "ok", "{text}");
                    assert_eq!(cluster.server.url(), url);
                    assert_eq!(cluster.ca, CA);
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        error.starts_with("f ") && error.contains(expected),
                        "{text}: {error}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn pins_apply_to_the_ca_of_a_file() {
        let path = std::env::temp_dir().join(format!("ironclad-discovery-{}", std::process::id()));
        std::fs::write(&path, kubeconfig("https://192.0.2.1:6443", CA, "")).unwrap();
        let own = pin_certificates(CA.as_bytes());
        let other: KeyPin = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let read = async |pins: &[KeyPin]| Cluster::from_file(&path, pins).await;
        for pins in [&[][..], own.as_slice(), &[other, own[0]]] {
            assert_eq!(read(pins).await.unwrap().ca, CA);
        }
        let error = read(&[other]).await.unwrap_err();
        assert!(matches!(error, Error::NotPinned { .. }), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(read(&[]).await, Err(Error::File { .. })));
    }

    #[test]
    fn cluster_info_is_valid_with_the_signature_of_the_token_only() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        let other: BootstrapToken = "abcdef.0123456789abcdeg".parse().unwrap();
        let map = |signature: Option<String>, text: &str| {
            let mut map = ConfigMap::default();
            let data = map.data.get_or_insert_default();
            data.insert(KUBECONFIG_KEY.to_owned(), text.to_owned());
            data.extend(
                signature.map(|signature| (format!("{SIGNATURE_PREFIX}abcdef"), signature)),
            );
            map
        };
        let check = |map: &ConfigMap| verify_cluster_info(map, &token).map(str::to_owned);
        let good = map(Some(sign_content("text", &token)), "text");
        assert_eq!(check(&good).unwrap(), "text");
        for (map, expected) in [
            (
                map(Some(sign_content("text", &other)), "text"),
                "does not match token abcdef",
            ),
            (
                map(Some(sign_content("text", &token)), "other"),
                "does not match token abcdef",
            ),
            (map(None, "text"), "no signature of token abcdef"),
            (map(Some(String::new()), ""), "has no kubeconfig"),
            (ConfigMap::default(), "has no kubeconfig"),
        ] {
            let error = check(&map).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains(token.secret()), "{error}");
        }
    }
}
