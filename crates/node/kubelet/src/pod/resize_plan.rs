//! The steps of a resize, in upstream's order: memory before CPU; the pod before its containers
//! where it grows, after them where it shrinks.
//!
//! So the containers never have more than the pod, and never less than before while the pod grows.

use crate::cri_config::resources::{
    PERIOD, PodResources, PodSetting, compute_cpu_quota, compute_cpu_shares, read_cpu_request,
    read_limit_of, read_request_of,
};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node_runtime::v1::LinuxContainerResources;
use std::cmp::Ordering;
use std::collections::BTreeMap;

type Amounts = BTreeMap<String, Quantity>;

/// One of the two resources that a resize changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compute {
    Memory,
    Cpu,
}

/// The change of a running container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContainerChange {
    pub(crate) name: String,
    /// ID in the runtime.
    pub(crate) id: String,
    /// Resources that are applied; None if that is unknown after a restart of the kubelet.
    pub(crate) before: Option<ResourceRequirements>,
    pub(crate) after: ResourceRequirements,
    /// None after a resize that succeeded. Otherwise the container may have other resources than
    /// `before`, and this is the highest memory limit in bytes that an attempt may have set, 0 for
    /// none.
    pub(crate) attempted_memory: Option<i64>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ResizeStep {
    Pod(PodSetting),
    Container {
        name: String,
        id: String,
        compute: Compute,
        settings: Box<LinuxContainerResources>,
    },
}

/// A container after a resize.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResizedContainer {
    pub(crate) name: String,
    /// ID in the runtime.
    pub(crate) id: String,
    /// Resources that are applied; None if that is still unknown.
    pub(crate) applied: Option<ResourceRequirements>,
    /// None if the resize succeeded. Otherwise the highest memory limit in bytes that it or an
    /// earlier attempt may have set, 0 for none.
    pub(crate) attempted_memory: Option<i64>,
}

/// The result of a resize.
#[derive(Debug, Default)]
pub(crate) struct ResizeOutcome {
    /// Settings of the pod's cgroup.
    pub(crate) pod: PodResources,
    /// Containers with what was applied before an error.
    pub(crate) containers: Vec<ResizedContainer>,
    /// Reason why the rest was not applied.
    pub(crate) error: Option<String>,
}

/// Returns the steps from the settings of the pod `now` to those of the `goal`. If `holds_shrink`,
/// the pod does not shrink: containers may run with their former resources.
pub(crate) fn plan_resize(
    now: PodResources,
    goal: PodResources,
    containers: &[ContainerChange],
    holds_shrink: bool,
) -> Vec<ResizeStep> {
    let memory = (
        PodSetting::Memory(goal.memory),
        compare_limits(now.memory, goal.memory),
    );
    let quota = (
        PodSetting::Quota(goal.quota),
        compare_limits(now.quota, goal.quota),
    );
    // Unknown shares are 0, and written last: no order is required between them and others.
    let shares = match now.shares {
        0 => Ordering::Less,
        now => goal.shares.cmp(&now),
    };
    let shares = (PodSetting::Shares(goal.shares), shares);
    let mut steps = Vec::new();
    for (compute, limit, request) in [
        (Compute::Memory, memory, None),
        (Compute::Cpu, quota, Some(shares)),
    ] {
        let of_pod = |order: Ordering| {
            let mut all: Vec<_> = [Some(limit), request].into_iter().flatten().collect();
            // The limit grows first and shrinks last: it is never below the request.
            if order == Ordering::Less {
                all.reverse();
            }
            all.into_iter()
                .filter(move |(_, is)| *is == order)
                .map(|(setting, _)| ResizeStep::Pod(setting))
        };
        steps.extend(of_pod(Ordering::Greater));
        for order in [Ordering::Less, Ordering::Greater] {
            let changed = containers.iter().filter(|c| c.compare(compute) == order);
            steps.extend(changed.map(|c| c.step(compute)));
        }
        if !holds_shrink {
            steps.extend(of_pod(Ordering::Less));
        }
    }
    steps
}

