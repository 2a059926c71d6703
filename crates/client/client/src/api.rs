//! Requests for one kind.

use std::marker::PhantomData;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::{Body, Client, Request};
use crate::decode::{self, Decode};
use crate::error::{Error, Result};
use crate::object::{ApiResource, Object, key_of};
use crate::params::{DeleteParams, ListParams, Patch, Query};
use crate::watch::Watch;

const PAGE: u32 = 500;

/// A list of objects at one resource version.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
pub struct List<K> {
    /// List metadata: `resourceVersion` is the version from which to watch, `continue` the token of
    /// the next page.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default = "Vec::new", deserialize_with = "null_as_empty")]
    pub items: Vec<K>,
    /// Keys (`namespace/name`) of objects that exist but can't be decoded.
    #[serde(skip)]
    pub(crate) undecodable: Vec<String>,
}

fn null_as_empty<'de, D, K>(deserializer: D) -> Result<Vec<K>, D::Error>
where
    D: serde::Deserializer<'de>,
    K: DeserializeOwned,
{
    Ok(Option::<Vec<K>>::deserialize(deserializer)?.unwrap_or_default())
}

impl<K> List<K> {
    /// Returns the resource version of the list.
    pub fn resource_version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// Decodes a page of objects of `kind`. An object that can't be decoded is logged and added to
    /// `undecodable`.
    pub(crate) fn decode_page(bytes: &[u8], kind: &str) -> serde_json::Result<Self>
    where
        K: DeserializeOwned,
    {
        // The common case costs one pass. Only if any object fails, all are decoded one by one from
        // a tree.
        if let Ok(list) = serde_json::from_slice(bytes) {
            return Ok(list);
        }
        let trees: List<Value> = serde_json::from_slice(bytes)?;
        let mut list = List {
            metadata: trees.metadata,
            items: Vec::new(),
            undecodable: Vec::new(),
        };
        for tree in trees.items {
            let key = key_of(&tree);
            match decode::from_tree(tree) {
                Ok(item) => list.items.push(item),
                Err(error) => {
                    tracing::error!(%kind, object = key, %error, "object can't be decoded");
                    list.undecodable.push(key);
                }
            }
        }
        Ok(list)
    }

    fn continue_token(&self) -> Option<String> {
        self.metadata
            .continue_
            .clone()
            .filter(|token| !token.is_empty())
    }
}

/// Media types to accept. A server that returns metadata only distinguishes lists from objects by
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    /// For objects, including those in watch events.
    pub(crate) object: &'static str,
    /// For lists.
    pub(crate) list: &'static str,
}

impl Accept {
    pub(crate) const JSON: Self = Self {
        object: "application/json",
        list: "application/json",
    };
    pub(crate) const METADATA: Self = Self {
        object: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    };
}

/// Requests on objects of kind `K`.
pub struct Api<K> {
    client: Client,
    resource: ApiResource,
    namespace: Option<String>,
    accept: Accept,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self::new(
            self.client.clone(),
            self.resource.clone(),
            self.namespace.clone(),
            self.accept,
        )
    }
}

impl<K> std::fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Api").field(&self.collection_path()).finish()
    }
}

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

impl<K> Api<K> {
    pub(crate) fn new(
        client: Client,
        resource: ApiResource,
        namespace: Option<String>,
        accept: Accept,
    ) -> Self {
        Self {
            client,
            resource,
            namespace,
            accept,
            kind: PhantomData,
        }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the kind.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Returns the same kind in another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self.clone()
        }
    }

    /// Returns the path of the collection.
    pub fn collection_path(&self) -> String {
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

    fn item_path(&self, name: &str) -> String {
        format!("{}/{}", self.collection_path(), escape_segment(name))
    }

    fn build_request(&self, method: Method, path: String) -> Request {
        Request::new(method, path).with_accept(self.accept.object)
    }

    async fn send_object<T: Decode>(&self, method: Method, path: String, body: Body) -> Result<T> {
        self.request_object(self.build_request(method, path).with_body(body))
            .await
    }

    async fn request_object<T: Decode>(&self, request: Request) -> Result<T> {
        let what = request.describe_request();
        let bytes = self.client.bytes(request).await?;
        T::decode_object(&bytes).map_err(|source| Error::Decode { what, source })
    }
}

impl<K: Object> Api<K> {
    /// Reads an object.
    pub async fn get(&self, name: &str) -> Result<K> {
        self.request_object(self.build_request(Method::GET, self.item_path(name)))
            .await
    }

