//! Quota usage of one object.

use crate::context::{list_at, string_at};
use crate::resources::{Amounts, parse_amounts};
use api_meta::Quantity;
use api_semantics::quota::{COMPUTE, is_pod_charged, pod_usage};
use api_semantics::tree;
use jiff::Timestamp;
use serde_json::Value;

const LEGACY_COUNTS: [&str; 6] = [
    "configmaps",
    "secrets",
    "replicationcontrollers",
    "resourcequotas",
    "services",
    "persistentvolumeclaims",
];

fn quantity_one() -> Quantity {
    Quantity::from_millis(1000)
}

/// Returns usage by quota resource name.
pub fn object_usage(group: &str, resource: &str, object: &Value) -> Amounts {
    let mut usage = Amounts::new();
    let count = if group.is_empty() {
        format!("count/{resource}")
    } else {
        format!("count/{resource}.{group}")
    };
    usage.insert(count, quantity_one());
    if !group.is_empty() {
        return usage;
    }
    // These resources were countable by their plain name before count/RESOURCE existed.
    if LEGACY_COUNTS.contains(&resource) {
        usage.insert(resource.to_owned(), quantity_one());
    }
    match resource {
        "pods" => add_pod_usage(object, &mut usage),
        "services" => add_service_usage(object, &mut usage),
        "persistentvolumeclaims" => add_claim_usage(object, &mut usage),
        _ => {}
    }
    usage
}

fn add_pod_usage(pod: &Value, usage: &mut Amounts) {
    let pod = tree::pod(pod);
    // A finished pod holds no resources of a node, although its object still counts.
    if is_pod_charged(&pod, Timestamp::now()) {
        usage.extend(pod_usage(&pod));
    }
}

fn add_service_usage(service: &Value, usage: &mut Amounts) {
    let ports = i64::try_from(list_at(service, "/spec/ports").len()).unwrap_or(0);
    let all = Quantity::from_millis(ports.saturating_mul(1000));
    // An absent field means true, as defaulting sets it.
    let allocated =
        service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    match string_at(service, "/spec/type") {
        "NodePort" => {
            usage.insert("services.nodeports".into(), all);
        }
        "LoadBalancer" => {
            usage.insert("services.loadbalancers".into(), quantity_one());
            // Without node ports the load balancer reaches pods directly.
            if allocated {
                usage.insert("services.nodeports".into(), all);
            }
        }
        _ => {}
    }
}

fn add_claim_usage(claim: &Value, usage: &mut Amounts) {
    let class = string_at(claim, "/spec/storageClassName");
    let by_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
    // Administrators bound expensive classes separately from the namespace's total.
    if !class.is_empty() {
        usage.insert(by_class("persistentvolumeclaims"), quantity_one());
    }
    if let Some(size) = parse_amounts(claim.pointer("/spec/resources/requests")).get("storage") {
        usage.insert("requests.storage".into(), *size);
        if !class.is_empty() {
            usage.insert(by_class("requests.storage"), *size);
        }
    }
}

/// Returns the requests and limits that a pod lacks although a quota bounds them:
/// `requests.cpu for: a,b`.
pub fn unspecified_resources(pod: &Value, hard: &Amounts) -> Vec<String> {
    let mut missing = Vec::new();
    for name in hard.keys() {
        let (part, resource) = match name.split_once('.') {
            Some(("limits", resource)) => ("limits", resource),
            Some(("requests", resource)) => ("requests", resource),
            // A plain resource name means its requests.
            _ => ("requests", name.as_str()),
        };
        // Resources of the whole pod bound all of its containers.
        let level = pod
            .pointer(&format!("/spec/resources/{part}"))
            .is_some_and(|r| r.get(resource).is_some());
        if !COMPUTE.contains(&resource) || level {
            continue;
        }
        // Defaults of a LimitRange are already filled in, since validation runs after all
        // mutations.
        let lacks = |c: &&Value| {
            c.pointer(&format!("/resources/{part}"))
                .is_none_or(|r| r.get(resource).is_none())
        };
        let containers = ["/spec/containers", "/spec/initContainers"]
            .into_iter()
            .flat_map(|l| list_at(pod, l));
        let mut names: Vec<&str> = containers
            .filter(lacks)
            .map(|c| string_at(c, "/name"))
            .collect();
        // The message lists them in the same order for equal pods, whatever the order in the spec.
        names.sort_unstable();
        if !names.is_empty() {
            missing.push(format!("{name} for: {}", names.join(",")));
        }
    }
    missing
}
