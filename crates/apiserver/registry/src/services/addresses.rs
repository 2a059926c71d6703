//! Cluster IPs: one IPAddress object each.

use super::spec::{invalid_field, service_type, spec_str};
use crate::allocators::{Allocators, ServiceAllocation, ServiceName};
use crate::errors::store_error;
use crate::registry::Registry;
use crate::write::Write;
use api_meta::{ApiError, Meta, meta::object_at, time};
use api_semantics::service_ranges::is_allocatable;
use apiserver_cache::{ResourceCache, StoredKind};
use apiserver_convert::{decode_stored, encode_stored};
use apiserver_storage::{StoreError, StoredValue};
use ipnet::IpNet;
use rand::Rng;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

// Random tries find a free address at once in a range that is not nearly full.
const TRIES: usize = 64;
const GROUP: &str = "networking.k8s.io";
/// Name of the ServiceCIDR with the ranges of the flag.
const DEFAULT: &str = "kubernetes";

/// Returns the cluster IPs of a Service.
pub(super) fn cluster_ips(service: &Value) -> Vec<IpAddr> {
    let list = service
        .pointer("/spec/clusterIPs")
        .and_then(Value::as_array);
    let mut all: Vec<IpAddr> = list
        .into_iter()
        .flatten()
        .filter_map(|a| a.as_str()?.parse().ok())
        .collect();
    if all.is_empty() {
        all.extend(spec_str(service, "clusterIP").parse::<IpAddr>().ok());
    }
    if service_type(service) == "ExternalName" {
        Vec::new()
    } else {
        all
    }
}

impl Allocators {
    pub(super) async fn allocate_addresses(
        &self,
        registry: &Registry,
        write: &Write,
        service: &mut Value,
        old: Option<&Value>,
        allocation: &mut ServiceAllocation,
    ) -> Result<(), ApiError> {
        let held = old.map(cluster_ips).unwrap_or_default();
        if service_type(service) == "ExternalName" {
            allocation.replaced.addresses = held;
            return Ok(());
        }
        // A headless Service has no virtual address.
        if spec_str(service, "clusterIP") == "None" {
            return Ok(());
        }
        let mut all = cluster_ips(service);
        // An update repeats the addresses that the Service already has.
        for address in all.iter().filter(|a| !held.contains(a)) {
            self.allocate_requested(registry, write, service, *address, &all)
                .await?;
            allocation.allocated.addresses.push(*address);
        }
        let families = service
            .pointer("/spec/ipFamilies")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        // Addresses are in the order of the families, so that the first ones are those already
        // present.
        for family in families.iter().skip(all.len()) {
            let address = self
                .allocate_free(registry, write, service, family == "IPv4")
                .await?;
            allocation.allocated.addresses.push(address);
            all.push(address);
        }
        allocation.replaced.addresses = held
            .into_iter()
            .filter(|address| !all.contains(address))
            .collect();
        write_addresses(service, &all);
        Ok(())
    }

    /// Allocates a requested address.
    async fn allocate_requested(
        &self,
        registry: &Registry,
        write: &Write,
        service: &Value,
        address: IpAddr,
        all: &[IpAddr],
    ) -> Result<(), ApiError> {
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        let fail = |why: &str| {
            let why = format!("failed to allocate IP {address}: {why}");
            invalid_field(service, "spec.clusterIPs", &json!(texts), &why)
        };
        if !self
            .service_cidrs(registry)
            .iter()
            .any(|cidr| is_allocatable(cidr, address))
        {
            return Err(fail(
                "the provided network does not match the current range",
            ));
        }
        match record_address(registry, write, service, address).await {
            Err(StoreError::Exists) => Err(fail("provided IP is already allocated")),
            Err(e) => Err(store_error(&e)),
            Ok(()) => Ok(()),
        }
    }

    /// Allocates a free address of a family.
    async fn allocate_free(
        &self,
        registry: &Registry,
        write: &Write,
        service: &Value,
        v4: bool,
    ) -> Result<IpAddr, ApiError> {
        for cidr in self
            .service_cidrs(registry)
            .iter()
            .filter(|cidr| cidr.addr().is_ipv4() == v4)
        {
            for address in candidate_addresses(cidr) {
                // Saves a write that would fail. The cache may be stale: the create decides.
                if is_known(registry, address) {
                    continue;
                }
                match record_address(registry, write, service, address).await {
                    Ok(()) => return Ok(address),
                    // Another server took it first: try the next one.
                    Err(StoreError::Exists) => {}
                    Err(e) => return Err(store_error(&e)),
                }
            }
        }
        Err(ApiError::internal(
            "failed to allocate a serviceIP: range is full",
        ))
    }

    /// Returns the ranges for new addresses, those of the flag first.
    pub(super) fn service_cidrs(&self, registry: &Registry) -> Vec<IpNet> {
        select_usable_ranges(&self.options.cidrs, &list_service_cidrs(registry))
    }

