//! Amounts of resources, as integers.
//!
//! CPU is in thousandths, everything else in whole units, both rounded up as upstream does.

use std::collections::BTreeMap;

use api_meta::Quantity;
use api_meta::quantity::Format;
use api_semantics::resources::{
    Options, ResourceList, count, has_pod_level_requests, pod_requests,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// CPU that a container without a request counts for in scoring.
const CPU: (&str, Quantity) = ("cpu", Quantity::from_millis(100));
/// Memory that a container without a request counts for in scoring: 200 MiB.
const MEMORY: (&str, Quantity) = (
    "memory",
    Quantity::from_units(200 * 1024 * 1024, Format::BinarySi),
);

const SPEC_AND_STATUS: Options = Options {
    use_status: true,
    use_pod_status: true,
    exclude_overhead: false,
    skip_pod_level: false,
    missing_requests: &[],
};

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

impl Resources {
    /// Converts a resource list.
    pub fn from_resource_list(list: Option<&BTreeMap<String, Text>>) -> Self {
        Self::from(&ResourceList::new(list))
    }

    fn set_amount(&mut self, name: &str, amount: Quantity) {
        let amount = count(name, amount);
        match name {
            "cpu" => self.milli_cpu = amount,
            "memory" => self.memory = amount,
            "ephemeral-storage" => self.ephemeral_storage = amount,
            // Separate fields for the four resources that every pod and node has: filters compare
            // them for each node, without a lookup by name.
            "pods" => self.pods = amount,
            _ => drop(self.scalars.insert(name.to_owned(), amount)),
        }
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

    fn combine_amounts(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
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
        self.combine_amounts(other, i64::saturating_add);
    }

    /// Subtracts amounts.
    pub fn subtract(&mut self, other: &Self) {
        self.combine_amounts(other, i64::saturating_sub);
    }

    /// Raises each amount to at least the other's.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine_amounts(other, i64::max);
    }

    /// Returns a pod's requests, during a resize those of its status too.
    pub fn requested_by_pod(pod: &Pod) -> Self {
        Self::from(&pod_requests(pod, &SPEC_AND_STATUS))
    }

    /// Returns a pod's CPU and memory for scoring: containers without requests count with the
    /// defaults. If the pod has requests of its own, a default counts only if neither the pod nor
    /// any container requests the resource.
    pub fn non_zero_requested(pod: &Pod) -> Self {
        let given = pod_requests(pod, &SPEC_AND_STATUS);
        // Requests of the pod itself cover all of its containers, so a container without requests
        // does not add a default to them.
        let applies = |name: &str| !has_pod_level_requests(pod) || given.get(name).is_none();
        let missing_requests: &'static [_] = match (applies("cpu"), applies("memory")) {
            (true, true) => &[CPU, MEMORY],
            (true, false) => &[CPU],
            (false, true) => &[MEMORY],
            (false, false) => &[],
        };
        let options = Options {
            missing_requests,
            ..SPEC_AND_STATUS
        };
        let total = pod_requests(pod, &options);
        Self {
            milli_cpu: total.count("cpu"),
            memory: total.count("memory"),
            ..Self::default()
        }
    }
}

impl From<&ResourceList<'_>> for Resources {
    fn from(list: &ResourceList<'_>) -> Self {
        let mut amounts = Self::default();
        list.iter()
            .for_each(|(name, amount)| amounts.set_amount(name, amount));
        amounts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn requests_of_a_pod_are_those_of_the_shared_table() {
        let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::POD_RESOURCES).unwrap();
        let own = json!({"use_status": true, "use_pod_status": true});
        for case in cases {
            let spec_only = case["pod"].get("status").is_none() && case.get("options").is_none();
            if !spec_only && case["options"] != own {
                continue;
            }
            let pod: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
            let expected: BTreeMap<String, Text> =
                serde_json::from_value(case["requests"].clone()).unwrap();
            let expected = Resources::from_resource_list(Some(&expected));
            assert_eq!(
                Resources::requested_by_pod(&pod),
                expected,
                "{}",
                case["name"]
            );
        }
    }

    #[test]
    fn scoring_counts_defaults_for_missing_requests() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let none = json!({"name": "n"});
        let level = json!({"requests": {"memory": "1"}});
        const MIB_200: i64 = 200 * 1024 * 1024;
        for (spec, cpu, memory) in [
            (json!({"containers": [none, none]}), 200, 2 * MIB_200),
            (
                json!({"containers": [container("0"), none]}),
                100,
                2 * MIB_200,
            ),
            (
                json!({"containers": [none, none], "resources": level}),
                200,
                1,
            ),
            (
                json!({"containers": [container("1"), none], "resources": level}),
                1000,
                1,
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let got = Resources::non_zero_requested(&pod);
            assert_eq!((got.milli_cpu, got.memory), (cpu, memory), "{spec}");
        }
    }
}
