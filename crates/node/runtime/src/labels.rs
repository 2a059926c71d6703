//! Labels and annotations on sandboxes and containers: upstream's names.

use std::collections::HashMap;

/// Name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Uid of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Name of the container in its pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Number of restarts before this container.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Hash of the container's spec at creation.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Path of the termination message inside the container.
pub const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// terminationMessagePolicy of the container.
pub const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The pod's grace period in seconds.
pub const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Ports of the container, as JSON.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// preStop hook of the container, as JSON.
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";

/// Returns the label's value, or an empty string.
pub fn read_label<'a>(labels: &'a HashMap<String, String>, name: &str) -> &'a str {
    labels.get(name).map_or("", String::as_str)
}
