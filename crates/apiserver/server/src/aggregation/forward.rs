//! Forwards the requests of remote group versions.

use super::TargetError;
use super::timed::limit_body;
use crate::body::{Body, Payload};
use crate::context::Context;
use crate::exempt::is_long_running;
use crate::server::Server;
use crate::{proxy, respond};
use api_meta::ApiError;
use apiserver_aggregator::ExtensionServer;
use http::Response;
use http::header::LOCATION;
use hyper::upgrade::OnUpgrade;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;

/// Characters of a path that are not escaped.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Returns the extension server of the request's group version.
pub fn find_remote(server: &Server, context: &Context) -> Option<Arc<ExtensionServer>> {
    let info = &context.info;
    let index = &server.aggregation.index;
    if info.is_resource {
        return index.find_server(&info.group, &info.version);
    }
    let mut words = info.path.split('/').filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some("apis"), Some(group), Some(version), None) => index.find_server(group, version),
        (Some("openapi"), Some("v3"), Some("apis"), Some(group)) => {
            let version = words.next().filter(|_| words.next().is_none())?;
            index.find_server(group, version)
        }
        _ => None,
    }
}

/// Forwards a request that is authenticated and authorized.
pub async fn respond_remote(
    server: &Server,
    context: &Context,
    remote: &ExtensionServer,
    body: &mut Payload,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    let unavailable = || Ok(respond::text_response(503, "service unavailable\n"));
    if !remote.available {
        return unavailable();
    }
    let path = remote_path(&context.info.path, &context.raw_query);
    let aggregation = &server.aggregation;
    let target = match aggregation.find_target(
        &server.kubelets,
        &*server.caches,
        remote,
        &context.user,
        path,
    ) {
        Ok(target) => target,
        Err(TargetError::Unresolved(why)) => {
            tracing::warn!(
                name = remote.name,
                why,
                "an extension server has no address"
            );
            return unavailable();
        }
        Err(TargetError::Unusable(why)) => return Ok(respond::text_response(500, why + "\n")),
    };
    let stream = body
        .take_stream()
        .ok_or_else(|| ApiError::internal("the request has no body"))?;
    let sent = proxy::forward_request(&server.tasks, context, target, stream, upgrade).await;
    let response = match sent {
        Ok(response) => response,
        Err(error) => return Ok(respond::text_response(503, error.message + "\n")),
    };
    // A client would repeat the request, with its credentials, at a server that it did not choose.
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        return Ok(respond::text_response(
            502,
            "the backend attempted to redirect this request, which is not permitted",
        ));
    }
    if is_long_running(&context.info) {
        return Ok(response);
    }
    Ok(response.map(|body| limit_body(body, server.request_timeout)))
}

/// Returns path and query for the extension server. The path is the one that was authorized,
/// encoded again: `%2F` in the client's form might be something else to the extension server.
fn remote_path(path: &str, query: &str) -> String {
    let path = utf8_percent_encode(path, PATH);
    if query.is_empty() {
        path.to_string()
    } else {
        format!("{path}?{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_sent_as_it_was_authorized() {
        for (path, query, expect) in [
            ("/apis/g/v1/namespaces/a/x", "", "/apis/g/v1/namespaces/a/x"),
            ("/apis/g/v1/x/a:b", "watch=1", "/apis/g/v1/x/a:b?watch=1"),
            ("/apis/g/v1/x/a?b%2F", "", "/apis/g/v1/x/a%3Fb%252F"),
            ("/apis/g/v1/x/ü\r\n", "", "/apis/g/v1/x/%C3%BC%0D%0A"),
        ] {
            assert_eq!(remote_path(path, query), expect);
        }
    }
}
