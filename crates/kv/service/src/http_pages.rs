//! The pages beside gRPC: `/health`, `/livez`, `/readyz`, `/version`, `/metrics`.

use crate::core::Core;
use crate::health;
use crate::settings::API_VERSION;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

type Page = Response<Full<Bytes>>;

fn page(code: StatusCode, kind: &'static str, body: String) -> Page {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers a request that is not gRPC.
pub(crate) async fn answer<B>(core: &Core, request: &Request<B>) -> Page {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n".to_owned());
    }
    let query = request.uri().query().unwrap_or_default();
    let has = |word: &str| query.split('&').any(|part| part == word);
    match request.uri().path() {
        "/health" => health(core, has("serializable=true")).await,
        "/livez" => checked(core, false, has("verbose")).await,
        "/readyz" => checked(core, true, has("verbose")).await,
        "/version" => {
            let body = serde_json::json!({
                "etcdserver": API_VERSION, "etcdcluster": "3.6.0", "storage": "3.6.0",
                "kvstore": env!("CARGO_PKG_VERSION"),
            });
            page(StatusCode::OK, JSON, body.to_string())
        }
        "/metrics" => page(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", core.meters.page(core)),
        _ => page(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".to_owned()),
    }
}

async fn health(core: &Core, serializable: bool) -> Page {
    let reason = health::unhealthy(core, serializable).await;
    let code = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let healthy = if reason.is_none() { "true" } else { "false" };
    let body = serde_json::json!({ "health": healthy, "reason": reason.unwrap_or_default() });
    page(code, JSON, body.to_string())
}

async fn checked(core: &Core, ready: bool, verbose: bool) -> Page {
    let mut lines = String::new();
    let mut fine = true;
    for (name, result) in health::checks(core, ready).await {
        match result {
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(reason) => {
                fine = false;
                lines += &format!("[-]{name} failed: {reason}\n");
            }
        }
    }
    match (fine, verbose) {
        (true, false) => page(StatusCode::OK, TEXT, "ok\n".to_owned()),
        (true, true) => page(StatusCode::OK, TEXT, lines + "ok\n"),
        (false, _) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, lines),
    }
}
