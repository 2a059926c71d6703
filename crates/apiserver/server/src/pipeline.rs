//! The way of a request, top down: request info, authentication, impersonation, flow, authorisation, then the handler of its
//! path (admission and the registry follow inside writes).

use crate::body::{Body, Payload};
use crate::context::Context;
use crate::request_info::BadPath;
use crate::server::Server;
use crate::{impersonate, respond, route};
use api_meta::{ApiError, Reason};
use apiserver_authz::forbidden;
use apiserver_request::{Attributes, Authorizer, Credentials, Decision, RequestInfo, User};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Instant;

/// Answers a request.
pub async fn handle(server: Arc<Server>, mut request: Request<Incoming>) -> Response<Body> {
    let begun = Instant::now();
    let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let mut context = match Context::new(&parts) {
        Ok(context) => context,
        Err(bad) => return refuse_path(&bad),
    };
    let guard = server.metrics.begin(&context);
    let mut payload = Payload::new(body);
    let mut response = match steps(&server, &mut context, &mut payload, upgrade).await {
        Ok(response) => response,
        Err(error) => respond::error(context.wanted_for_errors(), &error),
    };
    if let Some(flow) = &context.flow {
        flow.mark(&mut response);
    }
    response.headers_mut().insert("audit-id", audit_id(&context));
    payload.discard().await;
    server.metrics.end(
        guard,
        &context,
        response.status().as_u16(),
        http_body::Body::size_hint(response.body()).exact(),
        begun.elapsed(),
    );
    response
}

/// What names the request in logs on both sides: as the client says, or new.
fn audit_id(context: &Context) -> http::HeaderValue {
    let given = context.headers.get("audit-id").filter(|id| id.len() <= 64);
    given.cloned().or_else(|| uuid().try_into().ok()).unwrap_or(http::HeaderValue::from_static(""))
}

/// A random UUID (version 4).
fn uuid() -> String {
    let bits: u128 = rand::random();
    let bits = bits & !(0xf000_u128 << 64) & !(0xc000_u128 << 48) | (0x4000_u128 << 64) | (0x8000_u128 << 48);
    let hex = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

async fn steps(
    server: &Arc<Server>,
    context: &mut Context,
    body: &mut Payload,
    upgrade: Option<hyper::upgrade::OnUpgrade>,
) -> Result<Response<Body>, ApiError> {
    context.user = authenticate(server, context).await?;
    if let Some(other) = impersonate::target(&context.headers)? {
        context.user = impersonate::switch(server, &context.user, other)?;
    }
    let attributes = attributes(context);
    context.flow = server.flow.classify(&attributes);
    authorize(server, &attributes)?;
    route::dispatch(server, context, body, upgrade).await
}

async fn authenticate(server: &Server, context: &Context) -> Result<User, ApiError> {
    let identified = server.authn.identify(&context.info.path, &credentials(context)).await;
    server.metrics.authenticated(identified.is_ok());
    identified.map_err(|error| {
        tracing::debug!(%error, path = context.info.path, "a request is not authenticated");
        ApiError::new(Reason::Unauthorized, "Unauthorized")
    })
}

fn credentials(context: &Context) -> Credentials {
    let certificates = context.peer.as_ref().map(|peer| peer.certificates.clone()).unwrap_or_default();
    let remote = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let name = name.as_str();
        name.starts_with("x-remote-").then(|| (name.to_owned(), value.to_str().unwrap_or_default().to_owned()))
    };
    Credentials {
        certificates,
        bearer: bearer(&context.headers),
        remote_headers: context.headers.iter().filter_map(remote).collect(),
    }
}

/// The token of the Authorization header, or of a WebSocket's subprotocol for browsers, which can't set headers.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if let Some((scheme, token)) = text("authorization").split_once(' ')
        && scheme.eq_ignore_ascii_case("bearer")
    {
        return Some(token.trim().to_owned());
    }
    let encoded = text("sec-websocket-protocol")
        .split(',')
        .find_map(|p| p.trim().strip_prefix("base64url.bearer.authorization.k8s.io."))?;
    crate::base64url::decode(encoded).and_then(|bytes| String::from_utf8(bytes).ok())
}

fn authorize(server: &Server, attributes: &Attributes) -> Result<(), ApiError> {
    match server.authz.authorize(attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// The verb that a request needs: what opens a stream into a container is a `create`, whatever its method.
fn verb(info: &RequestInfo) -> &str {
    let opens_stream =
        info.resource == "pods" && matches!(info.subresource.as_str(), "exec" | "attach" | "portforward");
    if opens_stream && info.verb == "get" { "create" } else { &info.verb }
}

fn attributes(context: &Context) -> Attributes {
    let info = &context.info;
    let selects = matches!(info.verb.as_str(), "list" | "watch" | "deletecollection");
    let selector = |name| if selects { context.query.text(name).to_owned() } else { String::new() };
    Attributes {
        user: context.user.clone(),
        verb: verb(info).to_owned(),
        group: info.group.clone(),
        version: info.version.clone(),
        namespace: info.namespace.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        name: info.name.clone(),
        path: info.path.clone(),
        is_resource: info.is_resource,
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    }
}

fn refuse_path(bad: &BadPath) -> Response<Body> {
    match bad {
        BadPath::Malformed => respond::text(400, "400 Bad Request"),
        BadPath::Unclean(clean) => {
            let mut response = respond::text(301, "");
            if let Ok(value) = http::HeaderValue::from_str(clean) {
                response.headers_mut().insert("location", value);
            }
            response
        }
    }
}
