//! Documents of extension servers.

use api_openapi::RemotePaths;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A document as an extension server sent it.
#[derive(Default)]
pub struct Fetched {
    /// The content.
    pub body: Bytes,
    /// The entity tag, or an empty text.
    pub tag: String,
}

/// The last known OpenAPI document of version 2.
#[derive(Clone)]
pub struct RemoteDocument {
    /// Hash of the whole document.
    pub hash: String,
    /// The paths of the APIService, and what they refer to.
    pub paths: Arc<RemotePaths>,
    /// The entity tag, or an empty text.
    pub tag: String,
}

impl RemoteDocument {
    /// Parses the document of the server of a group version.
    ///
    /// # Errors
    /// It is no JSON, or too large.
    pub fn parse(fetched: Fetched, group: &str, version: &str) -> Result<Self, String> {
        let document = serde_json::from_slice(&fetched.body).map_err(|e| e.to_string())?;
        let paths = RemotePaths::extract(document, group, version).map_err(|e| e.to_string())?;
        Ok(RemoteDocument {
            hash: format!("{:x}", Sha256::digest(&fetched.body)),
            paths: Arc::new(paths),
            tag: fetched.tag,
        })
    }
}
