//! Publishes the cluster's CA in the ConfigMap `kube-root-ca.crt` of every active namespace.

use client::ListParams;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const NOTE: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Returns the actions for one namespace.
pub fn reconcile_namespace(
    namespace: &Namespace,
    ca: &str,
    existing: Option<&ConfigMap>,
) -> Vec<Action> {
    if namespace.deleting() {
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
    if old.data.as_ref() == Some(&data) && old.annotation(NOTE).is_some() {
        return Vec::new();
    }
    let mut map = old.clone();
    map.data = Some(data);
    map.binary_data = None;
    map.metadata
        .annotations
        .get_or_insert_default()
        .insert(NOTE.to_owned(), TEXT.to_owned());
    vec![Action::update(&map)]
}

struct RootCa {
    namespaces: Cache<Namespace>,
    maps: Cache<ConfigMap>,
    ca: String,
}

/// Sets up the publisher of `ca` (PEM).
pub fn add_root_ca_publisher(setup: &mut Setup, ca: String, workers: usize) {
    let queue = Queue::new();
    let namespaces = setup
        .informers
        .of::<Namespace>()
        .on(wake::itself(&queue))
        .cache();
    let changed = queue.clone();
    let only = ListParams::default().with_fields(format!("metadata.name={NAME}"));
    let maps = setup
        .informers
        .selected::<ConfigMap>(only)
        .on(move |event| changed.add(event.object().namespace().to_owned()));
    let maps = maps.cache();
    setup.decide(
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
        reconcile_namespace(&namespace, &self.ca, self.maps.named(key, NAME).as_deref())
    }
}
