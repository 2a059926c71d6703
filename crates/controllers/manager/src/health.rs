//! `/healthz`, `/livez`, `/readyz` and `/metrics` over TLS. Some paths are open to all, the others
//! need authorization.
//!
//! The checks always pass while the process responds: a failed task, for instance an informer, ends
//! the process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use base_serve::Options as ServeOptions;
use base_task::Tasks;
use base_telemetry::Metrics;
use base_tls::rustls::ServerConfig;
use base_tls::{ClientAuth, Offer, ServerTls};
use bytes::Bytes;
use component::DelegatedAccess;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::options::Options;

/// Serves in the background until the tasks' shutdown.
pub async fn serve(
    options: &Options,
    access: DelegatedAccess,
    tasks: &Tasks,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let listener =
        base_serve::bind(SocketAddr::new(options.bind_address, options.secure_port)).await?;
    let port = listener.local_addr()?.port();
    if let Some(path) = &options.port_file {
        base_serve::write_port_file(path, port)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    let access = Arc::new(access);
    let open: Arc<[String]> = options.authorization_always_allow_paths.clone().into();
    let service = service_fn(move |request: Request<Incoming>| {
        let (metrics, access, open) = (metrics.clone(), access.clone(), open.clone());
        async move { Ok::<_, Infallible>(answer(&request, &metrics, &access, &open).await) }
    });
    let serve_options = ServeOptions {
        tls: Some(tls(options)?),
        ..ServeOptions::default()
    };
    let shutdown = tasks.shutdown().clone();
    tracing::info!(port, "serving health and metrics");
    tasks.spawn_critical(
        "health",
        base_serve::serve(listener, serve_options, service, shutdown),
    );
    Ok(())
}

async fn answer(
    request: &Request<Incoming>,
    metrics: &Metrics,
    access: &DelegatedAccess,
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
    match access.check_path(request.headers(), path).await {
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
    let offer = Offer::from_names(&options.tls_min_version, &options.tls_cipher_suites)?;
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if let (Some(certificate), Some(key)) = (&options.tls_cert_file, &options.tls_private_key_file)
    {
        let files = ServerTls {
            certificate: certificate.clone(),
            key: key.clone(),
            client_auth: ClientAuth::None,
            alpn,
        };
        return Ok(base_tls::server_config_with(&files, &offer)?);
    }
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    Ok(base_tls::self_signed_config(names, alpn, &offer)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_task::CancellationToken;
    use base_tls::rustls::CipherSuite;
    use base_tls::rustls::version::{TLS12, TLS13};
    use base_tls::testing::negotiate;
    use clap::Parser;
    use component::AnswerLifetimes;

    /// Serves with these flags and returns the address.
    async fn start(flags: &[&str], tasks: &Tasks) -> anyhow::Result<SocketAddr> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("port");
        let own = [
            "x",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--port-file",
        ]
        .map(std::ffi::OsString::from);
        let words = own
            .into_iter()
            .chain([file.clone().into()])
            .chain(flags.iter().map(std::ffi::OsString::from));
        let options = Options::try_parse_from(words)?;
        let client = client::Client::new(client::Config::builder("http://127.0.0.1:1"));
        let access = DelegatedAccess::new(client.clone(), client, AnswerLifetimes::default());
        serve(&options, access, tasks, Metrics::new()).await?;
        Ok(SocketAddr::new(
            options.bind_address,
            std::fs::read_to_string(file)?.trim().parse()?,
        ))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn versions_and_suites_of_the_flags_are_offered_and_no_others() {
        const AES_128: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        const AES_256: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
        let tasks = Tasks::new(CancellationToken::new());
        let shake = async |address, version, suite| {
            tokio::task::spawn_blocking(move || negotiate(address, version, suite))
                .await
                .unwrap()
        };
        let newest = start(&["--tls-min-version=VersionTLS13"], &tasks)
            .await
            .unwrap();
        assert!(
            shake(newest, &TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256)
                .await
                .is_ok()
        );
        assert!(shake(newest, &TLS12, AES_128).await.is_err());
        let flag = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
        let listed = start(&[flag], &tasks).await.unwrap();
        assert!(shake(listed, &TLS12, AES_256).await.is_ok());
        assert!(shake(listed, &TLS12, AES_128).await.is_err());
        assert!(
            start(&["--tls-cipher-suites=TLS_NULL"], &tasks)
                .await
                .is_err()
        );
    }

    #[test]
    fn only_listed_paths_are_open() {
        let rules = ["/healthz".to_owned(), "/live*".to_owned()];
        for (path, open) in [
            ("/healthz", true),
            ("/livez", true),
            ("/metrics", false),
            ("/healthz/x", false),
        ] {
            assert_eq!(is_open(&rules, path), open, "{path}");
        }
    }
}
