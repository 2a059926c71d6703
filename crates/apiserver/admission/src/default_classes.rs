//! Sets the cluster's default class of claims and ingresses without a class.

use crate::context::{Context, is_for, string_at};
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;
use std::sync::Arc;

/// For PersistentVolumeClaims.
pub struct DefaultStorageClass(pub Context);
/// For Ingresses.
pub struct DefaultIngressClass(pub Context);

/// Returns the newest class that is marked as default; ties of the same second are broken by name.
fn newest_class(classes: Vec<Arc<Value>>, marks: &[&str]) -> Option<String> {
    let marked = |c: &Arc<Value>| marks.iter().any(|m| c.annotation(m) == Some("true"));
    let mut found: Vec<Arc<Value>> = classes.into_iter().filter(marked).collect();
    found.sort_by(|a, b| {
        // RFC 3339 times in UTC with a fixed width sort as text.
        let newer = b
            .meta_str("creationTimestamp")
            .cmp(a.meta_str("creationTimestamp"));
        newer.then_with(|| a.name().cmp(b.name()))
    });
    found.first().map(|c| c.name().to_owned())
}

#[async_trait::async_trait]
impl Admission for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "", "persistentvolumeclaims") || request.operation != Operation::Create
        {
            return Ok(());
        }
        // An empty name is a choice: it asks for a volume without a class and must not be replaced.
        let has_class = request
            .object
            .pointer("/spec/storageClassName")
            .is_some_and(|c| !c.is_null());
        if has_class
            || request
                .object
                // The older annotation names a class as well.
                .annotation("volume.beta.kubernetes.io/storage-class")
                .is_some()
        {
            return Ok(());
        }
        let marks = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if let Some(class) = newest_class(
            self.0.list_objects("storage.k8s.io", "storageclasses", ""),
            &marks,
        ) {
            request.object["spec"]["storageClassName"] = class.into();
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Admission for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "networking.k8s.io", "ingresses")
            || request.operation != Operation::Create
        {
            return Ok(());
        }
        // Controllers still obey the older annotation, and validation rejects a different class
        // beside it.
        let has_class = !string_at(&request.object, "/spec/ingressClassName").is_empty();
        if has_class
            || request
                .object
                .annotation("kubernetes.io/ingress.class")
                .is_some()
        {
            return Ok(());
        }
        let marks = ["ingressclass.kubernetes.io/is-default-class"];
        if let Some(class) = newest_class(
            self.0
                .list_objects("networking.k8s.io", "ingressclasses", ""),
            &marks,
        ) {
            request.object["spec"]["ingressClassName"] = class.into();
        }
        Ok(())
    }
}
