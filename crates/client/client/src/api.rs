//! Requests for one kind.

use std::marker::PhantomData;

use http::Method;
use k8s_openapi::api::autoscaling::v1::Scale;
use serde::Serialize;

use crate::accept::Accept;
use crate::client::{Body, Client, Request};
use crate::collection::Collection;
use crate::decode::{Decode, Encode};
use crate::error::{Error, Result};
use crate::list::{List, continue_token};
use crate::object::{ApiResource, DynamicObject, Object, PartialObject};
use crate::params::{DeleteParams, ListParams, Patch, Query};
use crate::watch::Watch;

/// Requests on objects of kind `K`.
pub struct Api<K> {
    collection: Collection,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self::new(self.collection.clone())
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
        self.select(ApiResource::of_kind::<K>(), None, Accept::JSON)
    }

    /// Returns the requests for a kind in a namespace.
    pub fn namespaced<K: k8s_openapi::Resource>(&self, namespace: &str) -> Api<K> {
        self.select(ApiResource::of_kind::<K>(), Some(namespace), Accept::JSON)
    }

    /// Returns the requests for any kind, as unstructured objects.
    pub fn dynamic(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        self.select(resource.clone(), namespace, Accept::JSON)
    }

    /// Returns the requests for any kind, metadata only.
    pub fn metadata(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<PartialObject> {
        self.select(resource.clone(), namespace, Accept::METADATA)
    }

    fn select<K>(&self, resource: ApiResource, namespace: Option<&str>, accept: Accept) -> Api<K> {
        Api::new(Collection {
            client: self.clone(),
            resource,
            namespace: namespace.map(str::to_owned),
            accept,
        })
    }
}

impl<K> Api<K> {
    fn new(collection: Collection) -> Self {
        Self {
            collection,
            kind: PhantomData,
        }
    }

    pub(crate) fn into_collection(self) -> Collection {
        self.collection
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.collection.client
    }

    /// Returns the kind.
    pub fn resource(&self) -> &ApiResource {
        &self.collection.resource
    }

    /// Returns the same kind in another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self::new(Collection {
            namespace: Some(namespace.to_owned()),
            ..self.collection.clone()
        })
    }

    /// Returns the path of the collection.
    pub fn collection_path(&self) -> String {
        self.collection.path()
    }

    fn item_path(&self, name: &str) -> String {
        self.collection.item_path(name)
    }

    /// Reads the size of an object from its `/scale`.
    pub async fn read_scale(&self, name: &str) -> Result<Scale> {
        let path = format!("{}/scale", self.item_path(name));
        self.client().request(Request::get(path)).await
    }

    fn build_request(&self, method: Method, path: String) -> Request {
        self.collection.build_request(method, path)
    }

    async fn send_object<T: Decode>(&self, method: Method, path: String, body: Body) -> Result<T> {
        self.request_object(self.build_request(method, path).with_body(body))
            .await
    }

    async fn request_object<T: Decode>(&self, request: Request) -> Result<T> {
        let what = request.describe_request();
        let bytes = self.client().bytes(request).await?;
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
        let kind = &self.resource().kind;
        let mut whole = List::default();
        let mut add = |bytes: &[u8]| {
            let page = K::decode_list(bytes, kind)?;
            Ok(whole.append_page(page))
        };
        let metadata = self.collection.read_pages(params, &mut add).await?;
        Ok(List { metadata, ..whole })
    }

    /// Lists one page.
    pub async fn page(&self, params: &ListParams, continue_: Option<&str>) -> Result<List<K>> {
        let bytes = self.collection.fetch_page(params, continue_).await?;
        K::decode_list(&bytes, &self.resource().kind)
            .map_err(|source| self.collection.describe_list_error(source))
    }

    /// Counts the objects. If the server returns `remainingItemCount`, that takes a list with limit
    /// 1.
    ///
    /// # Errors
    /// The list request fails.
    pub async fn count(&self) -> Result<usize> {
        let page = self.page(&ListParams::new().with_limit(1), None).await?;
        let here = page.items.len() + page.undecodable.len();
        match (
            continue_token(&page.metadata),
            page.metadata.remaining_item_count,
        ) {
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
        let lines = self
            .collection
            .watch(params, resource_version, timeout_seconds);
        Ok(Watch::new(lines.await?))
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
        self.client()
            .bytes(request.with_body(Body::json(&params.body())?))
            .await
            .map(drop)
    }

    /// Deletes every object that `which` selects.
    pub async fn delete_collection(&self, params: &DeleteParams, which: &ListParams) -> Result<()> {
        let mut query = Query::default();
        which.push_selectors(&mut query);
        let request = Request::new(Method::DELETE, query.append_to(self.collection_path()));
        self.client()
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
