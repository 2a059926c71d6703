//! `/healthz`, `/livez`, `/readyz` and `/metrics` over TLS. Some paths are open to all, the others need
//! authorization.
//!
//! The checks always pass while the process responds: a failed task, for instance an informer, ends the process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use base_serve::Options as ServeOptions;
use base_task::Tasks;
use base_telemetry::Metrics;
use base_tls::rustls::ServerConfig;
use base_tls::{ClientAuth, ServerTls};
use bytes::Bytes;
use client::Client;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::auth::Reviewer;
use crate::options::Options;

/// Serves in the background until the tasks' shutdown.
pub async fn serve(options: &Options, client: &Client, tasks: &Tasks, metrics: Metrics) -> anyhow::Result<()> {
    let listener = base_serve::bind(SocketAddr::new(options.bind_address, options.secure_port)).await?;
    let port = listener.local_addr()?.port();
    if let Some(path) = &options.port_file {
        base_serve::write_port_file(path, port).with_context(|| format!("can't write {}", path.display()))?;
    }
    let reviewer = Arc::new(Reviewer::new(client.clone()));
    let open: Arc<[String]> = options.authorization_always_allow_paths.clone().into();
    let service = service_fn(move |request: Request<Incoming>| {
        let (metrics, reviewer, open) = (metrics.clone(), reviewer.clone(), open.clone());
        async move { Ok::<_, Infallible>(answer(&request, &metrics, &reviewer, &open).await) }
    });
    let serve_options = ServeOptions { tls: Some(tls(options)?), ..ServeOptions::default() };
    let shutdown = tasks.shutdown().clone();
    tracing::info!(port, "serving health and metrics");
    tasks.spawn_critical("health", base_serve::serve(listener, serve_options, service, shutdown));
    Ok(())
}

async fn answer(
    request: &Request<Incoming>,
    metrics: &Metrics,
    reviewer: &Reviewer,
    open: &[String],
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let body = match path {
        "/healthz" | "/livez" | "/readyz" => "ok".to_owned(),
        "/metrics" => metrics.encode(),
        _ => return text(StatusCode::NOT_FOUND, "404 page not found"),
    };
    if is_open(open, path) {
        return text(StatusCode::OK, &body);
    }
    match reviewer.judge(request.headers(), path).await {
        StatusCode::OK => text(StatusCode::OK, &body),
        StatusCode::UNAUTHORIZED => text(StatusCode::UNAUTHORIZED, "Unauthorized"),
        other => text(other, "Forbidden"),
    }
}

/// Returns whether a path needs no authorization.
fn is_open(open: &[String], path: &str) -> bool {
    open.iter().any(|rule| match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    })
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn tls(options: &Options) -> anyhow::Result<Arc<ServerConfig>> {
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if let (Some(certificate), Some(key)) = (&options.tls_cert_file, &options.tls_private_key_file) {
        let files =
            ServerTls { certificate: certificate.clone(), key: key.clone(), client_auth: ClientAuth::None, alpn };
        return Ok(base_tls::server_config(&files)?);
    }
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let key = made.signing_key.serialize_der();
    let key = base_tls::rustls::pki_types::PrivatePkcs8KeyDer::from(key);
    let mut config = ServerConfig::builder_with_provider(base_tls::provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_paths_are_open() {
        let rules = ["/healthz".to_owned(), "/live*".to_owned()];
        for (path, open) in [("/healthz", true), ("/livez", true), ("/metrics", false), ("/healthz/x", false)] {
            assert_eq!(is_open(&rules, path), open, "{path}");
        }
    }
}
