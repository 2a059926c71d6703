//! Computes the usage of a quota's resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_meta::Quantity;
use api_meta::quantity::Format;
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use controllers_runtime::pods as pod_state;

/// The objects of a namespace whose usage is more than their number.
pub struct World {
    /// Pods.
    pub pods: Vec<Arc<Pod>>,
    /// Services.
    pub services: Vec<Arc<Service>>,
    /// Claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
}

/// Returns the usage of the quota's resources by pods, Services and claims.
pub fn used(quota: &ResourceQuota, world: &World) -> BTreeMap<String, Amount> {
    let hard = quota.spec.iter().flat_map(|s| s.hard.iter().flatten());
    let pods: Vec<_> = world.pods.iter().filter(|p| in_scope(quota, p)).collect();
    hard.filter_map(|(name, _)| {
        Some((
            name.clone(),
            Amount(amount(name, &pods, world)?.to_string()),
        ))
    })
    .collect()
}

fn amount(name: &str, pods: &[&Arc<Pod>], world: &World) -> Option<Quantity> {
    let units =
        |n: usize| Quantity::from_units(i64::try_from(n).unwrap_or(i64::MAX), Format::DecimalSi);
    let live = || pods.iter().filter(|p| counts(p));
    let ports = |s: &Arc<Service>| match s.spec.as_ref().and_then(|s| s.type_.as_deref()) {
        Some("NodePort") => s
            .spec
            .as_ref()
            .map_or(0, |s| s.ports.iter().flatten().count()),
        Some("LoadBalancer")
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
        "pods" => units(live().count()),
        "count/pods" => units(pods.len()),
        "services" | "count/services" => units(world.services.len()),
        "services.nodeports" => units(world.services.iter().map(ports).sum()),
        "services.loadbalancers" => units(world.services.iter().filter(balanced).count()),
        "persistentvolumeclaims" | "count/persistentvolumeclaims" => units(world.claims.len()),
        "requests.storage" => world
            .claims
            .iter()
            .map(|c| storage(c))
            .fold(zero(), Quantity::plus),
        _ => match name.split_once(".storageclass.storage.k8s.io/") {
            Some((class, what)) => of_class(world, class, what)?,
            None => compute(name, live())?,
        },
    })
}

fn zero() -> Quantity {
    Quantity::from_units(0, Format::DecimalSi)
}

fn of_class(world: &World, class: &str, what: &str) -> Option<Quantity> {
    let named = |c: &&Arc<PersistentVolumeClaim>| {
        c.spec
            .as_ref()
            .and_then(|s| s.storage_class_name.as_deref())
            == Some(class)
    };
    let claims = world.claims.iter().filter(named);
    match what {
        "persistentvolumeclaims" => Some(Quantity::from_units(
            i64::try_from(claims.count()).unwrap_or(0),
            Format::DecimalSi,
        )),
        "requests.storage" => Some(claims.map(|c| storage(c)).fold(zero(), Quantity::plus)),
        _ => None,
    }
}

fn storage(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|s| s.resources.as_ref())
        .and_then(|r| r.requests.as_ref());
    requests
        .and_then(|r| r.get("storage"))
        .and_then(|q| q.0.parse().ok())
        .unwrap_or_else(zero)
}

/// Returns whether a pod still uses resources.
fn counts(pod: &Pod) -> bool {
    !pod_state::is_terminal(pod)
}

/// Sums `requests.cpu`, `limits.memory`, `cpu` and so on over pods.
fn compute<'p>(name: &str, pods: impl Iterator<Item = &'p &'p Arc<Pod>>) -> Option<Quantity> {
    let plain = ["cpu", "memory", "ephemeral-storage"];
    let (limits, resource) = match name.split_once('.') {
        Some(("limits", r)) => (true, r),
        Some(("requests", r)) => (false, r),
        _ if plain.contains(&name) || name.starts_with("hugepages-") => (false, name),
        _ => return None,
    };
    Some(
        pods.map(|p| of_pod(p, resource, limits))
            .fold(zero(), Quantity::plus),
    )
}

