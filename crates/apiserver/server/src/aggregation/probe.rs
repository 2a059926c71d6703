//! Requests of the API server itself to extension servers.

use super::TargetError;
use super::remote_document::FetchedDocument;
use crate::connect::Target;
use crate::proxy;
use crate::server::Server;
use apiserver_aggregator::ExtensionServer;
use apiserver_request::User;
use bytes::Bytes;
use http::header::{ACCEPT, ETAG, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use serde_json::Value;
use std::time::Duration;

/// Timeout of one request.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a document.
const MAX_DOCUMENT: usize = 2 * 1024 * 1024;
/// Maximum length of an entity tag. Upstream's has 128 digits.
const MAX_TAG: usize = 256;

/// Returns the destination of a request to an extension server.
pub fn find_probe_target(
    server: &Server,
    remote: &ExtensionServer,
    user: &User,
    path: String,
) -> Result<Target, String> {
    let (aggregation, kubelets) = (&server.aggregation, &server.kubelets);
    let target = aggregation.find_target(kubelets, &*server.caches, remote, user, path);
    target.map_err(|e| match e {
        TargetError::Unresolved(why) | TargetError::Unusable(why) => why,
    })
}

/// Returns a document; null if it is no JSON.
pub async fn request_document(
    server: &Server,
    target: &Target,
    url: &str,
) -> Result<Value, String> {
    let fetched = fetch(server, target, url, "").await?.unwrap_or_default();
    // A document of another form is no failure: the server responds.
    Ok(serde_json::from_slice(&fetched.body).unwrap_or_default())
}

/// Returns a document; `None` if it is still the one with the entity tag `known`.
pub async fn fetch(
    server: &Server,
    target: &Target,
    url: &str,
    known: &str,
) -> Result<Option<FetchedDocument>, String> {
    let failed = |why: String| format!("Get {url:?}: {why}");
    let mut sender = proxy::dial_target(&server.tasks, target)
        .await
        .map_err(|e| failed(e.message))?;
    let mut request = Request::builder()
        .uri(&target.path)
        .body(Empty::<Bytes>::new())
        .map_err(|e| failed(e.to_string()))?;
    *request.headers_mut() = probe_headers(target);
    if let Some(known) = HeaderValue::from_str(known)
        .ok()
        .filter(|tag| !tag.is_empty())
    {
        request.headers_mut().insert(IF_NONE_MATCH, known);
    }
    let response = sender
        .send_request(request)
        .await
        .map_err(|_| failed("EOF".into()))?;
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED && !known.is_empty() {
        return Ok(None);
    }
    if !status.is_success() {
        return Err(format!("bad status from {url}: {}", status.as_u16()));
    }
    let tag = response
        .headers()
        .get(ETAG)
        .and_then(|tag| tag.to_str().ok());
    let tag = tag
        .filter(|tag| tag.len() <= MAX_TAG)
        .unwrap_or_default()
        .to_owned();
    let body = Limited::new(response.into_body(), MAX_DOCUMENT)
        .collect()
        .await
        .map_err(|_| failed("the document is too large or incomplete".into()))?;
    let body = body.to_bytes();
    Ok(Some(FetchedDocument { body, tag }))
}

fn probe_headers(target: &Target) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-aggregator"));
    if let Ok(host) = HeaderValue::from_str(&target.address()) {
        headers.insert(HOST, host);
    }
    if let Some(extension) = &target.extension {
        headers.extend(extension.identity.clone());
    }
    headers
}
