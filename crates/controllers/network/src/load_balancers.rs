//! Addresses of a pool for Services of type LoadBalancer. The nodes announce them (`net-announce`).

mod ledger;
mod status;

use std::net::IpAddr;
use std::sync::Arc;

use api_address_pool::{AddressPool, LOAD_BALANCER_CLASS};
use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup};

use ledger::{Ledger, Request};

/// Index of Nodes by their addresses.
const ADDRESS: &str = "address";
/// The EndpointSlice of the API servers.
const API_SERVERS: &str = "default/kubernetes";

/// Relation of a Service to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// It gets addresses of the pool.
    Served,
    /// It is being deleted and keeps what it has.
    Ending,
    /// It is none of the pool.
    Foreign,
}

fn is_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

fn relate(service: &Service, pool: &AddressPool) -> Relation {
    let spec = service.spec.as_ref();
    let class = spec.and_then(|spec| spec.load_balancer_class.as_deref());
    let is_served = match class {
        Some(class) => class == LOAD_BALANCER_CLASS,
        // Without a class, another load balancer may be the cluster's default one.
        None => !status::has_foreign_ingress(service, |address| pool.contains(address)),
    };
    match (
        is_load_balancer(service) && is_served,
        service.is_deleting(),
    ) {
        (true, false) => Relation::Served,
        (true, true) => Relation::Ending,
        (false, _) => Relation::Foreign,
    }
}

fn build_request(service: &Service) -> Request {
    let spec = service.spec.as_ref();
    let families = spec.and_then(|spec| spec.ip_families.as_deref());
    let wish = spec.and_then(|spec| spec.load_balancer_ip.clone());
    Request {
        service: service.key(),
        families: families
            .unwrap_or_default()
            .iter()
            .map(|family| family == "IPv6")
            .collect(),
        wish: wish.filter(|wish| !wish.is_empty()),
    }
}

/// Returns the actions for one Service, and the Services that wait for an address that it releases.
fn reconcile_service(
    service: &Service,
    ledger: &mut Ledger,
    is_reserved: &dyn Fn(IpAddr) -> bool,
    now: Timestamp,
) -> (Vec<Action>, Vec<String>) {
    match relate(service, ledger.pool()) {
        Relation::Served => {
            let request = build_request(service);
            let Some((assignment, wake)) = ledger.assign(&request, is_reserved) else {
                return (Vec::new(), Vec::new());
            };
            for address in assignment.addresses.iter().filter(|ip| is_reserved(**ip)) {
                tracing::warn!(
                    service = request.service, %address,
                    "a node or an API server has the address of a load balancer, too; take it out of --load-balancer-pool, or delete the Service"
                );
            }
            let write = status::write_assignment(service, &assignment, now);
            (write.into_iter().collect(), wake)
        }
        Relation::Ending => (Vec::new(), Vec::new()),
        Relation::Foreign => {
            let removal = status::remove_condition(service);
            let wake = ledger.revoke(&service.key());
            (removal.into_iter().collect(), wake)
        }
    }
}

/// Records a changed Service. Returns the Services that wait, if it releases an address.
fn record_event(ledger: &mut Ledger, event: &Event<Service>) -> Vec<String> {
    let service = event.object();
    let key = service.key();
    match event {
        // Those of other load balancers, too: an address of the pool that one of them has is in
        // use.
        Event::Applied { new, .. } if is_load_balancer(new) => {
            ledger.observe(&key, new.created_at(), status::list_addresses(new))
        }
        _ => ledger.remove(&key),
    }
}

/// Returns whether an event of a Service needs a reconcile.
fn needs_reconcile(event: &Event<Service>) -> bool {
    match event {
        Event::Applied { old, new } => {
            is_load_balancer(new) || old.as_deref().is_none_or(is_load_balancer)
        }
        Event::Deleted(_) => false,
    }
}

struct LoadBalancers {
    services: Cache<Service>,
    nodes: Cache<Node>,
    slices: Cache<EndpointSlice>,
    ledger: Arc<Mutex<Ledger>>,
    queue: Queue,
}

/// Sets up the controller that allocates addresses of the pool.
pub fn add_load_balancer_controller(setup: &mut Setup, pool: &AddressPool, workers: usize) {
    let queue = Queue::new();
    let ledger = Arc::new(Mutex::new(Ledger::new(pool.clone())));
    let (waiting, known) = (queue.clone(), ledger.clone());
    let wake_waiting = move || {
        let wake = known.lock().wake_waiting();
        wake.into_iter().for_each(|key| waiting.add(key));
    };
    let wake_for_servers = wake_waiting.clone();
    let (waiting, known) = (queue.clone(), ledger.clone());
    let services = setup
        .informers
        .for_kind::<Service>()
        .on_event(move |event| {
            let wake = record_event(&mut known.lock(), event);
            wake.into_iter().for_each(|key| waiting.add(key));
            if needs_reconcile(event) {
                waiting.add(event.object().key());
            }
        })
        .cache();
    let nodes = setup
        .informers
        .for_kind::<Node>()
        .index(ADDRESS, list_node_addresses)
        .on_event(move |event| {
            if changes_addresses(event) {
                wake_waiting();
            }
        })
        .cache();
    let slices = setup
        .informers
        .for_kind::<EndpointSlice>()
        .on_event(move |event| {
            if event.object().key() == API_SERVERS {
                wake_for_servers();
            }
        })
        .cache();
    let logic = LoadBalancers {
        services,
        nodes,
        slices,
        ledger,
        queue: queue.clone(),
    };
    // Upstream's controller of load balancers has this account, with the same rights.
    setup.add_reconciler("service-controller", workers, queue, logic);
}

/// Returns whether an event of a Node may make an address of the pool free.
fn changes_addresses(event: &Event<Node>) -> bool {
    match event {
        Event::Applied { old: None, .. } => false,
        Event::Applied {
            old: Some(old),
            new,
        } => list_node_addresses(old) != list_node_addresses(new),
        Event::Deleted(_) => true,
    }
}

fn list_node_addresses(node: &Node) -> Vec<String> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    addresses
        .unwrap_or_default()
        .iter()
        // Host names are none; an address has one text.
        .filter_map(|address| Some(address.address.parse::<IpAddr>().ok()?.to_string()))
        .collect()
}

impl LoadBalancers {
    /// Returns whether a node or an API server has the address.
    fn is_reserved(&self, address: IpAddr) -> bool {
        let text = address.to_string();
        let servers = self.slices.get(API_SERVERS);
        let servers = servers
            .as_ref()
            .and_then(|slice| slice.endpoints.as_deref());
        let mut servers = servers.unwrap_or_default().iter();
        servers.any(|endpoint| endpoint.addresses.contains(&text))
            || !self.nodes.by_index(ADDRESS, &text).is_empty()
    }
}

impl Decide for LoadBalancers {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(service) = self.services.get(key) else {
            return Vec::new();
        };
        let is_reserved = |address| self.is_reserved(address);
        let mut ledger = self.ledger.lock();
        let (actions, wake) = reconcile_service(&service, &mut ledger, &is_reserved, now);
        drop(ledger);
        wake.into_iter().for_each(|key| self.queue.add(key));
        actions
    }
}

#[cfg(test)]
mod tests;
