//! From a Service to an address, with the watch caches. Names of Services are never looked up in
//! DNS.

use crate::endpoint::ServiceName;
use api_meta::Meta;
use api_meta::tree::{flag, get, int, list, opt, text, texts};
use apiserver_request::{GroupResource, Objects};
use rand::seq::IndexedRandom;
use serde_json::Value;
use std::sync::Arc;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// IP address, or the name of a Service of type ExternalName.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Resolves Services.
pub trait ServiceResolver: Send + Sync {
    /// Returns the address for a connection to a Service.
    ///
    /// # Errors
    /// The Service does not exist or leads nowhere, with upstream's text.
    fn resolve_service(&self, service: &ServiceName) -> Result<Address, String>;
}

/// Resolves a Service to its cluster IP, which is upstream's default. The packets need a
/// kube-proxy on this machine.
pub struct ClusterIpResolver(pub Arc<dyn Objects>);

impl ServiceResolver for ClusterIpResolver {
    fn resolve_service(&self, name: &ServiceName) -> Result<Address, String> {
        cluster_address(&*find_service(&*self.0, name)?, name)
    }
}

/// Resolves a Service to one of its ready endpoints, for machines without kube-proxy
/// (`--enable-aggregator-routing`).
pub struct EndpointResolver(pub Arc<dyn Objects>);

impl ServiceResolver for EndpointResolver {
    fn resolve_service(&self, name: &ServiceName) -> Result<Address, String> {
        let service = find_service(&*self.0, name)?;
        let slices = self.0.cached_list(
            &GroupResource::new("discovery.k8s.io", "endpointslices"),
            Some(&name.namespace),
        );
        let own = slices
            .iter()
            .map(|slice| &**slice)
            .filter(|slice| slice.label("kubernetes.io/service-name") == Some(&name.name));
        endpoint_address(&service, own, name)
    }
}

fn find_service(objects: &dyn Objects, name: &ServiceName) -> Result<Arc<Value>, String> {
    objects
        .cached_object(
            &GroupResource::new("", "services"),
            &name.namespace,
            &name.name,
        )
        .ok_or_else(|| format!("service {:?} not found", name.name))
}

fn service_type(service: &Value) -> &str {
    match text(get(service, "spec"), "type") {
        // The default of the API.
        "" => "ClusterIP",
        other => other,
    }
}

fn find_port<'a>(service: &'a Value, name: &ServiceName) -> Result<&'a Value, String> {
    list(get(service, "spec"), "ports")
        .iter()
        .find(|port| int(port, "port") == Some(i64::from(name.port)))
        .ok_or_else(|| {
            format!(
                "no service port {} found for service {:?}",
                name.port, name.name
            )
        })
}

fn cluster_address(service: &Value, name: &ServiceName) -> Result<Address, String> {
    let spec = get(service, "spec");
    let host = match (service_type(service), text(spec, "clusterIP")) {
        // A headless Service has no address that kube-proxy forwards.
        ("ClusterIP", "None") => {
            return Err("cannot route to service with ClusterIP \"None\"".into());
        }
        ("ClusterIP" | "LoadBalancer" | "NodePort", address) => {
            find_port(service, name)?;
            address
        }
        // Upstream connects to the name, but verifies the certificate for the name of the Service.
        ("ExternalName", _) => text(spec, "externalName"),
        (other, _) => return Err(format!("unsupported service type {other:?}")),
    };
    Ok(Address {
        host: host.to_owned(),
        port: name.port,
    })
}

fn endpoint_address<'a>(
    service: &Value,
    slices: impl Iterator<Item = &'a Value>,
    name: &ServiceName,
) -> Result<Address, String> {
    match service_type(service) {
        "ClusterIP" | "LoadBalancer" | "NodePort" => {}
        other => return Err(format!("unsupported service type {other:?}")),
    }
    let port_name = text(find_port(service, name)?, "name");
    let families = texts(get(service, "spec"), "ipFamilies");
    let (mut ready, mut secondary) = (Vec::new(), Vec::new());
    for slice in slices {
        let port = list(slice, "ports")
            .iter()
            .find(|port| text(port, "name") == port_name)
            .and_then(|port| u16::try_from(int(port, "port")?).ok());
        let Some(port) = port else { continue };
        let hosts = list(slice, "endpoints")
            .iter()
            .filter(|endpoint| is_ready(endpoint))
            // The addresses of one endpoint are fungible, and clients use the first only
            // (discovery/v1).
            .filter_map(|endpoint| texts(endpoint, "addresses").first().copied());
        // As upstream: this server may have no route to the other family of a dual-stack Service.
        let is_primary = families
            .first()
            .is_none_or(|family| *family == text(slice, "addressType"));
        let found = if is_primary {
            &mut ready
        } else {
            &mut secondary
        };
        found.extend(hosts.map(|host| Address {
            host: host.to_owned(),
            port,
        }));
    }
    // Without kube-proxy, the caller has to spread the load over the endpoints.
    let random = &mut rand::rng();
    ready
        .choose(random)
        .or_else(|| secondary.choose(random))
        .cloned()
        .ok_or_else(|| format!("no endpoints available for service {:?}", name.name))
}

