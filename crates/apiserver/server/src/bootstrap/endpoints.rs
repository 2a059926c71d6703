//! The endpoints of the Service `kubernetes`: all running API servers (upstream's lease endpoint
//! reconciler).
//!
//! Each server keeps a key below `masterleases` in the store, named by its address and attached to
//! an etcd lease, so that it disappears with the server. The existing keys are the endpoints. Stock
//! servers keep the same keys, so both kinds can run side by side. As with stock servers, all
//! listen on the same port.

use super::{create_missing, find_object, find_resource};
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_registry::{Mode, Update, Write};
use apiserver_storage::StoreError;
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
// Each renewal must come before the key of the previous one expires.
const EVERY: Duration = Duration::from_secs(10);
/// Seconds after which a crashed server is removed from the endpoints.
const LIFE: i64 = 15;
// More than any cluster has servers: the list is read as one page.
const PAGE: i64 = 1000;

/// Address and port of this server.
#[derive(Clone, Copy, Debug)]
pub struct OwnEndpoint {
    /// The advertised address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// Renews this server's key and reads the other servers' keys until the stop signal, then removes
/// its key: clients turn to other servers while this one still serves.
pub async fn maintain_endpoints(server: Arc<Server>, own: OwnEndpoint) {
    let wait = || {
        server
            .stopping
            .run_until_cancelled(tokio::time::sleep(EVERY))
    };
    while wait().await.is_some() {
        if let Err(error) = renew_lease(&server, own).await {
            tracing::warn!(%error, "failed to update the endpoints of the Service kubernetes");
        }
    }
    if let Err(error) = remove_lease(&server, own).await {
        tracing::warn!(%error, "failed to remove this server from the endpoints of the Service kubernetes");
    }
}

/// Renews this server's key and writes the endpoints if they differ from the keys.
pub async fn renew_lease(server: &Server, own: OwnEndpoint) -> Result<(), ApiError> {
    let key = lease_key(server, own.address);
    let endpoints = find_resource("", "endpoints")?;
    let object = json!({"subsets": [{"addresses": [{"ip": own.address.to_string()}]}]});
    let value = apiserver_convert::encode_stored(endpoints, &object).into();
    let written = match server
        .store
        .read_key(&key)
        .await
        .map_err(ApiError::internal)?
    {
        Some(stored) => {
            server
                .store
                .update(&key, value, stored.revision, Some(LIFE))
                .await
        }
        None => server.store.create(&key, value, Some(LIFE)).await,
    };
    match written {
        // Another process with the same address wrote the key, which is as good.
        Ok(_) | Err(StoreError::Conflict(_) | StoreError::Exists) => {}
        Err(error) => return Err(ApiError::internal(error)),
    }
    publish_endpoints(server, own, &running_addresses(server).await?).await
}

async fn remove_lease(server: &Server, own: OwnEndpoint) -> Result<(), ApiError> {
    let key = lease_key(server, own.address);
    if let Some(stored) = server
        .store
        .read_key(&key)
        .await
        .map_err(ApiError::internal)?
    {
        server
            .store
            .delete(&key, stored.revision)
            .await
            .map_err(ApiError::internal)?;
    }
    // Read after the own key is deleted, so that this server is not among them.
    let others = running_addresses(server).await?;
    // The last server leaves its address in the endpoints: empty endpoints would help no client.
    if others.is_empty() {
        Ok(())
    } else {
        publish_endpoints(server, own, &others).await
    }
}

fn lease_key(server: &Server, address: IpAddr) -> String {
    format!("{}/masterleases/{address}", server.caches.root_prefix())
}

/// Returns the addresses of all running servers, sorted.
async fn running_addresses(server: &Server) -> Result<Vec<IpAddr>, ApiError> {
    let prefix = format!("{}/masterleases/", server.caches.root_prefix());
    let page = server
        .store
        .list_range(&prefix, &prefix, PAGE, 0)
        .await
        .map_err(ApiError::internal)?;
    let address = |key: &[u8]| {
        std::str::from_utf8(key)
            .ok()?
            .strip_prefix(prefix.as_str())?
            .parse()
            .ok()
    };
    let mut all: Vec<IpAddr> = page
        .items
        .iter()
        .filter_map(|item| address(&item.key))
        .collect();
    // Each server must write the same list, or they would overwrite each other forever.
    all.sort_unstable();
    Ok(all)
}

async fn publish_endpoints(
    server: &Server,
    own: OwnEndpoint,
    addresses: &[IpAddr],
) -> Result<(), ApiError> {
    let (endpoints, slice) = endpoint_objects(own, addresses);
    let parts = [
        replace_object(
            server,
            find_resource("", "endpoints")?,
            endpoints,
            &["subsets"],
        )
        .boxed(),
        replace_object(
            server,
            find_resource("discovery.k8s.io", "endpointslices")?,
            slice,
            &["endpoints", "ports"],
        )
        .boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

/// Builds the Endpoints and the EndpointSlice, which holds addresses of this server's family only.
fn endpoint_objects(own: OwnEndpoint, addresses: &[IpAddr]) -> (Value, Value) {
    let ports = json!([{"name": "https", "port": own.port, "protocol": "TCP"}]);
    let listed: Vec<Value> = addresses
        .iter()
        .map(|ip| json!({"ip": ip.to_string()}))
        .collect();
    let endpoints = json!({"metadata": endpoint_metadata(false), "subsets": [{"addresses": listed, "ports": ports.clone()}]});
    let family = if own.address.is_ipv4() {
        "IPv4"
    } else {
        "IPv6"
    };
    // An EndpointSlice has one address family; Endpoints may mix them.
    let same = addresses
        .iter()
        .filter(|ip| ip.is_ipv4() == own.address.is_ipv4());
    let each: Vec<Value> = same
        .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}))
        .collect();
    let slice = json!({"metadata": endpoint_metadata(true), "addressType": family, "endpoints": each, "ports": ports});
    (endpoints, slice)
}

