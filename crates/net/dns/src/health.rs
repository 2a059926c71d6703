//! `/health` while the process lives, `/ready` once the informers have synced.

use std::net::SocketAddr;

use base_task::Tasks;
use component::{Endpoints, Page, text};
use http::StatusCode;

use crate::view::InformerView;
use crate::zone::View;

/// Serves both paths.
pub async fn serve_health(
    address: SocketAddr,
    view: InformerView,
    tasks: &Tasks,
) -> Result<(), base_serve::ListenError> {
    let alive = || text(StatusCode::OK, "OK");
    let mut endpoints = Endpoints::new().missing(|| text(StatusCode::NOT_FOUND, "not found"));
    for path in ["/health", "/healthz", "/livez"] {
        endpoints = endpoints.page(path, alive);
    }
    for path in ["/ready", "/readyz"] {
        let view = view.clone();
        endpoints = endpoints.page(path, move || readiness(view.has_synced()));
    }
    let listener = base_serve::bind(address).await?;
    endpoints.serve("health", listener, base_serve::Options::default(), tasks);
    Ok(())
}

fn readiness(synced: bool) -> Page {
    if synced {
        text(StatusCode::OK, "OK")
    } else {
        text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the cluster is not known yet",
        )
    }
}
