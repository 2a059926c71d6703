//! `services/NAME/proxy` and `pods/NAME/proxy`: HTTP to an endpoint or a pod.

use super::options::ConnectOptions;
use super::request::cached_object;
use crate::connect::Target;
use crate::context::Context;
use crate::server::Server;
use api_meta::{ApiError, meta};
use apiserver_request::{GroupResource, Objects};
use rand::seq::IndexedRandom;
use serde_json::Value;
use std::net::IpAddr;

/// `[scheme:]name[:port]`
pub struct Name<'a> {
    pub https: bool,
    pub name: &'a str,
    pub port: &'a str,
}

/// Parses the name segment of the path.
pub fn parse_name(text: &str) -> Result<Name<'_>, ApiError> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [name] => Ok(Name {
            https: false,
            name,
            port: "",
        }),
        [name, port] => Ok(Name {
            https: false,
            name,
            port,
        }),
        [scheme @ ("http" | "https" | ""), name, port] => Ok(Name {
            https: *scheme == "https",
            name,
            port,
        }),
        _ => Err(ApiError::bad_request(format!(
            "invalid service request {text:?}"
        ))),
    }
}

fn target_to(
    server: &Server,
    path: String,
    https: bool,
    host: &str,
    port: u64,
) -> Result<Target, ApiError> {
    let not_allowed = || ApiError::bad_request("address not allowed");
    // Endpoints and pods have addresses. A name would be resolved by this server, with its own DNS.
    let address: IpAddr = host.parse().map_err(|_| not_allowed())?;
    let port = u16::try_from(port).map_err(|_| not_allowed())?;
    let mut target = server
        .kubelets
        .unverified_target(https, &address.to_string(), port, path);
    target.reach = target.reach.with_servers(&*server.caches);
    Ok(target)
}

/// Returns the address of a pod.
pub fn pod_target(
    server: &Server,
    context: &Context,
    options: &ConnectOptions,
) -> Result<Target, ApiError> {
    let requested = parse_name(&context.info.name)?;
    let pod = cached_object(server, "pods", &context.info.namespace, requested.name)?;
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let ports = containers
        .into_iter()
        .flatten()
        .filter_map(|c| c.get("ports")?.as_array())
        .flatten();
    let first = ports
        .filter_map(|p| p.get("containerPort")?.as_u64())
        .next();
    let port = requested.port.parse().ok().or(first).unwrap_or(80);
    target_to(
        server,
        options.backend_path(context),
        requested.https,
        meta::str_at(&pod, &["status", "podIP"]),
        port,
    )
}

/// Returns ready endpoints with the port of that name.
fn ready_endpoints<'a>(
    slices: impl Iterator<Item = &'a Value>,
    port_name: &str,
) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for slice in slices {
        let ports = slice.get("ports").and_then(Value::as_array);
        let port = ports
            .into_iter()
            .flatten()
            // By name, because a targetPort has another number than the Service's port.
            .find(|p| meta::str_at(p, &["name"]) == port_name);
        let Some(port) = port.and_then(|p| p.get("port")?.as_u64()) else {
            continue;
        };
        for endpoint in slice
            .get("endpoints")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let conditions = api_semantics::tree::endpoint_conditions(endpoint);
            let ready = api_semantics::endpoints::is_endpoint_ready(conditions.as_ref());
            let address = endpoint.pointer("/addresses/0").and_then(Value::as_str);
            all.extend(
                address
                    .filter(|_| ready)
                    .map(|address| (address.to_owned(), port)),
            );
        }
    }
    all
}

/// Returns the target of `services/NAME/proxy`.
pub fn service_target(
    server: &Server,
    context: &Context,
    options: &ConnectOptions,
) -> Result<Target, ApiError> {
    let requested = parse_name(&context.info.name)?;
    let namespace = context.info.namespace.as_str();
    let service = cached_object(server, "services", namespace, requested.name)?;
    let port_name =
        port_name(&service, requested.port).ok_or_else(|| no_endpoints(requested.name))?;
    let slices = server.caches.cached_list(
        &GroupResource::new("discovery.k8s.io", "endpointslices"),
        Some(namespace),
    );
    let own = slices.iter().map(|s| &**s).filter(|s| {
        api_meta::Meta::label(*s, "kubernetes.io/service-name") == Some(requested.name)
    });
    let endpoints = ready_endpoints(own, &port_name);
    // At random, as upstream, so that consecutive requests do not all load one endpoint.
    let Some((host, port)) = endpoints.choose(&mut rand::rng()) else {
        return Err(no_endpoints(requested.name));
    };
    let path = options.backend_path(context);
    target_to(server, path, requested.https, host, *port)
}

/// Returns the name of the port selected by a name, a number or nothing.
fn port_name(service: &Value, requested: &str) -> Option<String> {
    let ports = service.pointer("/spec/ports")?.as_array()?;
    let name = |port: &Value| meta::str_at(port, &["name"]).to_owned();
    match requested {
        "" if ports.len() == 1 => ports.first().map(name),
        // Each of several ports has a name, so that none is chosen, as upstream.
        "" => Some(String::new()),
        requested => {
            let number: Option<u64> = requested.parse().ok();
            let numbered = |port: &Value| {
                number.is_some() && port.get("port").and_then(Value::as_u64) == number
            };
            let is = |port: &&Value| meta::str_at(port, &["name"]) == requested || numbered(port);
            ports.iter().find(is).map(name)
        }
    }
}

fn no_endpoints(name: &str) -> ApiError {
    ApiError::unavailable(format!("no endpoints available for service {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn name_may_have_a_scheme_and_a_port() {
        let parse = |text: &str| {
            let name = parse_name(text).ok()?;
            Some((name.https, name.name.to_owned(), name.port.to_owned()))
        };
        let some = |https, name: &str, port: &str| Some((https, name.into(), port.into()));
        assert_eq!(parse("web"), some(false, "web", ""));
        assert_eq!(parse("web:80"), some(false, "web", "80"));
        assert_eq!(parse("https:web:"), some(true, "web", ""));
        assert_eq!(parse("http:web:metrics"), some(false, "web", "metrics"));
        assert_eq!(parse(":web:80"), some(false, "web", "80"));
        assert_eq!(parse("ftp:web:80"), None);
        assert_eq!(parse("https:web:80:x"), None);
    }

    #[test]
    fn port_is_selected_by_name_or_number() {
        let two = json!({"spec": {"ports": [{"name": "web", "port": 80},
            {"name": "metrics", "port": 9090}]}});
        let one = json!({"spec": {"ports": [{"port": 80}]}});
        let select = |service: &Value, requested: &str| port_name(service, requested);
        assert_eq!(select(&two, "metrics").as_deref(), Some("metrics"));
        assert_eq!(select(&two, "9090").as_deref(), Some("metrics"));
        assert_eq!(select(&two, "8080"), None);
        assert_eq!(select(&one, "").as_deref(), Some(""), "the only port");
        assert_eq!(select(&one, "80").as_deref(), Some(""));
    }

    #[test]
    fn endpoints_that_are_not_ready_are_left_out() {
        let slice = json!({"ports": [{"name": "web", "port": 8080}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"]}]});
        let other = json!({"ports": [{"name": "metrics", "port": 9090}],
            "endpoints": [{"addresses": ["10.0.0.4"]}]});
        let slices = [slice, other];
        let found = ready_endpoints(slices.iter(), "web");
        let expect = [("10.0.0.1".to_owned(), 8080), ("10.0.0.3".to_owned(), 8080)];
        assert_eq!(found, expect, "an unknown condition counts as ready");
    }
}
