//! Requests and limits of pods, as upstream's `k8s.io/component-helpers/resource` computes them.
//!
//! Containers and sidecars (init containers that restart) run together. Init containers run one
//! after the other, each beside the sidecars before it. A pod needs the larger of both. Amounts at
//! pod level (KEP-2837) replace the sums of the resources that they may name. Overhead is added.
//!
//! During an in-place resize (KEP-1287) a container counts with the largest of its spec, its
//! allocated and its actual resources; an infeasible resize leaves the spec out.

mod list;

pub use list::{ResourceList, count};

use std::collections::BTreeMap;

use api_meta::Quantity;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Options of the computation. The default reads the spec only, pod-level resources and overhead
/// included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Counts containers with the resources of the status too, as during an in-place resize.
    pub use_status: bool,
    /// Counts pod-level resources with those of the status too. Needs `use_status`.
    pub use_pod_status: bool,
    /// Leaves out the overhead.
    pub exclude_overhead: bool,
    /// Leaves out pod-level resources.
    pub skip_pod_level: bool,
    /// Requests of containers that do not name the resource.
    pub missing_requests: &'static [(&'static str, Quantity)],
}

/// Part of the resources that is summed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Requests,
    Limits,
}

/// Returns a pod's requests.
pub fn pod_requests<'a>(pod: &'a Pod, options: &Options) -> ResourceList<'a> {
    let Some(spec) = &pod.spec else {
        return ResourceList::default();
    };
    // Pod level before overhead: what the runtime needs comes on top of both.
    let mut total = add_containers(pod, spec, Kind::Requests, options, |_| {});
    set_pod_level(&mut total, pod, spec, Kind::Requests, options);
    if !options.exclude_overhead && spec.overhead.is_some() {
        total.add(&ResourceList::new(spec.overhead.as_ref()));
    }
    total
}

/// Returns a pod's limits. Overhead is added to limits that are not zero.
pub fn pod_limits<'a>(pod: &'a Pod, options: &Options) -> ResourceList<'a> {
    let Some(spec) = &pod.spec else {
        return ResourceList::default();
    };
    let mut total = add_containers(pod, spec, Kind::Limits, options, |_| {});
    set_pod_level(&mut total, pod, spec, Kind::Limits, options);
    if !options.exclude_overhead && spec.overhead.is_some() {
        let mut overhead = ResourceList::new(spec.overhead.as_ref());
        for (name, _) in ResourceList::new(spec.overhead.as_ref()).iter() {
            // Without a limit the pod is unlimited. The overhead alone would become a limit.
            if total.is_zero(name) {
                overhead.remove(name);
            }
        }
        total.add(&overhead);
    }
    total
}

/// Returns whether the sum of limits bounds the pod: every container has a limit of the resource,
/// alone or with the sidecars beside it, or the pod has one of its own.
pub fn is_limited(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    // One limit for the whole pod bounds its containers, whatever they say.
    if !pod_level(spec, Kind::Limits).is_zero(name) && is_pod_level(name) {
        return true;
    }
    let mut all = true;
    add_containers(pod, spec, Kind::Limits, &Options::default(), |limits| {
        all &= !limits.is_zero(name);
    });
    all
}

/// Returns whether a resource may be requested at pod level.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Returns whether the pod requests resources at pod level.
pub fn has_pod_level_requests(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| {
        pod_level(spec, Kind::Requests)
            .iter()
            .any(|(name, _)| is_pod_level(name))
    })
}

