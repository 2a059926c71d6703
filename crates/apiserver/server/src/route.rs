//! Routes a path to its handler.

use crate::body::{Body, Payload};
use crate::context::Context;
use crate::handlers::{delete, patch, write};
use crate::method::method_not_allowed;
use crate::server::Server;
use crate::{
    aggregation, discovery, handlers, health, metrics_page, proxy, respond, reviews, zpages,
};
use api_kinds::{ObjectSchema, Resource};
use api_meta::ApiError;
use apiserver_request::{RequestInfo, annotate_audit};
use http::{Method, Response};
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;

/// Passes an authorized request to its handler.
pub async fn dispatch_request(
    server: &Arc<Server>,
    context: &Context,
    body: &mut Payload,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    // All but gets on the heap: the future of a request is moved as a whole at each level, and has
    // the size of the largest handler.
    if let Some(remote) = aggregation::find_remote(server, context) {
        let responding = aggregation::respond_remote(server, context, &remote, body, upgrade);
        return Box::pin(responding).await;
    }
    if context.info.is_resource {
        return dispatch_resource(server, context, body, upgrade).await;
    }
    let path = context.info.path.trim_end_matches('/');
    if let Some(response) = Box::pin(dispatch_plain(server, context, path)).await? {
        return Ok(response);
    }
    Ok(respond::text_response(404, "404 page not found\n"))
}

/// Responds to paths that are no resources.
async fn dispatch_plain(
    server: &Arc<Server>,
    context: &Context,
    path: &str,
) -> Result<Option<Response<Body>>, ApiError> {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (first, rest) = (parts.next().unwrap_or_default(), parts.next());
    let dump = path
        .strip_prefix("/debug/api_priority_and_fairness/")
        .and_then(|what| server.flow.dump_table(what))
        .map(|text| respond::text_response(200, text));
    let known = match (first, rest) {
        _ if dump.is_some() => true,
        ("livez" | "readyz" | "healthz", rest) => {
            return health::respond_health(server, context, first, rest)
                .await
                .map(Some);
        }
        ("version" | "metrics" | "statusz" | "flagz", None) => true,
        ("" | "api" | "apis" | "openapi" | "openid" | ".well-known", _) => true,
        _ => false,
    };
    if !known {
        return Ok(None);
    }
    let response = match (first, rest) {
        _ if dump.is_some() => dump,
        ("version", None) => Some(respond::plain_json(
            200,
            &discovery::version_info(&server.emulated),
        )),
        ("metrics", None) => Some(metrics_page::respond_metrics(server)),
        ("statusz", None) => Some(zpages::respond_statusz(server, context)),
        ("flagz", None) => Some(zpages::respond_flagz(server, context)),
        _ => discovery::respond_discovery(server, context, path).await?,
    };
    match response {
        // After the lookup, so that an unknown path is a 404 for every method.
        Some(_) if !matches!(context.method, Method::GET | Method::HEAD) => {
            Err(method_not_allowed())
        }
        other => Ok(other),
    }
}

async fn dispatch_resource(
    server: &Arc<Server>,
    context: &Context,
    body: &mut Payload,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    let info = &context.info;
    // One set for the whole request, whatever is installed or removed meanwhile.
    let served = server.caches.served();
    let resources = served.resources();
    if !resources.is_served(&info.group, &info.version) {
        // Upstream has a Status for unknown versions of a known group, and plain text for others.
        let group_known = resources.groups().iter().any(|g| g.name == info.group);
        return if group_known {
            Err(ApiError::no_such_path())
        } else {
            Ok(respond::text_response(404, "404 page not found\n"))
        };
    }
    let resource = resources
        .find(&info.group, &info.version, &info.resource)
        .filter(|resource| resource.served)
        .ok_or_else(ApiError::no_such_path)?;
    let warning = note_deprecation(resource);
    let handled = dispatch_served(server, context, resource, body, upgrade).await;
    // As upstream, also for requests that fail.
    match warning {
        Some(warning) => warn_first(handled, warning),
        None => handled,
    }
}

