//! The pages of a component's own server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use base_task::Tasks;
use base_tls::CertificateFiles;
use base_zpages::{FLAGZ, FlagValues, Process, STATUSZ};
use bytes::Bytes;
use client::Client;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;

use crate::certificate_metric::append_expirations;
use crate::delegated::DelegatedAccess;

/// A complete response.
pub type Page = Response<Full<Bytes>>;

type Render = Box<dyn Fn() -> Page + Send + Sync>;

/// A named check of `/readyz`.
pub struct Check {
    name: &'static str,
    failure: &'static str,
    passes: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Check {
    /// Returns a check with upstream's name and the text of its failure.
    pub fn new(
        name: &'static str,
        failure: &'static str,
        passes: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            failure,
            passes: Box::new(passes),
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

/// Pages by path, and the access check in front of them.
#[derive(Default)]
pub struct Endpoints {
    pages: HashMap<&'static str, Render>,
    missing: Option<Render>,
    zpages: Option<ZPages>,
    protection: Option<Protection>,
}

/// Facts that `/statusz` and `/flagz` show.
struct ZPages {
    component: &'static str,
    flags: FlagValues,
}

struct Protection {
    access: DelegatedAccess,
    /// Paths that need no authorization; a trailing `*` matches any rest.
    open: Vec<String>,
}

impl Endpoints {
    /// Returns a server without pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a page. It is rendered for every request.
    #[must_use]
    pub fn with_page(
        mut self,
        path: &'static str,
        render: impl Fn() -> Page + Send + Sync + 'static,
    ) -> Self {
        self.pages.insert(path, Box::new(render));
        self
    }

    /// Adds `/healthz` and `/livez`, which pass while the process responds, and `/readyz`, which
    /// passes if all checks do.
    ///
    /// Nothing else can fail while the process responds: a failed task ends the process.
    #[must_use]
    pub fn with_health(self, checks: Vec<Check>) -> Self {
        let ok = || text_page(StatusCode::OK, "ok");
        self.with_page("/healthz", ok)
            .with_page("/livez", ok)
            .with_page("/readyz", move || report_checks(&checks))
    }

    /// Adds `/metrics`.
    #[must_use]
    pub fn with_metrics(self, encode: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.with_page("/metrics", move || text_page(StatusCode::OK, encode()))
    }

    /// Adds `/metrics`, with the expiration of the client's certificate.
    #[must_use]
    pub fn with_client_metrics(
        self,
        client: &Client,
        encode: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        self.with_certificate_metrics(client, CertificateFiles::default(), encode)
    }

    /// Adds `/metrics`, with the expirations of the client's certificate and of `files`.
    #[must_use]
    pub fn with_certificate_metrics(
        self,
        client: &Client,
        files: CertificateFiles,
        encode: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let client = client.clone();
        self.with_metrics(move || append_expirations(encode(), &client, &files))
    }

    /// Adds `/statusz` and `/flagz` under the component's name.
    #[must_use]
    pub fn with_zpages(mut self, component: &'static str, flags: FlagValues) -> Self {
        self.zpages = Some(ZPages { component, flags });
        self
    }

    /// Sets the response for unknown paths.
    #[must_use]
    pub fn with_fallback(mut self, render: impl Fn() -> Page + Send + Sync + 'static) -> Self {
        self.missing = Some(Box::new(render));
        self
    }

    /// Lets authorized callers only read the pages, unknown ones too, except those in `open`.
    #[must_use]
    pub fn with_protection(mut self, access: DelegatedAccess, open: Vec<String>) -> Self {
        self.protection = Some(Protection { access, open });
        self
    }

    /// Serves in the background until the tasks' shutdown, as the critical task `name`.
    pub fn serve_pages(
        self,
        name: &'static str,
        listener: TcpListener,
        options: base_serve::Options,
        tasks: &Tasks,
    ) {
        let endpoints = Arc::new(self);
        let service = service_fn(move |request: Request<Incoming>| {
            let endpoints = endpoints.clone();
            async move {
                let (path, headers) = (request.uri().path(), request.headers());
                Ok::<_, Infallible>(endpoints.respond_to(request.method(), path, headers).await)
            }
        });
        // Critical: a component whose health cannot be checked is restarted by its supervisor
        // anyway.
        let shutdown = tasks.shutdown().clone();
        tasks.spawn_critical(
            name,
            base_serve::serve_http(listener, options, service, shutdown),
        );
    }

    async fn respond_to(&self, method: &Method, path: &str, headers: &HeaderMap) -> Page {
        if let Some(Protection { access, open }) = &self.protection
            && !is_open(open, path)
        {
            match access.check_path(headers, path).await {
                StatusCode::OK => {}
                StatusCode::UNAUTHORIZED => {
                    return text_page(StatusCode::UNAUTHORIZED, "Unauthorized");
                }
                other => return text_page(other, "Forbidden"),
            }
        }
        // Protection comes first, so that a caller without permission cannot find out which pages
        // exist.
        if let Some(page) = self.respond_zpage(method, path, headers) {
            return page;
        }
        match self.pages.get(path).or(self.missing.as_ref()) {
            Some(render) => render(),
            None => text_page(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }

    /// Responds to `/statusz` and `/flagz`; `None` for other paths and without these pages.
    fn respond_zpage(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Page> {
        let ZPages { component, flags } = self.zpages.as_ref()?;
        if !matches!(path, STATUSZ | FLAGZ) {
            return None;
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Some(text_page(status, "405: Method Not Allowed"));
        }
        let accept = headers.get(header::ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok());
        let accept = accept.unwrap_or_default();
        let response = if path == FLAGZ {
            base_zpages::respond_flagz(component, flags, accept)
        } else {
            let paths = self.pages.keys().copied().chain([FLAGZ]);
            base_zpages::respond_statusz(component, Process::read(), paths, accept)
        };
        Some(response.map(|body| Full::new(body.into())))
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pages.keys()).finish()
    }
}

/// Returns a page of plain text.
pub fn text_page(status: StatusCode, body: impl Into<Bytes>) -> Page {
    build_page(status, "text/plain; charset=utf-8", body.into())
}

/// Returns a page of JSON.
pub fn json_page(status: StatusCode, body: &serde_json::Value) -> Page {
    build_page(status, "application/json", body.to_string().into())
}

fn build_page(status: StatusCode, media_type: &'static str, body: Bytes) -> Page {
    let mut page = Response::new(Full::new(body));
    *page.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    page.headers_mut().insert(header::CONTENT_TYPE, media_type);
    page
}

/// Returns whether a path needs no authorization.
fn is_open(open: &[String], path: &str) -> bool {
    open.iter().any(|allowed| match allowed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == allowed,
    })
}

/// Reports the failed checks, or `ok`.
fn report_checks(checks: &[Check]) -> Page {
    let failed: Vec<String> = checks
        .iter()
        // Only failed checks are listed, without their reasons: the page needs no authorization.
        .filter(|check| !(check.passes)())
        .map(|check| format!("[-]{} failed: {}", check.name, check.failure))
        .collect();
    if failed.is_empty() {
        return text_page(StatusCode::OK, "ok");
    }
    text_page(StatusCode::INTERNAL_SERVER_ERROR, failed.join("\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicBool, Ordering};

    use client::{Client, Config};
    use http_body_util::BodyExt;

    use super::*;
    use crate::delegated::AnswerLifetimes;

    async fn get(endpoints: &Endpoints, path: &str) -> (u16, String) {
        request(endpoints, Method::GET, path).await
    }

    async fn request(endpoints: &Endpoints, method: Method, path: &str) -> (u16, String) {
        let page = endpoints.respond_to(&method, path, &HeaderMap::new()).await;
        let status = page.status().as_u16();
        let body = page.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
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

    #[tokio::test]
    async fn readiness_fails_with_the_name_of_the_failed_check() {
        let synced = Arc::new(AtomicBool::new(false));
        let seen = synced.clone();
        let sync = Check::new("informer-sync", "not all have synced", move || {
            seen.load(Ordering::Relaxed)
        });
        let endpoints = Endpoints::new().with_health(vec![Check::new("ping", "", || true), sync]);
        let failure = "[-]informer-sync failed: not all have synced".to_owned();
        assert_eq!(get(&endpoints, "/readyz").await, (500, failure));
        for path in ["/healthz", "/livez"] {
            assert_eq!(
                get(&endpoints, path).await,
                (200, "ok".to_owned()),
                "{path}"
            );
        }
        synced.store(true, Ordering::Relaxed);
        assert_eq!(get(&endpoints, "/readyz").await, (200, "ok".to_owned()));
    }

    fn unreachable_reviews() -> DelegatedAccess {
        let unreachable = Client::new(Config::builder("http://127.0.0.1:1"));
        DelegatedAccess::new(unreachable.clone(), unreachable, AnswerLifetimes::default())
    }

    #[tokio::test]
    async fn zpages_show_the_paths_and_the_flags_without_secrets() {
        let flags = [("v", "2"), ("bootstrap-token", "s3cret")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let endpoints = Endpoints::new()
            .with_health(Vec::new())
            .with_metrics(String::new)
            .with_zpages("kube-x", flags.into_iter().collect());
        let (code, statusz) = get(&endpoints, STATUSZ).await;
        assert_eq!(code, 200);
        assert!(statusz.starts_with("\nkube-x statusz\n"), "{statusz}");
        let paths = "\nPaths: /flagz /healthz /livez /metrics /readyz\n";
        assert!(statusz.ends_with(paths), "{statusz}");
        let (code, flagz) = get(&endpoints, FLAGZ).await;
        assert_eq!(code, 200);
        assert!(
            flagz.ends_with("\nbootstrap-token=CLASSIFIED\nv=2\n"),
            "{flagz}"
        );
    }

    #[tokio::test]
    async fn zpages_need_credentials_and_only_reads_are_allowed() {
        let pages = || Endpoints::new().with_zpages("kube-x", FlagValues::default());
        let protected = pages().with_protection(unreachable_reviews(), Vec::new());
        for path in [STATUSZ, FLAGZ] {
            assert_eq!(get(&protected, path).await.0, 401, "{path}");
            for (method, code) in [
                (Method::GET, 200),
                (Method::HEAD, 200),
                (Method::POST, 405),
                (Method::PUT, 405),
                (Method::DELETE, 405),
            ] {
                let name = method.clone();
                assert_eq!(
                    request(&pages(), method, path).await.0,
                    code,
                    "{name} {path}"
                );
            }
            // A server of health checks has none of these pages.
            let health = Endpoints::new().with_health(Vec::new());
            assert_eq!(get(&health, path).await.0, 404, "{path}");
        }
    }

    #[tokio::test]
    async fn only_open_paths_need_no_credentials() {
        let access = unreachable_reviews();
        let pages = || {
            Endpoints::new()
                .with_health(Vec::new())
                .with_metrics(String::new)
        };
        let endpoints = pages().with_protection(access, vec!["/healthz".to_owned()]);
        for (path, protected, open) in [
            ("/healthz", 200, 200),
            ("/readyz", 401, 200),
            ("/metrics", 401, 200),
            ("/nonsense", 401, 404),
        ] {
            assert_eq!(get(&endpoints, path).await.0, protected, "{path}");
            assert_eq!(get(&pages(), path).await.0, open, "{path}");
        }
    }
}