    /// Reads an object. Returns `None` if it does not exist.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        match self.get(name).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Lists all pages, if `params` or the server pages the result.
    ///
    /// An object that can't be decoded is omitted and logged by name.
    pub async fn list(&self, params: &ListParams) -> Result<List<K>> {
        let mut whole = self.page(params, None).await?;
        while let Some(token) = whole.continue_token() {
            let page = self.page(params, Some(&token)).await?;
            whole.items.extend(page.items);
            whole.undecodable.extend(page.undecodable);
            // The pages of a list have one version; the last page has no token, which ends the
            // loop.
            whole.metadata = page.metadata;
        }
        Ok(whole)
    }

    /// Lists the newest state in pages of 500, for relists of unknown size.
    pub(crate) async fn list_paged(&self, params: &ListParams) -> Result<List<K>> {
        let params = ListParams {
            limit: params.limit.or(Some(PAGE)),
            ..params.clone()
        };
        self.list(&params).await
    }

    /// Lists one page.
    pub async fn page(&self, params: &ListParams, continue_: Option<&str>) -> Result<List<K>> {
        let mut query = Query::default();
        params.list_query(&mut query, continue_);
        let path = query.append_to(self.collection_path());
        let bytes = self
            .client
            .bytes(Request::new(Method::GET, path).with_accept(self.accept.list))
            .await?;
        K::decode_list(&bytes, &self.resource.kind).map_err(|source| Error::Decode {
            what: format!("a list of {}", self.resource.plural),
            source,
        })
    }

    /// Counts the objects. If the server returns `remainingItemCount`, that takes a list with limit
    /// 1.
    ///
    /// # Errors
    /// The list request fails.
    pub async fn count(&self) -> Result<usize> {
        let page = self.page(&ListParams::new().with_limit(1), None).await?;
        let here = page.items.len() + page.undecodable.len();
        match (page.continue_token(), page.metadata.remaining_item_count) {
            (None, _) => Ok(here),
            (_, Some(rest)) => Ok(here + usize::try_from(rest).unwrap_or(0)),
            // The server omits the number with selectors, for instance; then only a complete list
            // helps.
            (_, None) => self
                .list(&ListParams::new())
                .await
                .map(|all| all.items.len() + all.undecodable.len()),
        }
    }

    /// Watches from a resource version on. Requests bookmarks; `timeout_seconds` limits the
    /// duration of the watch.
    pub async fn watch(
        &self,
        params: &ListParams,
        resource_version: &str,
        timeout_seconds: u32,
    ) -> Result<Watch<K>> {
        let mut query = Query::default();
        query.push("watch", "true");
        // Bookmarks keep the version of a quiet watch young enough to resume from.
        query.push("allowWatchBookmarks", "true");
        query.push("timeoutSeconds", &timeout_seconds.to_string());
        params.push_selectors(&mut query);
        // Always explicit: a watch without version starts with synthetic events for the existing
        // objects.
        query.push("resourceVersion", resource_version);
        let request = self.build_request(Method::GET, query.append_to(self.collection_path()));
        let head = self.client.send(request);
        // Only the response head is limited in time; the stream itself lasts for minutes.
        let limit = self.client.config().timeout;
        let response = tokio::time::timeout(limit, head)
            .await
            .map_err(|_| Error::Timeout {
                what: format!("watch of {}", self.resource.plural),
                after: limit,
            })??;
        Ok(Watch::new(
            response.into_body(),
            self.resource.plural.clone(),
        ))
    }

    /// Creates an object.
    pub async fn create(&self, object: &K) -> Result<K> {
        self.send_object(Method::POST, self.collection_path(), Body::json(object)?)
            .await
    }

    /// Replaces an object. If its resource version is set, it must be the current one.
    pub async fn update(&self, object: &K) -> Result<K> {
        let path = self.item_path(name_of(object)?);
        self.send_object(Method::PUT, path, Body::json(object)?)
            .await
    }

    /// Replaces an object's status.
    pub async fn update_status(&self, object: &K) -> Result<K> {
        let path = format!("{}/status", self.item_path(name_of(object)?));
        self.send_object(Method::PUT, path, Body::json(object)?)
            .await
    }

    /// Patches an object.
    pub async fn patch(&self, name: &str, patch: &Patch) -> Result<K> {
        self.patch_path(self.item_path(name), patch).await
    }

    /// Patches an object's status.
    pub async fn patch_status(&self, name: &str, patch: &Patch) -> Result<K> {
        self.patch_path(format!("{}/status", self.item_path(name)), patch)
            .await
    }

    /// Patches a subresource.
    pub async fn patch_subresource(
        &self,
        name: &str,
        subresource: &str,
        patch: &Patch,
    ) -> Result<K> {
        self.patch_path(format!("{}/{subresource}", self.item_path(name)), patch)
            .await
    }

