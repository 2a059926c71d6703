//! HTTP pages beside gRPC: `/health`, `/livez`, `/readyz`, `/version`, `/metrics`.

use crate::health;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use kv_config::API_VERSION;
use kv_rpc::{ServerContext, metrics_page};
use proto_etcd::etcdserverpb::AlarmType;

type Page = Response<Full<Bytes>>;

fn make_page(code: StatusCode, kind: &'static str, body: String) -> Page {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Handles a request that is not gRPC.
pub(crate) async fn respond_page<B>(core: &ServerContext, request: &Request<B>) -> Page {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return make_page(
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            "Method Not Allowed\n".to_owned(),
        );
    }
    // Not behind authentication, as in etcd: the pages contain no keys or values.
    let query = Query(request.uri().query().unwrap_or_default());
    match request.uri().path() {
        "/health" => health_page(core, &query).await,
        "/version" => {
            let body = serde_json::json!({
                "etcdserver": API_VERSION, "etcdcluster": "3.6.0", "storage": "3.6.0",
                "kvstore": env!("CARGO_PKG_VERSION"),
            });
            make_page(StatusCode::OK, JSON, body.to_string())
        }
        "/metrics" => make_page(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            metrics_page(core),
        ),
        path => match parse_probe(path) {
            Some((ready, only)) => checks_page(core, ready, only, &query).await,
            None => not_found(),
        },
    }
}

fn not_found() -> Page {
    make_page(
        StatusCode::NOT_FOUND,
        TEXT,
        "404 page not found\n".to_owned(),
    )
}

/// The query of a URL.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn has(&self, name: &str) -> bool {
        url::form_urlencoded::parse(self.0.as_bytes()).any(|(key, _)| key == name)
    }

    fn says(&self, name: &str, value: &str) -> bool {
        url::form_urlencoded::parse(self.0.as_bytes())
            .any(|(key, said)| key == name && said == value)
    }
}

/// Parses `/livez`, `/readyz` or the path of one of their checks. Returns whether it is about
/// readiness, and the name of the check.
fn parse_probe(path: &str) -> Option<(bool, Option<&str>)> {
    let (kind, only) = match path.strip_prefix('/')?.split_once('/') {
        Some((kind, only)) => (kind, Some(only)),
        None => (path.strip_prefix('/')?, None),
    };
    match kind {
        "livez" => Some((false, only)),
        "readyz" => Some((true, only)),
        _ => None,
    }
}

async fn health_page(core: &ServerContext, query: &Query<'_>) -> Page {
    let excluded = |alarm: AlarmType| query.says("exclude", alarm.as_str_name());
    let reason = health::find_unhealthy(core, query.says("serializable", "true"), excluded).await;
    let code = if reason.is_none() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let healthy = if reason.is_none() { "true" } else { "false" };
    let body = serde_json::json!({ "health": healthy, "reason": reason.unwrap_or_default() });
    make_page(code, JSON, body.to_string())
}

async fn checks_page(
    core: &ServerContext,
    ready: bool,
    only: Option<&str>,
    query: &Query<'_>,
) -> Page {
    let known = health::health_checks(ready);
    let selected: Vec<_> = match only {
        Some(only) => known
            .iter()
            .copied()
            .filter(|check| check.name() == only)
            .collect(),
        None => known
            .iter()
            .copied()
            .filter(|check| !query.says("exclude", check.name()))
            .collect(),
    };
    if only.is_some() && selected.is_empty() {
        return not_found();
    }
    let mut lines = String::new();
    let mut fine = true;
    for check in selected {
        let name = check.name();
        match health::run_check(core, check).await {
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(reason) => {
                fine = false;
                lines += &format!("[-]{name} failed: {reason}\n");
            }
        }
    }
    match (fine, query.has("verbose")) {
        (true, false) => make_page(StatusCode::OK, TEXT, "ok\n".to_owned()),
        (true, true) => make_page(StatusCode::OK, TEXT, lines + "ok\n"),
        (false, _) => make_page(StatusCode::SERVICE_UNAVAILABLE, TEXT, lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_read_as_etcd_reads_them() {
        assert_eq!(parse_probe("/livez"), Some((false, None)));
        assert_eq!(
            parse_probe("/readyz/data_corruption"),
            Some((true, Some("data_corruption")))
        );
        assert_eq!(parse_probe("/healthz"), None);
        let query = Query("verbose&exclude=NOSPACE&exclude=linearizable%5Fread");
        assert!(
            query.has("verbose")
                && query.says("exclude", "NOSPACE")
                && query.says("exclude", "linearizable_read")
        );
        assert!(!query.has("serializable") && !query.says("exclude", "CORRUPT"));
    }
}