/// Compares limits, of which 0 stands for none. A limit is never removed, as upstream.
fn compare_limits(now: i64, goal: i64) -> Ordering {
    let height = |limit: i64| if limit == 0 { i64::MAX } else { limit };
    match goal {
        0 => Ordering::Equal,
        goal => height(goal).cmp(&height(now)),
    }
}

impl ContainerChange {
    /// Returns the container after all steps.
    pub(crate) fn complete(self) -> ResizedContainer {
        ResizedContainer {
            name: self.name,
            id: self.id,
            applied: Some(self.after),
            attempted_memory: None,
        }
    }

    /// Returns the container after the steps of some resources only. The step `failed` may have
    /// taken effect nevertheless.
    pub(crate) fn interrupt(
        self,
        applied: &[Compute],
        failed: Option<Compute>,
    ) -> ResizedContainer {
        let limit = read_limit_of(&self.after, Compute::Memory.name());
        let earlier = self.attempted_memory.unwrap_or_default();
        let attempted = if applied.contains(&Compute::Memory) {
            limit
        } else if failed == Some(Compute::Memory) {
            limit.max(earlier)
        } else {
            earlier
        };
        let mut reached = self.before;
        if let Some(reached) = &mut reached {
            for name in applied.iter().map(|compute| compute.name()) {
                copy_amount(self.after.requests.as_ref(), &mut reached.requests, name);
                copy_amount(self.after.limits.as_ref(), &mut reached.limits, name);
            }
        }
        ResizedContainer {
            name: self.name,
            id: self.id,
            applied: reached,
            attempted_memory: Some(attempted),
        }
    }

    /// Returns whether a resource of the container grows or shrinks. One that may have any value
    /// is set first, like one that shrinks.
    fn compare(&self, compute: Compute) -> Ordering {
        let name = compute.name();
        // Memory requests are not in the cgroup.
        if compute == Compute::Memory && read_limit_of(&self.after, name) == 0 {
            return Ordering::Equal;
        }
        let Some(before) = &self.before else {
            return Ordering::Less;
        };
        let limit = |r: &ResourceRequirements| match read_limit_of(r, name) {
            0 => i64::MAX,
            limit => limit,
        };
        let request = |r: &ResourceRequirements| read_request_of(r, name);
        let order = limit(&self.after)
            .cmp(&limit(before))
            .then(request(&self.after).cmp(&request(before)));
        match order {
            Ordering::Equal if self.attempted_memory.is_some() => Ordering::Less,
            order => order,
        }
    }

    /// Returns the limit in bytes if the container's memory shrinks to one, or shrinks if an
    /// earlier attempt took effect. An unknown limit may be the same one, which caches may fill.
    pub(crate) fn shrunk_memory(&self) -> Option<i64> {
        let after = read_limit_of(&self.after, "memory");
        let before = self.before.as_ref().map(|r| read_limit_of(r, "memory"));
        let shrinks = before.is_some_and(|before| compare_limits(before, after) == Ordering::Less);
        let may_shrink = after > 0 && self.attempted_memory.is_some_and(|limit| limit > after);
        (shrinks || may_shrink).then_some(after)
    }

    /// Sets the values of one resource; the runtime leaves zeros unchanged.
    fn step(&self, compute: Compute) -> ResizeStep {
        let after = &self.after;
        let settings = match compute {
            Compute::Memory => LinuxContainerResources {
                memory_limit_in_bytes: read_limit_of(after, "memory"),
                ..LinuxContainerResources::default()
            },
            Compute::Cpu => LinuxContainerResources {
                cpu_period: PERIOD,
                cpu_quota: compute_cpu_quota(read_limit_of(after, "cpu")),
                cpu_shares: compute_cpu_shares(read_cpu_request(after)),
                ..LinuxContainerResources::default()
            },
        };
        ResizeStep::Container {
            name: self.name.clone(),
            id: self.id.clone(),
            compute,
            settings: Box::new(settings),
        }
    }
}