/// Returns whether the container is a sidecar: an init container that restarts.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns whether the kubelet has found that a requested resize can never be done on the node.
pub fn is_resize_infeasible(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let pending = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// Sums over containers. `visit` receives the amounts of each container, those of an init container
/// with the sidecars beside it.
fn add_containers<'a>(
    pod: &'a Pod,
    spec: &'a PodSpec,
    kind: Kind,
    options: &Options,
    mut visit: impl FnMut(&ResourceList<'a>),
) -> ResourceList<'a> {
    let mut total = ResourceList::default();
    for container in &spec.containers {
        let own = container_amounts(pod, container, kind, options, options.use_status);
        visit(&own);
        total.add(&own);
    }
    let mut sidecars = ResourceList::default();
    let mut peak = ResourceList::default();
    for container in spec.init_containers.iter().flatten() {
        let sidecar = is_sidecar(container);
        let mut own =
            // Of the init containers only sidecars can be resized in place, so the status of others
            // is old.
            container_amounts(pod, container, kind, options, options.use_status && sidecar);
        if sidecar {
            total.add(&own);
            sidecars.add(&own);
            // The sidecars up to this one run while the next init container starts.
            visit(&sidecars);
            peak.raise(&sidecars);
        } else {
            own.add(&sidecars);
            visit(&own);
            peak.raise(&own);
        }
    }
    // Not the sum: init containers have ended before the others start.
    total.raise(&peak);
    total
}

fn container_amounts<'a>(
    pod: &'a Pod,
    container: &'a Container,
    kind: Kind,
    options: &Options,
    use_status: bool,
) -> ResourceList<'a> {
    let mut amounts = ResourceList::new(select_part(container.resources.as_ref(), kind));
    if use_status
        && let Some(status) = container_status(pod, &container.name)
        // Kubelets before 1.27 report no resources; the spec counts then.
        && let Some(actual) = &status.resources
    {
        let state = State {
            actual: select_part(Some(actual), kind),
            allocated: status.allocated_resources.as_ref(),
        };
        state.merge(&mut amounts, pod, kind);
    }
    // The scheduler scores containers without requests with small defaults.
    if kind == Kind::Requests {
        amounts.fill(options.missing_requests);
    }
    amounts
}

fn set_pod_level<'a>(
    total: &mut ResourceList<'a>,
    pod: &'a Pod,
    spec: &'a PodSpec,
    kind: Kind,
    options: &Options,
) {
    if options.skip_pod_level {
        return;
    }
    let given = pod_level(spec, kind);
    let mut effective = given.clone();
    if options.use_status
        && options.use_pod_status
        && let Some(status) = &pod.status
        && let Some(actual) = &status.resources
    {
        let state = State {
            actual: select_part(Some(actual), kind),
            allocated: status.allocated_resources.as_ref(),
        };
        state.merge(&mut effective, pod, kind);
    }
    for (name, _) in given.iter().filter(|(name, _)| is_pod_level(name)) {
        total.set(name, effective.get(name).unwrap_or(Quantity::ZERO));
    }
}

fn pod_level(spec: &PodSpec, kind: Kind) -> ResourceList<'_> {
    ResourceList::new(select_part(spec.resources.as_ref(), kind))
}

/// Resources of the status.
struct State<'a> {
    actual: Option<&'a BTreeMap<String, Text>>,
    allocated: Option<&'a BTreeMap<String, Text>>,
}

impl<'a> State<'a> {
    /// Raises the amounts of the spec to those of the status. There are no allocated limits.
    fn merge(&self, amounts: &mut ResourceList<'a>, pod: &Pod, kind: Kind) {
        // The kubelet has rejected the new amounts for good, so only the old ones are in use.
        if is_resize_infeasible(pod) {
            *amounts = ResourceList::default();
        }
        amounts.raise(&ResourceList::new(self.actual));
        // The kubelet allocates requests; limits are only set in the cgroup.
        if kind == Kind::Requests {
            amounts.raise(&ResourceList::new(self.allocated));
        }
    }
}

fn select_part(
    resources: Option<&ResourceRequirements>,
    kind: Kind,
) -> Option<&BTreeMap<String, Text>> {
    match kind {
        Kind::Requests => resources?.requests.as_ref(),
        Kind::Limits => resources?.limits.as_ref(),
    }
}

/// Names are unique among containers and init containers.
fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status: &PodStatus = pod.status.as_ref()?;
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses);
    all.flatten().find(|status| status.name == name)
}

#[cfg(test)]
mod tests;
