//! `/openapi/v2` and `/openapi/v3`: documents are built on the first request and cached in
//! compressed form until a definition of a custom resource changes them.

use crate::aggregation::RemoteDocument;
use crate::body::{Body, shared_body};
use crate::context::Context;
use crate::negotiate;
use crate::respond;
use api_meta::{ApiError, Reason};
use api_openapi::{CustomResources, gnostic, v2, v3};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, LOCATION, VARY,
};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

const V2: &str = "v2";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// The OpenAPI documents of extension servers.
pub struct RemoteOpenApi {
    /// Entries of the index of documents of version 3.
    pub paths: Vec<(String, Value)>,
    /// Documents of version 2.
    pub documents: Vec<RemoteDocument>,
}

/// Cached documents by path and encoding.
pub struct OpenApi {
    documents: Mutex<HashMap<(String, bool), Arc<Document>>>,
    /// Bounds the memory of concurrent builds. The document of version 2 may take seconds, so the
    /// others do not wait for it.
    building: [Semaphore; 2],
}

/// The input of a document.
struct Sources {
    custom: CustomResources,
    remote: Vec<RemoteDocument>,
}

struct Document {
    compressed: Bytes,
    /// The plain form, as long as a response has it: clients that read slowly share one copy of
    /// some megabytes.
    plain: Mutex<Weak<Vec<u8>>>,
    /// Hash of what the document was built from.
    hash: String,
}

/// A shared plain form.
struct Plain(Arc<Vec<u8>>);

impl AsRef<[u8]> for Plain {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Document {
    fn plain_bytes(&self) -> Bytes {
        let mut known = self.plain.lock();
        let plain = known.upgrade().unwrap_or_else(|| {
            let mut bytes = Vec::new();
            // Can't fail: this process compressed the data.
            let _ = GzDecoder::new(&*self.compressed).read_to_end(&mut bytes);
            let plain = Arc::new(bytes);
            *known = Arc::downgrade(&plain);
            plain
        });
        Bytes::from_owner(Plain(plain))
    }
}

impl Default for OpenApi {
    fn default() -> Self {
        OpenApi {
            documents: Mutex::default(),
            building: [Semaphore::new(1), Semaphore::new(1)],
        }
    }
}

impl OpenApi {
    /// Responds to OpenAPI paths.
    pub async fn respond_openapi(
        &self,
        context: &Context,
        parts: &[&str],
        custom: CustomResources,
        remote: RemoteOpenApi,
    ) -> Result<Option<Response<Body>>, ApiError> {
        match parts {
            ["openapi", "v2"] => {
                let response = self.respond_v2(context, custom, remote.documents);
                response.await.map(Some)
            }
            ["openapi", "v3"] => {
                let mut paths = v3::index_paths(&custom);
                paths.extend(remote.paths);
                let index = json!({"paths": paths});
                Ok(Some(respond::plain_json(200, &index)))
            }
            ["openapi", "v3", rest @ ..] => self.respond_v3(context, &rest.join("/"), custom).await,
            _ => Ok(None),
        }
    }

    async fn respond_v2(
        &self,
        context: &Context,
        custom: CustomResources,
        remote: Vec<RemoteDocument>,
    ) -> Result<Response<Body>, ApiError> {
        let protobuf = wants_protobuf(context, "spec.v2")?;
        let hash = v2::hash(&custom, remote.iter().map(|document| &*document.hash));
        let sources = Sources { custom, remote };
        let document = self.load_document(V2, protobuf, hash, sources).await?;
        Ok(send_document(
            context,
            &document,
            if protobuf {
                V2_PROTOBUF
            } else {
                negotiate::JSON
            },
        ))
    }

