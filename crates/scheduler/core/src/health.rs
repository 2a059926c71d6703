//! `/healthz`, `/livez`, `/readyz` and `/metrics`. Paths that are not always allowed need
//! authorization by the API server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use base_task::Tasks;
use base_tls::rustls::ServerConfig;
use base_tls::{ClientAuth, Offer, ServerTls};
use bytes::Bytes;
use component::DelegatedAccess;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::flags::Flags;

/// Content of the endpoints.
pub(crate) struct Shown {
    /// Checks callers of paths that need rights.
    pub(crate) access: DelegatedAccess,
    /// Text of the metrics.
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
        base_serve::write_port_file(path, port)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    let shown = Arc::new(shown);
    let service = service_fn(move |request: Request<Incoming>| {
        let shown = Arc::clone(&shown);
        async move { Ok::<_, Infallible>(answer(&request, &shown).await) }
    });
    let options = base_serve::Options {
        tls: Some(tls(flags)?),
        ..base_serve::Options::default()
    };
    tracing::info!(port, "serving health and metrics");
    tasks.spawn_critical(
        "health",
        base_serve::serve(listener, options, service, tasks.shutdown().clone()),
    );
    Ok(())
}

async fn answer(request: &Request<Incoming>, shown: &Shown) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !is_open(&shown.open, path) {
        match shown.access.check_path(request.headers(), path).await {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return text(StatusCode::UNAUTHORIZED, "Unauthorized"),
            other => return text(other, "Forbidden"),
        }
    }
    match path {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" if (shown.ready)() => text(StatusCode::OK, "ok"),
        "/readyz" => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "[-]informer-sync failed: not all informers have synced",
        ),
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

fn tls(flags: &Flags) -> anyhow::Result<Arc<ServerConfig>> {
    let offer = Offer::from_names(&flags.tls_min_version, &flags.tls_cipher_suites)?;
    let http2 = (!flags.disable_http2_serving).then(|| b"h2".to_vec());
    let alpn: Vec<Vec<u8>> = http2.into_iter().chain([b"http/1.1".to_vec()]).collect();
    if let (Some(certificate), Some(key)) = (&flags.tls_cert_file, &flags.tls_private_key_file) {
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = ServerTls {
            certificate,
            key,
            client_auth: ClientAuth::None,
            alpn,
        };
        return Ok(base_tls::server_config_with(&files, &offer)?);
    }
    let names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        flags.bind_address.to_string(),
    ];
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
        let flags = Flags::try_parse_from(words)?;
        let client = client::Client::new(client::Config::builder("http://127.0.0.1:1"));
        let shown = Shown {
            access: DelegatedAccess::new(client.clone(), client, AnswerLifetimes::default()),
            metrics: Box::new(String::new),
            ready: Box::new(|| true),
            open: Vec::new(),
        };
        serve(&flags, shown, tasks).await?;
        Ok(SocketAddr::new(
            flags.bind_address,
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
    fn paths_are_open_by_name_or_prefix() {
        let open = ["/healthz".to_owned(), "/debug/*".to_owned()];
        for (path, want) in [
            ("/healthz", true),
            ("/healthz/x", false),
            ("/debug/flags", true),
            ("/metrics", false),
        ] {
            assert_eq!(is_open(&open, path), want, "{path}");
        }
    }
}
