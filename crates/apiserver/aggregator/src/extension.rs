//! A remote group version: its server, and how to verify it.

use crate::condition::available_condition;
use crate::priority::OWN_GROUP;
use api_meta::Meta;
use api_meta::tree::{flag, get, has, int, text};
use apiserver_webhook_client::{Endpoint, ServiceName, verified_client};
use base_tls::rustls::ClientConfig;
use base_tls::{ClientTls, client_config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

/// The client certificate and key of the front proxy in PEM; without `Debug`, so that no log line
/// has the key.
pub type ClientIdentity = Option<(Vec<u8>, Vec<u8>)>;

/// The server of a remote group version.
pub struct ExtensionServer {
    /// Name of the APIService.
    pub name: String,
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// The Service in front of the server.
    pub service: ServiceName,
    /// Priority of the group in discovery.
    pub group_priority: i64,
    /// Priority of the version in its group.
    pub version_priority: i64,
    /// The condition `Available`.
    pub available: bool,
    insecure: bool,
    ca_bundle: Value,
    spec: Value,
    /// The configuration, and the identity for which it was built.
    tls: Mutex<Option<(Arc<ClientIdentity>, Arc<ClientConfig>)>>,
}

impl ExtensionServer {
    /// Reads an APIService; `None` if its group version is served here.
    pub fn parse(object: &Value) -> Option<Self> {
        let spec = get(object, "spec");
        let (group, version) = (text(spec, "group"), text(spec, "version"));
        // The core group and the APIServices themselves are always served here.
        if !has(spec, "service") || group.is_empty() || group == OWN_GROUP || version.is_empty() {
            return None;
        }
        let service = get(spec, "service");
        let available = available_condition(object).is_some_and(|c| text(c, "status") == "True");
        Some(ExtensionServer {
            name: object.name().to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            service: ServiceName {
                namespace: text(service, "namespace").to_owned(),
                name: text(service, "name").to_owned(),
                port: u16::try_from(int(service, "port").unwrap_or(443)).ok()?,
            },
            group_priority: int(spec, "groupPriorityMinimum").unwrap_or_default(),
            version_priority: int(spec, "versionPriority").unwrap_or_default(),
            available,
            insecure: flag(spec, "insecureSkipTLSVerify"),
            ca_bundle: get(spec, "caBundle").clone(),
            spec: spec.clone(),
            tls: Mutex::default(),
        })
    }

    /// Returns whether both were read from the same spec.
    pub(crate) fn has_spec_of(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    /// Returns the name in the server's certificate.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service.name, self.service.namespace)
    }

    /// Returns the path of the version's discovery document.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// Returns the TLS configuration, which is built once for each client certificate.
    ///
    /// # Errors
    /// A CA bundle or a client certificate that can't be used.
    pub fn client_config(
        &self,
        identity: &Arc<ClientIdentity>,
    ) -> Result<Arc<ClientConfig>, String> {
        if let Some((built_for, config)) = &*self.tls.lock()
            // A renewed certificate is a new `Arc`, so that no keys have to be compared.
            && Arc::ptr_eq(built_for, identity)
        {
            return Ok(config.clone());
        }
        let config = self.build_config(identity.as_ref().clone())?;
        *self.tls.lock() = Some((identity.clone(), config.clone()));
        Ok(config)
    }

    fn build_config(&self, identity: ClientIdentity) -> Result<Arc<ClientConfig>, String> {
        // The client certificate stays: with it, the server verifies the proxy before it trusts the
        // headers of the user.
        if self.insecure {
            return client_config(&ClientTls {
                identity,
                insecure: true,
                ..ClientTls::default()
            })
            .map_err(|error| error.to_string());
        }
        // Verified like the Service of a webhook: the same name, the same treatment of the CA
        // bundle.
        let endpoint = Endpoint::parse(&json!({
            "service": {"namespace": self.service.namespace, "name": self.service.name, "port": self.service.port},
            "caBundle": self.ca_bundle,
        }))?;
        verified_client(&endpoint, identity)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn service(group: &str, service: Value) -> Value {
        json!({"metadata": {"name": format!("v1.{group}")}, "spec": {"group": group, "version": "v1",
            "service": service, "insecureSkipTLSVerify": true, "groupPriorityMinimum": 2000, "versionPriority": 15}})
    }

    #[test]
    fn api_service_with_a_service_is_remote() {
        let place = json!({"namespace": "n", "name": "s"});
        let server = ExtensionServer::parse(&service("example.com", place)).unwrap();
        assert_eq!(server.service.port, 443);
        assert_eq!(server.host(), "s.n.svc");
        assert_eq!(server.path(), "/apis/example.com/v1");
        assert!(!server.available);
    }

    #[test]
    fn core_group_and_api_services_are_never_remote() {
        let place = json!({"namespace": "n", "name": "s"});
        for group in ["", "apiregistration.k8s.io"] {
            assert!(ExtensionServer::parse(&service(group, place.clone())).is_none());
        }
        assert!(ExtensionServer::parse(&service("example.com", Value::Null)).is_none());
    }

    #[test]
    fn configuration_is_built_again_for_a_new_client_certificate() {
        let place = json!({"namespace": "n", "name": "s"});
        let server = ExtensionServer::parse(&service("example.com", place)).unwrap();
        let (one, two) = (Arc::new(None), Arc::new(None));
        let first = server.client_config(&one).unwrap();
        assert!(Arc::ptr_eq(&first, &server.client_config(&one).unwrap()));
        assert!(!Arc::ptr_eq(&first, &server.client_config(&two).unwrap()));
    }

    #[test]
    fn unusable_ca_bundle_is_an_error() {
        let mut object = service("example.com", json!({"namespace": "n", "name": "s"}));
        object["spec"]["insecureSkipTLSVerify"] = false.into();
        object["spec"]["caBundle"] = "bm8gUEVN".into();
        let server = ExtensionServer::parse(&object).unwrap();
        assert!(server.client_config(&Arc::new(None)).is_err());
    }
}
