//! Tables of cases as JSON arrays, for the tests of the rules and of their users.

/// Cron schedules: `schedule`, and `error` or `zone`, `after` and the times that follow in `next`.
pub const CRON: &str = include_str!("../cases/cron.json");

/// Label selectors: `selector`, `labels`, `matches`. Validation rejects those with `invalid`.
pub const LABEL_SELECTORS: &str = include_str!("../cases/label_selectors.json");

/// Terms of node selectors: `term`, `node`, `matches`.
pub const NODE_SELECTOR_TERMS: &str = include_str!("../cases/node_selector_terms.json");

/// QoS classes and scopes of pods: `pod`, `qos` and the `scopes` that match.
pub const POD_SCOPES: &str = include_str!("../cases/pod_scopes.json");

/// Requests and limits of pods: `pod`, `options` (fields of [`crate::resources::Options`]),
/// `requests`, `limits`.
pub const POD_RESOURCES: &str = include_str!("../cases/pod_resources.json");

/// Tolerations and taints: `toleration`, `taint`, `tolerates`.
pub const TOLERATIONS: &str = include_str!("../cases/tolerations.json");
