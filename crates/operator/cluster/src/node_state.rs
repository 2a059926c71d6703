//! The state of a node after its start.

use k8s_openapi::api::core::v1::NodeCondition;

use crate::settings::Settings;

/// Names of the runtime's conditions, which the message of the condition Ready contains.
const NETWORK: &str = "NetworkReady";
const RUNTIME: &str = "RuntimeReady";

/// The state of a node after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// The node can run pods.
    Ready,
    /// The node lacks the pod network, which the user installs.
    NoNetwork,
}

impl NodeState {
    /// Reports what the user has to do.
    pub(crate) fn report(self, settings: &Settings, report_progress: &dyn Fn(&str)) {
        if self == Self::NoNetwork {
            report_progress(&format!(
                "no pod network: nodes stay NotReady until you install one, such as flannel, Calico or Cilium, with the \
                 range of pods {}; its pods write the plugin to /opt/cni/bin and its configuration to /etc/cni/net.d",
                settings.pod_cidr
            ));
        }
    }
}

/// Returns whether a condition Ready is false only because the node lacks a pod network.
pub(crate) fn lacks_pod_network(condition: &NodeCondition) -> bool {
    let message = condition.message.as_deref().unwrap_or_default();
    condition.type_ == "Ready"
        && condition.status == "False"
        && message.contains(NETWORK)
        && !message.contains(RUNTIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_network_is_told_from_other_problems() {
        let network = "container runtime NetworkReady not ready: reason:NetworkPluginNotReady message:cni plugin not initialized";
        let both = format!("container runtime RuntimeReady not ready: reason: message:, {network}");
        for (status, message, expect) in [
            ("False", network, true),
            ("True", "", false),
            ("Unknown", network, false),
            ("False", both.as_str(), false),
            ("False", "container runtime is down", false),
        ] {
            let condition = NodeCondition {
                type_: "Ready".into(),
                status: status.into(),
                message: Some(message.into()),
                ..NodeCondition::default()
            };
            assert_eq!(lacks_pod_network(&condition), expect, "{status} {message}");
        }
    }
}
