//! The Docker-links style variables of Services (`enableServiceLinks`).

use k8s_openapi::api::core::v1::Service;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns variables of the Services of `namespace` (unless `links` is off) and of the API server's
/// own Service.
pub(crate) fn list_service_variables(
    services: &[Arc<Service>],
    namespace: &str,
    links: bool,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let of = |s: &Service| {
        (
            s.metadata.namespace.clone().unwrap_or_default(),
            s.metadata.name.clone().unwrap_or_default(),
        )
    };
    let master = |s: &Service| of(s) == ("default".into(), "kubernetes".into());
    let own = |s: &Service| links && of(s).0 == namespace;
    for service in services.iter().filter(|s| master(s)) {
        add_service(service, &mut all);
    }
    for service in services.iter().filter(|s| own(s)) {
        add_service(service, &mut all);
    }
    all
}

fn add_service(service: &Service, all: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let ip = spec.cluster_ip.as_deref().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let (false, Some(first)) = (ip.is_empty() || ip == "None", ports.first()) else {
        return;
    };
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    let name = to_variable_name(service.metadata.name.as_deref().unwrap_or_default());
    let protocol = |p: &k8s_openapi::api::core::v1::ServicePort| {
        p.protocol.clone().unwrap_or_else(|| "TCP".into())
    };
    let mut put = |key: String, value: String| all.insert(key, value);
    put(format!("{name}_SERVICE_HOST"), ip.to_owned());
    put(format!("{name}_SERVICE_PORT"), first.port.to_string());
    put(
        format!("{name}_PORT"),
        format!("{}://{host}:{}", protocol(first).to_lowercase(), first.port),
    );
    for port in ports {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            put(
                format!("{name}_SERVICE_PORT_{}", to_variable_name(port_name)),
                port.port.to_string(),
            );
        }
        let protocol = protocol(port);
        let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
        put(
            prefix.clone(),
            format!("{}://{host}:{}", protocol.to_lowercase(), port.port),
        );
        put(format!("{prefix}_PROTO"), protocol.to_lowercase());
        put(format!("{prefix}_PORT"), port.port.to_string());
        put(format!("{prefix}_ADDR"), ip.to_owned());
    }
}

fn to_variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}
