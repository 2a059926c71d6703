//! The identity lease of this server (upstream's feature APIServerIdentity).
//!
//! Each server renews a Lease in `kube-system`, from which operators see the running servers. Its
//! name is that of a stock server on the same host, so that a replaced server leaves no second
//! lease behind. Leases of servers that crashed are deleted an hour after their last renewal.

use super::{create_missing, find_object, find_resource};
use crate::server::Server;
use api_meta::{ApiError, Meta, Reason, time};
use apiserver_registry::{DeleteOptions, Mode, Update, Write};
use apiserver_request::{GroupResource, Objects};
use data_encoding::BASE32_NOPAD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "coordination.k8s.io";
const NAMESPACE: &str = "kube-system";
const COMPONENT: &str = "kube-apiserver";
const LABEL: &str = "apiserver.kubernetes.io/identity";
const RENEWAL: Duration = Duration::from_secs(10);
const COLLECTION: Duration = Duration::from_secs(3600);
/// `leaseDurationSeconds`.
const DURATION: i64 = 3600;

/// The name of this server.
#[derive(Clone, Debug)]
pub struct Identity {
    host: String,
    /// Name of the Lease.
    lease: String,
    /// Differs for each process.
    holder: String,
}

impl Identity {
    /// Returns the identity of a new process on this host.
    pub fn of_host() -> Self {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let lease = lease_name(&host);
        let holder = format!("{lease}_{}", uuid::Uuid::new_v4());
        Self {
            host,
            lease,
            holder,
        }
    }

    /// Returns the name of the Lease, which identifies the server of this host.
    pub fn name(&self) -> &str {
        &self.lease
    }

    fn build_lease(&self) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.lease, "namespace": NAMESPACE,
                "labels": {LABEL: COMPONENT, "kubernetes.io/hostname": self.host}},
            "spec": {"holderIdentity": self.holder, "leaseDurationSeconds": DURATION,
                "renewTime": time::format_micro(Timestamp::now())},
        })
    }
}

/// Returns the name of the lease of the server on a host: a hash of host and component, each with
/// its length in two bytes before it.
fn lease_name(host: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host, COMPONENT] {
        // The kernel limits host names to 64 bytes.
        hash.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hash.update(part);
    }
    let name = BASE32_NOPAD.encode(&hash.finalize()[..16]);
    format!("apiserver-{}", name.to_lowercase())
}

/// Creates the lease of this server, in place of the one of an earlier process.
pub async fn claim_lease(server: &Server, identity: &Identity) -> Result<(), ApiError> {
    let leases = find_resource(GROUP, "leases")?;
    if let Some(old) = find_object(server, leases, NAMESPACE, &identity.lease) {
        delete_unchanged(server, &old).await?;
    }
    let mut write = Write::internal(leases, NAMESPACE, "");
    match server
        .registry
        .create(&mut write, identity.build_lease())
        .await
    {
        // Of another server on this host: the next renewal takes it over.
        Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Renews the lease until the server stops, then deletes it.
pub async fn maintain_lease(server: Arc<Server>, identity: Identity) {
    while server
        .stopping
        .run_until_cancelled(tokio::time::sleep(RENEWAL))
        .await
        .is_some()
    {
        if let Err(error) = renew_lease(&server, &identity).await {
            tracing::warn!(%error, lease = identity.lease, "failed to renew the identity lease");
        }
    }
    if let Err(error) = remove_lease(&server, &identity).await {
        tracing::warn!(%error, lease = identity.lease, "failed to delete the identity lease");
    }
}

async fn renew_lease(server: &Server, identity: &Identity) -> Result<(), ApiError> {
    let leases = find_resource(GROUP, "leases")?;
    let current = identity.build_lease();
    let change = |old: &Value| {
        let mut new = old.clone();
        // Labels and annotations of others stay.
        for (label, value) in current["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
        {
            new["metadata"]["labels"][label] = value.clone();
        }
        new["spec"] = current["spec"].clone();
        Ok(new)
    };
    let mut write = Write::internal(leases, NAMESPACE, &identity.lease);
    let update = Update {
        change: &change,
        replaces: false,
        mode: Mode::Full,
    };
    match server.registry.update(&mut write, &update).await {
        Err(error) if error.reason == Reason::NotFound => {
            create_missing(server, leases, current.clone()).await
        }
        other => other.map(|_| ()),
    }
}

async fn remove_lease(server: &Server, identity: &Identity) -> Result<(), ApiError> {
    let leases = find_resource(GROUP, "leases")?;
    match find_object(server, leases, NAMESPACE, &identity.lease) {
        Some(lease) if lease["spec"]["holderIdentity"] == *identity.holder => {
            delete_unchanged(server, &lease).await
        }
        // Taken over by another server on this host.
        _ => Ok(()),
    }
}

/// Deletes the leases of crashed servers each hour.
pub async fn collect_leases(server: Arc<Server>) {
    loop {
        for lease in expired_leases(&server, Timestamp::now()) {
            if let Err(error) = delete_unchanged(&server, &lease).await {
                tracing::warn!(%error, lease = lease.name(), "failed to delete an expired identity lease");
            }
        }
        let wait = tokio::time::sleep(COLLECTION);
        if server.stopping.run_until_cancelled(wait).await.is_none() {
            return;
        }
    }
}

fn expired_leases(server: &Server, now: Timestamp) -> Vec<Arc<Value>> {
    let leases = GroupResource::new(GROUP, "leases");
    let mut all = server.caches.cached_list(&leases, Some(NAMESPACE));
    all.retain(|lease| {
        lease["metadata"]["labels"][LABEL] == COMPONENT && is_expired(&lease["spec"], now)
    });
    all
}

/// Returns whether the lease has ended. One without a time or duration never was a server's.
fn is_expired(spec: &Value, now: Timestamp) -> bool {
    let renewed = spec["renewTime"].as_str().and_then(time::parse);
    match (renewed, spec["leaseDurationSeconds"].as_i64()) {
        (Some(renewed), Some(seconds)) => {
            now.as_second().saturating_sub(renewed.as_second()) > seconds
        }
        _ => true,
    }
}

/// Deletes a lease unless it was renewed meanwhile.
async fn delete_unchanged(server: &Server, lease: &Value) -> Result<(), ApiError> {
    let leases = find_resource(GROUP, "leases")?;
    let mut write = Write::internal(leases, NAMESPACE, lease.name());
    let options = DeleteOptions {
        uid: Some(lease.uid().to_owned()),
        resource_version: lease["metadata"]["resourceVersion"]
            .as_str()
            .map(str::to_owned),
        ..DeleteOptions::default()
    };
    match server.registry.delete(&mut write, &options).await {
        Err(error) if matches!(error.reason, Reason::NotFound | Reason::Conflict) => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lease_has_the_name_of_a_stock_server_on_the_host() {
        assert_eq!(
            lease_name("node-a.example"),
            "apiserver-7sr7focdb7iv2sarq37fk6e3fm"
        );
    }

    #[test]
    fn lease_ends_with_its_duration_after_the_last_renewal() {
        let now = time::parse("2026-01-02T03:04:05Z").unwrap();
        let lease = |renewed: &str| json!({"renewTime": renewed, "leaseDurationSeconds": 3600});
        assert!(!is_expired(&lease("2026-01-02T02:04:05.000000Z"), now));
        assert!(is_expired(&lease("2026-01-02T02:04:04.000000Z"), now));
        // From a clock that is ahead.
        assert!(!is_expired(&lease("2026-01-02T09:00:00.000000Z"), now));
        assert!(is_expired(&json!({"leaseDurationSeconds": 3600}), now));
    }
}
