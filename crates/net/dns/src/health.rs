//! `/health` while the process lives, `/ready` once the informers have synced, `/metrics`.

use std::sync::Arc;

use base_task::Tasks;
use client::Client;
use component::{Endpoints, Page, text_page};
use http::StatusCode;
use tokio::net::TcpListener;

use crate::server::Server;

/// Serves the pages.
pub(crate) fn serve_health(
    listener: TcpListener,
    client: &Client,
    server: &Arc<Server>,
    tasks: &Tasks,
) {
    let alive = || text_page(StatusCode::OK, "OK");
    let mut endpoints =
        Endpoints::new().with_fallback(|| text_page(StatusCode::NOT_FOUND, "not found"));
    for path in ["/health", "/healthz", "/livez"] {
        endpoints = endpoints.with_page(path, alive);
    }
    for path in ["/ready", "/readyz"] {
        let server = server.clone();
        endpoints = endpoints.with_page(path, move || readiness_page(server.view.has_synced()));
    }
    let server = server.clone();
    endpoints = endpoints.with_client_metrics(client, move || server.write_metrics());
    endpoints.serve_pages("health", listener, base_serve::Options::default(), tasks);
}

fn readiness_page(synced: bool) -> Page {
    if synced {
        text_page(StatusCode::OK, "OK")
    } else {
        text_page(StatusCode::SERVICE_UNAVAILABLE, "informers have not synced")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_a_server_without_objects_names_the_informers() {
        for (synced, status, body) in [
            (true, StatusCode::OK, "OK"),
            (
                false,
                StatusCode::SERVICE_UNAVAILABLE,
                "informers have not synced",
            ),
        ] {
            let page = readiness_page(synced);
            assert_eq!(page.status(), status);
            assert!(format!("{page:?}").contains(body), "{page:?}");
        }
    }
}