impl Compute {
    fn name(self) -> &'static str {
        match self {
            Compute::Memory => "memory",
            Compute::Cpu => "cpu",
        }
    }
}

/// Copies the amount of a resource, or its absence.
fn copy_amount(from: Option<&Amounts>, to: &mut Option<Amounts>, name: &str) {
    match from.and_then(|from| from.get(name)) {
        Some(amount) => {
            let to = to.get_or_insert_default();
            to.insert(name.to_owned(), amount.clone());
        }
        None => {
            if let Some(to) = to {
                to.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn change(name: &str, before: Value, after: Value) -> ContainerChange {
        ContainerChange {
            name: name.into(),
            id: format!("{name}0"),
            before: serde_json::from_value(before).unwrap(),
            after: serde_json::from_value(after).unwrap(),
            attempted_memory: None,
        }
    }

    fn limits(cpu: &str, memory: &str) -> Value {
        json!({"limits": {"cpu": cpu, "memory": memory}})
    }

    fn pod(shares: i64, quota: i64, memory: i64) -> PodResources {
        PodResources {
            shares,
            quota,
            memory,
        }
    }

    fn show(steps: &[ResizeStep]) -> Vec<String> {
        let show = |step: &ResizeStep| match step {
            ResizeStep::Pod(setting) => format!("{setting:?}"),
            ResizeStep::Container { name, settings, .. } => match settings.memory_limit_in_bytes {
                0 => format!("{name} cpu {} {}", settings.cpu_quota, settings.cpu_shares),
                limit => format!("{name} memory {limit}"),
            },
        };
        steps.iter().map(show).collect()
    }

    #[test]
    fn pod_grows_before_its_containers_and_shrinks_after_them() {
        let grows = || change("a", limits("1", "10"), limits("2", "20"));
        let shrinks = || change("b", limits("2", "20"), limits("1", "10"));
        for (now, goal, containers, expect) in [
            (
                pod(1024, 100_000, 10),
                pod(2048, 200_000, 20),
                vec![grows()],
                &[
                    "Memory(20)",
                    "a memory 20",
                    "Quota(200000)",
                    "Shares(2048)",
                    "a cpu 200000 2048",
                ][..],
            ),
            (
                pod(2048, 200_000, 20),
                pod(1024, 100_000, 10),
                vec![shrinks()],
                &[
                    "b memory 10",
                    "Memory(10)",
                    "b cpu 100000 1024",
                    "Shares(1024)",
                    "Quota(100000)",
                ],
            ),
            (
                pod(1024, 100_000, 30),
                pod(1024, 100_000, 30),
                vec![grows(), shrinks()],
                &[
                    "b memory 10",
                    "a memory 20",
                    "b cpu 100000 1024",
                    "a cpu 200000 2048",
                ],
            ),
            (pod(1024, 0, 0), pod(1024, 0, 0), vec![], &[]),
            (
                pod(1024, 0, 0),
                pod(2048, 200_000, 20),
                vec![],
                &["Memory(20)", "Shares(2048)", "Quota(200000)"],
            ),
            (pod(1024, 100_000, 10), pod(1024, 0, 0), vec![], &[]),
            (
                pod(0, 100_000, 10),
                pod(2048, 100_000, 10),
                vec![change("u", Value::Null, limits("1", "10"))],
                &["u memory 10", "u cpu 100000 1024", "Shares(2048)"],
            ),
        ] {
            let case = format!("{now:?} to {goal:?}");
            let steps = plan_resize(now, goal, &containers, false);
            assert_eq!(show(&steps), expect, "{case}");
        }
    }

    #[test]
    fn pod_does_not_shrink_while_containers_need_its_size() {
        let (now, goal) = (pod(1024, 200_000, 20), pod(2048, 100_000, 10));
        let steps = plan_resize(now, goal, &[], true);
        assert_eq!(show(&steps), ["Shares(2048)"]);
    }

    #[test]
    fn unsettled_container_gets_all_its_resources_again() {
        let same = || limits("1", "10");
        let steps = |is_unsettled: bool, after: Value| {
            let change = ContainerChange {
                attempted_memory: is_unsettled.then_some(0),
                ..change("a", after.clone(), after)
            };
            show(&plan_resize(
                pod(1024, 0, 0),
                pod(1024, 0, 0),
                &[change],
                false,
            ))
        };
        assert_eq!(
            steps(true, same()),
            ["a memory 10", "a cpu 100000 1024"],
            "it may have more"
        );
        assert_eq!(steps(true, json!({})), ["a cpu 0 2"]);
        assert!(steps(false, same()).is_empty());
    }

    #[test]
    fn container_has_what_was_applied_before_an_error() {
        let both = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "storage": "1"}, "limits": {"memory": memory}});
        for (before, after, applied, expect) in [
            (both("1", "10"), both("2", "20"), &[][..], both("1", "10")),
            (
                both("1", "10"),
                both("2", "20"),
                &[Compute::Memory],
                both("1", "20"),
            ),
            (
                json!({"limits": {"memory": "10"}}),
                json!({"limits": {}, "requests": {"memory": "5"}}),
                &[Compute::Memory],
                json!({"limits": {}, "requests": {"memory": "5"}}),
            ),
            (
                Value::Null,
                both("2", "20"),
                &[Compute::Memory],
                Value::Null,
            ),
        ] {
            let case = format!("{before} to {after}, {applied:?}");
            let reached = change("a", before, after).interrupt(applied, None).applied;
            assert_eq!(serde_json::to_value(reached).unwrap(), expect, "{case}");
        }
    }

    #[test]
    fn memory_shrinks_to_a_limit_that_is_lower_or_new() {
        for (before, after, expect) in [
            (limits("1", "10"), limits("1", "5"), Some(5)),
            (json!({}), limits("1", "5"), Some(5)),
            (limits("1", "5"), limits("1", "10"), None),
            (limits("1", "5"), limits("2", "5"), None),
            (json!({}), json!({}), None),
            (Value::Null, limits("1", "5"), None),
        ] {
            let change = change("c", before.clone(), after.clone());
            assert_eq!(change.shrunk_memory(), expect, "{before} to {after}");
        }
    }

    #[test]
    fn memory_is_checked_if_an_attempt_may_have_set_a_higher_limit() {
        for (before, attempted, after, expect) in [
            (limits("1", "10"), Some(20), limits("1", "10"), Some(10)),
            (limits("1", "10"), Some(20), limits("1", "15"), Some(15)),
            (Value::Null, Some(20), limits("1", "10"), Some(10)),
            (limits("1", "10"), Some(10), limits("1", "10"), None),
            (limits("1", "10"), Some(20), limits("1", "20"), None),
            (limits("1", "10"), Some(0), limits("1", "10"), None),
            (limits("1", "10"), Some(20), json!({}), None),
            (Value::Null, Some(10), limits("1", "10"), None),
        ] {
            let case = format!("{before}, {attempted:?} to {after}");
            let change = ContainerChange {
                attempted_memory: attempted,
                ..change("c", before, after)
            };
            assert_eq!(change.shrunk_memory(), expect, "{case}");
        }
    }

    #[test]
    fn interrupted_resize_records_the_highest_limit_that_may_be_set() {
        let memory = Compute::Memory;
        for (earlier, applied, failed, expect) in [
            (None, &[][..], Some(memory), 20),
            (Some(30), &[], Some(memory), 30),
            (Some(10), &[], Some(memory), 20),
            // The runtime has confirmed this one.
            (Some(30), &[memory], Some(Compute::Cpu), 20),
            (Some(30), &[], Some(Compute::Cpu), 30),
            (None, &[], None, 0),
        ] {
            let change = ContainerChange {
                attempted_memory: earlier,
                ..change("c", limits("1", "10"), limits("1", "20"))
            };
            let reached = change.interrupt(applied, failed).attempted_memory;
            assert_eq!(reached, Some(expect), "{earlier:?} {applied:?} {failed:?}");
        }
    }
}
