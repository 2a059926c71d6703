//! Tables of cases as JSON arrays, for the tests of the rules and of their users.

/// Cron schedules: `schedule`, and `error` or `zone`, `after` and the times that follow in `next`.
pub const CRON: &str = include_str!("../cases/cron.json");

/// Conditions of endpoints: `conditions` as they stand in an EndpointSlice, and how they are
/// `read`.
pub const ENDPOINT_CONDITIONS: &str = include_str!("../cases/endpoint_conditions.json");

/// Pods of a Service: `pod`, `publishNotReady`, the conditions in the `slice` and the list of
/// `endpoints`; null where the pod is omitted.
pub const ENDPOINTS: &str = include_str!("../cases/endpoints.json");

/// Label selectors: `selector`, `labels`, `matches`. Validation rejects those with `invalid`.
pub const LABEL_SELECTORS: &str = include_str!("../cases/label_selectors.json");

/// Labels of a node: `label`, and whether the node may set it on itself (`allowed`).
pub const NODE_LABELS: &str = include_str!("../cases/node_labels.json");

/// Terms of node selectors: `term`, `node`, `matches`.
pub const NODE_SELECTOR_TERMS: &str = include_str!("../cases/node_selector_terms.json");

/// Owners: `ownerReferences`, the UID of the `controller`, and for the UIDs a, b and c whether the
/// object is `owned` and whether it `blocks` deletion in the foreground.
pub const OWNER_REFERENCES: &str = include_str!("../cases/owner_references.json");

/// Phases of pods: `phase`, and whether it is `terminal`.
pub const POD_PHASES: &str = include_str!("../cases/pod_phases.json");

/// QoS classes and scopes of pods: `pod`, `qos` and the `scopes` that match.
pub const POD_SCOPES: &str = include_str!("../cases/pod_scopes.json");

/// Quantities: `text`, and `error` or the `canonical` form, the `format`, the `value` in whole
/// units and the canonical form after it is `rounded` up to thousandths.
pub const QUANTITIES: &str = include_str!("../cases/quantities.json");

/// Requests and limits of pods: `pod`, `options` (fields of [`crate::resources::Options`]),
/// `requests`, `limits`.
pub const POD_RESOURCES: &str = include_str!("../cases/pod_resources.json");

/// Tolerations and taints: `toleration`, `taint`, `tolerates`.
pub const TOLERATIONS: &str = include_str!("../cases/tolerations.json");
