//! Amounts of resources, as integers.
//!
//! CPU is in thousandths, everything else in whole units, both rounded up as upstream does. A pod
//! requests the larger of the sum of its containers and the peak of its init containers, plus
//! overhead; sidecars (init containers that restart) count on both sides.

use std::collections::BTreeMap;

use api_meta::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// CPU in thousandths that a container without a request counts for in scoring.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory in bytes that a container without a request counts for in scoring.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU in thousandths.
    pub milli_cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: i64,
    /// Number of pods.
    pub pods: i64,
    /// Extended resources, huge pages and attachable volumes, by name.
    pub scalars: BTreeMap<String, i64>,
}

fn parse(text: &Text) -> Quantity {
    // The API server admits only quantities; anything else counts as zero.
    text.0.parse().unwrap_or(Quantity::ZERO)
}

impl Resources {
    /// Converts a resource list.
    pub fn of(list: Option<&BTreeMap<String, Text>>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            let quantity = parse(quantity);
            match name.as_str() {
                "cpu" => amounts.milli_cpu = quantity.milli_value(),
                "memory" => amounts.memory = quantity.value(),
                "ephemeral-storage" => amounts.ephemeral_storage = quantity.value(),
                "pods" => amounts.pods = quantity.value(),
                _ => drop(amounts.scalars.insert(name.clone(), quantity.value())),
            }
        }
        amounts
    }

    /// Returns the amount of a resource by name.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            "pods" => self.pods,
            _ => self.scalars.get(name).copied().unwrap_or(0),
        }
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.scalars {
            match self.scalars.get_mut(name) {
                Some(own) => *own = with(*own, *amount),
                None => drop(self.scalars.insert(name.clone(), with(0, *amount))),
            }
        }
    }

    /// Adds amounts.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts amounts.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Raises each amount to at least the other's.
    pub fn raise(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    /// Returns a pod's requests.
    pub fn requested(spec: &PodSpec) -> Self {
        pod_total(spec, &|container| {
            let resources = container.resources.as_ref();
            Self::of(resources.and_then(|resources| resources.requests.as_ref()))
        })
    }

    /// Returns a pod's CPU and memory for scoring: containers without requests count with the
    /// defaults.
    pub fn non_zero(spec: &PodSpec) -> Self {
        let total = pod_total(spec, &|container| {
            let resources = container.resources.as_ref();
            let requests = resources.and_then(|resources| resources.requests.as_ref());
            let mut amounts = Self::of(requests);
            let has = |name: &str| requests.is_some_and(|list| list.contains_key(name));
            if !has("cpu") {
                amounts.milli_cpu = DEFAULT_MILLI_CPU;
            }
            if !has("memory") {
                amounts.memory = DEFAULT_MEMORY;
            }
            amounts
        });
        Self {
            milli_cpu: total.milli_cpu,
            memory: total.memory,
            ..Self::default()
        }
    }
}

fn pod_total(spec: &PodSpec, of: &dyn Fn(&Container) -> Resources) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of(container));
    }
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
            starting.raise(&sidecars);
        } else {
            starting.raise(&sidecars.plus(&own));
        }
    }
    let mut total = running.plus(&sidecars);
    total.raise(&starting);
    if let Some(whole) = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref())
    {
        let whole = Resources::of(Some(whole));
        for (own, given) in [
            (&mut total.milli_cpu, whole.milli_cpu),
            (&mut total.memory, whole.memory),
        ] {
            if given > 0 {
                *own = given;
            }
        }
    }
    if spec.overhead.is_some() {
        total.add(&Resources::of(spec.overhead.as_ref()));
    }
    total
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{Value, json};

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/x": "1"}}})
    }

    #[test]
    fn init_containers_sidecars_and_overhead() {
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let cases = [
            (
                json!({"containers": [container("1"), container("500m")]}),
                1500,
                2,
            ),
            (
                json!({"containers": [container("1")], "initContainers": [container("3")]}),
                3000,
                1,
            ),
            (
                json!({"containers": [container("1")], "initContainers": [sidecar, container("3")]}),
                4000,
                2,
            ),
            (
                json!({"containers": [container("5")], "initContainers": [sidecar, container("3")]}),
                6000,
                2,
            ),
            (
                json!({"containers": [container("1")], "initContainers": [container("3"), sidecar]}),
                3000,
                2,
            ),
            (
                json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}),
                1250,
                1,
            ),
        ];
        for (spec, cpu, scalar) in cases {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            let got = Resources::requested(&spec);
            assert_eq!(
                (got.milli_cpu, got.get("example.com/x")),
                (cpu, scalar),
                "{spec:?}"
            );
        }
    }
}
