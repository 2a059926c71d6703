//! The keys of the control plane for the machines that join it: encrypted in the Secret
//! `kubeadm-certs`, in the format of kubeadm, so that `kubeadm join --control-plane` reads it, too.
//!
//! The Secret is owned by a token without any usage: when that expires, the token cleaner deletes
//! it, and the garbage collector deletes the Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use api_bootstrap::{Expiration, TokenSecret};
use client::Client;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use operator_discovery::pin_certificates;
use operator_pki::{
    CertificateKey, KeyMismatch, SealError, find_mismatched_key, list_shared_files,
    write_shared_file,
};
use serde_json::{Value, json};

use crate::addons::ensure_object;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::random_token::{compute_end, generate_token};

const NAMESPACE: &str = "kube-system";
const SECRET: &str = "kubeadm-certs";
const ROLE: &str = "kubeadm:kubeadm-certs";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of tokens that may read the cipher text. Tokens for workers are not in it.
// kubeadm's `NodeBootstrapTokenAuthGroup`, to which its role for the Secret is bound.
pub(crate) const CONTROL_PLANE_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// Time for which the Secret exists.
// kubeadm's `DefaultCertTokenDuration`.
pub(crate) const KEYS_LIFETIME: Duration = Duration::from_secs(2 * 3600);

/// Encrypts the keys under a fresh key, and stores them in the cluster.
pub(crate) async fn upload_keys(client: &Client, layout: &Layout) -> Result<CertificateKey> {
    let key = CertificateKey::generate().map_err(|error| Error::Refused(error.to_string()))?;
    let data = seal_files(layout, &key)?;
    let owner = create_owner(client).await?;
    let namespace = NAMESPACE;
    // The rights first: nothing can be read with them as long as there is no Secret.
    ensure_object(client.namespaced::<Role>(namespace), &build_reader_role()).await?;
    ensure_object(
        client.namespaced::<RoleBinding>(namespace),
        &build_reader_binding(),
    )
    .await?;
    ensure_object(
        client.namespaced::<Secret>(namespace),
        // A merge replaces all entries and the owner: the key of an earlier upload opens nothing
        // any more.
        &format_secret(&data, &owner),
    )
    .await?;
    Ok(key)
}

fn seal_files(layout: &Layout, key: &CertificateKey) -> Result<BTreeMap<String, ByteString>> {
    let mut data = BTreeMap::new();
    for file in list_shared_files() {
        let path = layout.pki().join(file.path);
        let content = std::fs::read(&path).map_err(Error::io(&path))?;
        let sealed = key
            .seal(&content)
            .map_err(|error| Error::Refused(error.to_string()))?;
        data.insert(file.entry.to_owned(), ByteString(sealed));
    }
    Ok(data)
}

/// Creates the token whose expiration ends the life of the Secret.
async fn create_owner(client: &Client) -> Result<Secret> {
    let end = compute_end(Timestamp::now(), KEYS_LIFETIME).ok_or_else(|| {
        Error::Refused("the clock of this machine is not right; correct it".into())
    })?;
    let token = TokenSecret {
        token: generate_token()?,
        // kubeadm's text, which `kubeadm token list` shows.
        description: "Proxy for managing TTL for the kubeadm-certs secret".to_owned(),
        expiration: Expiration::At(end),
        // Without a usage it authenticates no client.
        signs: false,
        authenticates: false,
        groups: Vec::new(),
    };
    let secrets = client.namespaced::<Secret>(NAMESPACE);
    let created = secrets.create(&token.to_secret()).await;
    created.map_err(|cause| Error::Api {
        what: format!("creating the owner of {SECRET}"),
        cause,
    })
}

fn format_secret(data: &BTreeMap<String, ByteString>, owner: &Secret) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET,
            "namespace": NAMESPACE,
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Secret",
                "name": owner.metadata.name,
                "uid": owner.metadata.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "data": data,
    })
}

fn build_reader_role() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "Role",
        "metadata": { "name": ROLE, "namespace": NAMESPACE },
        "rules": [{
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [SECRET],
            "verbs": ["get"],
        }],
    })
}

