//! Documents of extension servers.

use api_openapi::{RemotePaths, RemotePathsError};
use apiserver_webhook_client::ServiceName;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A document as an extension server sent it.
#[derive(Default)]
pub struct FetchedDocument {
    /// The content.
    pub body: Bytes,
    /// The entity tag, or an empty text.
    pub tag: String,
}

/// The last known OpenAPI document of version 2.
#[derive(Clone)]
pub struct RemoteDocument {
    /// Hash of the whole document, group and version.
    pub hash: String,
    /// The paths of the APIService, and the definitions that they refer to.
    pub paths: Arc<RemotePaths>,
    /// The entity tag, or an empty text.
    tag: String,
    service: ServiceName,
}

impl RemoteDocument {
    /// Parses the document that a Service sent for a group version.
    ///
    /// # Errors
    /// It is no JSON, or too large.
    pub fn parse(
        fetched: FetchedDocument,
        (group, version): (&str, &str),
        service: ServiceName,
    ) -> Result<Self, RemotePathsError> {
        let paths = RemotePaths::extract(&fetched.body, group, version)?;
        // A server has one document for all its versions.
        let mut hash = Sha256::new();
        hash.update(format!("{group}/{version}\n"));
        hash.update(&fetched.body);
        Ok(RemoteDocument {
            hash: format!("{:x}", hash.finalize()),
            paths: Arc::new(paths),
            tag: fetched.tag,
            service,
        })
    }

    /// Returns the entity tag for the Service that sent the document; empty for another one.
    pub fn tag_for(&self, service: &ServiceName) -> &str {
        if self.service == *service {
            &self.tag
        } else {
            ""
        }
    }
}
