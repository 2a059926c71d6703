//! The pods that a peer or a named port of a rule stands for.

use api_semantics::selectors::{Labels, labels_match};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use net_nft::Protocol;

use crate::names::object_name;
use crate::pod::PolicyPod;

/// The namespaces of a selector.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// One namespace.
    Namespace(String),
    /// Namespaces by their labels.
    Selected(LabelSelector),
    /// All namespaces, also those whose Namespace object is not known yet.
    All,
}

/// A label that every selected pod has.
pub type Anchor = Option<(String, String)>;

/// Selected pods: their addresses, or, with a port, their addresses with the number that the port's
/// name has in each of them.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSelector {
    /// Namespaces of the pods.
    pub scope: Scope,
    /// Labels of the pods.
    pub pods: LabelSelector,
    /// Name and protocol of a port.
    pub port: Option<(String, Protocol)>,
}

impl PodSelector {
    /// Returns whether a pod with these labels of its namespace is selected. `namespace` is None if
    /// the Namespace object is not known.
    #[must_use]
    pub fn matches(&self, pod: &PolicyPod, namespace: Option<&Labels>) -> bool {
        self.matches_namespace(&pod.namespace, namespace)
            && labels_match(Some(&self.pods), Some(&pod.labels))
    }

    /// Returns whether pods of a namespace may be selected.
    #[must_use]
    pub fn matches_namespace(&self, name: &str, labels: Option<&Labels>) -> bool {
        match &self.scope {
            Scope::Namespace(own) => own == name,
            // An empty selector matches every namespace, but not one that is not known.
            Scope::Selected(selector) => labels.is_some() && labels_match(Some(selector), labels),
            Scope::All => true,
        }
    }

    /// Returns a label that all selected pods have, by which an index finds the selector.
    #[must_use]
    pub fn anchor(&self) -> Anchor {
        let pairs = self.pods.match_labels.as_ref()?;
        let (key, value) = pairs.iter().next()?;
        Some((key.clone(), value.clone()))
    }

    /// Returns the name of the selector's nftables set. Equal selectors share one.
    #[must_use]
    pub fn set_name(&self) -> String {
        let kind = if self.port.is_some() { "ports" } else { "pods" };
        let readable = match &self.scope {
            Scope::Namespace(name) => name.as_str(),
            Scope::Selected(_) => "selected",
            Scope::All => "all",
        };
        object_name(kind, &self.identity(), readable)
    }

    /// Returns a text that equal selectors have in common, and no others.
    fn identity(&self) -> String {
        let port = self
            .port
            .as_ref()
            .map(|(name, protocol)| (name, protocol.nft_name()));
        let scope = match &self.scope {
            Scope::Namespace(name) => serde_json::json!({ "namespace": name }),
            Scope::Selected(selector) => serde_json::json!({ "selector": selector }),
            Scope::All => serde_json::json!({}),
        };
        // JSON quotes all values, so that no value can imitate another field.
        serde_json::json!([scope, self.pods, port]).to_string()
    }

    /// Returns the part of a pod's elements without the address: empty, or protocol and number of
    /// each port of that name.
    pub fn port_numbers(&self, pod: &PolicyPod) -> Vec<(Protocol, u16)> {
        let Some((name, protocol)) = &self.port else {
            return Vec::new();
        };
        let named = pod
            .ports
            .iter()
            .filter(|port| port.name == *name && port.protocol == *protocol);
        named.map(|port| (port.protocol, port.number)).collect()
    }
}
