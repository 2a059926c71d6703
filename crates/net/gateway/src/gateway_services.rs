//! Services of Gateways with addresses of their own: which Gateways have one, and its content.
//!
//! Gateways share the addresses of the gateway's Service. Of the Gateways of a namespace that have
//! a listener with the same port and hostname, only the oldest can. Each further one gets a Service
//! like that of the gateway, whose ports lead to ports of the process for this Gateway alone.
//!
//! The Services are the record. The number in the name decides the ports, and a label the Gateway.
//! A number has one Gateway even if two processes allocate at once, because names are unique.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use client::ObjectExt;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::address::read_addresses;
use crate::gateways::{GatewayState, ListenerState};
use crate::host::HostPattern;
use crate::infrastructure::{AllowedAnnotations, apply_infrastructure, list_ignored_annotations};
use crate::listener_ports::{ListenerPortRange, PortChoice};
use crate::placement::{OwnAddress, Placement, Slot};
use crate::port_assignment::refuse_other_ports;
use crate::port_range::{MAX_GATEWAYS, PortRange};
use crate::table::Scheme;

/// Maximum number of Gateways of a namespace that have addresses of their own.
pub const MAX_OF_NAMESPACE: usize = 8;

/// Labels of a Gateway's Service: UID, namespace and name of the Gateway, and the writer.
pub(crate) const UID_LABEL: &str = "ironclad/gateway-uid";
pub(crate) const NAMESPACE_LABEL: &str = "ironclad/gateway-namespace";
const NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
const WRITER_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "ironclad-gateway");
/// Maximum length of the value of a label in bytes.
const MAX_LABEL: usize = 63;

/// The gateway's Service and those of Gateways.
#[derive(Clone, Debug, Default)]
pub struct GatewayServices {
    /// The gateway's Service, after which others are made.
    model: Option<Arc<Service>>,
    annotations: AllowedAnnotations,
    range: Option<PortRange>,
    /// Ports that listeners may have besides those of the gateway's Service.
    other_ports: Vec<ListenerPortRange>,
    /// Services whose names are those of Gateways' Services, by number.
    stored: Vec<Option<Arc<Service>>>,
}

/// A change of a Gateway's Service.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceChange {
    /// It must be created.
    Create(Box<Service>),
    /// It must be replaced.
    Update(Box<Service>),
    /// It must be deleted.
    Delete {
        /// The Service.
        service: Arc<Service>,
        /// True if its Gateway is known, and has no room for it.
        has_gateway: bool,
    },
}

impl GatewayServices {
    /// Finds the Services; `key` (`namespace/name`) is that of the gateway's, and `annotations` are
    /// those that Gateways' Services may get. Without a range, no Gateway gets a Service. Besides
    /// the ports of the gateway's Service, listeners may have `other_ports`.
    pub fn read(
        key: Option<&str>,
        annotations: &AllowedAnnotations,
        (range, other_ports): (Option<PortRange>, &[ListenerPortRange]),
        find: impl Fn(&str) -> Option<Arc<Service>>,
    ) -> Self {
        let Some(key) = key else {
            return Self::default();
        };
        Self {
            model: find(key),
            annotations: annotations.clone(),
            range,
            other_ports: other_ports.to_vec(),
            stored: (0..MAX_GATEWAYS)
                .map(|slot| find(&format!("{key}-{slot}")))
                .collect(),
        }
    }

    fn capacity(&self) -> Slot {
        self.range.map_or(0, PortRange::capacity)
    }

    /// Returns the Service after which those of Gateways are made. Clients reach the port of a
    /// listener only through a load balancer: Services of other types are no model.
    fn model(&self) -> Option<&Service> {
        let model = self.model.as_deref();
        let type_of = |service: &&Service| service.spec.as_ref()?.type_.clone();
        model.filter(|service| type_of(service).as_deref() == Some("LoadBalancer"))
    }

    /// Returns which ports a Gateway may have. Those of its Service remain while the gateway's
    /// Service is missing or has another type.
    pub fn port_choice(&self, gateway: &GatewayState) -> PortChoice {
        let has_model = self.model().is_some() && self.range.is_some();
        match has_model || self.has_service(gateway) {
            true => PortChoice::Any,
            false => PortChoice::Shared,
        }
    }

