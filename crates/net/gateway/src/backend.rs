//! Backends of rules: the endpoints of a port of a Service.
//!
//! Invariant: the gateway connects only to addresses that its [`EndpointPolicy`] allows.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use api_semantics::endpoints::{is_endpoint_ready, is_endpoint_serving, is_endpoint_terminating};
use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::endpoint_policy::EndpointPolicy;

/// Maximum number of endpoints of a backend; further ones are not used.
const MAX_ENDPOINTS: usize = 5000;
/// Maximum number of backends of a Service, which are its ports, and of a namespace.
pub(crate) const MAX_BACKENDS_OF_SERVICE: usize = 100;
pub(crate) const MAX_BACKENDS_OF_NAMESPACE: usize = 2000;

/// A port of a Service, as Ingresses and routes name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortName {
    /// Number of the Service's port.
    Number(i32),
    /// Name of the Service's port.
    Name(String),
}

/// Identity of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendKey {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Its port.
    pub port: PortName,
}

impl BackendKey {
    /// Returns `namespace/name` of the Service.
    pub fn service_key(&self) -> String {
        format!("{}/{}", self.namespace, self.service)
    }
}

/// A backend with its current endpoints.
#[derive(Debug, Default)]
pub struct Backend {
    /// Namespace of the Service.
    pub namespace: String,
    endpoints: ArcSwap<Vec<SocketAddr>>,
    speaks_http2: AtomicBool,
    next: AtomicUsize,
    has_warned: AtomicBool,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 without TLS.
    #[default]
    Http1,
    /// HTTP/2 without TLS.
    Http2,
}

/// Endpoints of a backend.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResolvedEndpoints {
    /// The endpoints that are used.
    pub endpoints: Vec<SocketAddr>,
    /// The first address that the policy does not allow.
    pub refused: Option<IpAddr>,
    /// Their protocol.
    pub protocol: Protocol,
}

impl Backend {
    /// Replaces the endpoints. Logs the first one that is not allowed, once: tenants write slices
    /// as often as they like.
    pub fn set_endpoints(&self, service_key: &str, resolved: ResolvedEndpoints) {
        let ResolvedEndpoints {
            endpoints,
            refused,
            protocol,
        } = resolved;
        let speaks_http2 = protocol == Protocol::Http2;
        self.speaks_http2.store(speaks_http2, Ordering::Relaxed);
        if let Some(address) = refused
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                service = service_key,
                %address,
                "an endpoint is outside of the pods' ranges and is not connected; \
                 --endpoint-range allows other ranges"
            );
        }
        if **self.endpoints.load() != endpoints {
            self.endpoints.store(Arc::new(endpoints));
        }
    }

    /// Logs a problem, unless it has logged one.
    pub(crate) fn warn_once(&self, service_key: &str, problem: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(service = service_key, problem, "endpoints are not used");
        }
    }

    /// Returns the number of endpoints.
    #[cfg(test)]
    pub(crate) fn count_endpoints(&self) -> usize {
        self.endpoints.load().len()
    }

    /// Returns the protocol of the endpoints.
    pub fn protocol(&self) -> Protocol {
        match self.speaks_http2.load(Ordering::Relaxed) {
            true => Protocol::Http2,
            false => Protocol::Http1,
        }
    }

    /// Returns up to `count` different endpoints to try one after the other, in turns.
    pub fn choose_endpoints(&self, count: usize) -> Vec<SocketAddr> {
        let endpoints = self.endpoints.load();
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..count.min(endpoints.len()))
            .filter_map(|step| endpoints.get(start.wrapping_add(step) % endpoints.len()))
            .copied()
            .collect()
    }
}

/// Returns the message for a backend beyond the limits.
pub(crate) fn too_many_backends() -> String {
    format!(
        "a Service may have {MAX_BACKENDS_OF_SERVICE} ports that are backends, those of a \
         namespace together {MAX_BACKENDS_OF_NAMESPACE}: further ones are not served"
    )
}

/// Backends by the key of their Service (`namespace/name`).
type BackendsByService = HashMap<String, BTreeMap<PortName, Arc<Backend>>>;

/// The backends that a routing table uses.
#[derive(Debug, Default)]
pub struct BackendSet {
    by_service: BackendsByService,
}

