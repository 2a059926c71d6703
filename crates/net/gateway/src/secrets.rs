//! Watches of the Secrets that listeners and Ingresses name, each by its name: the gateway lists no
//! Secrets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base_task::{CancellationToken, Tasks};
use client::{Client, Informer, ListParams, ObjectExt, Store};
use k8s_openapi::api::core::v1::Secret;
use tokio::sync::Notify;

use crate::certificates::{Certificate, Certificates, SecretKey, parse_secret};

/// Time after which a refused Secret is requested again.
const REFUSED: Duration = Duration::from_secs(30);

struct SecretWatch {
    store: Store<Secret>,
    stop: CancellationToken,
    /// The certificate of a version of the Secret.
    parsed: Option<(String, Certificate)>,
}

/// Watches of Secrets.
pub(crate) struct SecretWatches {
    client: Client,
    tasks: Tasks,
    changed: Arc<Notify>,
    watches: HashMap<SecretKey, SecretWatch>,
}

impl SecretWatches {
    /// Returns no watches; `changed` is notified of each change of a Secret.
    pub(crate) fn new(client: Client, tasks: Tasks, changed: Arc<Notify>) -> Self {
        Self {
            client,
            tasks,
            changed,
            watches: HashMap::new(),
        }
    }

    /// Starts and ends watches, so that these Secrets are watched.
    pub(crate) fn watch_only(&mut self, wanted: &[SecretKey]) {
        let keep: HashSet<&SecretKey> = wanted.iter().collect();
        self.watches.retain(|key, watch| {
            let keeps = keep.contains(key);
            if !keeps {
                watch.stop.cancel();
            }
            keeps
        });
        for key in wanted {
            if !self.watches.contains_key(key) {
                let watch = self.start_watch(key);
                self.watches.insert(key.clone(), watch);
            }
        }
    }

    fn start_watch(&self, key: &SecretKey) -> SecretWatch {
        let api = self.client.namespaced::<Secret>(&key.namespace);
        let params = ListParams::new().with_fields(format!("metadata.name={}", key.name));
        let changed = self.changed.clone();
        let stop = self.tasks.shutdown().child_token();
        let informer = Informer::new(api.clone(), params.clone())
            .transform(keep_certificate)
            .on_event(move |_| changed.notify_one());
        let (store, watch) = informer.start(stop.clone());
        let (ended, name) = (stop.clone(), format!("{}/{}", key.namespace, key.name));
        let probe = async move {
            // Without the right to read it, an informer would ask each three seconds.
            while let Err(error) = api.list(&params).await {
                tracing::warn!(secret = name, %error, "can't read the Secret of a certificate");
                tokio::time::sleep(REFUSED).await;
            }
        };
        self.tasks.spawn_isolated("secret", async move {
            tokio::select! {
                () = ended.cancelled() => return,
                () = probe => {}
            }
            watch.await;
        });
        SecretWatch {
            store,
            stop,
            parsed: None,
        }
    }

    /// Returns the certificates of the Secrets that exist and can be read.
    pub(crate) fn certificates(&mut self) -> Certificates {
        let mut found = Certificates::new();
        for (key, watch) in &mut self.watches {
            let Some(secret) = watch.store.get(&format!("{}/{}", key.namespace, key.name)) else {
                watch.parsed = None;
                continue;
            };
            let version = secret.resource_version();
            let parsed = match watch.parsed.take() {
                Some(parsed) if parsed.0 == version => parsed,
                _ => (version.to_owned(), parse_secret(&secret)),
            };
            found.insert(key.clone(), parsed.1.clone());
            watch.parsed = Some(parsed);
        }
        found
    }
}

/// Removes what is not read, such as other data of the Secret.
fn keep_certificate(secret: &mut Secret) {
    secret.metadata.annotations = None;
    secret.metadata.labels = None;
    if let Some(data) = &mut secret.data {
        data.retain(|name, _| matches!(name.as_str(), "tls.crt" | "tls.key"));
    }
}
