//! Endpoints of Services: which pods are endpoints, and in which condition.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};

use crate::pods::{is_ready, is_terminal};

/// Label of an EndpointSlice that names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Returns whether the Service publishes pods that are not ready as ready.
pub fn publishes_not_ready(service: &Service) -> bool {
    // The peers of a StatefulSet must find each other by DNS before they can become ready.
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Returns whether the pod is an endpoint of the Services that select it. EndpointSlices include
/// terminating pods; Endpoints do so only if the Service publishes pods that are not ready.
pub fn is_pod_in_endpoints(pod: &Pod, include_terminating: bool) -> bool {
    let status = pod.status.as_ref();
    let has_ip = status.is_some_and(|status| {
        status.pod_ip.as_deref().is_some_and(|ip| !ip.is_empty())
            || status.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty())
    });
    // Another pod may already have the address of one that has terminated.
    !is_terminal(pod) && has_ip && (include_terminating || !is_terminating(pod))
}

/// Returns the conditions of a pod's endpoint in an EndpointSlice of the Service.
pub fn endpoint_conditions(service: &Service, pod: &Pod) -> EndpointConditions {
    let serving = is_ready(pod);
    let terminating = is_terminating(pod);
    // Clients older than `serving` read only `ready`, so a terminating pod must not be ready.
    let ready = publishes_not_ready(service) || (serving && !terminating);
    EndpointConditions {
        ready: Some(ready),
        serving: Some(serving),
        terminating: Some(terminating),
    }
}

/// Returns whether a pod of [`is_pod_in_endpoints`] stands among the ready addresses of Endpoints.
pub fn is_ready_address(service: &Service, pod: &Pod) -> bool {
    publishes_not_ready(service) || is_ready(pod)
}

/// Returns the name of the Service that a slice belongs to.
pub fn service_name(slice: &EndpointSlice) -> Option<&str> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(name)
}

/// Returns the key of the Service that a slice belongs to, `namespace/name`.
pub fn service_key(slice: &EndpointSlice) -> Option<String> {
    let name = service_name(slice)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref()?))
}

/// Returns whether the endpoint accepts new connections. An absent condition means true.
pub fn is_endpoint_ready(conditions: Option<&EndpointConditions>) -> bool {
    conditions.and_then(|c| c.ready).unwrap_or(true)
}

/// Returns whether the endpoint accepts connections, even while it terminates. An absent condition
/// means true.
pub fn is_endpoint_serving(conditions: Option<&EndpointConditions>) -> bool {
    conditions.and_then(|c| c.serving).unwrap_or(true)
}

/// Returns whether the endpoint terminates. An absent condition means false.
pub fn is_endpoint_terminating(conditions: Option<&EndpointConditions>) -> bool {
    conditions.and_then(|c| c.terminating).unwrap_or(false)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pods_are_endpoints_as_the_table_says() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::ENDPOINTS).unwrap();
        for case in cases {
            let pod: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
            let service = json!({"spec": {"publishNotReadyAddresses": case["publishNotReady"]}});
            let service: Service = serde_json::from_value(service).unwrap();
            let conditions = is_pod_in_endpoints(&pod, true)
                .then(|| serde_json::to_value(endpoint_conditions(&service, &pod)).unwrap());
            assert_eq!(json!(conditions), case["slice"], "{case}");
            let list = is_pod_in_endpoints(&pod, publishes_not_ready(&service)).then(|| {
                match is_ready_address(&service, &pod) {
                    true => "addresses",
                    false => "notReadyAddresses",
                }
            });
            assert_eq!(json!(list), case["endpoints"], "{case}");
        }
    }

    #[test]
    fn absent_conditions_are_read_as_the_table_says() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::ENDPOINT_CONDITIONS).unwrap();
        for case in cases {
            let typed: Option<EndpointConditions> =
                serde_json::from_value(case["conditions"].clone()).unwrap();
            let endpoint = json!({"conditions": case["conditions"]});
            for conditions in [typed, crate::tree::endpoint_conditions(&endpoint)] {
                let conditions = conditions.as_ref();
                let read = json!({
                    "ready": is_endpoint_ready(conditions),
                    "serving": is_endpoint_serving(conditions),
                    "terminating": is_endpoint_terminating(conditions),
                });
                assert_eq!(read, case["read"], "{case}");
            }
        }
    }
}
