//! Requests that are forwarded to kubelets, pods and services: logs, exec, attach, port-forward,
//! proxy.
//!
//! Invariant: a request's destination comes from stored objects, never from the client. An upgraded
//! connection is copied as bytes, so that every protocol of a kubelet works; it is translated if
//! kubelet and client have no protocol in common. A rejected upgrade closes the backend's
//! connection.

mod backend;
mod html;
mod logs;
mod options;
mod request;
mod rewrite;
mod services;
mod streams;
mod websocket;

use crate::body::{Body, Payload};
use crate::context::Context;
use crate::method::method_not_allowed;
use crate::respond;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_registry::Write;
use apiserver_request::Operation;
use http::header::{HeaderValue, LOCATION};
use http::{Method, Response};
use hyper::upgrade::OnUpgrade;
use options::ConnectOptions;
use std::sync::Arc;

pub use backend::{dial_target, forward_request};

/// Returns whether a subresource is forwarded to a backend.
pub fn is_proxied(resource: &Resource, subresource: &str) -> bool {
    resource.group.is_empty()
        && matches!(
            (&*resource.plural, subresource),
            ("pods", "log" | "exec" | "attach" | "portforward" | "proxy")
                | ("nodes" | "services", "proxy")
        )
}

/// Responds to such a request.
pub async fn respond_proxy(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    body: &mut Payload,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    let subresource = context.info.subresource.as_str();
    let streams = matches!(subresource, "exec" | "attach" | "portforward");
    if streams && !matches!(context.info.verb.as_str(), "get" | "create")
        || subresource == "log" && context.info.verb != "get"
    {
        return Err(method_not_allowed());
    }
    let kind = resource
        .subresource(subresource)
        .map_or(&*resource.kind, |sub| &*sub.kind);
    let mut options = ConnectOptions::parse(context, kind)?;
    // Reading a log is a read: upstream runs no admission for it.
    if subresource != "log" {
        admit_connect(server, context, resource, &mut options).await?;
    }
    // After admission: the target is looked up only for requests that are allowed.
    let target = match (&*resource.plural, subresource) {
        ("nodes", _) => streams::node_target(server, context, &options)?,
        ("services", _) => services::service_target(server, context, &options)?,
        ("pods", "proxy") => services::pod_target(server, context, &options)?,
        _ => streams::pod_stream_target(server, context, &options).await?,
    };
    // A browser would resolve relative links of the page one level too high.
    if subresource == "proxy" && upgrade.is_none() && lacks_trailing_slash(context) {
        return Ok(redirect_to_slash(context));
    }
    // Kubelets send logs in plain HTTP only, so that the frames are made here.
    if let ("log", Some(reader)) = (
        subresource,
        apiserver_streams::choose_reader(&context.headers),
    ) && let Some(client) = upgrade
    {
        return websocket::send_log(&server.tasks, context, target, reader, client).await;
    }
    if let (true, Some(protocol)) = (
        streams,
        apiserver_streams::choose_protocol(&context.headers),
    ) && let Some(client) = upgrade
    {
        let session = websocket::Session {
            target,
            protocol,
            streams: options.streams(),
        };
        return websocket::translate_upgrade(&server.tasks, context, session, client).await;
    }
    let body = body
        .take_stream()
        .ok_or_else(|| ApiError::internal("the request has no body"))?;
    backend::forward_request(&server.tasks, context, target, body, upgrade).await
}

/// Returns whether a read of the backend's root lacks the trailing slash that relative links need.
fn lacks_trailing_slash(context: &Context) -> bool {
    context.info.rest.is_empty() && matches!(context.method, Method::GET | Method::HEAD)
}

fn redirect_to_slash(context: &Context) -> Response<Body> {
    let query = if context.raw_query.is_empty() {
        String::new()
    } else {
        format!("?{}", context.raw_query)
    };
    let mut response = respond::text_response(301, "");
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", context.raw_path)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Runs admission of a connection, which has options but no object. Mutating plugins may change the
/// options, and the connection is made with the result.
async fn admit_connect(
    server: &Server,
    context: &Context,
    resource: &Arc<Resource>,
    options: &mut ConnectOptions,
) -> Result<(), ApiError> {
    let mut write = Write::internal(resource, &context.info.namespace, &context.info.name);
    write.user = context.user.clone();
    write.subresource.clone_from(&context.info.subresource);
    let object = options.take_object();
    let mut request = write.admission_request(Operation::Connect, &context.info.name, object, None);
    server.registry.run_mutating(&mut request).await?;
    server.registry.run_validating(&request).await?;
    options.replace_object(std::mem::take(&mut request.object));
    Ok(())
}
