//! Node ports: one bitmap for the range, as upstream stores it.

use super::spec::{invalid_field, service_type, spec_str};
use crate::allocators::{Allocators, ServiceAllocation};
use crate::errors::store_error;
use crate::registry::Registry;
use crate::write::Write;
use api_codec::{envelope, proto};
use api_meta::{ApiError, meta::object_at};
use apiserver_storage::StoreError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::seq::IteratorRandom;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

const KEY: &str = "/ranges/servicenodeports";
const MESSAGE: &str = "k8s.io.api.core.v1.RangeAllocation";

/// Returns the node ports of a Service, the health check's included.
pub(super) fn node_ports(service: &Value) -> Vec<u16> {
    let mut all: Vec<u16> = service_ports(service)
        .iter()
        .filter_map(port_number)
        .collect();
    let health = service
        .pointer("/spec/healthCheckNodePort")
        .and_then(Value::as_u64);
    all.extend(
        health
            .and_then(|n| u16::try_from(n).ok())
            .filter(|n| *n > 0),
    );
    all.sort_unstable();
    // Two protocols of one port share a number, which is allocated once.
    all.dedup();
    all
}

fn service_ports(service: &Value) -> Vec<Value> {
    service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

fn port_number(port: &Value) -> Option<u16> {
    u16::try_from(port.get("nodePort")?.as_u64()?)
        .ok()
        .filter(|n| *n > 0)
}

/// Returns whether the Service has node ports at all.
fn needs_ports(service: &Value) -> bool {
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => {
            service
                .pointer("/spec/allocateLoadBalancerNodePorts")
                .and_then(Value::as_bool)
                // Load balancers that reach pods directly need no node ports, and the range is
                // small.
                != Some(false)
        }
        _ => false,
    }
}

fn needs_health_check(service: &Value) -> bool {
    service_type(service) == "LoadBalancer"
        // Only then do nodes differ: the load balancer asks each whether it has an endpoint.
        && spec_str(service, "externalTrafficPolicy") == "Local"
}

impl Allocators {
    pub(super) async fn allocate_ports(
        &self,
        registry: &Registry,
        write: &Write,
        service: &mut Value,
        old: Option<&Value>,
        allocation: &mut ServiceAllocation,
    ) -> Result<(), ApiError> {
        let held = old.map(node_ports).unwrap_or_default();
        // kubectl replace sends a manifest without node ports; changing them would break clients.
        keep_old(service, old);
        // Most Services need none, and must not read the bitmap.
        if needs_ports(service) || needs_health_check(service) || !node_ports(service).is_empty() {
            let newly_allocated = self
                .allocate_in_bitmap(registry, write, service, &held)
                .await?;
            allocation.allocated.ports = newly_allocated;
        }
        let now = node_ports(service);
        allocation.replaced.ports = held
            .into_iter()
            .filter(|port| !now.contains(port))
            .collect();
        Ok(())
    }

    /// Allocates ports in the bitmap and writes them into the Service; returns the new ones.
    async fn allocate_in_bitmap(
        &self,
        registry: &Registry,
        write: &Write,
        service: &mut Value,
        held: &[u16],
    ) -> Result<Vec<u16>, ApiError> {
        loop {
            let (mut bitmap, revision) = read_bitmap(registry, &self.options.node_ports)
                .await
                .map_err(|e| store_error(&e))?;
            // A retry chooses again from the new bitmap, so the Service itself stays untouched
            // until then.
            let mut candidate = service.clone();
            let newly_allocated =
                choose_ports(&mut candidate, &self.options.node_ports, &mut bitmap, held)?;
            let done = match newly_allocated.is_empty() || write.dry_run {
                true => Ok(()),
                false => write_back(registry, &self.options.node_ports, &bitmap, revision).await,
            };
            match done {
                // Another server changed the bitmap first: read it again.
                Err(StoreError::Conflict(_) | StoreError::Exists) => {}
                Err(e) => return Err(store_error(&e)),
                Ok(()) => {
                    *service = candidate;
                    return Ok(if write.dry_run {
                        Vec::new()
                    } else {
                        newly_allocated
                    });
                }
            }
        }
    }
}

