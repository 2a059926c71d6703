//! Computes the usage of a quota's resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_meta::Quantity;
use api_meta::quantity::Format;
use api_semantics::quota::{COMPUTE, is_pod_charged, pod_usage, scopes_match};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

/// The objects of a namespace whose usage is more than their number.
pub struct NamespaceObjects {
    /// Pods.
    pub pods: Vec<Arc<Pod>>,
    /// Services.
    pub services: Vec<Arc<Service>>,
    /// Claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
}

/// Returns the usage of the quota's resources by pods, Services and claims.
pub fn compute_usage(
    quota: &ResourceQuota,
    objects: &NamespaceObjects,
    now: Timestamp,
) -> BTreeMap<String, Amount> {
    let hard = quota.spec.iter().flat_map(|s| s.hard.iter().flatten());
    let in_scope = |p: &&Arc<Pod>| quota.spec.as_ref().is_none_or(|s| scopes_match(s, p));
    let pods: Vec<_> = objects.pods.iter().filter(in_scope).collect();
    let charged = pods.iter().filter(|p| is_pod_charged(p, now));
    let usage: Vec<_> = charged.map(|p| pod_usage(p)).collect();
    hard.filter_map(|(name, _)| {
        let amount = compute_amount(name, pods.len(), &usage, objects)?;
        Some((name.clone(), Amount(amount.to_string())))
    })
    .collect()
}

/// Usage of one pod.
type PodUsage = BTreeMap<String, Quantity>;

fn compute_amount(
    name: &str,
    pods: usize,
    usage: &[PodUsage],
    objects: &NamespaceObjects,
) -> Option<Quantity> {
    let units =
        |n: usize| Quantity::from_units(i64::try_from(n).unwrap_or(i64::MAX), Format::DecimalSi);
    let ports = |s: &Arc<Service>| match s.spec.as_ref().and_then(|s| s.type_.as_deref()) {
        Some("NodePort") => s
            .spec
            .as_ref()
            .map_or(0, |s| s.ports.iter().flatten().count()),
        Some("LoadBalancer")
            // Load balancers may be configured to route to pods directly, and then need no node
            // ports.
            if s.spec
                .as_ref()
                .and_then(|s| s.allocate_load_balancer_node_ports)
                != Some(false) =>
        {
            s.spec
                .as_ref()
                .map_or(0, |s| s.ports.iter().flatten().count())
        }
        _ => 0,
    };
    let balanced = |s: &&Arc<Service>| {
        s.spec.as_ref().and_then(|s| s.type_.as_deref()) == Some("LoadBalancer")
    };
    Some(match name {
        "pods" => units(usage.len()),
        // Terminated pods count here, because the object count limits storage; `pods` limits what
        // runs.
        "count/pods" => units(pods),
        "services" | "count/services" => units(objects.services.len()),
        "services.nodeports" => units(objects.services.iter().map(ports).sum()),
        "services.loadbalancers" => units(objects.services.iter().filter(balanced).count()),
        "persistentvolumeclaims" | "count/persistentvolumeclaims" => units(objects.claims.len()),
        "requests.storage" => objects
            .claims
            .iter()
            .map(|c| requested_storage(c))
            .fold(zero_quantity(), Quantity::plus),
        _ => match name.split_once(".storageclass.storage.k8s.io/") {
            Some((class, resource)) => sum_storage_class(objects, class, resource)?,
            None => sum_pod_usage(name, usage)?,
        },
    })
}

fn zero_quantity() -> Quantity {
    Quantity::from_units(0, Format::DecimalSi)
}

fn sum_storage_class(objects: &NamespaceObjects, class: &str, resource: &str) -> Option<Quantity> {
    let named = |c: &&Arc<PersistentVolumeClaim>| {
        c.spec
            .as_ref()
            .and_then(|s| s.storage_class_name.as_deref())
            == Some(class)
    };
    let claims = objects.claims.iter().filter(named);
    match resource {
        "persistentvolumeclaims" => Some(Quantity::from_units(
            i64::try_from(claims.count()).unwrap_or(0),
            Format::DecimalSi,
        )),
        "requests.storage" => Some(
            claims
                .map(|c| requested_storage(c))
                .fold(zero_quantity(), Quantity::plus),
        ),
        _ => None,
    }
}

fn requested_storage(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|s| s.resources.as_ref())
        .and_then(|r| r.requests.as_ref());
    requests
        .and_then(|r| r.get("storage"))
        .and_then(|q| q.0.parse().ok())
        .unwrap_or_else(zero_quantity)
}

/// Sums `requests.cpu`, `limits.memory`, `cpu` and so on over pods.
fn sum_pod_usage(name: &str, usage: &[PodUsage]) -> Option<Quantity> {
    let is_pod_resource = COMPUTE.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.")
        || name.starts_with("limits.");
    let amounts = usage.iter().filter_map(|pod| pod.get(name).copied());
    is_pod_resource.then(|| amounts.fold(zero_quantity(), Quantity::plus))
}

