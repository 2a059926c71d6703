//! `services/NAME/proxy` and `pods/NAME/proxy`: HTTP to an endpoint or a pod.

use super::connect::Target;
use super::streams::{cached_object, raw_rest};
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
    context: &Context,
    https: bool,
    host: &str,
    port: u64,
) -> Result<Target, ApiError> {
    let not_allowed = || ApiError::bad_request("address not allowed");
    let address: IpAddr = host.parse().map_err(|_| not_allowed())?;
    let port = u16::try_from(port).map_err(|_| not_allowed())?;
    let mut target =
        server
            .kubelets
            .unverified_target(https, &address.to_string(), port, raw_rest(context));
    target.reach = target.reach.with_servers(&*server.caches);
    Ok(target)
}

/// Returns the address of a pod.
pub fn pod_target(server: &Server, context: &Context) -> Result<Target, ApiError> {
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
        context,
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
pub fn service_target(server: &Server, context: &Context) -> Result<Target, ApiError> {
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
    let Some((host, port)) = endpoints.choose(&mut rand::rng()) else {
        return Err(no_endpoints(requested.name));
    };
    target_to(server, context, requested.https, host, *port)
}

/// Returns the name of the port selected by a name, a number or nothing.
fn port_name(service: &Value, requested: &str) -> Option<String> {
    let ports = service.pointer("/spec/ports")?.as_array()?;
    let name = |port: &Value| meta::str_at(port, &["name"]).to_owned();
    match requested {
        "" if ports.len() == 1 => ports.first().map(name),
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