fn build_reader_binding() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": { "name": ROLE, "namespace": NAMESPACE },
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": ROLE },
        "subjects": [{ "apiGroup": RBAC, "kind": "Group", "name": CONTROL_PLANE_GROUP }],
    })
}

/// Reads and decrypts the keys. Nothing is written before all of them are known to be right.
///
/// # Errors
/// The token may not read them, they have expired, or the key is another one.
pub(crate) async fn download_keys(
    client: &Client,
    key: &CertificateKey,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let create = "run `ironclad token create --control-plane` on a machine of the control plane, which prints another command";
    let secret = client.namespaced::<Secret>(NAMESPACE).get(SECRET).await;
    let secret = secret.map_err(|cause| {
        if cause.is_forbidden() {
            Error::Refused(format!("the token is one for workers; {create}"))
        } else if cause.is_not_found() {
            Error::Refused(format!(
                "the cluster has no keys for machines that join its control plane; they expire after 2 hours; if they \
                 were created later than that, the clocks of its machines differ; {create}"
            ))
        } else {
            Error::Api {
                what: format!("reading the Secret {SECRET}"),
                cause,
            }
        }
    })?;
    open_files(&secret.data.unwrap_or_default(), key)
        .map_err(|defect| Error::Refused(format!("the Secret {SECRET}: {defect}; {create}")))
}