/// The backends of a table that is being computed. Those of the former table are used again, with
/// their endpoints and turns.
#[derive(Debug, Default)]
pub struct NextBackends {
    former: Arc<BackendSet>,
    set: BackendSet,
    of_namespace: HashMap<String, usize>,
}

impl NextBackends {
    /// Begins with no backend.
    pub fn new(former: Arc<BackendSet>) -> Self {
        Self {
            former,
            ..Self::default()
        }
    }

    /// Returns the backend of a key; its endpoints are empty until they are set. None if the
    /// Service or its namespace has too many.
    pub fn intern(&mut self, key: BackendKey) -> Option<Arc<Backend>> {
        let service = key.service_key();
        if let Some(backend) = self.set.find(&service, &key.port) {
            return Some(backend);
        }
        let of_service = self.set.by_service.get(&service).map_or(0, BTreeMap::len);
        let of_namespace = self.of_namespace.get(&key.namespace).copied();
        let of_namespace = of_namespace.unwrap_or_default();
        if of_service >= MAX_BACKENDS_OF_SERVICE || of_namespace >= MAX_BACKENDS_OF_NAMESPACE {
            return None;
        }
        let former = self.former.find(&service, &key.port);
        let backend = former.unwrap_or_else(|| {
            Arc::new(Backend {
                namespace: key.namespace.clone(),
                ..Backend::default()
            })
        });
        self.of_namespace.insert(key.namespace, of_namespace + 1);
        let known = self.set.by_service.entry(service).or_default();
        known.insert(key.port, backend.clone());
        Some(backend)
    }

    /// Returns the backends of the new table.
    pub fn finish(self) -> BackendSet {
        self.set
    }
}

impl BackendSet {
    fn find(&self, service_key: &str, port: &PortName) -> Option<Arc<Backend>> {
        self.by_service.get(service_key)?.get(port).cloned()
    }

    /// Returns the backends of a Service by their ports.
    pub fn list_backends(
        &self,
        service_key: &str,
    ) -> impl Iterator<Item = (&PortName, &Arc<Backend>)> {
        self.by_service.get(service_key).into_iter().flatten()
    }

    /// Returns the Services that have backends.
    pub fn service_keys(&self) -> impl Iterator<Item = &str> {
        self.by_service.keys().map(String::as_str)
    }
}

/// Protocols of ports that need TLS, which the gateway does not speak to endpoints. What is meant
/// for TLS must not be sent without it.
const UNSUPPORTED_PROTOCOLS: [&str; 3] = ["https", "tls", "kubernetes.io/wss"];
/// Protocols of ports that need HTTP/2 without TLS.
const HTTP2_PROTOCOLS: [&str; 2] = ["kubernetes.io/h2c", "grpc"];

/// Reason for which a port of a Service is not a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortProblem {
    /// The Service has no such TCP port.
    Missing,
    /// Its `appProtocol` is not supported.
    UnsupportedProtocol,
}

/// Returns the name of the Service's port.
pub fn find_port_name(service: &Service, wanted: &PortName) -> Result<String, PortProblem> {
    read_port(service, wanted).map(|(name, _)| name)
}

/// Returns the name and the protocol of the Service's port.
fn read_port(service: &Service, wanted: &PortName) -> Result<(String, Protocol), PortProblem> {
    let found = find_port(service, wanted).ok_or(PortProblem::Missing)?;
    let name = found.name.clone().unwrap_or_default();
    let protocol = found.app_protocol.as_deref().unwrap_or_default();
    let is_one_of = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(protocol));
    if is_one_of(&UNSUPPORTED_PROTOCOLS) {
        Err(PortProblem::UnsupportedProtocol)
    } else if is_one_of(&HTTP2_PROTOCOLS) {
        Ok((name, Protocol::Http2))
    } else {
        Ok((name, Protocol::Http1))
    }
}

fn find_port<'a>(service: &'a Service, wanted: &PortName) -> Option<&'a ServicePort> {
    let ports = service.spec.as_ref()?.ports.iter().flatten();
    let mut ports = ports.filter(|port| port.protocol.as_deref().is_none_or(|name| name == "TCP"));
    ports.find(|port| match wanted {
        PortName::Number(number) => port.port == *number,
        PortName::Name(name) => port.name.as_deref() == Some(name),
    })
}