/// Keeps node ports of the same port and protocol that an update omits.
fn keep_old(service: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    if !needs_ports(service) {
        return;
    }
    if needs_health_check(service)
        && service.pointer("/spec/healthCheckNodePort").is_none()
        && let Some(port) = old.pointer("/spec/healthCheckNodePort").cloned()
    {
        object_at(service, "spec").insert("healthCheckNodePort".into(), port);
    }
    let known = service_ports(old);
    let same = |a: &Value, b: &Value| {
        a.get("port") == b.get("port") && a.get("protocol") == b.get("protocol")
    };
    let mut given: BTreeSet<u16> = service_ports(service)
        .iter()
        .filter_map(port_number)
        .collect();
    for port in object_at(service, "spec")
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if port_number(port).is_some() {
            continue;
        }
        let Some(kept) = known.iter().find(|k| same(k, port)).and_then(port_number) else {
            continue;
        };
        if given.insert(kept)
            && let Some(port) = port.as_object_mut()
        {
            port.insert("nodePort".into(), kept.into());
        }
    }
}

/// Chooses a number for every port that needs one; returns the new numbers.
fn choose_ports(
    service: &mut Value,
    range: &RangeInclusive<u16>,
    bitmap: &mut BTreeSet<u16>,
    held: &[u16],
) -> Result<Vec<u16>, ApiError> {
    let mut newly_allocated = Vec::new();
    // Ports of different protocols of the same Service may share a number.
    let mut own: BTreeSet<u16> = held.iter().copied().collect();
    let wanted: Vec<Option<u16>> = service_ports(service).iter().map(port_number).collect();
    // Requested ports come first, so that no automatic choice takes them.
    for (at, port) in wanted
        .iter()
        .enumerate()
        .filter_map(|(at, port)| Some((at, (*port)?)))
    {
        if own.contains(&port) {
            continue;
        }
        let field = format!("spec.ports[{at}].nodePort");
        take_port(service, range, bitmap, port, &field)?;
        own.insert(port);
        newly_allocated.push(port);
    }
    if let Some(port) = service
        .pointer("/spec/healthCheckNodePort")
        .and_then(Value::as_u64)
        .and_then(|n| u16::try_from(n).ok())
        && !own.contains(&port)
        && port > 0
    {
        take_port(service, range, bitmap, port, "spec.healthCheckNodePort")?;
        newly_allocated.push(port);
    }
    if needs_ports(service) {
        for at in wanted
            .iter()
            .enumerate()
            .filter(|(_, port)| port.is_none())
            .map(|(at, _)| at)
        {
            let port = next_free_port(range, bitmap)?;
            newly_allocated.push(port);
            if let Some(Value::Object(entry)) = service.pointer_mut(&format!("/spec/ports/{at}")) {
                entry.insert("nodePort".into(), port.into());
            }
        }
    }
    // Chosen last: it must not take a port that an entry of the spec requests.
    if needs_health_check(service) && service.pointer("/spec/healthCheckNodePort").is_none() {
        let port = next_free_port(range, bitmap)?;
        newly_allocated.push(port);
        object_at(service, "spec").insert("healthCheckNodePort".into(), port.into());
    }
    Ok(newly_allocated)
}

fn take_port(
    service: &Value,
    range: &RangeInclusive<u16>,
    bitmap: &mut BTreeSet<u16>,
    port: u16,
    field: &str,
) -> Result<(), ApiError> {
    if !range.contains(&port) {
        let why = format!(
            "provided port is not in the valid range. The range of valid ports is {}-{}",
            range.start(),
            range.end()
        );
        return Err(invalid_field(service, field, &json!(port), &why));
    }
    if !bitmap.insert(port) {
        return Err(invalid_field(
            service,
            field,
            &json!(port),
            "provided port is already allocated",
        ));
    }
    Ok(())
}

