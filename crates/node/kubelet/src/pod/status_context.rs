//! Values of the node that a status holds, and its times.

use crate::pod::{Nanos, SECOND};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Inputs of the status in addition to the facts.
#[derive(Clone, Copy)]
pub(crate) struct StatusContext<'a> {
    /// Addresses of the node.
    pub(crate) node_ips: &'a [String],
    /// Runtime name, such as `containerd`: the prefix of container ids before `://`.
    pub(crate) runtime: &'a str,
    /// The last reported status, for transition times.
    pub(crate) before: &'a PodStatus,
    /// Time at which the kubelet first saw the pod.
    pub(crate) first_seen: Nanos,
}

/// Converts to the API's time, in whole seconds; None for the runtime's zero.
pub(crate) fn to_api_time(nanos: Nanos) -> Option<Time> {
    if nanos <= 0 {
        return None;
    }
    Timestamp::from_second(nanos / SECOND).ok().map(Time)
}
