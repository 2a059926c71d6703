//! Labels that a node may set on itself, as upstream's `IsKubeletLabel`.

/// Labels in Kubernetes' own domains that a node may set: a kubelet reports them about itself when
/// it registers.
pub const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Domains of Kubernetes in which a node may set any label.
pub const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Returns whether a node may set a label on itself: what is outside Kubernetes' domains, and the
/// labels above. Everything else is an administrator's, `node-restriction.kubernetes.io` by design.
pub fn may_set_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return true;
    };
    let is_within = |parent: &str| {
        let rest = domain.strip_suffix(parent);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let is_kubernetes = is_within("kubernetes.io") || is_within("k8s.io");
    !is_kubernetes || OWN_LABELS.contains(&key) || OWN_DOMAINS.into_iter().any(is_within)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    #[test]
    fn labels_of_a_node_follow_the_table() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::NODE_LABELS).unwrap();
        for case in cases {
            let label = case["label"].as_str().unwrap();
            assert_eq!(may_set_label(label), case["allowed"], "{label}");
        }
    }
}
