//! Distributes endpoints over slices with as few writes as possible.
//!
//! An endpoint stays in its slice. New endpoints go first into slices that change anyway, then into
//! slices with room, then into new slices of at most 100.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use controllers_runtime::{Action, Meta, labels::Labels, semantically_equal};

use crate::trigger_time::annotate;

/// The label with the Service's name.
pub const SERVICE: &str = "kubernetes.io/service-name";
/// The label with the controller's name.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of headless Services.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
// The default of upstream's --max-endpoints-per-slice.
const FULL: usize = 100;

/// Common properties of all slices of one Service.
#[derive(Clone, Debug)]
pub struct SliceTemplate {
    /// Prefix of generated names, without the dash.
    pub prefix: String,
    /// Namespace.
    pub namespace: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Time of the change that causes the writes.
    pub trigger: Option<Timestamp>,
    /// Owner reference.
    pub owner: OwnerReference,
    /// An address family without endpoints keeps an empty slice.
    pub placeholder: bool,
}

/// Endpoints with the same ports and family.
#[derive(Clone, Debug)]
pub struct Group {
    /// `IPv4`, `IPv6` or `FQDN`.
    pub family: String,
    /// Ports of every endpoint.
    pub ports: Vec<EndpointPort>,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// Returns the writes that turn `existing` into slices of `groups`. `families` are the Service's
/// families.
pub fn pack_endpoints(
    common: &SliceTemplate,
    families: &[String],
    groups: Vec<Group>,
    existing: &[Arc<EndpointSlice>],
) -> Vec<Action> {
    let mut actions = Vec::new();
    // A slice in deletion can't take endpoints.
    let mut unused: Vec<_> = existing
        .iter()
        .filter(|s| !s.is_deleting())
        .cloned()
        .collect();
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for group in &groups {
        // Ports are a property of the slice, so endpoints with other ports need another slice.
        let (mine, rest) = unused.into_iter().partition(|s| fits_group(s, group));
        unused = rest;
        *kept.entry(&group.family).or_default() += fill_slices(common, group, mine, &mut actions);
    }
    for family in families.iter().filter(|_| common.placeholder) {
        if kept.get(family.as_str()).copied().unwrap_or(0) == 0 {
            // A Service without any slice has not been processed yet; one with an empty slice has
            // no endpoints. Consumers distinguish the two.
            let empty = Group {
                family: family.clone(),
                ports: Vec::new(),
                endpoints: Vec::new(),
            };
            let found = unused.iter().position(|s| s.address_type == *family);
            let old = found.map(|index| unused.remove(index));
            actions.extend(write_slice(common, &empty, Vec::new(), old));
        }
    }
    actions.extend(unused.iter().map(|s| Action::delete(s.as_ref())));
    actions
}

fn fits_group(slice: &EndpointSlice, group: &Group) -> bool {
    let sorted = |ports: &[EndpointPort]| {
        let mut ports = ports.to_vec();
        ports.sort_by_key(|p| (p.name.clone(), p.port, p.protocol.clone()));
        ports
    };
    slice.address_type == group.family
        && sorted(slice.ports.as_deref().unwrap_or_default()) == sorted(&group.ports)
        && !group.endpoints.is_empty()
}

fn endpoint_identity(endpoint: &Endpoint) -> String {
    match endpoint.target_ref.as_ref().and_then(|t| t.uid.as_ref()) {
        // By UID: a pod keeps its endpoint even if its address changes.
        Some(uid) => uid.clone(),
        None => endpoint.addresses.join(","),
    }
}

/// A slice with the endpoints that it will hold.
struct SlicePlan {
    /// None for a slice that has to be created.
    slice: Option<Arc<EndpointSlice>>,
    endpoints: Vec<Endpoint>,
    /// True if the slice has to be written because of its endpoints.
    changed: bool,
}

/// Distributes a group over its slices; returns the number of slices that hold it.
fn fill_slices(
    common: &SliceTemplate,
    group: &Group,
    slices: Vec<Arc<EndpointSlice>>,
    actions: &mut Vec<Action>,
) -> usize {
    let mut wanted: BTreeMap<String, &Endpoint> = group
        .endpoints
        .iter()
        .map(|e| (endpoint_identity(e), e))
        .collect();
    let mut plans: Vec<_> = slices
        .into_iter()
        .map(|slice| keep_endpoints(slice, &mut wanted))
        .collect();
    place_endpoints(&mut plans, wanted.into_values().cloned().collect());
    let mut count = 0;
    for plan in plans {
        if plan.endpoints.is_empty() {
            actions.extend(plan.slice.map(|s| Action::delete(s.as_ref())));
        } else {
            count += 1;
            // A slice with the same endpoints is written only if its labels or ports differ.
            let same_face = |s: &Arc<EndpointSlice>| {
                s.metadata.labels.as_ref() == Some(&common.labels)
                    && s.ports.as_deref() == Some(&group.ports[..])
            };
            if plan.changed || !plan.slice.as_ref().is_some_and(same_face) {
                actions.extend(write_slice(common, group, plan.endpoints, plan.slice));
            }
        }
    }
    count
}

/// Keeps the endpoints of a slice that are still wanted, and removes them from `wanted`.
fn keep_endpoints(
    slice: Arc<EndpointSlice>,
    wanted: &mut BTreeMap<String, &Endpoint>,
) -> SlicePlan {
    let mut endpoints = Vec::new();
    let mut changed = false;
    for old in slice.endpoints.iter().flatten() {
        match wanted.remove(&endpoint_identity(old)) {
            Some(new) => {
                changed |= !semantically_equal(old, new);
                endpoints.push(new.clone());
            }
            None => changed = true,
        }
    }
    SlicePlan {
        slice: Some(slice),
        endpoints,
        changed,
    }
}

/// Adds new endpoints to slices with room, and to new slices.
fn place_endpoints(plans: &mut Vec<SlicePlan>, mut fresh: Vec<Endpoint>) {
    // Slices that are written anyway come first, then the fullest: fewest writes and fewest slices,
    // as upstream.
    plans.sort_by_key(|plan| (!plan.changed, std::cmp::Reverse(plan.endpoints.len())));
    // Prefer slices that still have endpoints.
    for emptied in [false, true] {
        for plan in plans
            .iter_mut()
            .filter(|plan| plan.endpoints.is_empty() == emptied)
        {
            let room = FULL.saturating_sub(plan.endpoints.len()).min(fresh.len());
            plan.changed |= room > 0;
            plan.endpoints.extend(fresh.drain(..room));
        }
    }
    while !fresh.is_empty() {
        plans.push(SlicePlan {
            slice: None,
            endpoints: fresh.drain(..FULL.min(fresh.len())).collect(),
            changed: true,
        });
    }
}

/// Returns the create or update of one slice, if it differs.
fn write_slice(
    common: &SliceTemplate,
    group: &Group,
    endpoints: Vec<Endpoint>,
    old: Option<Arc<EndpointSlice>>,
) -> Option<Action> {
    let Some(old) = old else {
        let mut created = EndpointSlice {
            metadata: ObjectMeta {
                // Generated, because a Service may have several slices, and other controllers may
                // add their own.
                generate_name: Some(format!("{}-", common.prefix)),
                namespace: Some(common.namespace.clone()),
                labels: Some(common.labels.clone()),
                annotations: (!common.annotations.is_empty()).then(|| common.annotations.clone()),
                owner_references: Some(vec![common.owner.clone()]),
                ..ObjectMeta::default()
            },
            address_type: group.family.clone(),
            endpoints: Some(endpoints),
            ports: Some(group.ports.clone()),
        };
        annotate(&mut created.metadata, common.trigger);
        return Some(Action::create(&created));
    };
    let mut slice = old.as_ref().clone();
    slice.metadata.labels = Some(common.labels.clone());
    slice.endpoints = Some(endpoints);
    slice.ports = Some(group.ports.clone());
    if semantically_equal(&slice, old.as_ref()) {
        return None;
    }
    // After the comparison: the time alone is no reason for a write.
    annotate(&mut slice.metadata, common.trigger);
    Some(Action::update(&slice))
}
