//! Requests for one resource, whatever the type of its objects.

use bytes::Bytes;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;

use crate::accept::Accept;
use crate::client::{Client, Request};
use crate::error::{Error, Result};
use crate::list::continue_token;
use crate::object::ApiResource;
use crate::params::{ListParams, Query};
use crate::watch::WatchLines;

/// A resource of an API server: all objects, or those of a namespace.
#[derive(Clone)]
pub(crate) struct Collection {
    pub(crate) client: Client,
    pub(crate) resource: ApiResource,
    pub(crate) namespace: Option<String>,
    pub(crate) accept: Accept,
}

/// Decodes a page of a list, keeps its objects, and returns its metadata.
pub(crate) type PageFn<'a> = &'a mut (dyn FnMut(&[u8]) -> serde_json::Result<ListMeta> + Send);

fn escape_segment(segment: &str) -> String {
    // Characters that RFC 3986 allows in a segment and that names use; RBAC names contain colons.
    const KEEP: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b':');
    percent_encoding::utf8_percent_encode(segment, KEEP).to_string()
}

impl Collection {
    pub(crate) fn path(&self) -> String {
        let root = self.resource.root_path();
        match &self.namespace {
            Some(namespace) => {
                format!(
                    "{root}/namespaces/{}/{}",
                    escape_segment(namespace),
                    self.resource.plural
                )
            }
            None => format!("{root}/{}", self.resource.plural),
        }
    }

    pub(crate) fn item_path(&self, name: &str) -> String {
        format!("{}/{}", self.path(), escape_segment(name))
    }

    pub(crate) fn build_request(&self, method: Method, path: String) -> Request {
        Request::new(method, path).with_accept(self.accept.object)
    }

    pub(crate) async fn fetch_page(
        &self,
        params: &ListParams,
        continue_: Option<&str>,
    ) -> Result<Bytes> {
        let mut query = Query::default();
        params.list_query(&mut query, continue_);
        let request = Request::new(Method::GET, query.append_to(self.path()));
        self.client
            .bytes(request.with_accept(self.accept.list))
            .await
    }

    /// Reads all pages, if `params` or the server pages the result. Returns the metadata of the
    /// last: the pages of a list have one version.
    pub(crate) async fn read_pages(
        &self,
        params: &ListParams,
        decode: PageFn<'_>,
    ) -> Result<ListMeta> {
        let mut token = None;
        loop {
            let bytes = self.fetch_page(params, token.as_deref()).await?;
            let metadata = decode(&bytes).map_err(|source| self.describe_list_error(source))?;
            token = continue_token(&metadata);
            if token.is_none() {
                return Ok(metadata);
            }
        }
    }

    pub(crate) fn describe_list_error(&self, source: serde_json::Error) -> Error {
        Error::Decode {
            what: format!("a list of {}", self.resource.plural),
            source,
        }
    }

    /// Watches from a resource version on, for at most `timeout_seconds`.
    pub(crate) async fn watch(
        &self,
        params: &ListParams,
        resource_version: &str,
        timeout_seconds: u32,
    ) -> Result<WatchLines> {
        let mut query = Query::default();
        query.push("watch", "true");
        // Bookmarks keep the version of a quiet watch young enough to resume from.
        query.push("allowWatchBookmarks", "true");
        query.push("timeoutSeconds", &timeout_seconds.to_string());
        params.push_selectors(&mut query);
        // Always explicit: a watch without version starts with synthetic events for the existing
        // objects.
        query.push("resourceVersion", resource_version);
        let request = self.build_request(Method::GET, query.append_to(self.path()));
        let head = self.client.send(request);
        // Only the response head is limited in time; the stream itself lasts for minutes.
        let limit = self.client.config().timeout;
        let response = tokio::time::timeout(limit, head)
            .await
            .map_err(|_| Error::Timeout {
                what: format!("watch of {}", self.resource.plural),
                after: limit,
            })??;
        Ok(WatchLines::new(response, self.resource.plural.clone()))
    }
}
