//! Computes a pod's phase from its containers.

use super::lifecycle::TerminationCause;
use super::plan::{has_init_failed, is_all_terminated};
use super::spec::{self, Role};
use super::view::CriState;
use crate::pod::facts::Facts;

/// Returns the phase. It becomes final only after the devices of claims are released: with a final
/// phase the claims lose their reservation, and another pod may get the devices.
pub(crate) fn compute_phase(facts: Facts<'_>) -> &'static str {
    let phase = compute_own_phase(facts);
    let is_final = matches!(phase, "Succeeded" | "Failed");
    let set_by_client = matches!(
        facts.memory.lifecycle.cause(),
        Some(TerminationCause::SetByClient { .. })
    );
    if is_final && facts.holds_devices() && !set_by_client {
        return compute_open_phase(facts);
    }
    phase
}

fn compute_own_phase(facts: Facts<'_>) -> &'static str {
    let cause = facts.memory.lifecycle.cause();
    let terminated = facts.memory.lifecycle.is_terminated();
    match cause {
        Some(TerminationCause::Failed { .. }) => return "Failed",
        Some(TerminationCause::SetByClient { phase, .. }) => return phase,
        _ => {}
    }
    if has_init_failed(facts) {
        return "Failed";
    }
    let codes: Vec<i32> = spec::app_containers(facts.pod)
        .filter_map(|c| facts.observed.latest(&c.name))
        .filter(|i| i.state == CriState::Exited)
        .map(|i| i.exit_code)
        .collect();
    let stopped = codes.len() == spec::app_containers(facts.pod).count();
    if (stopped && (terminated || cause == Some(&TerminationCause::Finished)))
        || is_all_terminated(facts)
    {
        return if codes.iter().all(|code| *code == 0) {
            "Succeeded"
        } else {
            "Failed"
        };
    }
    // Containers that were removed have no exit code, and a pod that may not have completed must
    // not count as succeeded.
    if terminated {
        return "Failed";
    }
    compute_open_phase(facts)
}

/// Returns the phase of a pod that has not completed.
fn compute_open_phase(facts: Facts<'_>) -> &'static str {
    if !is_initialized(facts) {
        return "Pending";
    }
    let begun = spec::app_containers(facts.pod).all(|c| {
        facts
            .observed
            .latest(&c.name)
            .is_some_and(|i| !matches!(i.state, CriState::Created))
    });
    if begun { "Running" } else { "Pending" }
}

/// Returns whether all init containers have completed (sidecars: started).
pub(crate) fn is_initialized(facts: Facts<'_>) -> bool {
    find_incomplete_init_containers(facts).is_empty()
}

/// Returns the names of init containers that have not completed.
pub(crate) fn find_incomplete_init_containers(facts: Facts<'_>) -> Vec<String> {
    let begun = spec::app_containers(facts.pod).any(|c| facts.observed.latest(&c.name).is_some());
    // In the first sandbox an app container proves that all init containers have completed, also if
    // the runtime has removed them.
    if begun && facts.observed.sandbox().is_some_and(|s| s.attempt == 0) {
        return Vec::new();
    }
    let done = |role: Role, c: &k8s_openapi::api::core::v1::Container| {
        let Some(i) = facts.observed.latest(&c.name) else {
            return false;
        };
        match role {
            Role::Sidecar => {
                begun
                    || super::plan::is_started(facts.memory.of_container(&c.name, &i.id), c)
                        && i.is_running()
            }
            _ => i.state == CriState::Exited && i.exit_code == 0,
        }
    };
    spec::init_containers(facts.pod)
        .filter(|(role, c)| !done(*role, c))
        .map(|(_, c)| c.name.clone())
        .collect()
}
