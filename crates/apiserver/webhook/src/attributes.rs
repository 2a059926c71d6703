//! The facts of a request that webhooks are matched with and that reviews report.

use crate::kinds::{GroupVersionKind, GroupVersionResource, Kinds};
use apiserver_request::{AdmissionRequest, Operation, User};
use serde_json::Value;

/// A request without its objects, which mutating webhooks change.
pub struct Attributes<'a> {
    /// Operation.
    pub operation: Operation,
    /// Resource.
    pub resource: GroupVersionResource,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Kind of the body.
    pub kind: GroupVersionKind,
    /// As upstream, a namespace is in itself.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// User.
    pub user: &'a User,
    /// Options of the request.
    pub options: Value,
    /// Dry run: nothing will be stored.
    pub dry_run: bool,
}

impl<'a> Attributes<'a> {
    /// Reads the facts of a request.
    pub fn new(request: &AdmissionRequest<'a>, kinds: &dyn Kinds) -> Self {
        let resource = GroupVersionResource::new(request.group, request.version, request.resource);
        // The body of a subresource may be of another group, such as Scale and Eviction.
        let mut kind = kinds
            .find_kind(&resource, request.subresource)
            .unwrap_or_else(|| GroupVersionKind::new(request.group, request.version, ""));
        if !request.kind.is_empty() {
            kind.kind = request.kind.to_owned();
        }
        let namespace = if is_namespace(&resource) {
            request.name
        } else {
            request.namespace
        };
        Attributes {
            operation: request.operation,
            resource,
            subresource: request.subresource,
            kind,
            namespace,
            name: request.name,
            user: request.user,
            options: request.options.clone(),
            dry_run: request.dry_run,
        }
    }

    /// Returns whether the request is for a namespace object.
    pub fn is_namespace(&self) -> bool {
        is_namespace(&self.resource)
    }
}

fn is_namespace(resource: &GroupVersionResource) -> bool {
    resource.group.is_empty() && resource.resource == "namespaces"
}
