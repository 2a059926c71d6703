//! Labels that a kubelet may set on its Node.

use api_meta::Meta;
use serde_json::Value;

// Kubelets report these about themselves at registration, and schedulers place pods by them.
const OWN: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

fn is_below(namespace: &str, parent: &str) -> bool {
    namespace == parent
        || namespace
            .strip_suffix(parent)
            .is_some_and(|rest| rest.ends_with('.'))
}

fn is_allowed_label(label: &str) -> bool {
    // Labels without a prefix belong to users.
    let Some((namespace, _)) = label.split_once('/') else {
        return true;
    };
    // Before the general rule: this prefix is reserved for administrators.
    if is_below(namespace, "node-restriction.kubernetes.io") {
        return false;
    }
    let kubernetes = is_below(namespace, "kubernetes.io") || is_below(namespace, "k8s.io");
    !kubernetes
        || OWN.contains(&label)
        || is_below(namespace, "kubelet.kubernetes.io")
        || is_below(namespace, "node.kubernetes.io")
}

/// Returns the changed labels that a kubelet may not change, sorted.
pub fn forbidden_changes(new: &Value, old: &Value) -> Vec<String> {
    let keys = |v: &Value| {
        v.labels()
            .into_iter()
            .flat_map(|l| l.keys().cloned())
            .collect::<Vec<_>>()
    };
    let mut changed: Vec<String> = keys(new).into_iter().chain(keys(old)).collect();
    changed.sort();
    // Removed labels count too: a kubelet must not drop a restricting one.
    changed.dedup();
    changed.retain(|key| new.label(key) != old.label(key) && !is_allowed_label(key));
    changed
}

#[cfg(test)]
mod tests {
    use super::is_allowed_label;

    #[test]
    fn kubelet_may_set_only_its_own_kubernetes_labels() {
        for (label, expect) in [
            ("mine", true),
            ("example.com/x", true),
            ("kubernetes.io/hostname", true),
            ("kubernetes.io/other", false),
            ("node-restriction.kubernetes.io/x", false),
            ("x.node-restriction.kubernetes.io/x", false),
            ("kubelet.kubernetes.io/x", true),
            ("a.node.kubernetes.io/x", true),
            ("node-role.kubernetes.io/control-plane", false),
            ("foo.k8s.io/x", false),
            ("notkubernetes.io/x", true),
        ] {
            assert_eq!(is_allowed_label(label), expect, "{label}");
        }
    }
}
