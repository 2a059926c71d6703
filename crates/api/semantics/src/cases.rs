//! Tables of cases as JSON arrays, for the tests of the rules and of their users.

/// Requests and limits of pods: `pod`, `options` (fields of [`crate::resources::Options`]),
/// `requests`, `limits`.
pub const POD_RESOURCES: &str = include_str!("../cases/pod_resources.json");

/// Tolerations and taints: `toleration`, `taint`, `tolerates`.
pub const TOLERATIONS: &str = include_str!("../cases/tolerations.json");
