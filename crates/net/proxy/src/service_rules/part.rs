//! The rules of one Service in one family's table.

use std::collections::BTreeMap;

/// The rules of one Service in one family's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Sets, with their declaration.
    pub sets: BTreeMap<String, String>,
    /// Chains, with their rules.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Elements of the shared sets and maps: key to verdict (empty in sets).
    pub elements: BTreeMap<(&'static str, String), String>,
}
