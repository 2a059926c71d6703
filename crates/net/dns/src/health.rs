//! `/health` while the process lives, `/ready` once the informers have synced.

use std::convert::Infallible;
use std::net::SocketAddr;

use base_task::Tasks;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::view::Informed;
use crate::zone::View;

/// Serves both paths.
pub async fn serve(
    address: SocketAddr,
    view: Informed,
    tasks: &Tasks,
) -> Result<(), base_serve::ListenError> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (status, text) = match request.uri().path() {
            "/health" | "/healthz" | "/livez" => (StatusCode::OK, "OK"),
            "/ready" | "/readyz" if view.has_synced() => (StatusCode::OK, "OK"),
            "/ready" | "/readyz" => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the cluster is not known yet",
            ),
            _ => (StatusCode::NOT_FOUND, "not found"),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let listener = base_serve::bind(address).await?;
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_critical(
        "health",
        base_serve::serve(listener, base_serve::Options::default(), service, shutdown),
    );
    Ok(())
}
