//! The parsed request path.

/// The parsed path and method, as `RequestInfo` in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// True under `/api/VERSION` and `/apis/GROUP/VERSION` when a resource is named.
    pub is_resource: bool,
    /// The whole path, as sent.
    pub path: String,
    /// API verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`,
    /// `proxy`) or the lower-cased method.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty when cluster-scoped or across namespaces.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// Object name, empty for collections.
    pub name: String,
    /// True for `/namespaces/NAMESPACE/RESOURCE...`; false for a namespace itself and its
    /// subresources.
    pub below_namespace: bool,
    /// The path after the subresource as it was sent: empty, or with its leading slash. Proxies
    /// forward it.
    pub rest: String,
}