/// Returns whether the Service stands for a name outside of the cluster.
pub fn is_external_name(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
}

/// Returns the endpoints of a Service's port: the ready ones, or if there are none those that serve
/// while they terminate.
pub fn resolve_endpoints(
    service: Option<&Service>,
    slices: &[Arc<EndpointSlice>],
    port: &PortName,
    policy: &EndpointPolicy,
) -> ResolvedEndpoints {
    let Some(service) = service.filter(|service| !is_external_name(service)) else {
        return ResolvedEndpoints::default();
    };
    let Ok((port_name, protocol)) = read_port(service, port) else {
        return ResolvedEndpoints::default();
    };
    let (mut ready, mut terminating) = (Vec::new(), Vec::new());
    let mut refused = None;
    for slice in slices {
        let Some(port) = slice_port(slice, &port_name) else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            let list = if is_endpoint_ready(conditions) {
                &mut ready
            } else if is_endpoint_serving(conditions) && is_endpoint_terminating(conditions) {
                &mut terminating
            } else {
                continue;
            };
            // The addresses of an endpoint are exchangeable; upstream's consumers use the first.
            let address = endpoint.addresses.first();
            match address.and_then(|text| text.parse().ok()) {
                Some(address) if policy.allows(address) => {
                    list.push(SocketAddr::new(address, port));
                }
                Some(address) => {
                    refused.get_or_insert(address);
                }
                None => {}
            }
        }
    }
    let mut chosen = if ready.is_empty() { terminating } else { ready };
    chosen.sort_unstable();
    chosen.dedup();
    chosen.truncate(MAX_ENDPOINTS);
    ResolvedEndpoints {
        endpoints: chosen,
        refused,
        protocol,
    }
}

