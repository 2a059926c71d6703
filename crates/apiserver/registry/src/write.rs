//! The context of a write: user, object, options.

use api_kinds::Resource;
use api_meta::{ApiError, Kind, time};
use api_validation::{FieldError, to_api_error, validate_review};
use apiserver_fields::{Versions, Writer};
use apiserver_request::{AdmissionRequest, Operation, User};
use serde_json::Value;
use std::sync::Arc;

/// The context of a write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The user who writes.
    pub user: User,
    /// The resource in the version that the client speaks.
    pub resource: Arc<Resource>,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name; empty for creates and deletecollection.
    pub name: String,
    /// `dryRun=All`.
    pub dry_run: bool,
    /// `fieldManager`, or the name from the user agent.
    pub manager: String,
    /// Server-side apply: the merge has already recorded ownership.
    pub applies: bool,
    /// The options object as JSON, for admission.
    pub options: Value,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

impl Write {
    /// Creates the context of a write by the server itself.
    pub fn internal(resource: &Arc<Resource>, namespace: &str, name: &str) -> Self {
        let groups = vec![User::MASTERS.to_owned(), "system:authenticated".to_owned()];
        Write {
            user: User {
                name: "system:apiserver".into(),
                groups,
                ..User::default()
            },
            resource: resource.clone(),
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            dry_run: false,
            manager: "kube-apiserver".into(),
            applies: false,
            options: Value::Null,
            warnings: Vec::new(),
        }
    }

    /// Returns the kind, for defaulting and validation.
    pub fn kind(&self) -> Kind<'_> {
        kind_of(&self.resource)
    }

    /// Calls `then` with this write's field manager; owners may use one of these versions.
    pub fn as_writer<T>(&self, versions: &Versions<'_>, then: impl FnOnce(&Writer<'_>) -> T) -> T {
        then(&Writer {
            manager: &self.manager,
            api_version: &self.resource.api_version(),
            subresource: &self.subresource,
            schema: &self.resource.schema,
            versions,
            ignored: self.ignored_fields(),
            now: &time::now(),
        })
    }

    /// Returns the fields that a write through this path does not set, so that it does
    /// not own them.
    fn ignored_fields(&self) -> &'static [&'static str] {
        match (
            self.subresource.as_str(),
            &*self.resource.group,
            &*self.resource.plural,
        ) {
            ("", "certificates.k8s.io", "certificatesigningrequests") => &["spec", "status"],
            // Upstream's storage resets nothing here, although the status is never taken.
            ("", "certificates.k8s.io", "podcertificaterequests") => &[],
            ("status", "certificates.k8s.io", "certificatesigningrequests") => {
                &["metadata", "spec", "status.conditions"]
            }
            // The stock server keeps the metadata of these, yet records no manager for it.
            ("status", "", "nodes") => &["metadata", "spec"],
            ("approval", "certificates.k8s.io", "certificatesigningrequests") => {
                &["spec", "status.certificate"]
            }
            ("status", "apps", "deployments") => &["spec", "metadata.labels"],
            ("status", "", "pods") => &[
                "spec",
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
            ],
            ("status", group, plural)
                if self.resource.is_custom() || resets_metadata(group, plural) =>
            {
                &["metadata", "spec"]
            }
            // As upstream's GetResetFields: a controller that writes the status must not own the
            // spec.
            ("status", ..) => &["spec"],
            // PUT of a whole object also carries the status, which only `/status` writes.
            ("", ..) if self.resource.subresource("status").is_some() => &["status"],
            _ => &[],
        }
    }

    /// Builds a 404 for this object.
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }

    /// Builds a 409 for this object.
    pub fn conflict_error(&self, why: &str) -> ApiError {
        ApiError::conflict(&self.resource.group, &self.resource.plural, &self.name, why)
    }

    /// Builds a 422 with these causes, if there are any.
    pub fn reject_invalid(&self, name: &str, errors: Vec<FieldError>) -> Result<(), ApiError> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(to_api_error(self.kind(), name, errors))
        }
    }

    /// Builds a 422 if this review, which is not stored, is not valid.
    pub fn reject_invalid_review(&self, review: &Value) -> Result<(), ApiError> {
        self.reject_invalid("", validate_review(self.kind(), review))
    }

    /// Builds the admission request.
    pub fn admission_request<'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        object: Value,
        old: Option<Value>,
    ) -> AdmissionRequest<'a> {
        let subresource = self.resource.subresource(&self.subresource);
        AdmissionRequest {
            operation,
            user: &self.user,
            group: &self.resource.group,
            version: &self.resource.version,
            resource: &self.resource.plural,
            subresource: &self.subresource,
            kind: subresource.map_or(&*self.resource.kind, |s| &*s.kind),
            namespace: &self.namespace,
            name,
            object,
            old,
            options: self.options.clone(),
            dry_run: self.dry_run,
            warnings: Default::default(),
            reinvocation: Default::default(),
        }
    }
}

/// Returns the kind of a resource, for the rules.
pub(crate) fn kind_of(resource: &Resource) -> Kind<'_> {
    Kind {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        namespaced: resource.namespaced,
    }
}

/// Returns whether a write of the status keeps the metadata of the object.
fn resets_metadata(group: &str, plural: &str) -> bool {
    match group {
        "admissionregistration.k8s.io"
        | "apiregistration.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "internal.apiserver.k8s.io"
        | "resource.k8s.io"
        | "storage.k8s.io"
        | "storagemigration.k8s.io" => true,
        "networking.k8s.io" => plural == "servicecidrs",
        "scheduling.k8s.io" => plural == "podgroups",
        _ => false,
    }
}
