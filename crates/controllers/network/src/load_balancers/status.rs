//! The status of a Service: its addresses, and the condition that records what was allocated.

use std::net::IpAddr;

use api_address_pool::parse_allocation;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use controllers_runtime::{Action, Meta, Note, Target, object_reference, time};

use super::ledger::Assignment;

/// The condition marks the Services whose addresses are from the pool, and its message has the
/// addresses: they are found again after the pool has changed.
pub use api_address_pool::ALLOCATION_CONDITION as CONDITION;
const ALLOCATED: &str = "Allocated";

/// Returns the points of the load balancer's status.
fn list_ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service
        .status
        .as_ref()
        .and_then(|s| s.load_balancer.as_ref());
    let points = balancer.and_then(|balancer| balancer.ingress.as_deref());
    points.unwrap_or_default()
}

/// Returns the addresses of the load balancer's status.
pub fn list_addresses(service: &Service) -> Vec<IpAddr> {
    let points = list_ingress(service).iter();
    points
        .filter_map(|point| point.ip.as_deref()?.parse().ok())
        .collect()
}

fn find_condition(service: &Service) -> Option<&Condition> {
    let status = service.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == CONDITION)
}

/// Returns whether the status has a host name or an address that is neither in the pool nor one
/// that was allocated: another load balancer serves the Service.
pub fn has_foreign_ingress(service: &Service, is_in_pool: impl Fn(IpAddr) -> bool) -> bool {
    let message = find_condition(service).map(|condition| condition.message.as_str());
    let recorded: Vec<IpAddr> = parse_allocation(message.unwrap_or_default()).collect();
    list_ingress(service).iter().any(|point| {
        let address = point.ip.as_deref().and_then(|ip| ip.parse().ok());
        address.is_none_or(|address| !is_in_pool(address) && !recorded.contains(&address))
    })
}

/// Returns the removal of the condition, if the Service has it.
pub fn remove_condition(service: &Service) -> Option<Action> {
    find_condition(service)?;
    let status = json!({ "conditions": [{ "type": CONDITION, "$patch": "delete" }] });
    Some(patch_status(service, status))
}

/// Returns the write of the addresses and the condition, unless the Service has them already.
pub fn write_assignment(
    service: &Service,
    assignment: &Assignment,
    now: Timestamp,
) -> Option<Action> {
    let addresses: Vec<_> = assignment
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    let listed = addresses.join(", ");
    let (status, reason, message) = match assignment.problem {
        None => ("True", ALLOCATED, listed.clone()),
        Some(problem) if listed.is_empty() => {
            ("False", problem.reason(), problem.message().to_owned())
        }
        Some(problem) => (
            "False",
            problem.reason(),
            format!("{listed}; {}", problem.message()),
        ),
    };
    let old = find_condition(service);
    let points = list_ingress(service).iter();
    let has_addresses = points
        .map(|point| (point.ip.as_deref(), point.ip_mode.as_deref()))
        .eq(addresses.iter().map(|ip| (Some(ip.as_str()), Some("VIP"))));
    if has_addresses
        && old.is_some_and(|c| c.status == status && c.reason == reason && c.message == message)
    {
        return None;
    }
    let since = old.filter(|old| old.status == status);
    let since = since.map_or_else(
        || time::api_time(now),
        |old| old.last_transition_time.clone(),
    );
    let ingress: Vec<Value> = addresses
        .iter()
        .map(|ip| json!({ "ip": ip, "ipMode": "VIP" }))
        .collect();
    let body = json!({
        "loadBalancer": { "ingress": ingress },
        "conditions": [{
            "type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since,
        }],
    });
    let regarding = object_reference(service);
    let note = match assignment.problem {
        None => Note::normal(&regarding, "AddressAllocated", &message),
        Some(problem) => Note::warning(&regarding, problem.reason(), &message),
    };
    let action = patch_status(service, body);
    Some(action.with(|write| write.notes.success = Some(note.clone())))
}

/// Patches the version that was read: the load balancer of another vendor may write at the same
/// time.
fn patch_status(service: &Service, status: Value) -> Action {
    let patch = json!({
        "metadata": { "uid": service.uid(), "resourceVersion": service.metadata.resource_version },
        "status": status,
    });
    Action::strategic_status(Target::of(service), patch).ignore_absent()
}