    /// Returns the ranges of the flag and of all ServiceCIDRs.
    pub(super) fn known_ranges(&self, registry: &Registry) -> Vec<IpNet> {
        let objects = list_service_cidrs(registry);
        let all = objects.iter().flat_map(list_ranges);
        all.chain(self.options.cidrs.iter().copied()).collect()
    }
}

fn list_service_cidrs(registry: &Registry) -> Vec<Value> {
    let Some(cache) = registry.caches.find_cache(GROUP, "servicecidrs") else {
        return Vec::new();
    };
    let snapshot = cache.snapshot(0);
    snapshot
        .range_entries("", "")
        .filter_map(|entry| entry.decode_tree().ok())
        .collect()
}

fn list_ranges(service_cidr: &Value) -> impl Iterator<Item = IpNet> {
    let cidrs = service_cidr
        .pointer("/spec/cidrs")
        .and_then(Value::as_array);
    cidrs
        .into_iter()
        .flatten()
        .filter_map(|c| c.as_str()?.parse().ok())
}

/// Returns the ranges of the ServiceCIDRs that are ready, those of the flag first.
fn select_usable_ranges(flag: &[IpNet], objects: &[Value]) -> Vec<IpNet> {
    // During the bootstrap of a cluster, the Service `kubernetes` may precede its ServiceCIDR.
    let bootstrapped = objects.iter().any(|object| object.name() == DEFAULT);
    let mut ranges = if bootstrapped {
        Vec::new()
    } else {
        flag.to_vec()
    };
    // Existing Services keep their addresses, but a ServiceCIDR that is being deleted provides no
    // new ones.
    for object in objects
        .iter()
        .filter(|o| is_ready(o) && !o.is_being_deleted())
    {
        for range in list_ranges(object) {
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
    }
    ranges.sort_by_key(|range| !flag.contains(range));
    ranges
}

fn is_ready(service_cidr: &Value) -> bool {
    let conditions = service_cidr
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "Ready");
    // As upstream: a new range is usable without a controller manager.
    ready.is_none_or(|condition| condition["status"] == "True")
}

fn write_addresses(service: &mut Value, all: &[IpAddr]) {
    let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
    let spec = object_at(service, "spec");
    if let Some(first) = texts.first() {
        spec.insert("clusterIP".into(), first.clone().into());
        spec.insert("clusterIPs".into(), texts.into());
    }
}

fn is_known(registry: &Registry, address: IpAddr) -> bool {
    registry
        .caches
        .find_cache(GROUP, "ipaddresses")
        .is_some_and(|cache| cache.get(&address.to_string()).is_some())
}

/// Yields random addresses of the upper part of the range, then every address of a small range in
/// turn. The lower part is left for Services that request a certain address.
fn candidate_addresses(cidr: &IpNet) -> impl Iterator<Item = IpAddr> {
    let size = range_size(cidr);
    // As upstream (KEP-3070): the first sixteenth, from 16 to 256 addresses, is for Services that
    // request a certain address.
    let reserved = (size / 16).clamp(16, 256).min(size / 2);
    let (network, cidr) = (cidr.network(), *cidr);
    let random =
        (0..TRIES).map(move |_| rand::rng().random_range(reserved..size.max(reserved + 1)));
    random
        // A full range is recognised only after every address was tried; in a larger range the
        // random tries suffice.
        .chain(1..size.min(65_536))
        .map(move |offset| address_at(network, offset))
        .filter(move |a| is_allocatable(&cidr, *a))
}

fn range_size(cidr: &IpNet) -> u64 {
    1u64 << u32::from(cidr.max_prefix_len() - cidr.prefix_len()).min(40)
}

fn address_at(network: IpAddr, offset: u64) -> IpAddr {
    match network {
        IpAddr::V4(a) => {
            Ipv4Addr::from(u32::from(a).wrapping_add(u32::try_from(offset).unwrap_or(0))).into()
        }
        IpAddr::V6(a) => Ipv6Addr::from(u128::from(a).wrapping_add(u128::from(offset))).into(),
    }
}

/// Returns the first usable address of a range: that of the Service `kubernetes`.
pub fn first_address(cidr: &IpNet) -> IpAddr {
    address_at(cidr.network(), 1)
}

/// Creates the IPAddress object, which acts as the lock.
async fn record_address(
    registry: &Registry,
    write: &Write,
    service: &Value,
    address: IpAddr,
) -> Result<(), StoreError> {
    let Some(cache) = registry.caches.find_cache(GROUP, "ipaddresses") else {
        return Ok(());
    };
    let key = address_key(registry, &cache, address);
    // A dry run reports a taken address but must not take one.
    if write.dry_run {
        let allocated = registry.store.read_key(&key).await?.is_some();
        return if allocated {
            Err(StoreError::Exists)
        } else {
            Ok(())
        };
    }
    let object = ip_address(service, &write.namespace, address);
    let stored = encode_stored(&cache.kind().resource, &object);
    registry
        .store
        .create(&key, stored.into(), None)
        .await
        .map(|_| ())
}

pub(super) fn ip_address(service: &Value, namespace: &str, address: IpAddr) -> Value {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": address.to_string(), "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": time::now(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": service.name()}},
    })
}

