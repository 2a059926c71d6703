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
    // Headless Services and ExternalName have no address that a variable could show.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn service(namespace: &str, name: &str, spec: Value) -> Arc<Service> {
        let metadata = json!({"namespace": namespace, "name": name});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
    }

    #[test]
    fn service_has_the_variables_of_docker_links() {
        let ports =
            json!([{"name": "web-ui", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let services = [service(
            "ns",
            "my-app",
            json!({"clusterIP": "10.0.0.5", "ports": ports}),
        )];
        let found = list_service_variables(&services, "ns", true);
        for (name, value) in [
            ("MY_APP_SERVICE_HOST", "10.0.0.5"),
            ("MY_APP_SERVICE_PORT", "80"),
            ("MY_APP_SERVICE_PORT_WEB_UI", "80"),
            ("MY_APP_SERVICE_PORT_DNS", "53"),
            ("MY_APP_PORT", "tcp://10.0.0.5:80"),
            ("MY_APP_PORT_80_TCP", "tcp://10.0.0.5:80"),
            ("MY_APP_PORT_80_TCP_PROTO", "tcp"),
            ("MY_APP_PORT_53_UDP_PORT", "53"),
            ("MY_APP_PORT_53_UDP_ADDR", "10.0.0.5"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn service_without_a_cluster_ip_has_no_variables() {
        for spec in [
            json!({"clusterIP": "None", "ports": [{"port": 80}]}),
            json!({"type": "ExternalName", "externalName": "x.example"}),
            json!({"clusterIP": "", "ports": [{"port": 80}]}),
        ] {
            let services = [service("ns", "s", spec.clone())];
            assert!(
                list_service_variables(&services, "ns", true).is_empty(),
                "{spec}"
            );
        }
    }

    #[test]
    fn variables_are_those_of_the_namespace_and_of_the_api_server() {
        let spec = || json!({"clusterIP": "10.0.0.1", "ports": [{"port": 443}]});
        let services = [
            service("default", "kubernetes", spec()),
            service("ns", "own", spec()),
            service("other", "foreign", spec()),
        ];
        let hosts = |links| {
            let found = list_service_variables(&services, "ns", links);
            let hosts = found
                .into_keys()
                .filter(|name| name.ends_with("_SERVICE_HOST"));
            hosts.collect::<Vec<_>>()
        };
        assert_eq!(hosts(true), ["KUBERNETES_SERVICE_HOST", "OWN_SERVICE_HOST"]);
        assert_eq!(hosts(false), ["KUBERNETES_SERVICE_HOST"]);
    }
}
