//! Informers of the Gateway API's kinds, which exist only while the cluster has their definitions.
//!
//! One watch of the definitions says which kinds are served: nothing polls for absent ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base_task::{CancellationToken, Tasks};
use client::{ApiResource, Client, DynamicObject, Informer, ListParams, ObjectExt, Store};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use crate::gateway_api::{GROUP, GatewayObject};
use crate::tls_policies::TlsPolicies;

/// Kinds with their plurals, and whether they are namespaced.
pub(crate) const GATEWAY_CLASSES: KindName = ("GatewayClass", "gatewayclasses", false);
pub(crate) const GATEWAYS: KindName = ("Gateway", "gateways", true);
pub(crate) const HTTP_ROUTES: KindName = ("HTTPRoute", "httproutes", true);
pub(crate) const REFERENCE_GRANTS: KindName = ("ReferenceGrant", "referencegrants", true);
const BACKEND_TLS_POLICIES: KindName = ("BackendTLSPolicy", "backendtlspolicies", true);

/// Name of a kind, its plural, and whether it is namespaced.
pub(crate) type KindName = (&'static str, &'static str, bool);

const KINDS: [KindName; 5] = [
    GATEWAY_CLASSES,
    GATEWAYS,
    HTTP_ROUTES,
    REFERENCE_GRANTS,
    BACKEND_TLS_POLICIES,
];
/// Versions in the order of preference. ReferenceGrant and BackendTLSPolicy became v1 later than
/// the others.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha3"];

struct KindInformer {
    version: &'static str,
    store: Store<DynamicObject>,
    stop: CancellationToken,
}

/// Informers of the kinds that the cluster has.
pub(crate) struct GatewayKinds {
    client: Client,
    tasks: Tasks,
    changed: Arc<Notify>,
    definitions: Store<DynamicObject>,
    running: HashMap<&'static str, KindInformer>,
    /// Kinds of which no known version is served; each was logged once.
    unknown: HashSet<&'static str>,
    /// The last BackendTLSPolicies that were listed; None if none could be.
    tls_policies: Mutex<Option<TlsPolicies>>,
}

/// Returns the resource of a kind of the Gateway API.
pub(crate) fn resource_of(kind: KindName, version: &str) -> ApiResource {
    let (kind, plural, namespaced) = kind;
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced,
    }
}

impl GatewayKinds {
    /// Starts the watch of the definitions.
    pub(crate) fn start(client: &Client, tasks: &Tasks, changed: Arc<Notify>) -> Self {
        let definition = ApiResource {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
            namespaced: false,
        };
        let notify = changed.clone();
        let definitions = Informer::new(client.dynamic(&definition, None), ListParams::new())
            .transform(keep_versions)
            .on_event(move |event| {
                if event.object().name().ends_with(GROUP) {
                    notify.notify_one();
                }
            })
            .spawn(tasks);
        Self {
            client: client.clone(),
            tasks: tasks.clone(),
            changed,
            definitions,
            running: HashMap::new(),
            unknown: HashSet::new(),
            tls_policies: Mutex::default(),
        }
    }

    /// Waits for the definitions, then for the objects of their kinds.
    pub(crate) async fn wait_until_synced(&mut self) {
        self.definitions.wait_until_synced().await;
        self.follow_definitions();
        for informer in self.running.values() {
            informer.store.wait_until_synced().await;
        }
    }

    /// Returns whether the objects of all kinds are listed. A kind without a known version may have
    /// objects, too; policies claim nothing.
    pub(crate) fn have_synced(&self) -> bool {
        KINDS.iter().all(|kind| match self.running.get(kind.1) {
            Some(informer) => informer.store.has_synced(),
            None => *kind == BACKEND_TLS_POLICIES || !self.is_established(*kind),
        })
    }

    /// Returns the served versions by plural name.
    pub(crate) fn versions(&self) -> HashMap<&'static str, &'static str> {
        let running = self.running.iter();
        running
            .map(|(kind, informer)| (*kind, informer.version))
            .collect()
    }

    /// Starts and ends informers as the definitions say. Returns whether one was started.
    pub(crate) fn follow_definitions(&mut self) -> bool {
        let mut has_started = false;
        for kind in KINDS {
            let served = self
                .definitions
                .get(&format!("{}.{GROUP}", kind.1))
                .and_then(|definition| find_version(&definition));
            let running = self.running.get(kind.1).map(|informer| informer.version);
            self.report_unknown(kind, served);
            if served == running {
                continue;
            }
            if let Some(ended) = self.running.remove(kind.1) {
                ended.stop.cancel();
            }
            if let Some(version) = served {
                tracing::info!(kind = kind.0, version, "serving a kind of the Gateway API");
                let informer = self.start_informer(kind, version);
                self.running.insert(kind.1, informer);
                has_started = true;
            }
        }
        has_started
    }

