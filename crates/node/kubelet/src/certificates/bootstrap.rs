//! TLS bootstrap: a kubeconfig with a token becomes one with a client certificate.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Config, Identity, Source};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::desired::DesiredCertificate;
use super::error::CertificateError;
use super::request::obtain_pair;
use super::store::{PairStore, read_validity, write_private};

const RETRY: Duration = Duration::from_secs(2);
/// Maximum number of further keys after an unusable certificate. Without it, a faulty signer would
/// get a new request every 2 s.
const UNUSABLE_ATTEMPTS: u32 = 2;

/// Ensures that `kubeconfig` has a valid client certificate. If it has none, requests one with the
/// credentials of `bootstrap`, and writes the file.
///
/// # Errors
/// The bootstrap kubeconfig can't be used, or its request was not granted.
pub(crate) async fn ensure_kubeconfig(
    kubeconfig: &Path,
    bootstrap: &Path,
    store: &PairStore,
    node: &str,
    user_agent: &str,
) -> anyhow::Result<()> {
    match find_defect(kubeconfig, Timestamp::now()) {
        None => return Ok(()),
        Some(defect) => tracing::info!(
            kubeconfig = %kubeconfig.display(),
            defect,
            "requesting a client certificate with --bootstrap-kubeconfig"
        ),
    }
    let config = Config::from_kubeconfig(bootstrap)
        .with_context(|| format!("bootstrap kubeconfig {}", bootstrap.display()))?;
    let client = Client::new(config.user_agent(user_agent));
    let desired = DesiredCertificate {
        node: node.to_owned(),
        addresses: None,
    };
    let mut attempts_left = UNUSABLE_ATTEMPTS;
    loop {
        match obtain_pair(&client, &desired, store).await {
            // The API server may start later than this kubelet.
            Err(CertificateError::Api { what, source }) if source.is_unavailable() => {
                tracing::warn!(%source, what, "trying again");
            }
            Err(error @ CertificateError::Unusable { .. }) if attempts_left > 0 => {
                attempts_left -= 1;
                tracing::warn!(%error, "trying again with a new key");
            }
            done => break done.map_err(explain_rejection)?,
        }
        tokio::time::sleep(RETRY).await;
    }
    let text = format_kubeconfig(client.config(), &store.current_path())?;
    write_private(kubeconfig, text.as_bytes())?;
    Ok(())
}

fn explain_rejection(error: CertificateError) -> anyhow::Error {
    let is_unauthorized = matches!(
        &error,
        CertificateError::Api { source, .. } if source.is_unauthorized()
    );
    let error = anyhow::Error::from(error);
    if is_unauthorized {
        return error.context(
            "the token in --bootstrap-kubeconfig is not valid: it has expired or was deleted; write a new one into that \
             file",
        );
    }
    error
}

/// Returns the reason why a kubeconfig can't be used, if there is one.
fn find_defect(kubeconfig: &Path, now: Timestamp) -> Option<&'static str> {
    if !kubeconfig.exists() {
        return Some("it does not exist");
    }
    let Ok(config) = Config::from_kubeconfig(kubeconfig) else {
        return Some("it can't be read");
    };
    let Some(identity) = config.identity else {
        return Some("it has no client certificate");
    };
    let is_key = |pem: Vec<u8>| base_tls::parse_private_key(&pem, kubeconfig).is_ok();
    if !identity.key.read_bytes().is_ok_and(is_key) {
        return Some("its key can't be read");
    }
    let certificate = identity.certificate.read_bytes().ok();
    match certificate.and_then(|pem| read_validity(&pem)) {
        None => Some("its certificate can't be read"),
        Some(validity) if validity.end <= now => Some("its certificate has expired"),
        Some(_) => None,
    }
}

/// Returns a kubeconfig for the server of `config` that refers to the certificate in `pair`.
fn format_kubeconfig(config: &Config, pair: &Path) -> anyhow::Result<String> {
    let mut cluster = json!({ "server": config.server });
    let mut set = |field: &str, value: Value| cluster[field] = value;
    match &config.ca {
        // Paths in a kubeconfig are relative to it, and the two files may be in different folders.
        Some(Source::File(path)) => set("certificate-authority", json!(std::path::absolute(path)?)),
        Some(Source::Inline(pem)) => set("certificate-authority-data", json!(STANDARD.encode(pem))),
        None => {}
    }
    if let Some(name) = &config.tls_server_name {
        set("tls-server-name", json!(name));
    }
    if config.insecure {
        set("insecure-skip-tls-verify", json!(true));
    }
    let pair = std::path::absolute(pair)?;
    let tree = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "default-cluster", "cluster": cluster }],
        "users": [{
            "name": "default-auth",
            "user": { "client-certificate": pair, "client-key": pair },
        }],
        "contexts": [{
            "name": "default-context",
            "context": { "cluster": "default-cluster", "user": "default-auth", "namespace": "default" },
        }],
        "current-context": "default-context",
    });
    serde_yaml::to_string(&tree).context("the kubeconfig can't be written")
}