/// Chooses a free port at random: above the static band, and within it only if there is no other.
fn next_free_port(
    range: &RangeInclusive<u16>,
    bitmap: &mut BTreeSet<u16>,
) -> Result<u16, ApiError> {
    let dynamic = range.start().saturating_add(compute_static_band(range));
    let choose = |ports: RangeInclusive<u16>| {
        // At random, so that two servers rarely choose the same port and a released one is not
        // reused at once.
        let free = ports.filter(|port| !bitmap.contains(port));
        free.choose(&mut rand::rng())
    };
    let port = choose(dynamic..=*range.end())
        .or_else(|| choose(range.clone()))
        .ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
    bitmap.insert(port);
    Ok(port)
}

/// Returns the number of ports at the start of the range that are for Services which request a
/// certain port (KEP-3668): a 32nd of the range, from 16 to 128 ports.
fn compute_static_band(range: &RangeInclusive<u16>) -> u16 {
    let size = range.end().saturating_sub(*range.start()).saturating_add(1);
    match size {
        0..=16 => 0,
        size => (size / 32).clamp(16, 128),
    }
}

/// Releases ports.
pub(super) async fn release_ports(
    registry: &Registry,
    range: &RangeInclusive<u16>,
    ports: &[u16],
) -> Result<(), StoreError> {
    update_bitmap(registry, range, |bitmap| {
        bitmap.retain(|port| !ports.contains(port))
    })
    .await
}

/// Marks ports as allocated; returns those that were not.
pub(super) async fn add_ports(
    registry: &Registry,
    range: &RangeInclusive<u16>,
    ports: &BTreeSet<u16>,
) -> Result<BTreeSet<u16>, StoreError> {
    let mut added = BTreeSet::new();
    update_bitmap(registry, range, |bitmap| {
        let inside = ports.iter().filter(|port| range.contains(port));
        added = inside
            .filter(|port| !bitmap.contains(port))
            .copied()
            .collect();
        bitmap.extend(&added);
    })
    .await?;
    Ok(added)
}

/// The allocated ports at a revision of the bitmap.
pub(super) struct AllocatedPorts {
    pub(super) ports: BTreeSet<u16>,
    revision: i64,
}

/// Reads the allocated ports.
pub(super) async fn read_ports(
    registry: &Registry,
    range: &RangeInclusive<u16>,
) -> Result<AllocatedPorts, StoreError> {
    let (ports, revision) = read_bitmap(registry, range).await?;
    Ok(AllocatedPorts { ports, revision })
}

/// Releases ports unless the bitmap has changed since it was read: another server may have released
/// one of them already and allocated it again.
///
/// # Errors
/// [`StoreError::Conflict`] if the bitmap has changed.
pub(super) async fn release_leaked(
    registry: &Registry,
    range: &RangeInclusive<u16>,
    read: &AllocatedPorts,
    leaked: &[u16],
) -> Result<(), StoreError> {
    let mut kept = read.ports.clone();
    kept.retain(|port| !leaked.contains(port));
    write_back(registry, range, &kept, read.revision).await
}

async fn update_bitmap(
    registry: &Registry,
    range: &RangeInclusive<u16>,
    mut change: impl FnMut(&mut BTreeSet<u16>),
) -> Result<(), StoreError> {
    loop {
        let (mut bitmap, revision) = read_bitmap(registry, range).await?;
        let before = bitmap.clone();
        change(&mut bitmap);
        // Repair runs every minute and usually finds nothing.
        if bitmap == before {
            return Ok(());
        }
        match write_back(registry, range, &bitmap, revision).await {
            Err(StoreError::Conflict(_) | StoreError::Exists) => {}
            other => return other,
        }
    }
}

fn bitmap_key(registry: &Registry) -> String {
    format!("{}{KEY}", registry.caches.root_prefix())
}

