//! Tolerances for what an old object has already.

use super::context::{CONTAINER_LISTS, is_sidecar, uses_host_users};
use super::options::PodOptions;
use super::{affinity, annotations, match_keys, projected, resources, scheduling, security};
use crate::field::{Errors, Path};
use api_meta::tree::{flag, get, has, list, text};
use serde_json::Value;

/// Returns the tolerances for a change of a pod or template, whose old metadata and spec are given.
pub fn read_update_options(metadata: &Value, spec: &Value) -> PodOptions {
    PodOptions {
        is_pod: false,
        invalid_deletion_cost: !annotations::has_valid_deletion_cost(metadata),
        indivisible_huge_pages: uses_indivisible_huge_pages(spec),
        invalid_selector_values: affinity::has_invalid_pod_selectors(spec),
        invalid_node_affinity_values: affinity::has_invalid_node_values(spec),
        invalid_spread_selectors: scheduling::has_invalid_spread_selectors(spec),
        legacy_match_label_keys: match_keys::has_invalid_match_keys(spec),
        non_local_token_paths: projected::has_non_local_token(spec),
        host_sysctls: sets_host_sysctls(spec),
        any_selinux_change_policy: has(get(spec, "securityContext"), "seLinuxChangePolicy"),
        comparison_operators: list(spec, "tolerations")
            .iter()
            .any(|t| matches!(text(t, "operator"), "Lt" | "Gt")),
        user_namespace_in_host_network: flag(spec, "hostNetwork") && !uses_host_users(spec),
        user_namespace_with_devices: !uses_host_users(spec)
            && containers(spec).any(|c| !list(c, "volumeDevices").is_empty()),
        restart_of_init_containers: list(spec, "initContainers")
            .iter()
            .filter(|c| !is_sidecar(c))
            .flat_map(|c| list(c, "resizePolicy"))
            .any(|policy| text(policy, "restartPolicy") == "RestartContainer"),
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS.iter().flat_map(|field| list(spec, field))
}

fn uses_indivisible_huge_pages(spec: &Value) -> bool {
    let mut all = containers(spec).map(|container| get(container, "resources"));
    resources::has_indivisible_huge_pages(spec, "overhead")
        || all.any(|amounts| {
            ["limits", "requests"]
                .iter()
                .any(|part| resources::has_indivisible_huge_pages(amounts, part))
        })
}

fn sets_host_sysctls(spec: &Value) -> bool {
    let mut errors = Errors::default();
    for sysctl in list(get(spec, "securityContext"), "sysctls") {
        security::validate_host_sysctl(text(sysctl, "name"), spec, &Path::ROOT, &mut errors);
    }
    !errors.is_empty()
}