/// Returns the warning about a deprecated version, and annotates the request's audit events.
fn note_deprecation(resource: &Resource) -> Option<String> {
    if let ObjectSchema::Custom(custom) = &resource.schema {
        return custom.deprecation.as_deref().map(str::to_owned);
    }
    let deprecation = api_kinds::find_deprecation(resource)?;
    annotate_audit("k8s.io/deprecated", || "true".to_owned());
    if let Some(release) = deprecation.removed {
        annotate_audit("k8s.io/removed-release", || release.to_string());
    }
    Some(deprecation.warning)
}

/// Adds the warning before others: failed requests have it as well.
fn warn_first(
    result: Result<Response<Body>, ApiError>,
    warning: String,
) -> Result<Response<Body>, ApiError> {
    let warning = [warning];
    match result {
        Ok(mut response) => {
            let others: Vec<_> = response
                .headers()
                .get_all("warning")
                .iter()
                .cloned()
                .collect();
            response.headers_mut().remove("warning");
            let mut response = respond::with_warnings(response, &warning);
            for other in others {
                response.headers_mut().append("warning", other);
            }
            Ok(response)
        }
        Err(mut error) => {
            error.warnings.splice(..0, warning);
            Err(error)
        }
    }
}

async fn dispatch_served(
    server: &Arc<Server>,
    context: &Context,
    resource: &Arc<Resource>,
    body: &mut Payload,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    let info = &context.info;
    check_scope(info, resource)?;
    // Reviews are computed, so that neither the registry nor the watch cache knows them.
    if resource.storage.is_none() && info.subresource.is_empty() {
        return Box::pin(reviews::respond_review(server, context, resource, body)).await;
    }
    if !info.subresource.is_empty() {
        let responding = dispatch_subresource(server, context, resource, body, upgrade);
        return Box::pin(responding).await;
    }
    let verb = info.verb.as_str();
    // Creates go to collections; updates and patches go to objects.
    let misplaced = match verb {
        "create" => !info.name.is_empty(),
        "update" | "patch" => info.name.is_empty(),
        _ => false,
    };
    if misplaced || !supports_verb(resource, verb) {
        return Err(method_not_allowed());
    }
    match verb {
        "get" => handlers::read::handle_get(server, context, resource).await,
        "list" => Box::pin(handlers::read::handle_list(server, context, resource)).await,
        "watch" => Box::pin(handlers::watch::handle_watch(server, context, resource)).await,
        _ => Box::pin(dispatch_write(server, context, resource, body)).await,
    }
}

async fn dispatch_write(
    server: &Arc<Server>,
    context: &Context,
    resource: &Arc<Resource>,
    body: &mut Payload,
) -> Result<Response<Body>, ApiError> {
    // Bodies are read here, behind authorization: no other caller can make the server buffer 3 MiB.
    let bytes = body.read_all().await?;
    match context.info.verb.as_str() {
        "create" => Box::pin(write::handle_create(server, context, resource, bytes)).await,
        "update" => Box::pin(write::handle_update(server, context, resource, bytes)).await,
        "patch" => Box::pin(patch::handle_patch(server, context, resource, bytes)).await,
        "delete" => Box::pin(delete::handle_delete(server, context, resource, bytes)).await,
        "deletecollection" => {
            Box::pin(delete::delete_collection(server, context, resource, bytes)).await
        }
        _ => Err(method_not_allowed()),
    }
}

/// Returns whether requests with a verb are handled.
fn supports_verb(resource: &Resource, verb: &str) -> bool {
    // As upstream, discovery hides some verbs of custom resources during their deletion. Updates
    // are possible all the same, because they remove finalizers.
    resource.has_verb(verb) || resource.is_custom() && matches!(verb, "create" | "update" | "patch")
}