async fn read_bitmap(
    registry: &Registry,
    range: &RangeInclusive<u16>,
) -> Result<(BTreeSet<u16>, i64), StoreError> {
    let Some(stored) = registry.store.read_key(&bitmap_key(registry)).await? else {
        return Ok((BTreeSet::new(), 0));
    };
    let message = api_message()?;
    let broken = |e: &dyn std::fmt::Display| {
        StoreError::Failed(format!("the node port allocation can't be decoded: {e}"))
    };
    let frame = envelope::unwrap(&stored.value).map_err(|e| broken(&e))?;
    let object = proto::decode(message, frame.raw).map_err(|e| broken(&e))?;
    let bytes = STANDARD
        .decode(
            object
                .get("data")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        )
        .map_err(|e| broken(&e))?;
    Ok((ports_of(&bytes, *range.start()), stored.revision))
}

async fn write_back(
    registry: &Registry,
    range: &RangeInclusive<u16>,
    ports: &BTreeSet<u16>,
    revision: i64,
) -> Result<(), StoreError> {
    let data = STANDARD.encode(bitmap_of(ports, *range.start()));
    let object = json!({"metadata": {}, "range": format!("{}-{}", range.start(), range.end()), "data": data});
    let bytes = envelope::wrap(
        "v1",
        "RangeAllocation",
        &proto::encode(api_message()?, &object),
    )
    .into();
    let key = bitmap_key(registry);
    let done = match revision {
        // The first node port of the cluster creates the bitmap.
        0 => registry.store.create(&key, bytes, None).await,
        revision => registry.store.update(&key, bytes, revision, None).await,
    };
    done.map(|_| ())
}

fn api_message() -> Result<&'static api_schema::Message, StoreError> {
    api_schema::schema()
        .message(MESSAGE)
        .ok_or_else(|| StoreError::Failed(format!("the schema has no {MESSAGE}")))
}

/// Encodes as upstream does: a big-endian integer whose bit N is the range's port N.
fn bitmap_of(ports: &BTreeSet<u16>, first: u16) -> Vec<u8> {
    let highest = ports
        .last()
        .map_or(0, |last| usize::from(last.saturating_sub(first)) / 8 + 1);
    let mut bytes = vec![0u8; highest];
    for offset in ports
        .iter()
        .map(|port| usize::from(port.saturating_sub(first)))
    {
        // Go's big.Int writes the most significant byte first, and upstream's servers read the same
        // object.
        if let Some(byte) = bytes.get_mut(highest - 1 - offset / 8) {
            *byte |= 1 << (offset % 8);
        }
    }
    bytes
}

fn ports_of(bytes: &[u8], first: u16) -> BTreeSet<u16> {
    let bits = bytes.iter().rev().enumerate().flat_map(|(at, byte)| {
        (0..8)
            .filter(move |bit| byte & (1 << bit) != 0)
            .map(move |bit| at * 8 + bit)
    });
    bits.filter_map(|offset| u16::try_from(offset).ok()?.checked_add(first))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_read_back() {
        let ports = BTreeSet::from([30000, 30007, 30008, 32767]);
        assert_eq!(ports_of(&bitmap_of(&ports, 30000), 30000), ports);
        assert_eq!(bitmap_of(&BTreeSet::from([30009]), 30000), [2, 0]);
    }

    #[test]
    fn free_ports_are_above_the_static_band_while_there_are_any() {
        for (range, band) in [
            (30000..=32767, 86),
            (30000..=30015, 0),
            (30000..=30016, 16),
            (30000..=30511, 16),
            (30000..=30543, 17),
            (30000..=34095, 128),
            (1..=65535, 128),
        ] {
            assert_eq!(compute_static_band(&range), band, "{range:?}");
        }
        let (range, mut bitmap) = (30000..=30019, BTreeSet::new());
        let mut choose = |count| {
            let ports = (0..count).map(|_| next_free_port(&range, &mut bitmap).ok());
            let mut ports: Vec<_> = ports.flatten().collect();
            ports.sort_unstable();
            ports
        };
        assert_eq!(choose(4), [30016, 30017, 30018, 30019]);
        assert_eq!(choose(20), (30000..=30015).collect::<Vec<_>>());
    }
}