/// Builds the metadata. The slice belongs to the Service by label; labels exclude both objects from
/// the controllers that mirror Endpoints.
fn endpoint_metadata(of_slice: bool) -> Value {
    let mut labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    if of_slice {
        labels = json!({"kubernetes.io/service-name": NAME});
    }
    json!({"name": NAME, "namespace": NAMESPACE, "labels": labels})
}

async fn replace_object(
    server: &Server,
    resource: &Arc<Resource>,
    desired: Value,
    fields: &'static [&'static str],
) -> Result<(), ApiError> {
    match find_object(server, resource, NAMESPACE, NAME) {
        None => return create_missing(server, resource, desired).await,
        // Every server runs this each ten seconds: a write without a change would wake all watchers
        // of endpoints.
        Some(old)
            if fields
                .iter()
                .all(|field| old.get(field) == desired.get(field)) =>
        {
            return Ok(());
        }
        Some(_) => {}
    }
    // Only these fields are the server's: labels and annotations of operators stay.
    let change = move |old: &Value| {
        let mut new = old.clone();
        for field in fields {
            new[*field] = desired[*field].clone();
        }
        Ok(new)
    };
    let mut write = Write::internal(resource, NAMESPACE, NAME);
    server
        .registry
        .update(
            &mut write,
            &Update {
                change: &change,
                replaces: false,
                mode: Mode::Full,
            },
        )
        .await
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_running_servers_are_endpoints() {
        let own = OwnEndpoint {
            address: "192.0.2.2".parse().unwrap(),
            port: 6443,
        };
        let all = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let (endpoints, slice) = endpoint_objects(own, &all);
        let ports = json!([{"name": "https", "port": 6443, "protocol": "TCP"}]);
        let listed = json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}, {"ip": "2001:db8::1"}]);
        assert_eq!(
            endpoints["subsets"],
            json!([{"addresses": listed, "ports": ports}])
        );
        assert_eq!(slice["addressType"], "IPv4");
        let addresses: Vec<&Value> = slice["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| &e["addresses"][0])
            .collect();
        assert_eq!(addresses, ["192.0.2.1", "192.0.2.2"]);
    }
}
