//! BackendTLSPolicies: which ports of Services need TLS. The gateway has no TLS to endpoints, so
//! that such a port is no backend: what is meant for TLS must not be sent without it.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::gateway_api::GatewayObject;

/// Specification of a BackendTLSPolicy, as far as it says to which Services it applies.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    #[serde(default)]
    target_refs: Vec<PolicyTarget>,
}

/// A Service, or one of its ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyTarget {
    #[serde(default)]
    group: String,
    kind: String,
    name: String,
    /// Name of a port; absent for all.
    section_name: Option<String>,
}

/// The ports that need TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsPolicies {
    /// Names of ports by Service (`namespace/name`); `None` for all ports.
    ports: HashMap<String, Vec<Option<String>>>,
    /// Namespaces with a policy that can't be decoded. It could be one for any of their Services.
    namespaces: HashSet<String>,
    /// True if the policies could not be read, so that any port may need TLS.
    are_unknown: bool,
}

impl TlsPolicies {
    /// Returns policies that could not be read: they apply to all ports.
    pub fn unknown() -> Self {
        Self {
            are_unknown: true,
            ..Self::default()
        }
    }

    /// Reads the policies. One that can't be decoded applies to all Services of its namespace.
    pub fn of_objects(policies: &[GatewayObject<BackendTlsPolicySpec>]) -> Self {
        let mut found = Self::default();
        for policy in policies {
            let Ok(spec) = &policy.spec else {
                found.namespaces.insert(policy.namespace().to_owned());
                continue;
            };
            let targets = spec.target_refs.iter();
            for target in targets.filter(|found| found.group.is_empty() && found.kind == "Service")
            {
                let key = format!("{}/{}", policy.namespace(), target.name);
                let ports = found.ports.entry(key).or_default();
                ports.push(target.section_name.clone());
            }
        }
        found
    }

    /// Returns whether a port of a Service (`namespace/name`) needs TLS.
    pub fn apply_to(&self, service_key: &str, port_name: &str) -> bool {
        let namespace = service_key.split('/').next().unwrap_or_default();
        let mut ports = self.ports.get(service_key).into_iter().flatten();
        self.are_unknown
            || self.namespaces.contains(namespace)
            || ports.any(|port| port.as_deref().is_none_or(|port| port == port_name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn policy_applies_to_a_service_or_to_one_port_of_it() {
        let policy = |namespace: &str, target: &Value| {
            let object = json!({"metadata": {"name": "p", "namespace": namespace},
                "spec": {"targetRefs": [target], "validation": {"hostname": "a.com"}}});
            GatewayObject::decode(&serde_json::from_value(object).unwrap())
        };
        let web = json!({"group": "", "kind": "Service", "name": "web"});
        let port = json!({"group": "", "kind": "Service", "name": "web", "sectionName": "https"});
        let other = json!({"group": "x", "kind": "Service", "name": "web"});
        for (namespace, target, port, want) in [
            ("a", &web, "https", true),
            ("a", &web, "", true),
            ("a", &port, "https", true),
            ("a", &port, "http", false),
            ("a", &other, "https", false),
            ("b", &web, "https", false),
            // It may be meant for any Service of its namespace.
            ("a", &json!({"name": 1}), "https", true),
            ("b", &json!({"name": 1}), "https", false),
        ] {
            let policies = TlsPolicies::of_objects(&[policy(namespace, target)]);
            let found = policies.apply_to("a/web", port);
            assert_eq!(found, want, "{namespace} {target} {port}");
        }
        assert!(TlsPolicies::unknown().apply_to("a/web", "http"));
        assert!(!TlsPolicies::default().apply_to("a/web", "http"));
    }
}