/// An unknown condition counts as ready.
fn is_ready(endpoint: &Value) -> bool {
    let conditions = get(endpoint, "conditions");
    opt(conditions, "ready").is_none() || flag(conditions, "ready")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(port: u16) -> ServiceName {
        ServiceName {
            namespace: "n".into(),
            name: "hook".into(),
            port,
        }
    }

    fn address(host: &str, port: u16) -> Result<Address, String> {
        Ok(Address {
            host: host.into(),
            port,
        })
    }

    #[test]
    fn cluster_ip_is_used_with_a_port_of_the_service() {
        let ports = json!([{"port": 443, "targetPort": 8443}]);
        let service = |kind: &str, ip: &str| json!({"spec": {"type": kind, "clusterIP": ip, "ports": ports, "externalName": "a.example"}});
        for (kind, ip, port, expect) in [
            ("ClusterIP", "10.0.0.9", 443, address("10.0.0.9", 443)),
            ("NodePort", "10.0.0.9", 443, address("10.0.0.9", 443)),
            ("ExternalName", "", 8443, address("a.example", 8443)),
            (
                "ClusterIP",
                "10.0.0.9",
                80,
                Err("no service port 80 found for service \"hook\"".into()),
            ),
            (
                "ClusterIP",
                "None",
                443,
                Err("cannot route to service with ClusterIP \"None\"".into()),
            ),
        ] {
            let found = cluster_address(&service(kind, ip), &name(port));
            assert_eq!(found, expect, "{kind} {ip} {port}");
        }
    }

    #[test]
    fn endpoint_is_ready_and_has_the_port_of_that_name() {
        let service = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
        let slices = [
            json!({"ports": [{"name": "metrics", "port": 9090}], "endpoints": [{"addresses": ["10.1.0.1"]}]}),
            json!({"ports": [{"name": "https", "port": 8443}], "endpoints": [
                {"addresses": ["10.1.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.1.0.3"], "conditions": {"ready": true}}]}),
        ];
        let found = endpoint_address(&service, slices.iter(), &name(443));
        assert_eq!(found, address("10.1.0.3", 8443));
        let none = endpoint_address(&service, slices.iter().take(1), &name(443));
        assert_eq!(
            none,
            Err("no endpoints available for service \"hook\"".into())
        );
    }

    #[test]
    fn endpoint_of_the_primary_family_is_preferred() {
        let ports = json!([{"name": "", "port": 443}]);
        let slice = |family: &str, host: &str, ready: bool| {
            json!({"addressType": family, "ports": [{"name": "", "port": 8443}],
                "endpoints": [{"addresses": [host], "conditions": {"ready": ready}}]})
        };
        for (families, first_ready, expect) in [
            (json!(["IPv6", "IPv4"]), true, "fd00::1"),
            (json!(["IPv6", "IPv4"]), false, "10.1.0.1"),
            (json!(["IPv4", "IPv6"]), true, "10.1.0.1"),
        ] {
            let service = json!({"spec": {"ports": ports, "ipFamilies": families}});
            let slices = [
                slice("IPv4", "10.1.0.1", true),
                slice("IPv6", "fd00::1", first_ready),
            ];
            // The choice among endpoints is random.
            for _ in 0..32 {
                let found = endpoint_address(&service, slices.iter(), &name(443));
                assert_eq!(found, address(expect, 8443), "{families} {first_ready}");
            }
        }
    }

    #[test]
    fn endpoints_of_an_external_name_are_not_looked_up() {
        let service = json!({"spec": {"type": "ExternalName", "externalName": "a.example"}});
        let found = endpoint_address(&service, std::iter::empty(), &name(443));
        assert_eq!(
            found,
            Err("unsupported service type \"ExternalName\"".into())
        );
    }
}
