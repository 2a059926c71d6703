//! Approves requests for kubelets' serving certificates.
//!
//! Upstream has no such approver, because a node can't prove that an address is its own. This one
//! runs only if `--controllers` names it, and approves only what no other part of the cluster has.
//!
//! An undecided request is examined again when an object changes on which its decision depends: its
//! node, an owner of one of its addresses, or the names of the API servers. Rights are not watched:
//! a kubelet whose request stays undecided sends another one.

mod addresses;
mod claims;
mod decide;
mod published;
mod requests;
mod reserved;

use std::collections::HashMap;
use std::sync::Arc;

use api_meta::certificate_request::CertificateRequest;
use async_trait::async_trait;
use client::{Client, Error, Event, ListParams};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use parking_lot::Mutex;

use controllers_runtime::{
    Action, Cache, Drive, Executor, Meta, Queue, Setup, Target, Verb, Write, to_tree, wake,
};

use crate::csr::new_condition;
use crate::review::may_request;
use addresses::list_service_addresses;
use claims::AddressClaims;
use decide::{Verdict, decide_request, find_requesting_node};
use requests::{UndecidedRequests, is_undecided};
use reserved::{
    ReservedNames, SERVER_ADDRESS, SERVER_HOST, SERVICE_ADDRESS, list_map_keys, list_service_keys,
    list_slice_keys,
};

const NAME: &str = "kubelet-serving-approver";
/// The right that a requester needs.
const SUBRESOURCE: &str = "selfnodeserver";
const WAITING: &str = "the Node or one of the requested addresses in its status is not there yet";
const MESSAGE: &str =
    "The names and addresses of the certificate are those of the requesting node only.";

struct ServingApprover {
    requests: Cache<Csr>,
    nodes: Cache<Node>,
    reserved: ReservedNames,
    /// Reported reasons by request: each is logged once, although a request is examined often.
    reported: Mutex<HashMap<String, String>>,
    client: Client,
}

/// Sets up the approval of kubelets' serving certificates. `ranges` are those of pods and Services.
pub fn add_serving_approver(setup: &mut Setup, ranges: Vec<IpNet>) {
    let queue = Queue::new();
    let requests = UndecidedRequests::declare(
        setup
            .informers
            .for_kind::<Csr>()
            .on_event(wake::enqueue_object(&queue)),
        &queue,
    );
    let claims = Arc::new(Mutex::new(AddressClaims::default()));
    let nodes = setup.informers.for_kind::<Node>().cache();
    setup
        .informers
        .for_kind::<Node>()
        .on_event(enqueue_for_node(&requests, &nodes, &claims));
    // These ConfigMaps name API servers. No certificate of a node may have their names.
    let maps = ["cluster-info", "kubeadm-config"].map(|name| {
        let params = ListParams::default().with_fields(format!("metadata.name={name}"));
        let kind = setup.informers.for_selected::<ConfigMap>(params);
        kind.index(SERVER_HOST, list_map_keys)
            .on_event(requests.enqueue_all())
            .cache()
    });
    let of_server = ListParams::default().with_labels("kubernetes.io/service-name=kubernetes");
    let reserved = ReservedNames {
        claims,
        services: setup
            .informers
            .for_kind::<Service>()
            .index(SERVICE_ADDRESS, list_service_keys)
            .on_event(enqueue_for_service(&requests))
            .cache(),
        slices: setup
            .informers
            .for_selected::<EndpointSlice>(of_server)
            .index(SERVER_ADDRESS, list_slice_keys)
            .on_event(requests.enqueue_all())
            .cache(),
        maps: maps.into(),
        service_ranges: setup
            .informers
            .for_kind::<ServiceCIDR>()
            .on_event(requests.enqueue_all())
            .cache(),
        ranges,
    };
    let approver = ServingApprover {
        requests: requests.cache(),
        nodes,
        reserved,
        reported: Mutex::default(),
        client: setup.client.clone(),
    };
    setup.add_driver(NAME, 1, queue, approver);
}

/// Records a node's claims, and enqueues the requests that depend on a changed one.
fn enqueue_for_node(
    requests: &UndecidedRequests,
    nodes: &Cache<Node>,
    claims: &Arc<Mutex<AddressClaims>>,
) -> impl Fn(&Event<Node>) + Send + Sync + 'static {
    let (requests, nodes, claims) = (requests.clone(), nodes.clone(), claims.clone());
    move |event| {
        let changed = claims.lock().apply_event(event, !nodes.has_synced());
        // Most changes of a node are heartbeats.
        if !changed.is_empty() {
            requests.enqueue_node(event.object().name());
            requests.enqueue_addresses(&changed);
        }
    }
}

fn enqueue_for_service(
    requests: &UndecidedRequests,
) -> impl Fn(&Event<Service>) + Send + Sync + 'static {
    let requests = requests.clone();
    move |event| match event {
        Event::Applied { old, new } => {
            let before = old.as_ref().map(|old| list_service_addresses(old));
            let (before, after) = (before.unwrap_or_default(), list_service_addresses(new));
            let changed = before.symmetric_difference(&after).copied();
            requests.enqueue_addresses(&changed.collect());
        }
        Event::Deleted(last) => requests.enqueue_addresses(&list_service_addresses(last)),
    }
}

#[async_trait]
impl Drive for ServingApprover {
    async fn reconcile(&self, key: &str, _executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(csr) = self.requests.get(key).filter(|csr| is_undecided(csr)) else {
            self.reported.lock().remove(key);
            return Ok(Vec::new());
        };
        let reason = match self.examine(&csr) {
            Verdict::Approve if may_request(&self.client, &csr, SUBRESOURCE).await? => {
                return Ok(vec![build_approval(&csr).into()]);
            }
            Verdict::Approve => {
                format!("the requester may not create certificatesigningrequests/{SUBRESOURCE}")
            }
            Verdict::Wait => WAITING.to_owned(),
            Verdict::Undecided(reason) => reason,
        };
        self.report_reason(&csr, reason);
        Ok(Vec::new())
    }
}

fn build_approval(csr: &Csr) -> Write {
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
            Err(error) => return Verdict::Undecided(error.to_string()),
        };
        let name = match find_requesting_node(csr, &request) {
            Ok(name) => name,
            Err(verdict) => return verdict,
        };
        let node = self.nodes.get(name);
        decide_request(&request, name, node.as_deref(), &self.reserved)
    }

    /// Logs a reason if the request had another one or none.
    fn report_reason(&self, csr: &Csr, reason: String) {
        let before = self.reported.lock().insert(csr.key(), reason.clone());
        if before.as_ref() == Some(&reason) {
            return;
        }
        if reason == WAITING {
            // Usual for a moment after a node has registered.
            tracing::info!(request = csr.key(), reason, "a serving certificate waits");
        } else {
            tracing::warn!(
                request = csr.key(),
                user = csr.spec.username,
                reason,
                "a serving certificate is not approved automatically; examine the request with `kubectl get csr`"
            );
        }
    }
}