/// A defect of the Secret with the keys.
#[derive(Debug, thiserror::Error)]
enum KeysDefect {
    #[error("it has no entry {0}")]
    Absent(&'static str),
    #[error("--certificate-key is not its key: {entry}: {source}")]
    Sealed {
        entry: &'static str,
        source: SealError,
    },
}

/// Decrypts the entries of the Secret.
fn open_files(
    data: &BTreeMap<String, ByteString>,
    key: &CertificateKey,
) -> std::result::Result<BTreeMap<String, Vec<u8>>, KeysDefect> {
    let mut opened = BTreeMap::new();
    for file in list_shared_files() {
        let sealed = data.get(file.entry);
        let sealed = sealed.ok_or(KeysDefect::Absent(file.entry))?;
        let content = key.open(&sealed.0).map_err(|source| KeysDefect::Sealed {
            entry: file.entry,
            source,
        })?;
        opened.insert(file.entry.to_owned(), content);
    }
    Ok(opened)
}

/// Rejects keys that are not those of the cluster which the machine verified: a Secret of a former
/// cluster, or one that was changed.
///
/// # Errors
/// The CA is another one, or a key does not fit its certificate.
pub(crate) fn check_keys(keys: &BTreeMap<String, Vec<u8>>, verified_ca: &str) -> Result<()> {
    let create =
        "run `ironclad token create --control-plane` again on a machine of the control plane";
    let found = keys.get("ca.crt").map(|ca| pin_certificates(ca));
    let verified = pin_certificates(verified_ca.as_bytes());
    // The first one signs; others of a bundle are former ones.
    let first = found.and_then(|pins| pins.into_iter().next());
    if !first.is_some_and(|pin| verified.contains(&pin)) {
        return Err(Error::Refused(format!(
            "the Secret {SECRET} has another CA than the cluster; {create}"
        )));
    }
    match find_mismatched_key(keys) {
        None => Ok(()),
        Some(KeyMismatch { private, public }) => Err(Error::Refused(format!(
            "the Secret {SECRET}: {private} is not the key of {public}; {create}"
        ))),
    }
}

/// Writes the decrypted keys, each with its mode.
pub(crate) fn write_keys(layout: &Layout, keys: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    crate::files::create_dir(&layout.pki(), 0o711)?;
    for file in list_shared_files() {
        if let Some(content) = keys.get(file.entry) {
            write_shared_file(&layout.pki(), file, content)?;
        }
    }
    Ok(())
}

/// Returns whether this machine has all keys.
pub(crate) fn has_keys(layout: &Layout) -> bool {
    let files = list_shared_files();
    files
        .iter()
        .all(|file| layout.pki().join(file.path).is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::addons::TOKEN_GROUP;

    #[test]
    fn keys_arrive_at_the_machine_with_the_certificate_key_only() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (from, to) = (
            Layout::new(first.path(), false),
            Layout::new(second.path(), false),
        );
        for file in list_shared_files() {
            write_shared_file(&from.pki(), file, file.path.as_bytes()).unwrap();
        }
        let key = CertificateKey::generate().unwrap();
        let mut data = seal_files(&from, &key).unwrap();
        let entries: Vec<_> = data.keys().map(String::as_str).collect();
        // The names of kubeadm.
        assert_eq!(
            entries,
            [
                "ca.crt",
                "ca.key",
                "etcd-ca.crt",
                "etcd-ca.key",
                "front-proxy-ca.crt",
                "front-proxy-ca.key",
                "sa.key",
                "sa.pub"
            ]
        );
        let other = CertificateKey::generate().unwrap();
        let defect = open_files(&data, &other).unwrap_err().to_string();
        assert!(
            defect.contains("--certificate-key is not its key"),
            "{defect}"
        );
        assert!(!has_keys(&to));
        write_keys(&to, &open_files(&data, &key).unwrap()).unwrap();
        assert!(has_keys(&to));
        let read = |path| std::fs::read_to_string(to.pki().join(path)).unwrap();
        assert_eq!(
            (read("etcd/ca.key"), read("ca.crt")),
            ("etcd/ca.key".into(), "ca.crt".into())
        );
        data.remove("sa.key");
        assert!(
            open_files(&data, &key)
                .unwrap_err()
                .to_string()
                .contains("no entry sa.key")
        );
    }

    #[test]
    fn keys_of_another_cluster_are_rejected() {
        let read = |dir: &std::path::Path| {
            let mut keys = BTreeMap::new();
            operator_pki::ensure_service_account_key(dir).unwrap();
            for entry in ["sa.key", "sa.pub"] {
                keys.insert(entry.to_owned(), std::fs::read(dir.join(entry)).unwrap());
            }
            for ca in ["ca", "front-proxy-ca", "etcd-ca"] {
                operator_pki::Authority::ensure(dir, ca, ca).unwrap();
                for extension in ["crt", "key"] {
                    let entry = format!("{ca}.{extension}");
                    keys.insert(entry.clone(), std::fs::read(dir.join(entry)).unwrap());
                }
            }
            keys
        };
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut keys, other) = (read(one.path()), read(other.path()));
        let ca =
            |keys: &BTreeMap<String, Vec<u8>>| String::from_utf8(keys["ca.crt"].clone()).unwrap();
        check_keys(&keys, &ca(&keys)).unwrap();
        let error = check_keys(&keys, &ca(&other)).unwrap_err().to_string();
        assert!(error.contains("another CA"), "{error}");
        let verified = ca(&keys);
        let one_key = keys["ca.key"].clone();
        keys.insert("ca.key".to_owned(), other["ca.key"].clone());
        let error = check_keys(&keys, &verified).unwrap_err().to_string();
        assert!(error.contains("ca.key is not the key"), "{error}");
        keys.insert("ca.key".to_owned(), one_key);
        keys.insert("sa.key".to_owned(), other["sa.key"].clone());
        let error = check_keys(&keys, &verified).unwrap_err().to_string();
        assert!(error.contains("sa.key is not the key of sa.pub"), "{error}");
    }

    #[test]
    fn tokens_of_workers_do_not_read_the_cipher_text() {
        assert_ne!(build_reader_binding()["subjects"][0]["name"], TOKEN_GROUP);
        let rule = &build_reader_role()["rules"][0];
        assert_eq!(rule["resourceNames"], json!(["kubeadm-certs"]));
        assert_eq!(rule["verbs"], json!(["get"]));
    }

    #[test]
    fn secret_is_owned_by_a_token_that_expires() {
        let mut owner = Secret::default();
        owner.metadata.name = Some("bootstrap-token-abcdef".into());
        owner.metadata.uid = Some("u1".into());
        let secret = format_secret(&BTreeMap::new(), &owner);
        let owner = &secret["metadata"]["ownerReferences"][0];
        assert_eq!(
            (owner["kind"].as_str(), owner["uid"].as_str()),
            (Some("Secret"), Some("u1"))
        );
    }
}
