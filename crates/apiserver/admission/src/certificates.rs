//! Certificates: records the requester, authorizes approvers, signers and writers of trust bundles,
//! and rejects forbidden subjects.

use crate::context::{Context, forbidden_error, string_at};
use api_meta::certificate_request::{CertificateRequest, RequestError};
use api_meta::status::Cause;
use api_meta::tree::get;
use api_meta::{ApiError, semantic};
use apiserver_request::{Admission, AdmissionRequest, Attributes, Decision, Operation};
use base64::Engine;
use serde_json::{Value, json};

const GROUP: &str = "certificates.k8s.io";

fn is_request(request: &AdmissionRequest<'_>, subresource: &str, operation: Operation) -> bool {
    request.group == GROUP
        && request.resource == "certificatesigningrequests"
        && request.subresource == subresource
        && request.operation == operation
}

/// Parses the certificate request of a CertificateSigningRequest with the same parser as the
/// signer.
pub fn read_request(object: &Value) -> Result<CertificateRequest, RequestError> {
    // A parser that reads more leniently than the signer's could admit a subject that it has not
    // seen.
    let pem = base64::engine::general_purpose::STANDARD.decode(string_at(object, "/spec/request"));
    CertificateRequest::from_pem(&pem.map_err(|_| RequestError::BlockType)?)
}

/// Writes the requester into each new request. Always on: the signer relies on it.
pub struct Requester;

#[async_trait::async_trait]
impl Admission for Requester {
    fn name(&self) -> &'static str {
        "CertificateRequester"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_request(request, "", Operation::Create) {
            return Ok(());
        }
        let user = request.user;
        let spec = &mut request.object["spec"];
        // Overwritten whatever the client sent: approvers decide by these fields, which must be
        // authentic.
        spec["username"] = user.name.clone().into();
        spec["groups"] = json!(user.groups);
        // Absent instead of empty, as upstream omits them; a value that the client sent is removed.
        for (field, value) in [("uid", json!(user.uid)), ("extra", json!(user.extra))] {
            if value != json!("") && value != json!({}) {
                spec[field] = value;
            } else if let Some(map) = spec.as_object_mut() {
                map.remove(field);
            }
        }
        Ok(())
    }
}

impl Context {
    async fn may_for_signer(
        &self,
        request: &AdmissionRequest<'_>,
        verb: &str,
        signer: &str,
    ) -> bool {
        // A role can grant all signers of a domain by DOMAIN/*.
        let wildcard = signer
            .split_once('/')
            .map(|(domain, _)| format!("{domain}/*"))
            .unwrap_or_default();
        for name in [signer, wildcard.as_str()] {
            let attributes = Attributes {
                user: request.user.clone(),
                verb: verb.into(),
                group: GROUP.into(),
                // Signers exist only as an authorization resource, so no version is theirs.
                version: "*".into(),
                resource: "signers".into(),
                name: name.to_owned(),
                is_resource: true,
                ..Attributes::default()
            };
            let decision = self.authorizer.authorize(&attributes).await;
            if matches!(decision, Decision::Allow(_)) {
                return true;
            }
        }
        false
    }
}

/// Requires the verb `approve` on the signer for an approval.
pub struct CertificateApproval(pub Context);

#[async_trait::async_trait]
impl Admission for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_request(request, "approval", Operation::Update) {
            return Ok(());
        }
        // The spec is immutable, so that this is the stored signer.
        let signer = string_at(&request.object, "/spec/signerName");
        if self.0.may_for_signer(request, "approve", signer).await {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!("user not permitted to approve requests with signerName {signer:?}"),
        ))
    }
}

/// Requires the verb `sign` on the signer for issuing.
pub struct CertificateSigning(pub Context);

#[async_trait::async_trait]
impl Admission for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_request(request, "status", Operation::Update) {
            return Ok(());
        }
        let old = request.old.as_ref().unwrap_or(&Value::Null);
        let same = |pointer: &str| old.pointer(pointer) == request.object.pointer(pointer);
        // Only the issued certificate and a failure are the signer's acts.
        if same("/status/certificate") && same("/status/conditions") {
            return Ok(());
        }
        // The stored signer: the new object must not choose whose permission counts.
        let signer = string_at(old, "/spec/signerName");
        if self.0.may_for_signer(request, "sign", signer).await {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!("user not permitted to sign requests with signerName {signer:?}"),
        ))
    }
}

/// Requires the verb `sign` on the signer for a change of a PodCertificateRequest's status. Always
/// on: upstream checks it in the strategy of the kind.
pub struct PodCertificateSigning(pub Context);

#[async_trait::async_trait]
impl Admission for PodCertificateSigning {
    fn name(&self) -> &'static str {
        "PodCertificateSigning"
    }

    // After validation, whose errors come first.
    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let writes = (request.resource, request.subresource, request.operation)
            == ("podcertificaterequests", "status", Operation::Update);
        if request.group != GROUP || !writes {
            return Ok(());
        }
        let old = request.old.as_ref().unwrap_or(&Value::Null);
        if semantic::equal(get(old, "status"), get(&request.object, "status")) {
            return Ok(());
        }
        // The stored signer, as for CertificateSigningRequests.
        let signer = string_at(old, "/spec/signerName");
        if self.0.may_for_signer(request, "sign", signer).await {
            return Ok(());
        }
        let user = &request.user.name;
        let cause = Cause {
            reason: "FieldValueForbidden".into(),
            message: format!(
                "Forbidden: User {user:?} is not permitted to \"sign\" for signer {signer:?}"
            ),
            field: "spec.signerName".into(),
        };
        let name = request.name;
        Err(ApiError::invalid(GROUP, request.kind, name, vec![cause]))
    }
}

/// Requires the verb `attest` on the signer of a ClusterTrustBundle: its certificates are trusted
/// for all that the signer signs.
pub struct TrustBundleAttest(pub Context);

#[async_trait::async_trait]
impl Admission for TrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if !writes || request.group != GROUP || request.resource != "clustertrustbundles" {
            return Ok(());
        }
        // The new signer: validation rejects its change.
        let signer = string_at(&request.object, "/spec/signerName");
        // Storage migration and garbage collection change nothing that the signer vouches for.
        if signer.is_empty()
            || request.changes_collection_fields_only()
            || self.0.may_for_signer(request, "attest", signer).await
        {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!("user not permitted to attest for signerName {signer:?}"),
        ))
    }
}

/// Rejects certificates for members of `system:masters`.
pub struct SubjectRestriction;

#[async_trait::async_trait]
impl Admission for SubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        // It issues client certificates of the API server for any subject; the signer for kubelets
        // demands a node's identity.
        const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
        if !is_request(request, "", Operation::Create)
            || string_at(&request.object, "/spec/signerName") != SIGNER
        {
            return Ok(());
        }
        // An unreadable request can't be checked, so it is rejected; otherwise an unknown subject
        // could pass.
        let read = read_request(&request.object).map_err(|error| {
            let cause = Cause {
                reason: "FieldValueInvalid".into(),
                message: format!("Invalid value: {error}"),
                field: "spec.request".into(),
            };
            ApiError::invalid(GROUP, request.kind, request.name, vec![cause])
        })?;
        if read
            .organizations
            .iter()
            .any(|group| group == "system:masters")
        {
            return Err(forbidden_error(
                request,
                format!("use of {SIGNER} signer with system:masters group is not allowed"),
            ));
        }
        Ok(())
    }
}