/// Returns a pod's requests or limits: the sum of containers and sidecars, or the largest init
/// container.
fn of_pod(pod: &Pod, resource: &str, limits: bool) -> Quantity {
    let Some(spec) = &pod.spec else { return zero() };
    let of = |c: &Container| {
        let map = c.resources.as_ref().and_then(|r| {
            if limits {
                r.limits.as_ref()
            } else {
                r.requests.as_ref()
            }
        });
        map.and_then(|m| m.get(resource))
            .and_then(|q| q.0.parse().ok())
            .unwrap_or_else(zero)
    };
    let mut total = spec.containers.iter().map(of).fold(zero(), Quantity::plus);
    let mut sidecars = zero();
    let mut peak = zero();
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.plus(of(init));
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars.plus(of(init)));
        }
    }
    total = total.plus(sidecars).max(peak);
    let overhead = spec
        .overhead
        .as_ref()
        .and_then(|m| m.get(resource))
        .and_then(|q| q.0.parse().ok());
    overhead.map_or(total, |o| total.plus(o))
}

fn in_scope(quota: &ResourceQuota, pod: &Pod) -> bool {
    let Some(spec) = &quota.spec else { return true };
    let by_name = spec
        .scopes
        .iter()
        .flatten()
        .all(|s| holds(s, "Exists", &[], pod));
    let by_selector = spec
        .scope_selector
        .iter()
        .flat_map(|s| s.match_expressions.iter().flatten());
    by_name
        && by_selector.into_iter().all(|e| {
            holds(
                &e.scope_name,
                &e.operator,
                e.values.as_deref().unwrap_or_default(),
                pod,
            )
        })
}

fn holds(scope: &str, operator: &str, values: &[String], pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let deadline = spec.and_then(|s| s.active_deadline_seconds).is_some();
    match scope {
        "Terminating" => deadline,
        "NotTerminating" => !deadline,
        "BestEffort" => best_effort(pod),
        "NotBestEffort" => !best_effort(pod),
        "PriorityClass" => {
            let class = spec
                .and_then(|s| s.priority_class_name.as_ref())
                .filter(|c| !c.is_empty());
            match operator {
                "In" => class.is_some_and(|c| values.contains(c)),
                "NotIn" => !class.is_some_and(|c| values.contains(c)),
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        "CrossNamespacePodAffinity" => spec.and_then(|s| s.affinity.as_ref()).is_some_and(|a| {
            let text = serde_json::to_string(a).unwrap_or_default();
            text.contains("\"namespaces\"") || text.contains("\"namespaceSelector\"")
        }),
        _ => false,
    }
}

fn best_effort(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let asks = |c: &Container| {
        let maps = c
            .resources
            .iter()
            .flat_map(|r| r.requests.iter().chain(&r.limits));
        maps.flat_map(|m| m.keys())
            .any(|k| k == "cpu" || k == "memory")
    };
    !all.into_iter().any(asks)
}

/// Returns resource and group of a name that counts objects.
pub fn counted(name: &str) -> Option<(&str, &str)> {
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
    fn ended_pods_use_nothing() {
        let quota = |spec: Value| -> ResourceQuota {
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let world = World {
            pods: vec![
                pod("Running", Some("10m")),
                pod("Succeeded", Some("10m")),
                pod("Running", None),
            ],
            services: vec![],
            claims: vec![],
        };
        let got = used(
            &quota(
                json!({"hard": {"pods": "1", "count/pods": "1", "requests.cpu": "1", "services": "1", "configmaps": "3"}}),
            ),
            &world,
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
        let best = used(
            &quota(json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})),
            &world,
        );
        assert_eq!(best["pods"].0, "1");
        assert_eq!(counted("count/jobs.batch"), Some(("jobs", "batch")));
    }
}
