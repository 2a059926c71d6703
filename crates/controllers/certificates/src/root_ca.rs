//! Publishes the cluster's CA in the ConfigMap `kube-root-ca.crt` of every active namespace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base_tls::{Followed, TlsError};
use client::ListParams;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake, watch_files};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const NOTE: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// The published CAs in PEM, as their file has them.
pub type RootCaFile = Arc<Followed<String>>;

/// Reads the published CAs, now and after each change of their file.
///
/// # Errors
/// The file can't be read, has no certificate, or has a private key, which must not be published.
/// After the first read, such a file leaves the former CAs published.
pub fn follow_root_ca(path: &Path) -> Result<RootCaFile, TlsError> {
    Followed::load(vec![path.to_owned()], read_root_ca).map(Arc::new)
}

fn read_root_ca(paths: &[PathBuf]) -> Result<String, TlsError> {
    let [path] = paths else {
        return Err(TlsError::Refused("one file expected".to_owned()));
    };
    let refused = |why: &str| TlsError::Refused(format!("{} {why}", path.display()));
    let pem = base_tls::read_file(path)?;
    base_tls::parse_certificates(&pem, path)?;
    let text = String::from_utf8(pem).map_err(|_| refused("is not PEM"))?;
    if text.contains("PRIVATE KEY-----") {
        return Err(refused(
            "has a private key, which every namespace would show",
        ));
    }
    Ok(text)
}

/// Returns the actions for one namespace.
pub fn reconcile_namespace(
    namespace: &Namespace,
    ca: &str,
    existing: Option<&ConfigMap>,
) -> Vec<Action> {
    if namespace.is_deleting() {
        return Vec::new();
    }
    let data = std::collections::BTreeMap::from([(KEY.to_owned(), ca.to_owned())]);
    let Some(old) = existing else {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: namespace.meta().name.clone(),
                annotations: Some([(NOTE.to_owned(), TEXT.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        return vec![Action::create(&map).ignore_existing()];
    };
    // A changed ConfigMap is restored, because pods verify the API server with it.
    if old.data.as_ref() == Some(&data) && old.annotation(NOTE).is_some() {
        return Vec::new();
    }
    let mut map = old.clone();
    map.data = Some(data);
    map.metadata
        .annotations
        .get_or_insert_default()
        .insert(NOTE.to_owned(), TEXT.to_owned());
    vec![Action::update(&map)]
}

struct RootCa {
    namespaces: Cache<Namespace>,
    maps: Cache<ConfigMap>,
    ca: RootCaFile,
}

/// Sets up the publisher of `ca`, in all namespaces again after each change of its file.
pub fn add_root_ca_publisher(setup: &mut Setup, ca: RootCaFile, workers: usize) {
    let queue = Queue::new();
    let namespaces = setup
        .informers
        .for_kind::<Namespace>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let changed = queue.clone();
    // The other ConfigMaps of a cluster may be many and large, so they are not cached.
    let only = ListParams::default().with_fields(format!("metadata.name={NAME}"));
    let maps = setup
        .informers
        .for_selected::<ConfigMap>(only)
        .on_event(move |event| changed.add(event.object().namespace().to_owned()));
    let maps = maps.cache();
    let (all, stale) = (namespaces.clone(), queue.clone());
    watch_files(&setup.tasks, "root-ca-cert-publisher", &ca, move || {
        all.list().iter().for_each(|n| stale.add(n.key()));
    });
    setup.add_reconciler(
        "root-ca-cert-publisher",
        workers,
        queue,
        RootCa {
            namespaces,
            maps,
            ca,
        },
    );
}

impl Decide for RootCa {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(namespace) = self.namespaces.get(key) else {
            return Vec::new();
        };
        reconcile_namespace(
            &namespace,
            &self.ca.last_read(),
            self.maps.get_by_name(key, NAME).as_deref(),
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    fn lines(deleting: bool, data: Option<&str>, described: bool) -> Vec<String> {
        let namespace = serde_json::from_value(json!({"metadata": {"name": "n",
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")}}))
        .unwrap();
        let notes = if described {
            json!({NOTE: "x"})
        } else {
            json!({})
        };
        let existing: Option<ConfigMap> = data.map(|ca| {
            serde_json::from_value(json!({"metadata": {"name": NAME, "annotations": notes},
                "data": {KEY: ca}}))
            .unwrap()
        });
        describe_actions(&reconcile_namespace(&namespace, "CA", existing.as_ref()))
    }

    #[test]
    fn config_map_is_created_and_kept_equal_to_the_root_ca() {
        assert_eq!(
            lines(false, None, false),
            ["create ConfigMap kube-root-ca.crt"]
        );
        assert_eq!(
            lines(false, Some("old"), true),
            ["update ConfigMap kube-root-ca.crt"]
        );
        assert_eq!(
            lines(false, Some("CA"), false),
            ["update ConfigMap kube-root-ca.crt"]
        );
        assert!(lines(false, Some("CA"), true).is_empty());
    }

    #[test]
    fn file_that_must_not_be_published_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::default();
        let ca = params.self_signed(&key).unwrap().pem();
        for (text, expect) in [
            (format!("{ca}{ca}"), ""),
            (String::new(), "holds no certificate in PEM form"),
            ("text".to_owned(), "holds no certificate in PEM form"),
            (
                format!("{ca}{}", key.serialize_pem()),
                "has a private key, which every namespace would show",
            ),
        ] {
            std::fs::write(&path, &text).unwrap();
            match follow_root_ca(&path) {
                Ok(file) => assert_eq!((file.current().as_str(), ""), (&*text, expect)),
                Err(error) => assert!(
                    !expect.is_empty() && error.to_string().ends_with(expect),
                    "{text}: {error}"
                ),
            }
        }
    }

    #[test]
    fn namespace_in_deletion_gets_no_root_ca() {
        assert!(lines(true, None, false).is_empty());
    }

    #[test]
    fn update_leaves_the_binary_data_as_they_are() {
        let namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        let existing = serde_json::from_value(json!({"metadata": {"name": NAME},
            "data": {KEY: "old", "other": "x"}, "binaryData": {"b": "AQ=="}}))
        .unwrap();
        let actions = reconcile_namespace(&namespace, "CA", Some(&existing));
        let body = &actions[0].as_write().unwrap().body;
        assert_eq!(body["data"], json!({KEY: "CA"}));
        assert_eq!(body["binaryData"], json!({"b": "AQ=="}));
    }
}
