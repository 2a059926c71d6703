//! Rejects creates in namespaces that do not exist or are being deleted, and the deletion of three
//! system namespaces.

use crate::context::{Context, forbidden_error, string_at};
use api_meta::status::Cause;
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest, GroupResource, Operation};

// Clients and components rely on these namespaces, and a restart of the API server creates them
// again without their former content.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Enforces the lifecycle of namespaces.
pub struct NamespaceLifecycle(pub Context);

#[async_trait::async_trait]
impl Admission for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check_request(request).await
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.operation == Operation::Delete {
            self.check_request(request).await
        } else {
            Ok(())
        }
    }
}

impl NamespaceLifecycle {
    async fn check_request(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.group.is_empty() && request.resource == "namespaces" {
            // Other writes to namespaces are always allowed, or none could be finalized.
            let deleted = request.operation == Operation::Delete && request.subresource.is_empty();
            if deleted && IMMORTAL.contains(&request.name) {
                return Err(forbidden_error(
                    request,
                    "this namespace may not be deleted",
                ));
            }
            return Ok(());
        }
        // A review answers for any namespace. A 404 would tell which namespaces exist.
        let review = request.group == "authorization.k8s.io"
            && request.resource == "localsubjectaccessreviews";
        if request.namespace.is_empty() || request.operation == Operation::Delete || review {
            return Ok(());
        }
        self.check_namespace(request).await
    }

    async fn check_namespace(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let namespaces = GroupResource::new("", "namespaces");
        let mut found = self
            .0
            .objects
            .cached_object(&namespaces, "", request.namespace);
        // A client may create an object right after its namespace, before the cache has the latter.
        if found.is_none() {
            found = self
                .0
                .objects
                .read_live(&namespaces, "", request.namespace)
                .await?
                .map(std::sync::Arc::new);
        }
        let Some(namespace) = found else {
            return Err(ApiError::not_found("", "namespaces", request.namespace));
        };
        // Controllers must still update and finalize the content of a terminating namespace.
        if request.operation != Operation::Create {
            return Ok(());
        }
        // The deletion timestamp as well: the phase follows it only after a write of the status.
        if string_at(&namespace, "/status/phase") == "Terminating" || namespace.is_being_deleted() {
            return Err(terminating_error(request));
        }
        Ok(())
    }
}

fn terminating_error(request: &AdmissionRequest<'_>) -> ApiError {
    let namespace = request.namespace;
    let mut error = forbidden_error(
        request,
        format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
    );
    // Controllers look for this cause: they stop retrying instead of logging an error for each
    // object.
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    }
    error
}
