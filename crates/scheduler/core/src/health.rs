//! `/healthz`, `/livez`, `/readyz` and `/metrics`. Paths that are not always allowed need authorization by the API
//! server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use base_task::Tasks;
use base_tls::rustls::pki_types::PrivatePkcs8KeyDer;
use base_tls::rustls::version::TLS13;
use base_tls::rustls::{DEFAULT_VERSIONS, ServerConfig};
use base_tls::{ClientAuth, ServerTls};
use bytes::Bytes;
use client::Client;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use crate::flags::Flags;

/// Content of the endpoints.
pub(crate) struct Shown {
    /// Client for TokenReviews and SubjectAccessReviews.
    pub(crate) reviews: Client,
    /// Renders the metrics.
    pub(crate) metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Returns whether the informers have synced.
    pub(crate) ready: Box<dyn Fn() -> bool + Send + Sync>,
    /// Paths that need no authorization.
    pub(crate) open: Vec<String>,
}

/// Serves in the background until the tasks' shutdown.
pub(crate) async fn serve(flags: &Flags, shown: Shown, tasks: &Tasks) -> anyhow::Result<()> {
    let listener = base_serve::bind(SocketAddr::new(flags.bind_address, flags.secure_port)).await?;
    let port = listener.local_addr()?.port();
    if let Some(path) = &flags.port_file {
        base_serve::write_port_file(path, port).with_context(|| format!("can't write {}", path.display()))?;
    }
    let shown = Arc::new(shown);
    let service = service_fn(move |request: Request<Incoming>| {
        let shown = Arc::clone(&shown);
        async move { Ok::<_, Infallible>(answer(&request, &shown).await) }
    });
    let options = base_serve::Options { tls: Some(tls(flags)?), ..base_serve::Options::default() };
    tracing::info!(port, "serving health and metrics");
    tasks.spawn_critical("health", base_serve::serve(listener, options, service, tasks.shutdown().clone()));
    Ok(())
}

async fn answer(request: &Request<Incoming>, shown: &Shown) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !is_open(&shown.open, path) {
        match judge(&shown.reviews, request.headers(), path).await {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return text(StatusCode::UNAUTHORIZED, "Unauthorized"),
            other => return text(other, "Forbidden"),
        }
    }
    match path {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" if (shown.ready)() => text(StatusCode::OK, "ok"),
        "/readyz" => text(StatusCode::INTERNAL_SERVER_ERROR, "[-]informer-sync failed: not all informers have synced"),
        "/metrics" => text(StatusCode::OK, &(shown.metrics)()),
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// Returns whether a path needs no authorization.
fn is_open(open: &[String], path: &str) -> bool {
    open.iter().any(|allowed| match allowed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == allowed,
    })
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Returns OK, UNAUTHORIZED or FORBIDDEN for a GET of `path`.
async fn judge(reviews: &Client, headers: &HeaderMap, path: &str) -> StatusCode {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else { return StatusCode::UNAUTHORIZED };
    let Some(spec) = bearer(reviews, token).await else { return StatusCode::UNAUTHORIZED };
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..spec };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = reviews.api::<SubjectAccessReview>().review(&review).await;
    let allowed = answer.ok().and_then(|review| review.status).is_some_and(|status| status.allowed);
    if allowed { StatusCode::OK } else { StatusCode::FORBIDDEN }
}

async fn bearer(reviews: &Client, token: &str) -> Option<SubjectAccessReviewSpec> {
    let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let status = reviews.api::<TokenReview>().review(&review).await.ok()?.status?;
    let user = status.user.filter(|_| status.authenticated == Some(true))?;
    Some(SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        ..SubjectAccessReviewSpec::default()
    })
}

fn tls(flags: &Flags) -> anyhow::Result<Arc<ServerConfig>> {
    let http2 = (!flags.disable_http2_serving).then(|| b"h2".to_vec());
    let alpn: Vec<Vec<u8>> = http2.into_iter().chain([b"http/1.1".to_vec()]).collect();
    let versions = if flags.tls_min_version == "VersionTLS13" { &[&TLS13][..] } else { DEFAULT_VERSIONS };
    if let (Some(certificate), Some(key)) = (&flags.tls_cert_file, &flags.tls_private_key_file) {
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = ServerTls { certificate, key, client_auth: ClientAuth::None, alpn };
        return Ok(base_tls::server_config_of(&files, versions)?);
    }
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), flags.bind_address.to_string()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(base_tls::provider())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_open_by_name_or_prefix() {
        let open = ["/healthz".to_owned(), "/debug/*".to_owned()];
        for (path, want) in [("/healthz", true), ("/healthz/x", false), ("/debug/flags", true), ("/metrics", false)] {
            assert_eq!(is_open(&open, path), want, "{path}");
        }
    }
}
