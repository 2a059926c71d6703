//! The remote group versions, kept current by the watch cache.

use crate::extension::ExtensionServer;
use crate::local::ServedVersions;
use api_meta::Meta;
use apiserver_request::{GroupResource, ObjectEvent, Objects, Observer};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

type Servers = BTreeMap<String, Arc<ExtensionServer>>;

/// Extension servers by the name of their APIService.
#[derive(Default)]
pub struct ApiServiceIndex {
    writing: Mutex<()>,
    servers: ArcSwap<Servers>,
    // Kept, because reading all definitions again after each change of one would decode all
    // schemas.
    definitions: Mutex<BTreeMap<String, ServedVersions>>,
    /// Notified of changes of APIServices, and of the served versions of custom resource
    /// definitions.
    pub local_changed: Notify,
    /// Notified of changes of APIServices, and of Services and EndpointSlices of extension servers.
    pub remote_changed: Notify,
}

impl ApiServiceIndex {
    /// Creates the index and subscribes to the watch cache.
    pub fn new(objects: &Arc<dyn Objects>) -> Arc<Self> {
        let index = Arc::new(Self::default());
        for (group, resource) in [
            ("apiregistration.k8s.io", "apiservices"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("", "services"),
            ("discovery.k8s.io", "endpointslices"),
        ] {
            objects.observe(&GroupResource::new(group, resource), index.clone());
        }
        index
    }

    /// Returns the extension servers in the order of their APIServices' names.
    pub fn servers(&self) -> Vec<Arc<ExtensionServer>> {
        self.servers.load().values().cloned().collect()
    }

    /// Returns the served versions of the custom resource definitions.
    pub fn served_versions(&self) -> Vec<ServedVersions> {
        self.definitions.lock().values().cloned().collect()
    }

    /// Keeps the served versions of a definition. Returns whether they have changed.
    fn record_definition(&self, event: &ObjectEvent) -> bool {
        let mut definitions = self.definitions.lock();
        match event {
            ObjectEvent::Applied(object) => {
                let served = ServedVersions::parse(object);
                let before = definitions.insert(object.name().to_owned(), served.clone());
                before != Some(served)
            }
            ObjectEvent::Deleted(object) => definitions.remove(object.name()).is_some(),
        }
    }

    /// Returns whether a Service is in front of an extension server.
    fn has_service(&self, namespace: &str, name: &str) -> bool {
        // Most Services are of no extension server. Their changes must not cause checks.
        let servers = self.servers.load();
        let mut services = servers.values().map(|server| &server.service);
        services.any(|service| service.namespace == namespace && service.name == name)
    }

    /// Returns the extension server of a group version.
    pub fn find_server(&self, group: &str, version: &str) -> Option<Arc<ExtensionServer>> {
        let servers = self.servers.load();
        // Requests pay nothing for this as long as no group is remote.
        if servers.is_empty() {
            return None;
        }
        // Validation makes VERSION.GROUP the name. Where the version ends is not in it: without the
        // comparison, `/apis/b/v1.a` would lead to the server of `/apis/a.b/v1`.
        let found = servers.get(&format!("{version}.{group}"));
        found
            .filter(|server| server.group == group && server.version == version)
            .cloned()
    }
}

impl Observer for ApiServiceIndex {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        let (ObjectEvent::Applied(object) | ObjectEvent::Deleted(object)) = event;
        match resource.resource.as_str() {
            // A Service that precedes its APIService is checked when that one appears.
            "services" if !self.has_service(object.namespace(), object.name()) => return,
            "endpointslices" => {
                let service = object.label("kubernetes.io/service-name");
                if !self.has_service(object.namespace(), service.unwrap_or_default()) {
                    return;
                }
            }
            "services" => {}
            "customresourcedefinitions" => {
                if self.record_definition(event) {
                    self.local_changed.notify_one();
                }
                return;
            }
            _ => self.local_changed.notify_one(),
        }
        if resource.resource == "apiservices" {
            // Between load and store, another writer would be overwritten. Readers take no lock.
            let _writing = self.writing.lock();
            let mut servers = Servers::clone(&self.servers.load());
            let before = servers.get(object.name()).cloned();
            match event {
                ObjectEvent::Applied(object) => match ExtensionServer::parse(object) {
                    Some(server) => drop(servers.insert(server.name.clone(), Arc::new(server))),
                    None => drop(servers.remove(object.name())),
                },
                ObjectEvent::Deleted(object) => drop(servers.remove(object.name())),
            }
            let after = servers.get(object.name()).cloned();
            self.servers.store(Arc::new(servers));
            // The result of a check is a change of the status. If it led to the next check, a
            // server with ever new errors would be called, and the object written, without a pause.
            if before
                .zip(after)
                .is_some_and(|(old, new)| old.has_spec_of(&new))
            {
                return;
            }
        }
        self.remote_changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn change(index: &ApiServiceIndex, service: Value, deleted: bool) {
        let object = Arc::new(json!({"metadata": {"name": "v1.example.com"},
            "spec": {"group": "example.com", "version": "v1", "service": service}}));
        let event = match deleted {
            true => ObjectEvent::Deleted(object),
            false => ObjectEvent::Applied(object),
        };
        let resource = GroupResource::new("apiregistration.k8s.io", "apiservices");
        index.object_changed(&resource, &event);
    }

