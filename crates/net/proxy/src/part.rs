//! The rules of one Service in one family, in the words of a back end.

use std::collections::BTreeMap;

/// The name of an element's set, map or shared chain, and the element's key.
pub type ElementId = (&'static str, String);

/// The rules of one Service in one family, in the words of a back end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Sets of nftables, with their declaration.
    pub sets: BTreeMap<String, String>,
    /// Chains of the Service, with their rules.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Elements of shared sets, maps and chains. Several Services may have the same key.
    pub elements: BTreeMap<ElementId, ElementValue>,
}

/// The value of an element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementValue {
    /// The verdict; empty in sets.
    pub verdict: String,
    /// Elements of other maps, with their values, that the owner of this element has and no other
    /// Service.
    pub dependents: BTreeMap<ElementId, String>,
}

impl From<String> for ElementValue {
    fn from(verdict: String) -> Self {
        Self {
            verdict,
            dependents: BTreeMap::new(),
        }
    }
}
