//! The aggregation layer: keeps the local APIServices, checks the remote ones, and forwards the
//! requests of their group versions.

mod forward;
mod local;
mod probe;
mod remote;
mod remote_document;
mod remote_openapi;
mod status;
mod timed;

pub use forward::{find_remote, respond_remote};
pub use local::maintain_local;
pub use remote::maintain_remote;
pub use remote_document::RemoteDocument;

use crate::connect::{Extension, Kubelets, Target};
use crate::options::ServerOptions;
use apiserver_aggregator::{
    ApiServiceIndex, ClientIdentity, ExtensionServer, RemoteVersion, identity_headers,
};
use apiserver_request::{Objects, User};
use apiserver_webhook_client::ServiceResolver;
use base_tls::Followed;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

const GROUP: &str = "apiregistration.k8s.io";
const API_SERVICES: &str = "apiservices";

/// The last known discovery of a remote version.
#[derive(Clone, Default)]
struct Discovered {
    resources: Arc<Vec<Value>>,
    /// The last request for them has succeeded.
    is_current: bool,
    /// The hash of its OpenAPI v3 document, if it has one.
    openapi: Option<String>,
    openapi_v2: Option<RemoteDocument>,
    /// Its documents are being requested.
    is_updating: bool,
}

/// The APIServices, and the way to extension servers.
pub struct Aggregation {
    index: Arc<ApiServiceIndex>,
    resolver: Arc<dyn ServiceResolver>,
    identity: Followed<Arc<ClientIdentity>>,
    discovered: Mutex<BTreeMap<String, Discovered>>,
}

/// Reasons why an extension server has no address or no TLS.
pub enum TargetError {
    /// The Service has no address.
    Unresolved(String),
    /// The APIService or the user can't be used.
    Unusable(String),
}

impl Aggregation {
    /// Loads the front proxy's client certificate and subscribes to the watch cache.
    ///
    /// # Errors
    /// A file that can't be read.
    pub fn new(
        options: &ServerOptions,
        objects: &Arc<dyn Objects>,
        resolver: Arc<dyn ServiceResolver>,
    ) -> anyhow::Result<Self> {
        let files = (
            options.proxy_client_cert_file.clone(),
            options.proxy_client_key_file.clone(),
        );
        let paths = files.0.iter().chain(&files.1).cloned().collect();
        let identity = Followed::load(paths, move |_| {
            Ok(Arc::new(match &files {
                (Some(certificate), Some(key)) => {
                    Some((base_tls::read_file(certificate)?, base_tls::read_file(key)?))
                }
                _ => None,
            }))
        })?;
        Ok(Aggregation {
            index: ApiServiceIndex::new(objects),
            resolver,
            identity,
            discovered: Mutex::default(),
        })
    }

    /// Returns the remote versions for discovery.
    pub fn remote_versions(&self) -> Vec<RemoteVersion> {
        let servers = self.index.servers();
        let discovered = self.discovered.lock();
        let version = |server: &Arc<ExtensionServer>| {
            let known = discovered.get(&server.name).cloned().unwrap_or_default();
            RemoteVersion {
                group: server.group.clone(),
                version: server.version.clone(),
                group_priority: server.group_priority,
                version_priority: server.version_priority,
                resources: known.resources,
                current: known.is_current,
            }
        };
        servers.iter().map(version).collect()
    }

    /// Returns the entries of the index of OpenAPI v3 documents.
    pub fn openapi_paths(&self) -> Vec<(String, Value)> {
        let servers = self.index.servers();
        let discovered = self.discovered.lock();
        let entry = |server: &Arc<ExtensionServer>| {
            let hash = discovered.get(&server.name)?.openapi.as_ref()?;
            let path = server.path();
            let path = path.trim_start_matches('/');
            let url = format!("/openapi/v3/{path}?hash={hash}");
            Some((path.to_owned(), json!({"serverRelativeURL": url})))
        };
        servers.iter().filter_map(entry).collect()
    }

    /// Returns the last known OpenAPI v2 documents in the order in which they are merged: groups of
    /// high priority first.
    pub fn openapi_v2(&self) -> Vec<RemoteDocument> {
        let mut servers = self.index.servers();
        servers.sort_by_key(|server| (Reverse(server.group_priority), server.name.clone()));
        let discovered = self.discovered.lock();
        let document =
            |server: &Arc<ExtensionServer>| discovered.get(&server.name)?.openapi_v2.clone();
        servers.iter().filter_map(document).collect()
    }

    /// Returns whether requests to extension servers have a client certificate.
    pub fn has_client_certificate(&self) -> bool {
        self.identity.current().is_some()
    }

    fn openapi_v2_of(&self, name: &str) -> Option<RemoteDocument> {
        self.discovered.lock().get(name)?.openapi_v2.clone()
    }

    /// Returns the destination of a request to an extension server.
    fn find_target(
        &self,
        kubelets: &Kubelets,
        objects: &dyn Objects,
        remote: &ExtensionServer,
        user: &User,
        path: String,
    ) -> Result<Target, TargetError> {
        let address = self
            .resolver
            .resolve_service(&remote.service)
            .map_err(TargetError::Unresolved)?;
        let tls = remote
            .client_config(&self.identity.current())
            .map_err(TargetError::Unusable)?;
        let identity = identity_headers(user).map_err(|e| TargetError::Unusable(e.message))?;
        let extension = Extension {
            server_name: remote.host(),
            identity,
        };
        let (host, port) = (&address.host, address.port);
        let mut target = kubelets.extension_target(host, port, path, tls, extension);
        // The client certificate names any user to an API server, this one included.
        target.reach = target.reach.with_servers(objects);
        Ok(target)
    }
}