    async fn patch_path(&self, path: String, patch: &Patch) -> Result<K> {
        let mut query = Query::default();
        patch.push_query(&mut query);
        let body = Body::encode_as(patch.content_type(), patch.body())?;
        self.send_object(Method::PATCH, query.append_to(path), body)
            .await
    }

    /// Deletes an object. It remains until its finalizers are removed and its grace period has
    /// passed.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<()> {
        let request = Request::new(Method::DELETE, self.item_path(name));
        self.client
            .bytes(request.with_body(Body::json(&params.body())?))
            .await
            .map(drop)
    }

    /// Deletes every object that `which` selects.
    pub async fn delete_collection(&self, params: &DeleteParams, which: &ListParams) -> Result<()> {
        let mut query = Query::default();
        which.push_selectors(&mut query);
        let request = Request::new(Method::DELETE, query.append_to(self.collection_path()));
        self.client
            .bytes(request.with_body(Body::json(&params.body())?))
            .await
            .map(drop)
    }

    /// Reads a subresource (`scale`, `status`, ...).
    pub async fn subresource_get<R: Decode>(&self, name: &str, subresource: &str) -> Result<R> {
        let path = format!("{}/{subresource}", self.item_path(name));
        self.request_object(self.build_request(Method::GET, path))
            .await
    }

    /// Posts to a subresource (`binding`, `eviction`, `token`, ...).
    pub async fn subresource_create<T, R>(
        &self,
        name: &str,
        subresource: &str,
        body: &T,
    ) -> Result<R>
    where
        T: Serialize,
        R: Decode,
    {
        let path = format!("{}/{subresource}", self.item_path(name));
        self.send_object(Method::POST, path, Body::json(body)?)
            .await
    }

    /// Replaces a subresource (`scale`, `finalize`, `approval`, ...).
    pub async fn subresource_update<T, R>(
        &self,
        name: &str,
        subresource: &str,
        body: &T,
    ) -> Result<R>
    where
        T: Serialize,
        R: Decode,
    {
        let path = format!("{}/{subresource}", self.item_path(name));
        self.send_object(Method::PUT, path, Body::json(body)?).await
    }
}

/// Kinds that can only be created, such as `TokenReview` and `SubjectAccessReview`.
impl<K: Serialize + Decode> Api<K> {
    /// Creates an object without a name. Returns the server's response.
    pub async fn review(&self, object: &K) -> Result<K> {
        self.send_object(Method::POST, self.collection_path(), Body::json(object)?)
            .await
    }
}

fn name_of<K: Object>(object: &K) -> Result<&str> {
    object
        .meta()
        .name
        .as_deref()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| Error::Config("the object has no name".into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Config;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    fn client() -> Client {
        Client::new(Config::builder("http://localhost"))
    }

    #[test]
    fn names_are_escaped_in_paths() {
        let maps = client().namespaced::<ConfigMap>("n");
        assert_eq!(
            maps.item_path("system:a.b-c_d~"),
            "/api/v1/namespaces/n/configmaps/system:a.b-c_d~"
        );
        assert_eq!(
            maps.item_path("a/../b?c"),
            "/api/v1/namespaces/n/configmaps/a%2F..%2Fb%3Fc"
        );
        assert_eq!(
            client().api::<Namespace>().item_path("n"),
            "/api/v1/namespaces/n"
        );
        assert_eq!(
            client().api::<ConfigMap>().collection_path(),
            "/api/v1/configmaps"
        );
    }

    #[test]
    fn list_with_null_items_is_empty() {
        let list = List::<ConfigMap>::decode_page(
            br#"{"metadata":{"resourceVersion":"3"},"items":null}"#,
            "ConfigMap",
        );
        let list = list.unwrap();
        assert_eq!((list.items.len(), list.resource_version()), (0, "3"));
    }

    #[test]
    fn undecodable_object_of_a_list_is_kept_by_key() {
        let text = br#"{"metadata":{},"items":[{"metadata":{"namespace":"n","name":"a"},"data":5},
            {"metadata":{"namespace":"n","name":"b"}}]}"#;
        let list = List::<ConfigMap>::decode_page(text, "ConfigMap").unwrap();
        assert_eq!(list.undecodable, ["n/a"]);
        assert_eq!(list.items.len(), 1);
        assert!(List::<ConfigMap>::decode_page(b"5", "ConfigMap").is_err());
    }

    #[test]
    fn update_of_an_object_without_a_name_is_an_error() {
        assert!(name_of(&ConfigMap::default()).is_err());
    }
}
