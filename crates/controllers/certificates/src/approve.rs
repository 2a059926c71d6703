//! Approves requests for kubelets' client certificates.

use api_meta::certificate_request::CertificateRequest;
use async_trait::async_trait;
use client::{Client, Error};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

use controllers_runtime::{
    Action, Cache, Drive, Executor, Queue, Setup, Target, Verb, Write, to_tree, wake,
};

use crate::csr::{KUBELET_CLIENT, has_condition, is_signed, list_usages, new_condition};
use crate::review::may_request;

struct CsrApprover {
    requests: Cache<Csr>,
    client: Client,
}

/// Sets up the approval of kubelets' client certificates.
pub fn add_csr_approver(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup
        .informers
        .for_kind::<Csr>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let client = setup.client.clone();
    setup.add_driver(
        "certificate-controller",
        1,
        queue,
        CsrApprover { requests, client },
    );
}

#[async_trait]
impl Drive for CsrApprover {
    async fn reconcile(&self, key: &str, _executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(csr) = self.requests.get(key) else {
            return Ok(Vec::new());
        };
        // Only requests for kubelets' client certificates are approved automatically. Serving
        // certificates need a decision about host names, which upstream leaves to an operator, too.
        if is_signed(&csr)
            || has_condition(&csr, "Approved")
            || has_condition(&csr, "Denied")
            || csr.spec.signer_name != KUBELET_CLIENT
        {
            return Ok(Vec::new());
        }
        // Skipped and not denied: an operator may still decide about the request.
        let Ok(request) = CertificateRequest::from_pem(&csr.spec.request.0) else {
            return Ok(Vec::new());
        };
        if request.check_kubelet_client(&list_usages(&csr)).is_err() {
            return Ok(Vec::new());
        }
        let own = csr.spec.username.as_deref() == Some(&request.common_name);
        // Upstream's recognizers, in its order: a kubelet that renews its own certificate, then a
        // bootstrapping one.
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
            // The requester's rights decide, not the controller's: the review asks for the user of
            // the request.
            if may_request(&self.client, &csr, subresource).await? {
                let mut fresh = csr.as_ref().clone();
                let approved = new_condition("Approved", "AutoApproved", message, Timestamp::now());
                fresh
                    .status
                    .get_or_insert_default()
                    .conditions
                    .get_or_insert_default()
                    .push(approved);
                return Ok(vec![
                    // Approval is a subresource of its own, so that the right to approve can be
                    // granted separately.
                    Write::new(Verb::Put("approval"), Target::of(&fresh), to_tree(&fresh)).into(),
                ]);
            }
        }
        Ok(Vec::new())
    }
}
