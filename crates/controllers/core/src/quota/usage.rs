//! Computes the usage of a quota's resources.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use api_meta::Quantity;
use api_meta::quantity::Format;
use api_semantics::resources::{Options, ResourceList, pod_limits, pod_requests};
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
    // Computed once for all resources, and not for quotas that count objects only.
    let amounts = LazyCell::new(|| {
        let live = pods.iter().filter(|p| counts(p));
        live.map(|p| pod_amounts(p)).collect::<Vec<_>>()
    });
    hard.filter_map(|(name, _)| {
        Some((
            name.clone(),
            Amount(amount(name, &pods, || amounts.as_slice(), world)?.to_string()),
        ))
    })
    .collect()
}

fn amount<'a, 'p: 'a>(
    name: &str,
    pods: &[&Arc<Pod>],
    amounts: impl Fn() -> &'a [PodAmounts<'p>],
    world: &World,
) -> Option<Quantity> {
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
            None => compute(name, amounts())?,
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

/// Requests and limits of a pod.
type PodAmounts<'p> = (ResourceList<'p>, ResourceList<'p>);

fn pod_amounts(pod: &Pod) -> PodAmounts<'_> {
    let options = Options {
        use_status: true,
        ..Options::default()
    };
    (pod_requests(pod, &options), pod_limits(pod, &options))
}

/// Sums `requests.cpu`, `limits.memory`, `cpu` and so on over pods.
fn compute(name: &str, pods: &[PodAmounts<'_>]) -> Option<Quantity> {
    let plain = ["cpu", "memory", "ephemeral-storage"];
    let (limits, resource) = match name.split_once('.') {
        Some(("limits", r)) => (true, r),
        Some(("requests", r)) => (false, r),
        _ if plain.contains(&name) || name.starts_with("hugepages-") => (false, name),
        _ => return None,
    };
    let amounts = pods.iter().filter_map(|(requests, most)| {
        let list = if limits { most } else { requests };
        list.get(resource)
    });
    Some(amounts.fold(zero(), Quantity::plus))
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