async fn dispatch_subresource(
    server: &Arc<Server>,
    context: &Context,
    resource: &Arc<Resource>,
    body: &mut Payload,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    let name = context.info.subresource.as_str();
    if resource.subresource(name).is_none() {
        return Err(ApiError::no_such_path());
    }
    // Before the body is read: proxied requests stream theirs.
    if proxy::is_proxied(resource, name) {
        return proxy::respond_proxy(server, context, resource, body, upgrade).await;
    }
    handlers::subresource::handle_subresource(server, context, resource, body.read_all().await?)
        .await
}

/// Rejects paths with the wrong scope: namespaced resources are written in a namespace,
/// cluster-scoped ones have no path below a namespace. Authorization used the path's namespace, so
/// a cluster-scoped object behind such a path would be accessible to a role in any namespace.
fn check_scope(info: &RequestInfo, resource: &Resource) -> Result<(), ApiError> {
    // Only a backend behind `proxy` can give a meaning to further segments.
    if !resource.namespaced && info.below_namespace
        || !info.rest.is_empty() && info.subresource != "proxy"
    {
        return Err(ApiError::no_such_path());
    }
    if !resource.namespaced
        || !info.namespace.is_empty()
        || matches!(info.verb.as_str(), "list" | "watch")
    {
        return Ok(());
    }
    // A list across namespaces exists at this path, but no writes.
    let exists =
        resource.has_verb("list") && (info.name.is_empty() || info.verb == "deletecollection");
    Err(if exists {
        method_not_allowed()
    } else {
        ApiError::no_such_path()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::query::Query;
    use crate::request_info;
    use api_meta::Reason;

    fn scope_of(method: Method, path: &str, resource: &Resource) -> Result<(), ApiError> {
        check_scope(
            &request_info::parse_request_info(&method, path, &Query::default()).unwrap(),
            resource,
        )
    }

    fn base(resource: &Resource) -> String {
        let Resource { group, version, .. } = resource;
        if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        }
    }

    #[test]
    fn cluster_scoped_kind_has_no_path_below_a_namespace() {
        for resource in api_kinds::resources()
            .iter()
            .filter(|resource| !resource.namespaced)
        {
            for tail in [
                "",
                "/x",
                "/a",
                "/x/status",
                "/x/finalize",
                "/x/approval",
                "/x/proxy/y",
            ] {
                for method in [
                    Method::GET,
                    Method::POST,
                    Method::PUT,
                    Method::PATCH,
                    Method::DELETE,
                ] {
                    let path = format!(
                        "{}/namespaces/a/{}{tail}",
                        base(resource),
                        &*resource.plural
                    );
                    let refused = scope_of(method.clone(), &path, resource).unwrap_err();
                    assert_eq!(refused.reason, Reason::NotFound, "{method} {path}");
                }
            }
        }
    }

    #[test]
    fn namespaced_kind_is_written_in_a_namespace() {
        let reason = |method: Method, path: &str, resource| {
            scope_of(method, path, resource)
                .err()
                .map(|error| error.reason)
        };
        for resource in api_kinds::resources()
            .iter()
            .filter(|resource| resource.namespaced)
        {
            let (all, one) = (
                format!("{}/{}", base(resource), &*resource.plural),
                format!("{}/{}/x", base(resource), &*resource.plural),
            );
            let without = if resource.has_verb("list") {
                Reason::MethodNotAllowed
            } else {
                Reason::NotFound
            };
            assert_eq!(reason(Method::POST, &all, resource), Some(without), "{all}");
            assert_eq!(
                reason(Method::GET, &one, resource),
                Some(Reason::NotFound),
                "{one}"
            );
            assert_eq!(reason(Method::GET, &all, resource), None, "{all}");
        }
        let pods = api_kinds::find("", "v1", "pods").unwrap();
        assert_eq!(
            reason(Method::GET, "/api/v1/namespaces/a/pods/p/log/x", pods),
            Some(Reason::NotFound)
        );
    }
}
