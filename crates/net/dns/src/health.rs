//! `/health` while the process lives, `/ready` once the informers have synced.

use std::net::SocketAddr;

use base_task::Tasks;
use component::{Endpoints, Page, text_page};
use http::StatusCode;

use crate::view::InformerView;
use crate::zone::View;

/// Serves both paths.
pub async fn serve_health(
    address: SocketAddr,
    view: InformerView,
    tasks: &Tasks,
) -> Result<(), base_serve::ListenError> {
    let alive = || text_page(StatusCode::OK, "OK");
    let mut endpoints =
        Endpoints::new().with_fallback(|| text_page(StatusCode::NOT_FOUND, "not found"));
    for path in ["/health", "/healthz", "/livez"] {
        endpoints = endpoints.with_page(path, alive);
    }
    for path in ["/ready", "/readyz"] {
        let view = view.clone();
        endpoints = endpoints.with_page(path, move || readiness_page(view.has_synced()));
    }
    let listener = base_serve::bind_listener(address).await?;
    endpoints.serve_pages("health", listener, base_serve::Options::default(), tasks);
    Ok(())
}

fn readiness_page(synced: bool) -> Page {
    if synced {
        text_page(StatusCode::OK, "OK")
    } else {
        text_page(
            StatusCode::SERVICE_UNAVAILABLE,
            "the cluster is not known yet",
        )
    }
}