    async fn respond_v3(
        &self,
        context: &Context,
        path: &str,
        custom: CustomResources,
    ) -> Result<Option<Response<Body>>, ApiError> {
        let Some(current) = v3::hash(path, &custom) else {
            return Ok(None);
        };
        let requested = context.query.first("hash");
        // The index of a client may be older than this server. The redirect leads to the current
        // one.
        if requested.is_some_and(|requested| requested != current) {
            return Ok(Some(redirect_to_hash(path, &current)));
        }
        let protobuf = wants_protobuf(context, "spec.v3")?;
        let sources = Sources {
            custom,
            remote: Vec::new(),
        };
        let document = self.load_document(path, protobuf, current, sources).await?;
        let mut response = send_document(
            context,
            &document,
            if protobuf {
                V3_PROTOBUF
            } else {
                negotiate::JSON
            },
        );
        if requested.is_some() {
            // The URL contains the content's hash, so the document at this URL never changes.
            let year = jiff::Timestamp::now().as_second() + 365 * 24 * 3600;
            let expires = jiff::Timestamp::from_second(year).unwrap_or_default();
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            if let Ok(value) =
                HeaderValue::from_str(&expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
            {
                headers.insert(EXPIRES, value);
            }
        }
        Ok(Some(response))
    }

    /// Returns the document with that hash, and builds it if it isn't cached.
    async fn load_document(
        &self,
        path: &str,
        protobuf: bool,
        hash: String,
        sources: Sources,
    ) -> Result<Arc<Document>, ApiError> {
        let key = (path.to_owned(), protobuf);
        if let Some(document) = self.find_document(&key, &hash) {
            return Ok(document);
        }
        let failed = || ApiError::internal("the document could not be made");
        let [first, second] = &self.building;
        let building = if path == V2 { first } else { second };
        let _permit = building.acquire().await.map_err(|_| failed())?;
        // Another request may have built the document meanwhile.
        if let Some(document) = self.find_document(&key, &hash) {
            return Ok(document);
        }
        let served = v3::index_paths(&sources.custom);
        let path = path.to_owned();
        // Building a document takes long, and would stall other requests of the thread.
        let built =
            tokio::task::spawn_blocking(move || build_document(&path, protobuf, hash, &sources))
                .await
                .ok()
                .flatten();
        let document = Arc::new(built.ok_or_else(failed)?);
        let mut documents = self.documents.lock();
        // Documents of versions that are no longer served.
        documents.retain(|(path, _), _| path == V2 || served.contains_key(path));
        documents.insert(key, document.clone());
        Ok(document)
    }

    fn find_document(&self, key: &(String, bool), hash: &str) -> Option<Arc<Document>> {
        let documents = self.documents.lock();
        let found = documents.get(key)?;
        (found.hash == hash).then(|| found.clone())
    }
}

fn build_document(path: &str, protobuf: bool, hash: String, sources: &Sources) -> Option<Document> {
    let tree = if path == V2 {
        let mut tree = v2::document(&sources.custom);
        for document in &sources.remote {
            document.paths.merge_into(&mut tree);
        }
        tree
    } else {
        v3::document(path, &sources.custom)?
    };
    let bytes = match (protobuf, path) {
        (false, _) => serde_json::to_vec(&tree).ok()?,
        (true, V2) => gnostic::version2(&tree),
        (true, _) => gnostic::version3(&tree),
    };
    // Only this form is kept: most clients accept it, and the plain one is several times larger.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&bytes).ok()?;
    Some(Document {
        compressed: encoder.finish().ok()?.into(),
        plain: Mutex::default(),
        hash,
    })
}

fn wants_protobuf(context: &Context, name: &str) -> Result<bool, ApiError> {
    let accept = context.header("accept");
    if accept.trim().is_empty() {
        return Ok(false);
    }
    let form = |media_type: &str| match media_type {
        negotiate::JSON | "*/*" | "application/*" => Some(false),
        other
            if other.starts_with("application/com.github.proto-openapi.")
                && other.contains(name) =>
        {
            Some(true)
        }
        _ => None,
    };
    let found = negotiate::parse_ranges(accept)
        .iter()
        .find_map(|range| form(&range.media_type));
    found.ok_or_else(|| {
        ApiError::new(
            Reason::NotAcceptable,
            "only JSON and protobuf documents are served here",
        )
    })
}

fn send_document(context: &Context, document: &Document, media_type: &str) -> Response<Body> {
    let mut response = respond::raw_response(200, media_type, "");
    let headers = response.headers_mut();
    let tag = format!("\"{}\"", document.hash);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if context.header("if-none-match") == tag {
        headers.remove(CONTENT_TYPE);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else if context.header("accept-encoding").contains("gzip") {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        *response.body_mut() = shared_body(document.compressed.clone());
    } else {
        *response.body_mut() = shared_body(document.plain_bytes());
    }
    response
}

fn redirect_to_hash(path: &str, hash: &str) -> Response<Body> {
    let mut response = respond::text_response(301, "");
    if let Ok(value) = HeaderValue::from_str(&format!("/openapi/v3/{path}?hash={hash}")) {
        response.headers_mut().insert(LOCATION, value);
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn readers_of_the_plain_document_share_it() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"{\"openapi\":\"3.0.0\"}").unwrap();
        let document = Document {
            compressed: encoder.finish().unwrap().into(),
            plain: Mutex::default(),
            hash: String::new(),
        };
        let (first, second) = (document.plain_bytes(), document.plain_bytes());
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert_eq!(first, &b"{\"openapi\":\"3.0.0\"}"[..]);
        drop((first, second));
        assert!(
            document.plain.lock().upgrade().is_none(),
            "kept without a reader"
        );
    }
}