    fn has_service(&self, gateway: &GatewayState) -> bool {
        let uid = gateway.object.metadata.uid.as_deref();
        let mut assigned = self.list_assigned();
        assigned.any(|(slot, _, found)| slot < self.capacity() && Some(found) == uid)
    }

    /// Returns whether listeners may have a port that is not one of the gateway's Service.
    pub fn allows_port(&self, port: u16) -> bool {
        self.other_ports.iter().any(|range| range.contains(port))
    }

    /// Returns the Services of Gateways with their numbers and the UIDs of their Gateways.
    fn list_assigned(&self) -> impl Iterator<Item = (Slot, &Arc<Service>, &str)> {
        let numbered = (0..).zip(&self.stored);
        numbered.filter_map(|(slot, service)| {
            let service = service.as_ref()?;
            let is_deleted = service.metadata.deletion_timestamp.is_some();
            let uid = service.label(UID_LABEL).filter(|uid| !uid.is_empty())?;
            (!is_deleted).then_some((slot, service, uid))
        })
    }
}

/// Decides the addresses of Gateways, the oldest first, and returns the changes of their Services.
/// `undecided` are the UIDs of Gateways that may have one of the gateway's classes: their Services
/// remain.
pub fn place_gateways(
    gateways: &mut [GatewayState],
    services: &GatewayServices,
    undecided: &HashSet<String>,
    are_complete: bool,
) -> Vec<ServiceChange> {
    let mut placer = Placer::new(services);
    for gateway in gateways.iter_mut() {
        let allowed = &services.annotations;
        gateway.ignored_annotations = list_ignored_annotations(&gateway.object, allowed);
        placer.keep_service(gateway);
    }
    placer.count_unused();
    for gateway in gateways.iter_mut() {
        placer.place_gateway(gateway);
    }
    // A Gateway that is not listed yet keeps its Service, and with it its address.
    if are_complete {
        placer.delete_unused(gateways, undecided);
    }
    placer.changes
}

struct Placer<'a> {
    services: &'a GatewayServices,
    /// Numbers by the UIDs of the Gateways that have them. Of several, the lowest one counts.
    assigned: HashMap<&'a str, Slot>,
    free: Vec<Slot>,
    kept: HashSet<Slot>,
    /// Number of Services of each namespace.
    counts: HashMap<String, usize>,
    /// Namespace, port and host of listeners at the shared addresses.
    shared: HashSet<(String, u16, HostPattern)>,
    changes: Vec<ServiceChange>,
}

impl<'a> Placer<'a> {
    fn new(services: &'a GatewayServices) -> Self {
        let capacity = services.capacity();
        let mut assigned = HashMap::new();
        for (slot, _, uid) in services.list_assigned() {
            if slot < capacity {
                assigned.entry(uid).or_insert(slot);
            }
        }
        let is_free = |slot: &Slot| {
            let stored = services.stored.get(usize::from(*slot));
            stored.is_some_and(Option::is_none)
        };
        Self {
            services,
            assigned,
            // The lowest number is the last one.
            free: (0..capacity).rev().filter(is_free).collect(),
            kept: HashSet::new(),
            counts: HashMap::new(),
            shared: HashSet::new(),
            changes: Vec::new(),
        }
    }

    fn find_slot(&self, gateway: &GatewayState) -> Option<Slot> {
        let uid = gateway.object.metadata.uid.as_deref()?;
        self.assigned.get(uid).copied()
    }

    /// Places a Gateway at its Service if it has one, also if it could share addresses meanwhile:
    /// clients and DNS know its own.
    fn keep_service(&mut self, gateway: &mut GatewayState) {
        let Some(slot) = self.find_slot(gateway) else {
            return;
        };
        let stored = self.services.stored.get(usize::from(slot));
        let Some(stored) = stored.and_then(Option::as_ref) else {
            return;
        };
        self.kept.insert(slot);
        self.count_service(gateway.object.namespace());
        let addresses = read_addresses(stored);
        if !addresses.is_empty() || !gateway.stays_shared() {
            gateway.placement = Placement::Own(OwnAddress {
                slot,
                service: stored.key(),
                addresses,
            });
        }
        let updated = self.update_service(stored, gateway, slot);
        if updated != **stored {
            self.changes.push(ServiceChange::Update(Box::new(updated)));
        }
    }

