//! The allocation result of a claim.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::node_devices::Candidate;
use crate::prepare::{Choice, PreparedClaim};
use crate::search::Pick;

/// A chosen device and what it was chosen for.
pub(crate) struct Chosen<'a, 'c> {
    pub(crate) request: usize,
    pub(crate) choice: &'a Choice,
    pub(crate) candidate: &'c Candidate<'a>,
    pub(crate) pick: &'c Pick,
}

/// Returns whether a driver must prepare a device of the allocation before the pod is bound.
pub fn is_bound_by_conditions(allocation: &AllocationResult) -> bool {
    let devices = allocation.devices.as_ref();
    let results = devices.and_then(|devices| devices.results.as_deref());
    let mut conditions = results
        .unwrap_or_default()
        .iter()
        .map(|r| &r.binding_conditions);
    conditions.any(|conditions| conditions.as_ref().is_some_and(|all| !all.is_empty()))
}

/// Builds the allocation of a claim on a node. `new_id` makes the identifiers of shares.
pub(crate) fn build_result(
    claim: &PreparedClaim,
    chosen: &[Chosen<'_, '_>],
    node: &str,
    new_id: &dyn Fn() -> String,
) -> AllocationResult {
    let results: Vec<_> = chosen
        .iter()
        .map(|chosen| device_result(chosen, new_id))
        .collect();
    let config = list_configurations(claim, chosen);
    AllocationResult {
        allocation_timestamp: None,
        devices: Some(DeviceAllocationResult {
            config: Some(config).filter(|all| !all.is_empty()),
            results: Some(results).filter(|all| !all.is_empty()),
        }),
        node_selector: build_selector(chosen, node),
    }
}

fn device_result(
    chosen: &Chosen<'_, '_>,
    new_id: &dyn Fn() -> String,
) -> DeviceRequestAllocationResult {
    let (choice, device) = (chosen.choice, chosen.candidate.device);
    let consumed = chosen.pick.consumed.as_ref();
    let amounts = consumed.map(|amounts| {
        let text = |(name, amount): (&String, &api_meta::Quantity)| {
            (name.clone(), Quantity(amount.to_string()))
        };
        amounts.iter().map(text).collect::<BTreeMap<_, _>>()
    });
    let tolerations = Some(choice.tolerations.clone());
    DeviceRequestAllocationResult {
        admin_access: choice.admin_access.then_some(true),
        binding_conditions: device.binding_conditions.clone(),
        binding_failure_conditions: device.binding_failure_conditions.clone(),
        consumed_capacity: amounts.filter(|amounts| !amounts.is_empty()),
        device: device.name.clone(),
        driver: chosen.candidate.driver.to_owned(),
        pool: chosen.candidate.pool.to_owned(),
        request: choice.name.clone(),
        share_id: consumed.map(|_| new_id()),
        tolerations: tolerations.filter(|all| !all.is_empty()),
    }
}

/// Returns the configurations of the classes of the chosen requests, then those of the claim.
fn list_configurations(
    claim: &PreparedClaim,
    chosen: &[Chosen<'_, '_>],
) -> Vec<DeviceAllocationConfiguration> {
    let mut choices: BTreeMap<usize, &Choice> = BTreeMap::new();
    for chosen in chosen {
        choices.insert(chosen.request, chosen.choice);
    }
    // Each class once, with all of the requests that use it.
    let mut classes: Vec<(&Choice, Vec<String>)> = Vec::new();
    for choice in choices.values() {
        let name = &choice.class.metadata.name;
        match classes
            .iter_mut()
            .find(|(known, _)| known.class.metadata.name == *name)
        {
            Some((_, requests)) => requests.push(choice.name.clone()),
            None => classes.push((choice, vec![choice.name.clone()])),
        }
    }
    let mut all = Vec::new();
    for (choice, requests) in classes {
        let configs = choice.class.spec.config.iter().flatten();
        all.extend(configs.map(|config| DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: Some(requests.clone()),
            source: "FromClass".to_owned(),
        }));
    }
    let devices = claim.claim.spec.devices.as_ref();
    let configs = devices.and_then(|devices| devices.config.as_deref());
    for config in configs.unwrap_or_default() {
        let requests = config.requests.clone().unwrap_or_default();
        let names = |request: &usize, choice: &Choice| {
            let name = claim.requests.get(*request).map(|request| &request.name);
            requests.contains(&choice.name) || name.is_some_and(|name| requests.contains(name))
        };
        if requests.is_empty()
            || choices
                .iter()
                .any(|(request, choice)| names(request, choice))
        {
            all.push(DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: config.requests.clone(),
                source: "FromClaim".to_owned(),
            });
        }
    }
    all
}

/// Returns the nodes on which the chosen devices can be used; None for all nodes.
fn build_selector(chosen: &[Chosen<'_, '_>], node: &str) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for chosen in chosen {
        let (device, spec) = (chosen.candidate.device, &chosen.candidate.slice.spec);
        let (name, selector) = if spec.per_device_node_selection == Some(true) {
            (&device.node_name, &device.node_selector)
        } else {
            (&spec.node_name, &spec.node_selector)
        };
        let is_local = name.as_ref().is_some_and(|name| !name.is_empty());
        if is_local || device.binds_to_node == Some(true) {
            let only = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            };
            term = NodeSelectorTerm {
                match_fields: Some(vec![only]),
                ..NodeSelectorTerm::default()
            };
            break;
        }
        // Validation allows one term. Requirements of several devices must all hold.
        let terms = selector
            .iter()
            .flat_map(|selector| &selector.node_selector_terms);
        for given in terms.take(1) {
            add_new(&mut term.match_fields, given.match_fields.as_deref());
            add_new(
                &mut term.match_expressions,
                given.match_expressions.as_deref(),
            );
        }
    }
    let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
    (!is_empty).then(|| NodeSelector {
        node_selector_terms: vec![term],
    })
}

fn add_new(
    known: &mut Option<Vec<NodeSelectorRequirement>>,
    given: Option<&[NodeSelectorRequirement]>,
) {
    for requirement in given.unwrap_or_default() {
        let known = known.get_or_insert_default();
        if !known.contains(requirement) {
            known.push(requirement.clone());
        }
    }
}
