//! Refuses new instances of definitions that are being deleted.

use crate::backlog::Backlog;
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use std::sync::Arc;

/// Upstream's message.
const REFUSAL: &str = "create not allowed while custom resource definition is terminating";

/// The check. Not a plugin that a flag could disable: an instance that is created behind the
/// cleanup would remain in the store.
pub struct TerminatingGuard(pub Arc<Backlog>);

#[async_trait::async_trait]
impl Admission for TerminatingGuard {
    fn name(&self) -> &'static str {
        "CustomResourceDefinitionTerminating"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check(request)
    }

    // Again after the mutating webhooks, which may take long.
    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        self.check(request)
    }
}

impl TerminatingGuard {
    fn check(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let creates = request.operation == Operation::Create && request.subresource.is_empty();
        if creates && self.0.is_terminating(request.group, request.resource) {
            return Err(ApiError::forbidden(
                request.group,
                request.resource,
                request.name,
                REFUSAL,
            ));
        }
        Ok(())
    }
}
