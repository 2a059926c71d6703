//! Finalizers of storage objects in use, and the expansion of claims where their class allows it.

use crate::context::{Context, forbidden_error, is_for, list_at, push_item, string_at};
use api_meta::ApiError;
use api_semantics::quantities::parse_quantity;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;

/// Adds the protection finalizers.
pub struct InUseProtection;

#[async_trait::async_trait]
impl Admission for InUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.operation != Operation::Create || !request.subresource.is_empty() {
            return Ok(());
        }
        // Set at creation: added later by a controller, a deletion could come first and remove a
        // volume in use.
        let finalizer = match (request.group, request.resource) {
            ("", "persistentvolumeclaims") => "kubernetes.io/pvc-protection",
            ("", "persistentvolumes") => "kubernetes.io/pv-protection",
            ("storage.k8s.io", "volumeattributesclasses") => "kubernetes.io/vac-protection",
            _ => return Ok(()),
        };
        if !list_at(&request.object, "/metadata/finalizers")
            .iter()
            .any(|f| f == finalizer)
        {
            push_item(
                &mut request.object["metadata"],
                "finalizers",
                finalizer.into(),
            );
        }
        Ok(())
    }
}

/// Checks expansions of claims.
pub struct ClaimResize(pub Context);

#[async_trait::async_trait]
impl Admission for ClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "", "persistentvolumeclaims") || request.operation != Operation::Update
        {
            return Ok(());
        }
        let Some(old) = &request.old else {
            return Ok(());
        };
        let size = |v: &Value| {
            v.pointer("/spec/resources/requests/storage")
                .and_then(parse_quantity)
        };
        let (Some(before), Some(after)) = (size(old), size(&request.object)) else {
            return Ok(());
        };
        // Validation decides about shrinking.
        if after <= before {
            return Ok(());
        }
        if string_at(old, "/status/phase") != "Bound" {
            return Err(forbidden_error(
                request,
                "Only bound persistent volume claims can be expanded",
            ));
        }
        let class = string_at(&request.object, "/spec/storageClassName");
        let class = self
            .0
            .find_object("storage.k8s.io", "storageclasses", "", class)
            .await?;
        // Checked before the write: a claim that no driver can expand would wait forever for its
        // new size.
        if class.is_some_and(|c| c.get("allowVolumeExpansion") == Some(&Value::Bool(true))) {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ))
    }
}
