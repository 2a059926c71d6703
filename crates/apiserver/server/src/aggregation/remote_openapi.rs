//! The OpenAPI documents of extension servers.

use super::probe::{TIMEOUT, fetch, find_probe_target, request_document};
use super::remote_document::RemoteDocument;
use crate::server::Server;
use api_meta::tree::{get, text};
use apiserver_aggregator::ExtensionServer;
use apiserver_request::User;
use futures::FutureExt;
use std::sync::Arc;

/// Maximum length of a document's hash. Upstream's has 128 digits.
const MAX_HASH: usize = 256;

/// Requests the OpenAPI documents of an extension server in the background, unless the former
/// requests still run: a slow server must not delay the checks of others. A failure does not make
/// the server unavailable.
pub fn start_update(server: &Arc<Server>, remote: &Arc<ExtensionServer>) {
    let mut is_free = false;
    record(server, remote, |known| {
        is_free = !std::mem::replace(&mut known.is_updating, true);
    });
    if !is_free {
        return;
    }
    let (server, remote) = (server.clone(), remote.clone());
    let tasks = server.tasks.clone();
    tasks.spawn_isolated("OpenAPI of an extension server", async move {
        let work = std::panic::AssertUnwindSafe(update(&server, &remote)).catch_unwind();
        let ended = server.tasks.shutdown().run_until_cancelled(work).await;
        record(&server, &remote, |known| known.is_updating = false);
        if let Some(Err(panic)) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

async fn update(server: &Server, remote: &ExtensionServer) {
    let known = server.aggregation.openapi_v2_of(&remote.name);
    let tag = known.as_ref().map(|known| known.tag_for(&remote.service));
    let (hash, document) = tokio::join!(
        request_hash(server, remote),
        request_paths(server, remote, tag.unwrap_or_default())
    );
    record(server, remote, |known| known.openapi = hash);
    match document {
        Ok(Some(document)) => record(server, remote, |known| known.openapi_v2 = Some(document)),
        Ok(None) => {}
        // The last known document stays, as upstream.
        Err(why) => {
            let name = &remote.name;
            tracing::debug!(why, name, "an extension server has no OpenAPI v2");
        }
    }
}

/// Upstream's user of requests for OpenAPI documents. Extension servers let each user read them.
fn reader() -> User {
    User {
        name: "system:aggregator".into(),
        ..User::default()
    }
}

fn record(server: &Server, remote: &ExtensionServer, change: impl FnOnce(&mut super::Discovered)) {
    let mut discovered = server.aggregation.discovered.lock();
    // Without an entry, the APIService was deleted meanwhile.
    discovered.get_mut(&remote.name).map(change);
}

/// Returns the hash of the version's document of version 3; `None` if the server has none.
async fn request_hash(server: &Server, remote: &ExtensionServer) -> Option<String> {
    let index = "/openapi/v3";
    let target = find_probe_target(server, remote, &reader(), index.to_owned()).ok()?;
    let url = format!("https://{}{index}", target.address());
    let request = request_document(server, &target, &url);
    let document = tokio::time::timeout(TIMEOUT, request).await.ok()?.ok()?;
    let path = remote.path();
    let entry = get(get(&document, "paths"), path.trim_start_matches('/'));
    find_hash(text(entry, "serverRelativeURL")).map(str::to_owned)
}

/// Returns the value of `hash` in a URL, which becomes a part of a URL of this server.
fn find_hash(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&');
    let hash = pairs.find_map(|pair| pair.strip_prefix("hash="))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    (hash.len() <= MAX_HASH && hash.bytes().all(is_plain)).then_some(hash)
}

/// Returns the document of version 2; `None` if it is still the one with the entity tag `known`.
async fn request_paths(
    server: &Server,
    remote: &ExtensionServer,
    known: &str,
) -> Result<Option<RemoteDocument>, String> {
    let path = "/openapi/v2";
    let target = find_probe_target(server, remote, &reader(), path.to_owned())?;
    let url = format!("https://{}{path}", target.address());
    let request = fetch(server, &target, &url, known);
    let fetched = tokio::time::timeout(TIMEOUT, request)
        .await
        .map_err(|_| format!("timed out waiting for {url}"))?;
    let Some(fetched) = fetched? else {
        return Ok(None);
    };
    let (group, version) = (remote.group.clone(), remote.version.clone());
    let service = remote.service.clone();
    // A large document would stall other requests of the thread.
    let parsed = tokio::task::spawn_blocking(move || {
        RemoteDocument::parse(fetched, (&group, &version), service)
    });
    let parsed = parsed.await.map_err(|e| e.to_string())?;
    parsed.map(Some).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_document_is_plain_text() {
        for (url, expect) in [
            ("/openapi/v3/apis/a/v1?hash=A1B2", Some("A1B2")),
            ("/openapi/v3/apis/a/v1?x=1&hash=A1", Some("A1")),
            ("/openapi/v3/apis/a/v1", None),
            ("/openapi/v3/apis/a/v1?hash=a\"b", None),
            ("/openapi/v3/apis/a/v1?hash=a#b", None),
        ] {
            assert_eq!(find_hash(url), expect, "{url}");
        }
        assert_eq!(find_hash(&format!("/?hash={}", "a".repeat(257))), None);
    }
}