/// Returns resource and group of a name that counts objects.
pub fn parse_counted_resource(name: &str) -> Option<(&str, &str)> {
    const CORE: [&str; 4] = [
        "configmaps",
        "secrets",
        "replicationcontrollers",
        "resourcequotas",
    ];
    match name.strip_prefix("count/") {
        Some(rest) => Some(rest.split_once('.').unwrap_or((rest, ""))),
        None => CORE.contains(&name).then_some((name, "")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(phase: &str, cpu: Option<&str>) -> Arc<Pod> {
        let resources = cpu.map(|c| json!({"requests": {"cpu": c}}));
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": phase}}),
            )
            .unwrap(),
        )
    }

    #[test]
    fn terminated_pods_count_only_as_objects() {
        let quota = |spec: Value| -> ResourceQuota {
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let objects = NamespaceObjects {
            pods: vec![
                pod("Running", Some("10m")),
                pod("Succeeded", Some("10m")),
                pod("Running", None),
            ],
            services: vec![],
            claims: vec![],
        };
        let got = compute_usage(
            &quota(
                json!({"hard": {"pods": "1", "count/pods": "1", "requests.cpu": "1", "services": "1", "configmaps": "3"}}),
            ),
            &objects,
            Timestamp::UNIX_EPOCH,
        );
        let text: BTreeMap<_, _> = got
            .iter()
            .map(|(k, v)| (k.as_str(), v.0.as_str()))
            .collect();
        assert_eq!(
            text,
            BTreeMap::from([
                ("pods", "2"),
                ("count/pods", "3"),
                ("requests.cpu", "10m"),
                ("services", "0")
            ])
        );
        let best = compute_usage(
            &quota(json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})),
            &objects,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(best["pods"].0, "1");
        assert_eq!(
            parse_counted_resource("count/jobs.batch"),
            Some(("jobs", "batch"))
        );
    }

    fn usage_of(hard: Value, services: Value, claims: Value) -> BTreeMap<String, String> {
        let quota: ResourceQuota = serde_json::from_value(json!({"spec": {"hard": hard}})).unwrap();
        let objects = NamespaceObjects {
            pods: vec![],
            services: serde_json::from_value::<Vec<Service>>(services)
                .unwrap()
                .into_iter()
                .map(Arc::new)
                .collect(),
            claims: serde_json::from_value::<Vec<PersistentVolumeClaim>>(claims)
                .unwrap()
                .into_iter()
                .map(Arc::new)
                .collect(),
        };
        let used = compute_usage(&quota, &objects, Timestamp::UNIX_EPOCH);
        used.into_iter()
            .map(|(name, amount)| (name, amount.0))
            .collect()
    }

    #[test]
    fn node_ports_and_load_balancers_are_counted() {
        let service = |kind: &str, ports: usize, allocate: Value| {
            json!({"spec": {"type": kind,
            "allocateLoadBalancerNodePorts": allocate, "ports": vec![json!({"port": 1}); ports]}})
        };
        let used = usage_of(
            json!({"services": "9", "services.nodeports": "9", "services.loadbalancers": "9"}),
            json!([
                service("ClusterIP", 3, json!(null)),
                service("NodePort", 2, json!(null)),
                service("LoadBalancer", 1, json!(null)),
                service("LoadBalancer", 1, json!(false))
            ]),
            json!([]),
        );
        assert_eq!(used["services"], "4");
        assert_eq!(used["services.nodeports"], "3");
        assert_eq!(used["services.loadbalancers"], "2");
    }

    #[test]
    fn storage_is_counted_in_total_and_by_class() {
        let claim = |class: &str, size: &str| {
            json!({"spec": {"storageClassName": class,
            "resources": {"requests": {"storage": size}}}})
        };
        let used = usage_of(
            json!({"requests.storage": "9", "persistentvolumeclaims": "9",
                "gold.storageclass.storage.k8s.io/requests.storage": "9",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "9"}),
            json!([]),
            json!([
                claim("gold", "2Gi"),
                claim("gold", "1Gi"),
                claim("tin", "1Gi")
            ]),
        );
        assert_eq!(used["requests.storage"], "4Gi");
        assert_eq!(used["persistentvolumeclaims"], "3");
        assert_eq!(
            used["gold.storageclass.storage.k8s.io/requests.storage"],
            "3Gi"
        );
        assert_eq!(
            used["gold.storageclass.storage.k8s.io/persistentvolumeclaims"],
            "2"
        );
    }

    #[test]
    fn counted_resources_have_a_group_or_are_of_the_core_group() {
        for (name, expect) in [
            ("count/deployments.apps", Some(("deployments", "apps"))),
            ("count/secrets", Some(("secrets", ""))),
            ("secrets", Some(("secrets", ""))),
            ("resourcequotas", Some(("resourcequotas", ""))),
            ("deployments", None),
            ("requests.cpu", None),
        ] {
            assert_eq!(parse_counted_resource(name), expect, "{name}");
        }
    }
}
