//! Tolerances of the rules of pods.

/// Values that the rules of a pod's spec tolerate. An update tolerates what the old object has
/// already, because old releases accepted it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodOptions {
    /// The spec is that of a Pod, not of a template.
    pub is_pod: bool,
    /// `controller.kubernetes.io/pod-deletion-cost` may be no number.
    pub invalid_deletion_cost: bool,
    /// Amounts of huge pages may be no multiple of the page size.
    pub indivisible_huge_pages: bool,
    /// Selectors of pod affinities may have invalid label values.
    pub invalid_selector_values: bool,
    /// Required node affinities may have invalid label values.
    pub invalid_node_affinity_values: bool,
    /// Selectors of topology spread constraints may be invalid.
    pub invalid_spread_selectors: bool,
    /// `matchLabelKeys` of topology spread constraints are checked by the rule before v1.34.
    pub legacy_match_label_keys: bool,
    /// Projected tokens may have a path outside of the volume.
    pub non_local_token_paths: bool,
    /// Sysctls of a namespace may be set in a pod that shares the namespace with the host.
    pub host_sysctls: bool,
    /// `seLinuxChangePolicy` may have any known value.
    pub any_selinux_change_policy: bool,
    /// Tolerations may compare numbers.
    pub comparison_operators: bool,
    /// A pod in the host's network may have a user namespace.
    pub user_namespace_in_host_network: bool,
    /// A pod with a user namespace may have volume devices.
    pub user_namespace_with_devices: bool,
    /// Init containers that are no sidecars may have the resize policy `RestartContainer`.
    pub restart_of_init_containers: bool,
}