fn slice_port(slice: &EndpointSlice, name: &str) -> Option<u16> {
    if !matches!(slice.address_type.as_str(), "IPv4" | "IPv6") {
        return None;
    }
    let mut ports = slice.ports.iter().flatten();
    let port = ports.find(|port| {
        port.name.as_deref().unwrap_or_default() == name
            && port
                .protocol
                .as_deref()
                .is_none_or(|protocol| protocol == "TCP")
    })?;
    // The API accepts 0.
    let number = port.port.and_then(|port| u16::try_from(port).ok());
    number.filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn endpoints_are_the_ready_ones_or_those_that_still_serve() {
        let service: Service = serde_json::from_value(json!({"spec": {"ports": [
            {"name": "web", "port": 80, "targetPort": 8080},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]}}))
        .unwrap();
        let slice = |endpoints| -> Arc<EndpointSlice> {
            let slice = json!({"addressType": "IPv4", "endpoints": endpoints,
                "ports": [{"name": "web", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
            Arc::new(serde_json::from_value(slice).unwrap())
        };
        let endpoint = |address: &str, ready: bool, serving: bool, terminating: bool| {
            json!({"addresses": [address],
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
        };
        let ready = endpoint("10.0.0.1", true, true, false);
        let ending = endpoint("10.0.0.2", false, true, true);
        let starting = endpoint("10.0.0.3", false, false, false);
        let unknown = json!({"addresses": ["10.0.0.4"]});
        let by_number = PortName::Number(80);
        for (endpoints, port, want) in [
            (
                json!([ready, ending, starting]),
                &by_number,
                vec!["10.0.0.1:8080"],
            ),
            (json!([ending, starting]), &by_number, vec!["10.0.0.2:8080"]),
            (json!([starting]), &by_number, vec![]),
            (
                json!([unknown]),
                &PortName::Name("web".into()),
                vec!["10.0.0.4:8080"],
            ),
            (json!([ready]), &PortName::Number(8080), vec![]),
            (json!([ready]), &PortName::Name("dns".into()), vec![]),
        ] {
            let slices = [slice(endpoints.clone())];
            let policy = EndpointPolicy::default();
            let found = resolve_endpoints(Some(&service), &slices, port, &policy);
            let want: Vec<SocketAddr> = want.iter().map(|a| a.parse().unwrap()).collect();
            assert_eq!(found.endpoints, want, "{endpoints} {port:?}");
        }
        let external: Service = serde_json::from_value(
            json!({"spec": {"type": "ExternalName", "ports": [{"port": 80}]}}),
        )
        .unwrap();
        let slices = [slice(json!([ready]))];
        let policy = EndpointPolicy::default();
        let none = ResolvedEndpoints::default();
        let resolve = |service| resolve_endpoints(service, &slices, &by_number, &policy);
        assert_eq!(resolve(Some(&external)), none);
        assert_eq!(resolve(None), none);
        let elsewhere = EndpointPolicy::of_ranges(&["10.1.0.0/16".parse().unwrap()]);
        let found = resolve_endpoints(Some(&service), &slices, &by_number, &elsewhere);
        assert_eq!(found.refused, Some("10.0.0.1".parse().unwrap()));
        assert!(found.endpoints.is_empty());
    }

    #[test]
    fn ports_have_the_protocol_of_their_name_and_ports_with_tls_are_no_backends() {
        for (protocol, want) in [
            (json!(null), Some(Protocol::Http1)),
            (json!("http"), Some(Protocol::Http1)),
            (json!("kubernetes.io/ws"), Some(Protocol::Http1)),
            (json!("kubernetes.io/h2c"), Some(Protocol::Http2)),
            (json!("gRPC"), Some(Protocol::Http2)),
            (json!("HTTPS"), None),
            (json!("kubernetes.io/wss"), None),
        ] {
            let ports = json!([{"name": "web", "port": 80, "appProtocol": protocol}]);
            let service: Service =
                serde_json::from_value(json!({"spec": {"ports": ports}})).unwrap();
            let found = read_port(&service, &PortName::Number(80));
            assert_eq!(found.ok().map(|(_, found)| found), want, "{protocol}");
        }
    }

    #[test]
    fn next_table_uses_the_former_backends_again_and_drops_the_others() {
        let key = |service: &str| BackendKey {
            namespace: "n".to_owned(),
            service: service.to_owned(),
            port: PortName::Number(80),
        };
        let mut first = NextBackends::default();
        let kept = first.intern(key("kept")).unwrap();
        first.intern(key("dropped")).unwrap();
        let mut second = NextBackends::new(Arc::new(first.finish()));
        for _ in 0..2 {
            let again = second.intern(key("kept")).unwrap();
            assert!(Arc::ptr_eq(&again, &kept));
        }
        second.intern(key("new")).unwrap();
        let second = second.finish();
        let mut services: Vec<&str> = second.service_keys().collect();
        services.sort_unstable();
        assert_eq!(services, ["n/kept", "n/new"]);
        assert_eq!(second.list_backends("n/kept").count(), 1);
    }

    #[test]
    fn backends_of_a_service_and_of_a_namespace_are_limited() {
        let mut next = NextBackends::default();
        let mut intern = |namespace: &str, service: usize, port: usize| {
            let key = BackendKey {
                namespace: namespace.to_owned(),
                service: service.to_string(),
                port: PortName::Name(port.to_string()),
            };
            next.intern(key).is_some()
        };
        for n in 0..MAX_BACKENDS_OF_NAMESPACE {
            let (service, port) = (n / MAX_BACKENDS_OF_SERVICE, n % MAX_BACKENDS_OF_SERVICE);
            assert!(intern("a", service, port), "{n}");
        }
        assert!(!intern("a", 99, 0));
        assert!(intern("a", 0, 0), "it is there already");
        for port in 0..MAX_BACKENDS_OF_SERVICE {
            assert!(intern("b", 0, port), "{port}");
        }
        assert!(!intern("b", 0, MAX_BACKENDS_OF_SERVICE));
        assert!(intern("b", 1, 0));
    }

    #[test]
    fn endpoints_are_chosen_in_turns_without_repetition() {
        let backend = Backend::default();
        assert!(backend.choose_endpoints(3).is_empty());
        let all: Vec<SocketAddr> = ["10.0.0.1:1", "10.0.0.2:1"]
            .map(|a| a.parse().unwrap())
            .to_vec();
        let resolved = ResolvedEndpoints {
            endpoints: all.clone(),
            ..ResolvedEndpoints::default()
        };
        backend.set_endpoints("n/s", resolved);
        let (first, second) = (backend.choose_endpoints(3), backend.choose_endpoints(3));
        assert_eq!(first.len(), 2);
        assert_ne!(first[0], second[0]);
        assert!(first.iter().all(|address| all.contains(address)));
    }
}
