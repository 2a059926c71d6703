//! Endpoints of a Service: its pods and their ports.

use std::sync::Arc;

use client::Event;
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use controllers_runtime::{Cache, Meta, Queue, labels, pods};

/// A Service port resolved for one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodPort {
    /// Name of the Service port, empty if it has none.
    pub name: String,
    /// Port number of the pod.
    pub port: i32,
    /// Protocol.
    pub protocol: String,
    /// Application protocol.
    pub app_protocol: Option<String>,
}

/// Returns the Service's selector if this controller manages its endpoints.
pub fn service_selector(service: &Service) -> Option<&labels::Labels> {
    let spec = service.spec.as_ref()?;
    // Such a Service is only an alias in DNS. It may have a selector, which has no effect.
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().filter(|s| !s.is_empty())
}

/// Returns whether the Service is headless.
pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None")
}

/// Returns all addresses of a pod.
pub fn list_addresses(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let all: Vec<_> = status
        .pod_ips
        .iter()
        .flatten()
        .filter_map(ip_text)
        .collect();
    if all.is_empty() {
        status
            .pod_ip
            .iter()
            .filter(|i| !i.is_empty())
            .cloned()
            .collect()
    } else {
        all
    }
}

fn ip_text(ip: &k8s_openapi::api::core::v1::PodIP) -> Option<String> {
    let text = serde_json::to_value(ip)
        .ok()?
        .get("ip")?
        .as_str()?
        .to_owned();
    (!text.is_empty()).then_some(text)
}

/// Resolves the Service's ports for one pod; omits a named port that the pod lacks.
pub fn resolve_ports(service: &Service, pod: &Pod) -> Vec<PodPort> {
    let all = service.spec.iter().flat_map(|s| s.ports.iter().flatten());
    let mut found: Vec<_> = all
        .filter_map(|port| {
            Some(PodPort {
                name: port.name.clone().unwrap_or_default(),
                port: find_port_number(port, pod)?,
                protocol: protocol_or_tcp(port.protocol.as_deref()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    // Pods with equal lists share a slice or a subset, whatever the order in the Service.
    found.sort();
    found
}

fn protocol_or_tcp(value: Option<&str>) -> String {
    value.filter(|p| !p.is_empty()).unwrap_or("TCP").to_owned()
}

fn find_port_number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(n)) => Some(*n),
        Some(IntOrString::String(name)) if name.is_empty() => Some(port.port),
        // A named port may have another number in each pod; that is how a rolling update changes a
        // port.
        Some(IntOrString::String(name)) => {
            let wanted = protocol_or_tcp(port.protocol.as_deref());
            let held = list_containers(pod).flat_map(|c| c.ports.iter().flatten());
            let mut named = held.filter(|p| {
                p.name.as_deref() == Some(name) && protocol_or_tcp(p.protocol.as_deref()) == wanted
            });
            named.next().map(|p| p.container_port)
        }
    }
}

/// Yields app containers and sidecars.
fn list_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|s| {
        // Sidecars run as long as the pod, so their ports count. Those of other init containers do
        // not.
        let sidecars = s
            .init_containers
            .iter()
            .flatten()
            .filter(|c| c.restart_policy.as_deref() == Some("Always"));
        s.containers.iter().chain(sidecars)
    })
}

/// Returns the reference from an endpoint to its pod.
pub fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.meta().namespace.clone(),
        name: pod.meta().name.clone(),
        uid: pod.meta().uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns the pod's name under a headless Service, if it requests one.
pub fn endpoint_hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    // Only pods of the headless Service that is their subdomain get a name in DNS.
    let inside =
        spec.subdomain.as_deref() == Some(service.name()) && pod.namespace() == service.namespace();
    spec.hostname.clone().filter(|h| inside && !h.is_empty())
}

/// Enqueues the Services that select a pod or selected it before the change.
pub fn on_pod(
    queue: &Queue,
    services: &Cache<Service>,
) -> impl Fn(&Event<Pod>) + Send + Sync + 'static {
    let (queue, services) = (queue.clone(), services.clone());
    move |event| {
        let (old, new) = match event {
            Event::Applied { old, new } => (old.as_ref(), Some(new)),
            Event::Deleted(last) => (Some(last), None),
        };
        // Pods change often; heartbeats of probes and images do not concern endpoints.
        if let (Some(old), Some(new)) = (old, new)
            && !affects_endpoints(old, new)
        {
            return;
        }
        let states = old.into_iter().chain(new);
        states
            .flat_map(|pod| services_of(pod, &services))
            .for_each(|key| queue.add(key));
    }
}

/// Returns the keys of the Services that select a pod.
pub fn services_of(pod: &Pod, services: &Cache<Service>) -> Vec<String> {
    let labels = pod.meta().labels.as_ref();
    let selects = |service: &Arc<Service>| {
        service_selector(service).is_some_and(|s| labels::labels_match_map(Some(s), labels))
    };
    services
        .in_namespace(pod.namespace())
        .iter()
        .filter(|s| selects(s))
        .map(|s| s.key())
        .collect()
}

/// Returns whether a change of a pod can change an endpoint.
fn affects_endpoints(old: &Arc<Pod>, new: &Arc<Pod>) -> bool {
    let face = |p: &Pod| {
        let spec = p.spec.as_ref();
        (
            (
                p.meta().labels.clone(),
                p.is_deleting(),
                pods::is_ready(p),
                pods::is_terminal(p),
                list_addresses(p),
            ),
            (
                pods::node_name(p).to_owned(),
                spec.and_then(|s| s.hostname.clone()),
                spec.and_then(|s| s.subdomain.clone()),
            ),
        )
    };
    face(old) != face(new)
}