    /// Places a Gateway without a Service.
    fn place_gateway(&mut self, gateway: &mut GatewayState) {
        if gateway.placement != Placement::Shared || gateway.refusal.is_some() {
            return;
        }
        let places = list_places(gateway);
        let has_conflict = places.iter().any(|place| self.shared.contains(place));
        if !places.is_empty() && (has_conflict || gateway.needs_own_address()) {
            let placement = self.request_service(gateway);
            if placement != Placement::Shared && !gateway.stays_shared() {
                gateway.placement = placement;
                return;
            }
            // Without an address at once, its clients would have no answer.
            refuse_other_ports(gateway, &explain_missing_address(&placement));
        }
        self.shared.extend(list_places(gateway));
    }

    /// Returns the placement of a Gateway at a Service, which it gets if it has none; at the shared
    /// addresses if it can't have one.
    fn request_service(&mut self, gateway: &GatewayState) -> Placement {
        let stored = self.find_slot(gateway);
        let stored = stored.and_then(|slot| self.services.stored.get(usize::from(slot)));
        if let Some(stored) = stored.and_then(Option::as_ref) {
            return Placement::Pending(stored.key());
        }
        match self.services.model() {
            Some(model) if self.services.range.is_some() => self.allocate_service(model, gateway),
            _ => Placement::Shared,
        }
    }

    fn allocate_service(&mut self, model: &Service, gateway: &GatewayState) -> Placement {
        let namespace = gateway.object.namespace();
        let count = self.counts.get(namespace).copied().unwrap_or_default();
        if count >= MAX_OF_NAMESPACE {
            return Placement::Refused(format!(
                "{MAX_OF_NAMESPACE} Gateways of the namespace have addresses of their own, and \
                 no further one can"
            ));
        }
        let has_uid = gateway.object.metadata.uid.is_some();
        let Some(slot) = self.free.pop().filter(|_| has_uid) else {
            let message = "all ports for Gateways with addresses of their own are in use";
            return Placement::Refused(message.to_owned());
        };
        self.count_service(namespace);
        let service = self.build_service(model, gateway, slot);
        let placement = Placement::Pending(service.key());
        self.changes.push(ServiceChange::Create(Box::new(service)));
        placement
    }