/// Deletes the IPAddress object of a Service that no longer has the address.
pub(super) async fn release_address(registry: &Registry, service: &ServiceName, address: IpAddr) {
    let Some(cache) = registry.caches.find_cache(GROUP, "ipaddresses") else {
        return;
    };
    let key = address_key(registry, &cache, address);
    let done = match registry.store.read_key(&key).await {
        // Another server may have released the address already and given it to another Service.
        Ok(Some(stored)) if decode_holder(cache.kind(), &stored).as_ref() == Some(service) => {
            delete_unchanged(registry, &key, stored.revision).await
        }
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    };
    if let Err(e) = done {
        tracing::warn!(%address, error = %e, "an address could not be released; the next round of repair does it");
    }
}

/// Deletes an IPAddress object unless it has changed since `revision`.
pub(super) async fn release_leaked(
    registry: &Registry,
    address: IpAddr,
    revision: i64,
) -> Result<(), StoreError> {
    let Some(cache) = registry.caches.find_cache(GROUP, "ipaddresses") else {
        return Ok(());
    };
    delete_unchanged(registry, &address_key(registry, &cache, address), revision).await
}

async fn delete_unchanged(registry: &Registry, key: &str, revision: i64) -> Result<(), StoreError> {
    match registry.store.delete(key, revision).await {
        // Another server deleted it, or allocated the address again.
        Ok(_) | Err(StoreError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the Service that an IPAddress object in the store refers to.
fn decode_holder(kind: &StoredKind, stored: &StoredValue) -> Option<ServiceName> {
    parse_holder(&decode_stored(&kind.resource, &stored.value).ok()?)
}

/// Returns the Service for which the address is allocated, as the cache has it.
pub(super) fn find_cached_holder(registry: &Registry, address: IpAddr) -> Option<ServiceName> {
    let cache = registry.caches.find_cache(GROUP, "ipaddresses")?;
    parse_holder(&cache.get(&address.to_string())?.decode_tree().ok()?)
}

fn parse_holder(ip_address: &Value) -> Option<ServiceName> {
    let text = |field: &str| {
        let value = ip_address.pointer(&format!("/spec/parentRef/{field}"))?;
        value.as_str().map(str::to_owned)
    };
    Some(ServiceName {
        namespace: text("namespace")?,
        name: text("name")?,
    })
}

fn address_key(registry: &Registry, cache: &ResourceCache, address: IpAddr) -> String {
    registry
        .caches
        .store_key(cache.kind(), "", &address.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn candidates_are_usable_and_cover_a_small_range() {
        let cidr: IpNet = "10.0.0.0/29".parse().unwrap();
        let all: std::collections::BTreeSet<IpAddr> = candidate_addresses(&cidr).collect();
        assert_eq!(all.len(), 6);
        assert_eq!(first_address(&cidr).to_string(), "10.0.0.1");
    }

    fn service_cidr(name: &str, cidr: &str, ready: Option<&str>, deleted: bool) -> Value {
        let conditions: Vec<Value> = ready
            .map(|status| json!({"type": "Ready", "status": status}))
            .into_iter()
            .collect();
        json!({"metadata": {"name": name, "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z")},
            "spec": {"cidrs": [cidr]}, "status": {"conditions": conditions}})
    }

    #[test]
    fn ranges_are_those_of_ready_service_cidrs() {
        let flag = "10.0.0.0/24".parse().unwrap();
        let default = || service_cidr(DEFAULT, "10.0.0.0/24", Some("True"), false);
        let other = |ready, deleted| service_cidr("a", "10.9.0.0/24", ready, deleted);
        for (objects, expect) in [
            (vec![], &["10.0.0.0/24"][..]),
            (vec![other(None, false)], &["10.0.0.0/24", "10.9.0.0/24"]),
            (vec![default()], &["10.0.0.0/24"]),
            (
                vec![other(Some("True"), false), default()],
                &["10.0.0.0/24", "10.9.0.0/24"],
            ),
            // A new ServiceCIDR, which the controller has not seen yet.
            (
                vec![default(), other(None, false)],
                &["10.0.0.0/24", "10.9.0.0/24"],
            ),
            (
                vec![default(), other(Some("False"), false)],
                &["10.0.0.0/24"],
            ),
            (vec![default(), other(Some("True"), true)], &["10.0.0.0/24"]),
            (
                vec![service_cidr(DEFAULT, "10.0.0.0/24", Some("True"), true)],
                &[],
            ),
            // The flag was changed after the start of the cluster.
            (
                vec![service_cidr(DEFAULT, "10.5.0.0/24", Some("True"), false)],
                &["10.5.0.0/24"],
            ),
            // Another ServiceCIDR of the same range.
            (
                vec![
                    service_cidr(DEFAULT, "10.0.0.0/24", None, true),
                    service_cidr("a", "10.0.0.0/24", None, false),
                ],
                &["10.0.0.0/24"],
            ),
        ] {
            let usable: Vec<_> = select_usable_ranges(&[flag], &objects)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(usable, expect, "{objects:?}");
        }
    }
}
