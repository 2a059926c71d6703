//! Requests for one kind.

use std::marker::PhantomData;

use http::Method;
use k8s_openapi::api::autoscaling::v1::Scale;
use serde::Serialize;

use crate::accept::Accept;
use crate::client::{Body, Client, Request};
use crate::decode::{Decode, Encode};
use crate::error::{Error, Result};
use crate::list::List;
use crate::object::{ApiResource, DynamicObject, Object, PartialObject};
use crate::params::{DeleteParams, ListParams, Patch, Query};
use crate::watch::Watch;

const PAGE: u32 = 500;

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

impl Client {
    /// Returns the requests for a kind: cluster-scoped objects, or those of all namespaces.
    pub fn api<K: k8s_openapi::Resource>(&self) -> Api<K> {
        Api::new(
            self.clone(),
            ApiResource::of_kind::<K>(),
            None,
            Accept::JSON,
        )
    }

    /// Returns the requests for a kind in a namespace.
    pub fn namespaced<K: k8s_openapi::Resource>(&self, namespace: &str) -> Api<K> {
        Api::new(
            self.clone(),
            ApiResource::of_kind::<K>(),
            Some(namespace.to_owned()),
            Accept::JSON,
        )
    }

    /// Returns the requests for any kind, as unstructured objects.
    pub fn dynamic(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        Api::new(
            self.clone(),
            resource.clone(),
            namespace.map(str::to_owned),
            Accept::JSON,
        )
    }

    /// Returns the requests for any kind, metadata only.
    pub fn metadata(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<PartialObject> {
        Api::new(
            self.clone(),
            resource.clone(),
            namespace.map(str::to_owned),
            Accept::METADATA,
        )
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

    /// Reads the size of an object from its `/scale`.
    pub async fn read_scale(&self, name: &str) -> Result<Scale> {
        let path = format!("{}/scale", self.item_path(name));
        self.client.request(Request::get(path)).await
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
        self.send_object(Method::POST, self.collection_path(), Body::object(object)?)
            .await
    }

    /// Replaces an object. If its resource version is set, it must be the current one.
    pub async fn update(&self, object: &K) -> Result<K> {
        let path = self.item_path(name_of(object)?);
        self.send_object(Method::PUT, path, Body::object(object)?)
            .await
    }

    /// Replaces an object's status.
    pub async fn update_status(&self, object: &K) -> Result<K> {
        let path = format!("{}/status", self.item_path(name_of(object)?));
        self.send_object(Method::PUT, path, Body::object(object)?)
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
impl<K: Encode + Decode> Api<K> {
    /// Creates an object without a name. Returns the server's response.
    pub async fn review(&self, object: &K) -> Result<K> {
        self.send_object(Method::POST, self.collection_path(), Body::object(object)?)
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