/// Makes a client follow the store: its certificate is read from there, and the one of its
/// kubeconfig is copied there first unless the store has a newer one. Returns the configuration
/// unchanged if it has no certificate.
///
/// # Errors
/// The certificate can't be read or written.
pub(crate) fn adopt_identity(mut config: Config, store: &PairStore) -> anyhow::Result<Config> {
    let Some(identity) = &config.identity else {
        return Ok(config);
    };
    let current = Source::File(store.current_path());
    let now = Timestamp::now();
    let is_stale = store.current_validity().is_none_or(|v| v.end <= now);
    if identity.certificate != current && is_stale {
        let text = |source: &Source| anyhow::Ok(String::from_utf8(source.read_bytes()?)?);
        let (certificate, key) = (text(&identity.certificate)?, text(&identity.key)?);
        store.save(&certificate, &key, now)?;
    }
    config.identity = Some(Identity {
        certificate: current.clone(),
        key: current,
    });
    Ok(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// Returns a certificate that ends at this time, and its key.
    fn pair(end: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let end: Timestamp = end.parse().unwrap();
        params.not_after = std::time::SystemTime::from(end).into();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn kubeconfig_is_replaced_unless_its_certificate_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.conf");
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(find_defect(&path, now), Some("it does not exist"));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(find_defect(&path, now), Some("it can't be read"));
        let store = super::super::open_client_store(dir.path());
        let config = Config::builder("https://192.0.2.1:6443");
        let text = format_kubeconfig(&config, &store.current_path()).unwrap();
        write_private(&path, text.as_bytes()).unwrap();
        assert_eq!(find_defect(&path, now), Some("its key can't be read"));
        for (end, defect) in [
            ("2026-01-02T00:00:00Z", None),
            ("2026-01-01T00:00:00Z", Some("its certificate has expired")),
        ] {
            let (certificate, key) = pair(end);
            store.save(&certificate, &key, now).unwrap();
            assert_eq!(find_defect(&path, now), defect, "{end}");
        }
    }

    #[test]
    fn written_kubeconfig_has_the_server_of_the_bootstrap_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.conf");
        for ca in [
            Source::Inline(b"CA".to_vec()),
            Source::File("/ca.crt".into()),
        ] {
            let mut bootstrap = Config::builder("https://[2001:db8::1]:6443")
                .with_ca(ca)
                .with_token(Source::Inline(b"abcdef.0123456789abcdef".to_vec()));
            bootstrap.tls_server_name = Some("kubernetes".to_owned());
            let text = format_kubeconfig(&bootstrap, Path::new("/pki/current.pem")).unwrap();
            assert!(!text.contains("abcdef"), "{text}");
            std::fs::write(&path, text).unwrap();
            let config = Config::from_kubeconfig(&path).unwrap();
            assert_eq!(config.server, bootstrap.server);
            assert_eq!(config.ca, bootstrap.ca);
            assert_eq!(config.tls_server_name, bootstrap.tls_server_name);
            let current = Source::File("/pki/current.pem".into());
            assert_eq!(config.identity.unwrap().certificate, current);
            assert_eq!(config.token, None);
        }
    }

    #[test]
    fn written_kubeconfig_has_absolute_paths() {
        let config = Config::builder("https://h").with_ca(Source::File("ca.crt".into()));
        let text = format_kubeconfig(&config, Path::new("pki/current.pem")).unwrap();
        let folder = std::env::current_dir().unwrap();
        for file in ["ca.crt", "pki/current.pem"] {
            let path = folder.join(file).display().to_string();
            assert!(text.contains(&path), "{path} is not in {text}");
        }
    }

    #[test]
    fn certificate_of_the_kubeconfig_is_adopted_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = super::super::open_client_store(dir.path());
        let config = |pair: &(String, String)| {
            let inline = |text: &str| Source::Inline(text.as_bytes().to_vec());
            Config::builder("https://192.0.2.1").with_identity(inline(&pair.0), inline(&pair.1))
        };
        let (first, second) = (pair("2999-01-01T00:00:00Z"), pair("2998-01-01T00:00:00Z"));
        for given in [&first, &second] {
            let adopted = adopt_identity(config(given), &store).unwrap();
            let identity = adopted.identity.unwrap();
            let pem = String::from_utf8(identity.certificate.read_bytes().unwrap()).unwrap();
            assert!(pem.contains(first.0.trim()), "{pem}");
        }
        let anonymous = Config::builder("https://192.0.2.1");
        assert_eq!(
            adopt_identity(anonymous.clone(), &store).unwrap(),
            anonymous
        );
    }
}