    #[test]
    fn result_of_a_check_leads_to_no_check() {
        let index = ApiServiceIndex::default();
        let resource = GroupResource::new("apiregistration.k8s.io", "apiservices");
        let apply = |priority: i64, message: &str| {
            let object = json!({"metadata": {"name": "v1.example.com"},
                "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": priority,
                    "service": {"namespace": "n", "name": "s"}},
                "status": {"conditions": [{"type": "Available", "status": "False", "message": message}]}});
            index.object_changed(&resource, &ObjectEvent::Applied(Arc::new(object)));
            let notified = std::pin::pin!(index.remote_changed.notified());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            notified.poll(&mut context).is_ready()
        };
        assert!(apply(1, ""));
        assert!(!apply(1, "bad status: 500") && !apply(1, "bad status: 501"));
        assert!(apply(2, "bad status: 501"));
    }

    /// `/apis/com/v1.example` is authorized as the group `com`.
    #[test]
    fn version_with_dots_finds_no_server_of_another_group() {
        let index = ApiServiceIndex::default();
        change(&index, json!({"namespace": "n", "name": "s"}), false);
        assert!(index.find_server("example.com", "v1").is_some());
        assert!(index.find_server("com", "v1.example").is_none());
    }

    #[test]
    fn status_of_a_definition_changes_no_served_versions() {
        let index = ApiServiceIndex::default();
        let resource = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        let definition = |version: &str, condition: &str| {
            Arc::new(json!({"metadata": {"name": "foos.example.com"},
                "spec": {"group": "example.com", "versions": [{"name": version, "served": true}]},
                "status": {"conditions": [{"type": condition}]}}))
        };
        let notifies = |event: ObjectEvent| {
            index.object_changed(&resource, &event);
            let notified = std::pin::pin!(index.local_changed.notified());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            notified.poll(&mut context).is_ready()
        };
        assert!(notifies(ObjectEvent::Applied(definition("v1", "A"))));
        assert!(!notifies(ObjectEvent::Applied(definition("v1", "B"))));
        assert!(notifies(ObjectEvent::Applied(definition("v2", "B"))));
        assert_eq!(
            index.served_versions(),
            [ServedVersions::parse(&definition("v2", ""))]
        );
        assert!(notifies(ObjectEvent::Deleted(definition("v2", "B"))));
        assert!(index.served_versions().is_empty());
    }

    #[test]
    fn remote_group_version_is_found_until_it_is_local_or_deleted() {
        let place = json!({"namespace": "n", "name": "s"});
        let index = ApiServiceIndex::default();
        let found = || index.find_server("example.com", "v1").is_some();
        assert!(!found());
        change(&index, place.clone(), false);
        assert!(found() && index.find_server("example.com", "v2").is_none());
        change(&index, Value::Null, false);
        assert!(!found());
        change(&index, place.clone(), false);
        change(&index, place, true);
        assert!(!found());
    }
}
