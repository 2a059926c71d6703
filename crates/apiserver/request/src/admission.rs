//! Admission: mutates or rejects a request after authorization and before it is persisted.

use crate::{Reinvocation, User, Warnings};
use api_meta::ApiError;
use api_meta::semantic::equal_except;
use api_meta::tree::get;
use serde_json::Value;

/// The operation of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// A new object, or a POST to a subresource.
    Create,
    /// PUT or PATCH.
    Update,
    /// DELETE of one object (deletecollection runs it for each).
    Delete,
    /// exec, attach, portforward, proxy.
    Connect,
}

impl Operation {
    /// Returns the name in reviews and rules: `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A write, with the full old and new objects.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// Operation.
    pub operation: Operation,
    /// User.
    pub user: &'a User,
    /// API group, empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural resource name.
    pub resource: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Kind of `object`.
    pub kind: &'a str,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// Name; empty for creates with generateName until the name is generated.
    pub name: &'a str,
    /// Create, Update, Connect: the new object (for Connect, the options). Delete: null.
    pub object: Value,
    /// Update, Delete: the stored object.
    pub old: Option<Value>,
    /// The request's options object (DeleteOptions, CreateOptions, ...), or null.
    pub options: Value,
    /// Dry run: nothing will be stored.
    pub dry_run: bool,
    /// Warnings for the client, sent as headers.
    pub warnings: Warnings,
    /// State of the second pass of the mutating plugins.
    pub reinvocation: Reinvocation,
}

impl AdmissionRequest<'_> {
    /// Returns whether an update changes only fields that garbage collection writes. The garbage
    /// collector changes them of any object without holding the object's rights.
    pub fn changes_collection_fields_only(&self) -> bool {
        const COLLECTION: [&str; 4] =
            ["ownerReferences", "finalizers", "managedFields", "selfLink"];
        let Some(old) = &self.old else {
            return false;
        };
        let new = &self.object;
        equal_except(old, new, &["metadata"])
            && equal_except(get(old, "metadata"), get(new, "metadata"), &COLLECTION)
    }
}

/// One admission plugin. Mutating plugins run first, in the table's order, then the validating
/// ones.
#[async_trait::async_trait]
pub trait Admission: Send + Sync {
    /// Returns the plugin's name as in `--enable-admission-plugins`.
    fn name(&self) -> &'static str;
    /// Mutates or rejects; may change `request.object`.
    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let _ = request;
        Ok(())
    }
    /// Validates the final object.
    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let _ = request;
        Ok(())
    }
}
