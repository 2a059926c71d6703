//! Limits of what the policies of a namespace may cost a node.
//!
//! The authors of policies are tenants. Without limits, one of them could fill the tables of the
//! kernel and the memory of the agent, and so stop the enforcement of all policies. A policy beyond
//! a limit is closed: it isolates its pods, and allows nothing.

/// Maximum number of selectors in the peers and named ports of a policy: each selector is compared
/// with all pods that it may select.
pub(crate) const MAX_SELECTORS: usize = 1000;
/// Maximum number of open policies of a namespace. Each pod that they isolate has a rule for each.
pub(crate) const MAX_POLICIES: usize = 500;
/// Maximum number of rules, peers, blocks and ports in the open policies of a namespace.
pub(crate) const MAX_TERMS: usize = 20_000;
/// Maximum number of elements in the sets of the open policies of a namespace: five selectors of
/// all pods in a cluster of 5,000 pods with both families.
pub(crate) const MAX_ELEMENTS: usize = 50_000;