    fn count_service(&mut self, namespace: &str) {
        *self.counts.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Counts Services that are not deleted yet: a namespace that replaces its Gateways must not
    /// use all numbers.
    fn count_unused(&mut self) {
        for (slot, service, _) in self.services.list_assigned() {
            if !self.kept.contains(&slot)
                && let Some(namespace) = service.label(NAMESPACE_LABEL)
            {
                self.count_service(namespace);
            }
        }
    }

    fn delete_unused(&mut self, gateways: &[GatewayState], undecided: &HashSet<String>) {
        let uids = gateways.iter().map(|gateway| &gateway.object.metadata.uid);
        let known: HashSet<&str> = uids.filter_map(|uid| uid.as_deref()).collect();
        for (slot, service, uid) in self.services.list_assigned() {
            if !self.kept.contains(&slot) && !undecided.contains(uid) {
                self.changes.push(ServiceChange::Delete {
                    service: service.clone(),
                    has_gateway: known.contains(uid),
                });
            }
        }
    }

    fn build_service(&self, model: &Service, gateway: &GatewayState, slot: Slot) -> Service {
        let annotations = model.metadata.annotations.clone();
        let of_model = annotations.into_iter().flatten();
        // Only those that the operator allows. Others may be records of the gateway's own: if
        // external-dns adds a tenant's address to a name, the tenant gets requests of all.
        let allowed = &self.services.annotations.of_model;
        let annotations = of_model.filter(|(name, _)| allowed.contains(name));
        let known = model.spec.clone().unwrap_or_default();
        let service = Service {
            metadata: ObjectMeta {
                name: Some(format!("{}-{slot}", model.name())),
                namespace: model.metadata.namespace.clone(),
                annotations: Some(annotations.collect()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: known.type_,
                allocate_load_balancer_node_ports: known.allocate_load_balancer_node_ports,
                load_balancer_class: known.load_balancer_class,
                ip_family_policy: known.ip_family_policy,
                ip_families: known.ip_families,
                ..ServiceSpec::default()
            }),
            status: None,
        };
        self.update_service(&service, gateway, slot)
    }

    /// Returns a Service with what follows from its Gateway and from the gateway's Service. Other
    /// fields, and labels and annotations of other writers, remain.
    fn update_service(&self, stored: &Service, gateway: &GatewayState, slot: Slot) -> Service {
        let mut service = stored.clone();
        let allowed = &self.services.annotations;
        apply_infrastructure(&mut service.metadata, &gateway.object, allowed);
        let labels = service.metadata.labels.get_or_insert_default();
        labels.extend(identify_gateway(gateway));
        let spec = service.spec.get_or_insert_default();
        if let Some(model) = self.services.model().and_then(|model| model.spec.clone()) {
            spec.selector = model.selector;
            spec.external_traffic_policy = model.external_traffic_policy;
            spec.load_balancer_source_ranges = model.load_balancer_source_ranges;
        }
        let known = spec.ports.take().unwrap_or_default();
        let accepted = gateway.listeners.iter();
        let accepted: Vec<_> = accepted.filter(|found| found.accepted.holds).collect();
        spec.ports = Some(match accepted.is_empty() {
            true => self.list_idle_ports(gateway, slot, known),
            false => self.list_ports(gateway, slot, &known, |scheme| {
                accepted.iter().any(|listener| listener.scheme == scheme)
            }),
        });
        service
    }

    /// Returns the ports while no listener is accepted, because a Service needs one: those that it
    /// has, but none that listeners may no longer have.
    fn list_idle_ports(
        &self,
        gateway: &GatewayState,
        slot: Slot,
        mut known: Vec<ServicePort>,
    ) -> Vec<ServicePort> {
        let shared = gateway.shared_ports;
        known.retain(|known| {
            u16::try_from(known.port).is_ok_and(|port| {
                [shared.http, shared.https].contains(&port) || self.services.allows_port(port)
            })
        });
        match known.is_empty() {
            true => self.list_ports(gateway, slot, &[], |scheme| scheme == Scheme::Http),
            false => known,
        }
    }

    fn list_ports(
        &self,
        gateway: &GatewayState,
        slot: Slot,
        known: &[ServicePort],
        is_served: impl Fn(Scheme) -> bool,
    ) -> Vec<ServicePort> {
        let Some(targets) = self.services.range.map(|range| range.ports_of(slot)) else {
            return Vec::new();
        };
        let both = [
            (Scheme::Http, gateway.ports.http, targets.http),
            (Scheme::Https, gateway.ports.https, targets.https),
        ];
        let served = both.into_iter().filter(|(scheme, ..)| is_served(*scheme));
        let write = |(scheme, port, target): (Scheme, u16, u16)| {
            let port = i32::from(port);
            // Fields that the API server sets, such as the node port, remain.
            let known = known.iter().find(|known| known.port == port).cloned();
            ServicePort {
                name: Some(scheme.as_str().to_owned()),
                port,
                target_port: Some(IntOrString::Int(i32::from(target))),
                ..known.unwrap_or_default()
            }
        };
        served.map(write).collect()
    }
}

/// Returns namespace, ports and hosts of the listeners that can be served.
fn list_places(gateway: &GatewayState) -> Vec<(String, u16, HostPattern)> {
    let namespace = gateway.object.namespace();
    let accepted = gateway
        .listeners
        .iter()
        .filter(|found| found.accepted.holds);
    let place = |listener: &ListenerState| {
        let host = listener.host.clone();
        (namespace.to_owned(), listener.spec.port, host)
    };
    accepted.map(place).collect()
}

/// Returns why a Gateway has no address of its own yet.
fn explain_missing_address(placement: &Placement) -> String {
    match placement {
        Placement::Refused(why) => why.clone(),
        Placement::Pending(service) => format!("the Service {service} has no address yet"),
        Placement::Shared | Placement::Own(_) => {
            "Gateways can't have addresses of their own".to_owned()
        }
    }
}

/// Returns the labels by which a Gateway's Service is found.
fn identify_gateway(gateway: &GatewayState) -> BTreeMap<String, String> {
    let object = &gateway.object;
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let mut labels = BTreeMap::from([
        (UID_LABEL.to_owned(), uid),
        (NAMESPACE_LABEL.to_owned(), object.namespace().to_owned()),
        (WRITER_LABEL.0.to_owned(), WRITER_LABEL.1.to_owned()),
    ]);
    // Names of Gateways may be longer than labels.
    if object.name().len() <= MAX_LABEL {
        labels.insert(NAME_LABEL.to_owned(), object.name().to_owned());
    }
    labels
}