    /// Logs once that a kind has no version which the gateway knows.
    fn report_unknown(&mut self, kind: KindName, served: Option<&str>) {
        if served.is_some() || !self.is_established(kind) {
            self.unknown.remove(kind.1);
        } else if self.unknown.insert(kind.1) {
            let effect = match kind == BACKEND_TLS_POLICIES {
                true => "no Service can be a backend",
                false => "its objects are not served",
            };
            tracing::warn!(
                kind = kind.0,
                known = ?VERSIONS,
                "no known version of a kind of the Gateway API is served: {effect}"
            );
        }
    }

    fn start_informer(&self, kind: KindName, version: &'static str) -> KindInformer {
        let api = self.client.dynamic(&resource_of(kind, version), None);
        let changed = self.changed.clone();
        let stop = self.tasks.shutdown().child_token();
        let store = Informer::new(api, ListParams::new())
            .transform(|object: &mut DynamicObject| object.metadata.annotations = None)
            .on_event(move |_| changed.notify_one())
            .spawn_until(&self.tasks, stop.clone());
        // Without objects, no event says that they are listed.
        let (listed, changed, ended) = (store.clone(), self.changed.clone(), stop.clone());
        self.tasks.spawn_isolated("gateway-kind-sync", async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = listed.wait_until_synced() => changed.notify_one(),
            }
        });
        KindInformer {
            version,
            store,
            stop,
        }
    }

    /// Returns the BackendTLSPolicies. While they can't be listed, those of before count, or if
    /// there are none, any port may have one: requests that are meant for TLS must not be sent
    /// without it.
    pub(crate) fn list_tls_policies(&self) -> TlsPolicies {
        let mut last = self.tls_policies.lock();
        let running = self.running.get(BACKEND_TLS_POLICIES.1);
        if running.is_some_and(|informer| informer.store.has_synced()) {
            let listed = TlsPolicies::of_objects(&self.list_objects(BACKEND_TLS_POLICIES));
            *last = Some(listed);
        } else if !self.is_established(BACKEND_TLS_POLICIES) {
            // No policy can exist.
            *last = None;
            return TlsPolicies::default();
        }
        last.clone().unwrap_or_else(TlsPolicies::unknown)
    }

    fn is_established(&self, kind: KindName) -> bool {
        let definition = self.definitions.get(&format!("{}.{GROUP}", kind.1));
        definition.is_some_and(|definition| is_established(&definition))
    }

    /// Returns all objects of a kind; none while the cluster does not have it.
    pub(crate) fn list_objects<S: DeserializeOwned>(
        &self,
        kind: KindName,
    ) -> Vec<GatewayObject<S>> {
        let Some(informer) = self.running.get(kind.1) else {
            return Vec::new();
        };
        let objects = informer.store.list();
        objects
            .iter()
            .map(|object| GatewayObject::decode(object))
            .collect()
    }
}

/// Removes schemas, which are most of a definition.
fn keep_versions(definition: &mut DynamicObject) {
    definition.metadata.annotations = None;
    let versions = definition
        .rest
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("versions"));
    for version in versions.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(version) = version.as_object_mut() {
            version.retain(|name, _| matches!(name.as_str(), "name" | "served"));
        }
    }
}

fn list_field<'a>(definition: &'a DynamicObject, part: &str, field: &str) -> &'a [Value] {
    let part = definition.rest.get(part);
    let list = part.and_then(|part| part.get(field)?.as_array());
    list.map(Vec::as_slice).unwrap_or_default()
}

fn is_established(definition: &DynamicObject) -> bool {
    list_field(definition, "status", "conditions")
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Returns the preferred version that an established definition serves.
fn find_version(definition: &DynamicObject) -> Option<&'static str> {
    let served = list_field(definition, "spec", "versions");
    let is_served = |wanted: &&str| {
        served
            .iter()
            .any(|version| version["name"] == *wanted && version["served"] == true)
    };
    is_established(definition).then(|| VERSIONS.into_iter().find(is_served))?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn preferred_version_of_an_established_definition_is_chosen() {
        for (established, versions, want) in [
            ("True", vec![("v1", true), ("v1beta1", true)], Some("v1")),
            (
                "True",
                vec![("v1", false), ("v1beta1", true)],
                Some("v1beta1"),
            ),
            ("True", vec![("v2", true)], None),
            ("False", vec![("v1", true)], None),
        ] {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(name, served)| json!({"name": name, "served": served, "schema": {}}))
                .collect();
            let mut definition: DynamicObject = serde_json::from_value(json!({
                "metadata": {"name": "x"}, "spec": {"versions": versions},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            }))
            .unwrap();
            keep_versions(&mut definition);
            assert_eq!(find_version(&definition), want, "{definition:?}");
            assert!(
                definition.rest["spec"]["versions"][0]
                    .get("schema")
                    .is_none()
            );
        }
    }
}
