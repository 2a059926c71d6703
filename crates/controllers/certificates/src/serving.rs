//! Approves requests for kubelets' serving certificates.
//!
//! Upstream has no such approver, because a node can't prove that an address is its own. This one
//! runs only if `--controllers` names it, and approves only what no other part of the cluster has.

mod addresses;
mod decide;
mod reserved;

use std::time::Duration;

use api_meta::certificate_request::CertificateRequest;
use async_trait::async_trait;
use client::{Client, Error, ListParams};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use controllers_runtime::{
    Action, Cache, Drive, Executor, Queue, Setup, Target, Verb, Write, to_tree, wake,
};

use crate::csr::{KUBELET_SERVING, has_condition, is_signed, new_condition};
use crate::review::may_request;
use decide::{Verdict, decide_request, requesting_node};
use reserved::Reserved;

const NAME: &str = "kubelet-serving-approver";
/// The right that a requester needs.
const SUBRESOURCE: &str = "selfnodeserver";
const MESSAGE: &str =
    "The names and addresses of the certificate are those of the requesting node only.";
/// Interval at which a request whose node lacks the addresses is examined again.
const RETRY: Duration = Duration::from_secs(1);

struct ServingApprover {
    requests: Cache<Csr>,
    nodes: Cache<Node>,
    services: Cache<Service>,
    slices: Cache<EndpointSlice>,
    infos: Cache<ConfigMap>,
    client: Client,
}

/// Sets up the approval of kubelets' serving certificates.
pub fn add_serving_approver(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup
        .informers
        .for_kind::<Csr>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let api = ListParams::default().with_labels("kubernetes.io/service-name=kubernetes");
    let info = ListParams::default().with_fields("metadata.name=cluster-info");
    let approver = ServingApprover {
        requests,
        nodes: setup.informers.for_kind::<Node>().cache(),
        services: setup.informers.for_kind::<Service>().cache(),
        slices: setup.informers.for_selected::<EndpointSlice>(api).cache(),
        infos: setup.informers.for_selected::<ConfigMap>(info).cache(),
        client: setup.client.clone(),
    };
    setup.add_driver(NAME, 1, queue, approver);
}

#[async_trait]
impl Drive for ServingApprover {
    async fn reconcile(&self, key: &str, _executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(csr) = self.requests.get(key) else {
            return Ok(Vec::new());
        };
        if is_signed(&csr)
            || has_condition(&csr, "Approved")
            || has_condition(&csr, "Denied")
            || csr.spec.signer_name != KUBELET_SERVING
        {
            return Ok(Vec::new());
        }
        match self.examine(&csr) {
            Verdict::Wait => Ok(vec![Action::Requeue(RETRY)]),
            Verdict::Leave(reason) => {
                tracing::warn!(
                    request = key,
                    user = csr.spec.username,
                    reason,
                    "a serving certificate is not approved automatically; examine the request with `kubectl get csr`"
                );
                Ok(Vec::new())
            }
            Verdict::Approve if may_request(&self.client, &csr, SUBRESOURCE).await? => {
                Ok(vec![approve(&csr).into()])
            }
            Verdict::Approve => Ok(Vec::new()),
        }
    }
}

fn approve(csr: &Csr) -> Write {
    let mut fresh = csr.clone();
    fresh
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default()
        .push(new_condition(
            "Approved",
            "AutoApproved",
            MESSAGE,
            Timestamp::now(),
        ));
    Write::new(Verb::Put("approval"), Target::of(&fresh), to_tree(&fresh))
}

impl ServingApprover {
    fn examine(&self, csr: &Csr) -> Verdict {
        let request = match CertificateRequest::from_pem(&csr.spec.request.0) {
            Ok(request) => request,
            Err(error) => return Verdict::Leave(error.to_string()),
        };
        let name = match requesting_node(csr, &request) {
            Ok(name) => name,
            Err(verdict) => return verdict,
        };
        let node = self.nodes.get(name);
        let reserved = Reserved::collect(
            name,
            &self.nodes.list(),
            &self.services.list(),
            &self.slices.list(),
            &self.infos.list(),
        );
        decide_request(&request, name, node.as_deref(), &reserved)
    }
}
