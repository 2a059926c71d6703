//! Certificate signing requests: approves those of kubelets, signs approved ones, and deletes old
//! ones.

mod ca;
mod usages;

use std::collections::BTreeMap;
use std::time::Duration;

use api_meta::certificate_request::CertificateRequest;
use async_trait::async_trait;
use client::{Client, Error};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest as Csr, CertificateSigningRequestCondition as Condition,
};

use controllers_runtime::{
    Action, Cache, Decide, Drive, Executor, Meta, Queue, Setup, Target, Verb, Write, time, tree,
    wake,
};

pub use ca::{Ca, CaError};

/// Signer of client certificates.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of kubelets' client certificates.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of kubelets' serving certificates.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Signer of requests of the old API version.
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// Seconds for which approved, denied or failed requests are kept.
const DECIDED_FOR: i64 = 3600;
/// Seconds for which undecided requests are kept.
const PENDING_FOR: i64 = 24 * 3600;

fn has(csr: &Csr, kind: &str) -> bool {
    let all = csr
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    all.into_iter()
        .any(|c| c.type_ == kind && c.status != "False")
}

fn signed(csr: &Csr) -> bool {
    csr.status
        .as_ref()
        .and_then(|s| s.certificate.as_ref())
        .is_some_and(|c| !c.0.is_empty())
}

/// Returns the usages of a request.
fn list_usages(csr: &Csr) -> Vec<&str> {
    csr.spec
        .usages
        .iter()
        .flatten()
        .map(String::as_str)
        .collect()
}

fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(time::api(now)),
        last_transition_time: Some(time::api(now)),
    }
}

struct Approving {
    requests: Cache<Csr>,
    client: Client,
}

/// Sets up the approval of kubelets' client certificates.
pub fn approving(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup.informers.of::<Csr>().on(wake::itself(&queue)).cache();
    let client = setup.client.clone();
    setup.drive(
        "certificate-controller",
        1,
        queue,
        Approving { requests, client },
    );
}

#[async_trait]
impl Drive for Approving {
    async fn reconcile(&self, key: &str, _executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(csr) = self.requests.get(key) else {
            return Ok(Vec::new());
        };
        if signed(&csr)
            || has(&csr, "Approved")
            || has(&csr, "Denied")
            || csr.spec.signer_name != KUBELET_CLIENT
        {
            return Ok(Vec::new());
        }
        let Ok(request) = CertificateRequest::from_pem(&csr.spec.request.0) else {
            return Ok(Vec::new());
        };
        if request.check_kubelet_client(&list_usages(&csr)).is_err() {
            return Ok(Vec::new());
        }
        let own = csr.spec.username.as_deref() == Some(&request.common_name);
        let itself = (
            "selfnodeclient",
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        );
        let any = (
            "nodeclient",
            "Auto approving kubelet client certificate after SubjectAccessReview.",
        );
        let recognized = if own { vec![itself, any] } else { vec![any] };
        for (subresource, message) in recognized {
            if self.may(&csr, subresource).await? {
                let mut fresh = csr.as_ref().clone();
                let approved = condition("Approved", "AutoApproved", message, Timestamp::now());
                fresh
                    .status
                    .get_or_insert_default()
                    .conditions
                    .get_or_insert_default()
                    .push(approved);
                return Ok(vec![
                    Write::new(Verb::Put("approval"), Target::of(&fresh), tree(&fresh)).into(),
                ]);
            }
        }
        Ok(Vec::new())
    }
}

impl Approving {
    async fn may(&self, csr: &Csr, subresource: &str) -> Result<bool, Error> {
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
        let answer = self
            .client
            .api::<SubjectAccessReview>()
            .review(&review)
            .await?;
        Ok(answer.status.is_some_and(|s| s.allowed))
    }
}

/// CA of each signer that this process serves.
pub type Authorities = BTreeMap<&'static str, Ca>;

struct Signing {
    requests: Cache<Csr>,
    authorities: Authorities,
}

/// Sets up the signing of approved requests.
pub fn signing(setup: &mut Setup, authorities: Authorities) {
    let queue = Queue::new();
    let requests = setup.informers.of::<Csr>().on(wake::itself(&queue)).cache();
    setup.decide(
        "certificate-controller",
        1,
        queue,
        Signing {
            requests,
            authorities,
        },
    );
}

impl Decide for Signing {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(csr) = self.requests.get(key) else {
            return Vec::new();
        };
        let Some(ca) = self.authorities.get(csr.spec.signer_name.as_str()) else {
            return Vec::new();
        };
        if signed(&csr) || !has(&csr, "Approved") || has(&csr, "Denied") || has(&csr, "Failed") {
            return Vec::new();
        }
        let mut fresh = csr.as_ref().clone();
        let wanted = csr
            .spec
            .expiration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map(Duration::from_secs);
        let signed = CertificateRequest::from_pem(&csr.spec.request.0)
            .map_err(CaError::Request)
            .and_then(|request| {
                ca::judge(&csr, &request)?;
                ca.sign(&request, &list_usages(&csr), wanted, now)
            });
        let status = fresh.status.get_or_insert_default();
        match signed {
            Ok(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
            Err(error) => {
                let failed =
                    condition("Failed", "SignerValidationFailure", &error.to_string(), now);
                status.conditions.get_or_insert_default().push(failed);
            }
        }
        vec![Action::update_status(&fresh)]
    }
}

struct Cleaning {
    requests: Cache<Csr>,
}

/// Sets up the deletion of old requests.
pub fn cleaning(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup.informers.of::<Csr>().on(wake::itself(&queue)).cache();
    setup.decide("certificate-controller", 1, queue, Cleaning { requests });
}

impl Decide for Cleaning {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(csr) = self.requests.get(key) else {
            return Vec::new();
        };
        let decided = csr
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        let decided = decided
            .filter_map(|c| c.last_update_time.as_ref().map(|t| t.0))
            .max();
        let end = match decided {
            Some(at) => time::after(at, DECIDED_FOR),
            None => time::after(
                time::whole(now),
                csr.created() + PENDING_FOR - now.as_second(),
            ),
        };
        let wait = time::until(end, now);
        if wait.is_zero() {
            vec![Action::delete(csr.as_ref())]
        } else {
            vec![Action::Requeue(wait)]
        }
    }
}
