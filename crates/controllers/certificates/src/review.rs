//! Reviews of a requester's rights: they decide about an approval, not the controller's.

use client::{Client, Error};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

/// Returns whether the requester may create this virtual subresource of certificate requests.
pub async fn may_request(client: &Client, csr: &Csr, subresource: &str) -> Result<bool, Error> {
    let attributes = ResourceAttributes {
        group: Some("certificates.k8s.io".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        subresource: Some(subresource.to_owned()),
        verb: Some("create".to_owned()),
        version: Some("*".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: csr.spec.username.clone(),
        groups: csr.spec.groups.clone(),
        uid: csr.spec.uid.clone(),
        extra: csr.spec.extra.clone(),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    };
    let reviewed = client.api::<SubjectAccessReview>().review(&review).await?;
    Ok(reviewed.status.is_some_and(|s| s.allowed))
}
