//! Availability of an extension server as far as its Service and EndpointSlices show it.

use crate::condition::Condition;
use api_meta::tree::{flag, get, has, int, list, opt_text, text};
use apiserver_webhook_client::ServiceName;
use serde_json::Value;

/// Returns why the Service can't serve; `None` means that the server is worth a request.
pub fn check_service<'a>(
    name: &ServiceName,
    service: Option<&Value>,
    slices: impl Iterator<Item = &'a Value>,
) -> Option<Condition> {
    let place = format!("service/{} in {:?}", name.name, name.namespace);
    let Some(service) = service else {
        return Some(Condition::failed(
            "ServiceNotFound",
            format!("{place} is not present"),
        ));
    };
    let spec = get(service, "spec");
    // Other types have addresses that are not visible here.
    if !matches!(text(spec, "type"), "" | "ClusterIP") {
        return None;
    }
    let port = list(spec, "ports")
        .iter()
        .find(|port| int(port, "port") == Some(i64::from(name.port)));
    let Some(port) = port else {
        let message = format!("{place} is not listening on port {}", name.port);
        return Some(Condition::failed("ServicePortError", message));
    };
    let port = text(port, "name");
    let slices: Vec<&Value> = slices.collect();
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for {place}");
        return Some(Condition::failed("EndpointsNotFound", message));
    }
    if slices.iter().any(|slice| has_endpoint(slice, port)) {
        return None;
    }
    let message = format!("endpointslices for {place} have no addresses with port name {port:?}");
    Some(Condition::failed("MissingEndpoints", message))
}

fn has_endpoint(slice: &Value, port: &str) -> bool {
    let ready = list(slice, "endpoints").iter().any(|endpoint| {
        let conditions = get(endpoint, "conditions");
        // An unknown condition counts as ready.
        !has(conditions, "ready") || flag(conditions, "ready")
    });
    ready
        && list(slice, "ports")
            .iter()
            .any(|found| opt_text(found, "name").unwrap_or_default() == port && has(found, "port"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn service_and_slices_show_why_a_server_can_not_serve() {
        let name = ServiceName {
            namespace: "n".into(),
            name: "s".into(),
            port: 443,
        };
        let service = |kind: &str, port: i64| json!({"spec": {"type": kind, "ports": [{"name": "https", "port": port}]}});
        let slice = |port: &str, ready: Value| {
            json!({"ports": [{"name": port, "port": 8443}],
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": ready}}]})
        };
        let yes = slice("https", json!(true));
        for (service, slices, expect) in [
            (
                None,
                vec![],
                "ServiceNotFound: service/s in \"n\" is not present",
            ),
            (
                Some(service("ClusterIP", 80)),
                vec![yes.clone()],
                "ServicePortError: service/s in \"n\" is not listening on port 443",
            ),
            (
                Some(service("ClusterIP", 443)),
                vec![],
                "EndpointsNotFound: cannot find endpointslices for service/s in \"n\"",
            ),
            (
                Some(service("", 443)),
                vec![slice("https", json!(false)), slice("other", json!(true))],
                "MissingEndpoints: endpointslices for service/s in \"n\" have no addresses with port name \"https\"",
            ),
            (Some(service("ClusterIP", 443)), vec![yes], ""),
            (
                Some(service("ClusterIP", 443)),
                vec![slice("https", Value::Null)],
                "",
            ),
            (Some(service("ExternalName", 80)), vec![], ""),
        ] {
            let found = check_service(&name, service.as_ref(), slices.iter());
            let found = found.map_or(String::new(), |c| format!("{}: {}", c.reason, c.message));
            assert_eq!(found, expect);
        }
    }
}
