//! From the cluster's objects to the routing table and the statuses. A pure function: everything it
//! depends on is an argument.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use client::ObjectExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use serde_json::{Value, json};

use crate::address::{Address, encode_for_gateway, encode_for_ingress};
use crate::backend::NextBackends;
use crate::certificates::{Certificates, SecretKey};
use crate::claims::{Claim, HostOwners, HostRefusal};
use crate::condition::{Verdict, compute_conditions};
use crate::gateway_api::{
    GatewayClassSpec, GatewayObject, GatewaySpec, HttpRouteSpec, ReferenceGrantSpec, read_age,
};
use crate::gateway_services::{GatewayServices, ServiceChange, place_gateways};
use crate::gateways::{self, GatewayState, NamespaceLabels, read_gateways};
use crate::host::HostPattern;
use crate::http_routes::{CROWDED, RouteState, attach_routes};
use crate::ingress::{self, IngressProblem, IngressRules, ServiceFinder, compile_ingress};
use crate::listener_ports::Ports;
use crate::placement::{Placement, Slot};
use crate::port_assignment::assign_ports;
use crate::route_rules::References;
use crate::rule::{Age, MAX_RULES_OF_HOST};
use crate::rule_budget::RuleBudget;
use crate::table::{HostCertificate, HostRules, RoutingTable, Scheme};
use crate::tls_policies::TlsPolicies;

/// Maximum number of Secrets that are watched, in all and for one namespace. Each is a watch of its
/// own, because the gateway reads no Secret that is not named.
const MAX_SECRETS: usize = 512;
const MAX_SECRETS_OF_NAMESPACE: usize = 32;

/// Objects that decide about routes.
#[derive(Default)]
pub struct Objects {
    /// Ingresses.
    pub ingresses: Vec<Arc<Ingress>>,
    /// IngressClasses.
    pub ingress_classes: Vec<Arc<IngressClass>>,
    /// GatewayClasses.
    pub gateway_classes: Vec<GatewayObject<GatewayClassSpec>>,
    /// Gateways.
    pub gateways: Vec<GatewayObject<GatewaySpec>>,
    /// HTTPRoutes.
    pub routes: Vec<GatewayObject<HttpRouteSpec>>,
    /// ReferenceGrants.
    pub grants: Vec<GatewayObject<ReferenceGrantSpec>>,
    /// BackendTLSPolicies.
    pub tls_policies: TlsPolicies,
    /// Labels of namespaces.
    pub labels: NamespaceLabels,
    /// False while a kind's objects are not listed yet.
    pub are_complete: bool,
}

/// Facts besides the objects.
pub struct Context<'a> {
    /// Name of the controller in classes.
    pub controller: &'a str,
    /// Ports of the gateway's Service.
    pub ports: Ports,
    /// Addresses for statuses.
    pub addresses: &'a [Address],
    /// Services of Gateways with addresses of their own.
    pub services: &'a GatewayServices,
    /// Certificates of the Secrets that are watched.
    pub certificates: &'a Certificates,
    /// Finds a Service by `namespace/name`.
    pub find_service: &'a dyn Fn(&str) -> Option<Arc<Service>>,
    /// Owners of hosts of the last result.
    pub owners: &'a HostOwners,
    /// Current time (RFC 3339).
    pub now: &'a str,
}

/// Kinds with a status that the gateway writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusKind {
    /// Ingress.
    Ingress,
    /// GatewayClass.
    GatewayClass,
    /// Gateway.
    Gateway,
    /// HTTPRoute.
    HttpRoute,
}

/// A status that differs from the stored one.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// Kind of the object.
    pub kind: StatusKind,
    /// Namespace; empty for GatewayClasses.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Version of the object from which the status was computed.
    pub resource_version: String,
    /// The new status.
    pub status: Value,
}

/// An Ingress of which not all is served.
#[derive(Clone, Debug)]
pub struct RefusedIngress {
    /// The Ingress.
    pub ingress: Arc<Ingress>,
    /// Its parts that are not served.
    pub problems: Vec<IngressProblem>,
}

/// The routing table of a Gateway with addresses of its own.
#[derive(Clone, Debug)]
pub struct OwnTable {
    /// Number of its Service.
    pub slot: Slot,
    /// UID of the Gateway.
    pub gateway: String,
    /// Ports at which clients reach it.
    pub ports: Ports,
    /// The routing table.
    pub table: Arc<RoutingTable>,
}

/// The result.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The routing table of the addresses that Gateways and Ingresses share.
    pub table: RoutingTable,
    /// Those of Gateways with addresses of their own.
    pub own_tables: Vec<OwnTable>,
    /// Changes of the Services of these Gateways.
    pub services: Vec<ServiceChange>,
    /// Owners of hosts.
    pub owners: HostOwners,
    /// Secrets to watch.
    pub secrets: Vec<SecretKey>,
    /// Statuses to write.
    pub statuses: Vec<StatusChange>,
    /// Ingresses of which not all is served.
    pub refused: Vec<RefusedIngress>,
}

/// Computes the routing table and the statuses.
pub fn compile(objects: Objects, context: &Context<'_>, backends: &mut NextBackends) -> Compiled {
    let mut ingresses = compile_ingresses(&objects, context, backends);
    let class_statuses = compute_class_statuses(&objects.gateway_classes, context);
    let classes = gateways::own_classes(&objects.gateway_classes, context.controller);
    let undecided = list_undecided(&objects, &classes, context.controller);
    let mut gateways = read_gateways(
        objects.gateways,
        &classes,
        context.ports,
        &objects.grants,
        context.certificates,
    );
    let services = context.services;
    let is_allowed = |port| services.allows_port(port);
    assign_ports(
        &mut gateways,
        |gateway| services.port_choice(gateway),
        is_allowed,
    );
    mark_settled(&mut gateways, context);
    let are_complete = objects.are_complete;
    let services = place_gateways(&mut gateways, services, &undecided, are_complete);
    let references = References {
        controller: context.controller,
        grants: &objects.grants,
        tls_policies: &objects.tls_policies,
        find_service: context.find_service,
    };
    let mut routes = attach_routes(
        objects.routes,
        &mut gateways,
        &objects.labels,
        &references,
        backends,
    );
    let claims = collect_claims(&ingresses, &gateways, &routes);
    let owners = match objects.are_complete {
        true => HostOwners::decide(claims, context.owners),
        false => HostOwners::decide_incomplete(claims, context.owners),
    };
    for gateway in &mut gateways {
        gateway.apply_owners(&owners);
    }
    let mut served = Served::default();
    for rules in &mut ingresses {
        served.add_ingress(rules, &owners, context.certificates);
    }
    for gateway in &gateways {
        served.add_gateway(gateway);
    }
    let secrets = list_secrets(&ingresses, &gateways);
    for route in &mut routes {
        served.add_route(route, &gateways, &owners);
    }
    let mut statuses = class_statuses;
    statuses.extend(compute_statuses(&ingresses, &gateways, &routes, context));
    Compiled {
        own_tables: served.take_own_tables(&gateways),
        table: RoutingTable::build(served.hosts, served.certificates, &owners),
        services,
        owners,
        secrets,
        statuses,
        refused: collect_problems(ingresses),
    }
}

fn mark_settled(gateways: &mut [GatewayState], context: &Context<'_>) {
    let addresses = encode_for_gateway(context.addresses);
    for gateway in gateways {
        gateway.is_settled = gateway.was_served_at(&addresses, context.now);
    }
}

/// Returns the UIDs of Gateways that may be the gateway's, although they have none of its classes:
/// they can't be decoded, or their class is missing or can't be used.
fn list_undecided(
    objects: &Objects,
    own_classes: &HashSet<String>,
    controller: &str,
) -> HashSet<String> {
    let is_of_another = |class: &&GatewayObject<GatewayClassSpec>| {
        let spec = class.spec.as_ref();
        spec.is_ok_and(|spec| spec.controller_name != controller)
    };
    let others = objects.gateway_classes.iter().filter(is_of_another);
    let others: HashSet<&str> = others.map(|class| class.name()).collect();
    let is_decided = |gateway: &GatewayObject<GatewaySpec>| {
        let class = gateway.spec.as_ref().map(|spec| &spec.gateway_class_name);
        class.is_ok_and(|class| own_classes.contains(class) || others.contains(class.as_str()))
    };
    let undecided = objects.gateways.iter().filter(|found| !is_decided(found));
    undecided
        .filter_map(|gateway| gateway.metadata.uid.clone())
        .collect()
}

fn compile_ingresses(
    objects: &Objects,
    context: &Context<'_>,
    backends: &mut NextBackends,
) -> Vec<IngressRules> {
    let classes = ingress::own_classes(&objects.ingress_classes, context.controller);
    let is_own = |ingress: &&Arc<Ingress>| ingress::has_class(ingress, &classes);
    let mut own: Vec<&Arc<Ingress>> = objects.ingresses.iter().filter(is_own).collect();
    own.sort_by_cached_key(|ingress| read_age(&ingress.metadata));
    let services = ServiceFinder {
        find_service: context.find_service,
        tls_policies: &objects.tls_policies,
    };
    let mut budget = RuleBudget::default();
    own.into_iter()
        .map(|ingress| compile_ingress(ingress, &services, backends, &mut budget))
        .collect()
}

fn collect_claims(
    ingresses: &[IngressRules],
    gateways: &[GatewayState],
    routes: &[RouteState],
) -> Vec<Claim> {
    let of_ingress = |rules: &IngressRules| {
        let claim = |host: &HostPattern| Claim {
            age: read_age(&rules.ingress.metadata),
            host: host.clone(),
            namespace: rules.ingress.namespace().to_owned(),
        };
        rules.claims.iter().map(claim).collect::<Vec<_>>()
    };
    let mut claims: Vec<Claim> = ingresses.iter().flat_map(of_ingress).collect();
    claims.extend(gateways.iter().flat_map(|gateway| gateway.claims()));
    claims.extend(routes.iter().flat_map(|route| route.claims(gateways)));
    claims
}

fn collect_problems(ingresses: Vec<IngressRules>) -> Vec<RefusedIngress> {
    let refused = ingresses
        .into_iter()
        .filter(|rules| !rules.problems.is_empty());
    let describe = |rules: IngressRules| RefusedIngress {
        ingress: rules.ingress,
        problems: rules.problems,
    };
    refused.map(describe).collect()
}

/// Returns the Secrets that objects name for hosts which they have, those of older objects first.
fn list_secrets(ingresses: &[IngressRules], gateways: &[GatewayState]) -> Vec<SecretKey> {
    let mut named: Vec<(Age, &SecretKey)> = Vec::new();
    for rules in ingresses {
        let age = read_age(&rules.ingress.metadata);
        named.extend(rules.certificates.iter().map(|(_, key)| (age.clone(), key)));
    }
    for gateway in gateways.iter().filter(|found| found.refusal.is_none()) {
        let accepted = gateway
            .listeners
            .iter()
            .filter(|found| found.accepted.holds);
        let keys = accepted.flat_map(|listener| &listener.secrets);
        named.extend(keys.map(|key| (gateway.object.age(), key)));
    }
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let (mut seen, mut chosen) = (HashSet::new(), Vec::new());
    for (_, key) in named {
        if chosen.len() >= MAX_SECRETS {
            break;
        }
        let count = counts.entry(&key.namespace).or_default();
        if *count < MAX_SECRETS_OF_NAMESPACE && seen.insert(key) {
            *count += 1;
            chosen.push(key.clone());
        }
    }
    chosen
}

/// Parts of the routing table.
#[derive(Default)]
struct Served {
    hosts: Vec<HostRules>,
    certificates: Vec<HostCertificate>,
    /// Number of rules of each host of a listener.
    counts: HashMap<CountedHost, usize>,
}

/// Slot and namespace of a listener, its protocol and hosts, and a host of its routes.
type CountedHost = (Option<Slot>, Arc<str>, Scheme, HostPattern, HostPattern);

impl Served {
    /// Counts rules, and returns the hosts that have no room for all of them.
    fn list_crowded(&mut self, hosts: &[HostRules]) -> Vec<String> {
        let mut crowded = Vec::new();
        for entry in hosts {
            for scheme in &entry.schemes {
                let (listener, host) = (entry.listener.clone(), entry.host.clone());
                let key = (entry.slot, entry.namespace.clone(), *scheme, listener, host);
                let count = self.counts.entry(key).or_default();
                *count = count.saturating_add(entry.rules.len());
                if *count > MAX_RULES_OF_HOST && !entry.rules.is_empty() {
                    crowded.push(entry.host.to_string());
                }
            }
        }
        crowded.sort();
        crowded.dedup();
        crowded
    }

    /// Adds the hosts of an Ingress that it gets.
    fn add_ingress(
        &mut self,
        rules: &mut IngressRules,
        owners: &HostOwners,
        certificates: &Certificates,
    ) {
        let namespace = rules.ingress.namespace().to_owned();
        let (mut conflicts, mut beyond) = (Vec::new(), Vec::new());
        rules.hosts.retain(|entry| {
            let refusal = owners.refuse(&entry.host, &namespace);
            match refusal {
                None => {}
                Some(HostRefusal::OtherOwner) => conflicts.push(entry.host.to_string()),
                Some(HostRefusal::NoRoom) => beyond.push(entry.host.to_string()),
            }
            refusal.is_none()
        });
        let crowded = self.list_crowded(&rules.hosts);
        for (reason, text, hosts) in [
            ("TooManyRules", CROWDED, crowded),
            (
                "HostConflict",
                "hosts of an older object of another namespace",
                conflicts,
            ),
            ("TooManyHosts", "hosts beyond the limit", beyond),
        ] {
            if !hosts.is_empty() {
                rules.add_problem(reason, format!("{text}: {}", hosts.join(", ")));
            }
        }
        rules
            .certificates
            .retain(|(host, _)| owners.refuse(host, &namespace).is_none());
        self.hosts.extend(rules.hosts.iter().cloned());
        for (host, key) in &rules.certificates {
            if let Some(Ok(certificate)) = certificates.get(key) {
                self.certificates.push(HostCertificate {
                    slot: None,
                    namespace: namespace.as_str().into(),
                    host: host.clone(),
                    certificate: certificate.clone(),
                });
            }
        }
    }

    fn add_route(
        &mut self,
        route: &mut RouteState,
        gateways: &[GatewayState],
        owners: &HostOwners,
    ) {
        let hosts = route.host_rules(gateways, owners);
        route.report_crowded(&self.list_crowded(&hosts));
        self.hosts.extend(hosts);
    }

    fn add_gateway(&mut self, gateway: &GatewayState) {
        let served = gateway
            .listeners
            .iter()
            .filter(|listener| gateway.serves(listener));
        for listener in served {
            if let Some(certificate) = &listener.certificate {
                self.certificates.push(HostCertificate {
                    slot: gateway.placement.slot(),
                    namespace: gateway.object.namespace().into(),
                    host: listener.host.clone(),
                    certificate: certificate.clone(),
                });
            }
        }
    }
}

impl Served {
    /// Removes the hosts of Gateways with addresses of their own, and returns their tables. There,
    /// all hosts are the Gateway's: other objects have no rules for them.
    fn take_own_tables(&mut self, gateways: &[GatewayState]) -> Vec<OwnTable> {
        let mut hosts = take_own(&mut self.hosts, |entry| entry.slot);
        let mut certificates = take_own(&mut self.certificates, |entry| entry.slot);
        let build = |gateway: &GatewayState| {
            let slot = gateway.placement.slot()?;
            let owner = HostOwners::of_namespace(gateway.object.namespace());
            let hosts = hosts.remove(&slot).unwrap_or_default();
            let certificates = certificates.remove(&slot).unwrap_or_default();
            Some(OwnTable {
                slot,
                gateway: gateway.object.metadata.uid.clone().unwrap_or_default(),
                ports: gateway.ports,
                table: Arc::new(RoutingTable::build(hosts, certificates, &owner)),
            })
        };
        gateways.iter().filter_map(build).collect()
    }
}

/// Removes the entries with a slot, and returns them by slot.
fn take_own<T>(
    entries: &mut Vec<T>,
    slot_of: impl Fn(&T) -> Option<Slot>,
) -> HashMap<Slot, Vec<T>> {
    let mut own: HashMap<Slot, Vec<T>> = HashMap::new();
    let mut shared = Vec::new();
    for entry in std::mem::take(entries) {
        match slot_of(&entry) {
            Some(slot) => own.entry(slot).or_default().push(entry),
            None => shared.push(entry),
        }
    }
    *entries = shared;
    own
}

fn compute_class_statuses(
    classes: &[GatewayObject<GatewayClassSpec>],
    context: &Context<'_>,
) -> Vec<StatusChange> {
    let write = |class: &GatewayObject<GatewayClassSpec>| {
        let spec = class.spec.as_ref().ok()?;
        if spec.controller_name != context.controller {
            return None;
        }
        let verdict = match &spec.parameters_ref {
            None => Verdict::holds("Accepted", "Accepted"),
            Some(_) => Verdict::fails(
                "Accepted",
                "InvalidParameters",
                "spec.parametersRef is not supported",
            ),
        };
        let generation = class.metadata.generation.unwrap_or_default();
        let stored = &class.status["conditions"];
        let status =
            json!({"conditions": compute_conditions(&[verdict], stored, generation, context.now)});
        change_of(StatusKind::GatewayClass, class, status)
    };
    classes.iter().filter_map(write).collect()
}

fn compute_statuses(
    ingresses: &[IngressRules],
    gateways: &[GatewayState],
    routes: &[RouteState],
    context: &Context<'_>,
) -> Vec<StatusChange> {
    let entries = encode_for_ingress(context.addresses);
    let shared = encode_for_gateway(context.addresses);
    let mut changes: Vec<StatusChange> = ingresses
        .iter()
        .filter_map(|rules| ingress_change(rules, &entries))
        .collect();
    changes.extend(gateways.iter().filter_map(|gateway| {
        let addresses = match &gateway.placement {
            Placement::Shared => shared.clone(),
            Placement::Own(own) => encode_for_gateway(&own.addresses),
            Placement::Pending(_) | Placement::Refused(_) => Vec::new(),
        };
        let status = gateway.compute_status(&addresses, context.now);
        change_of(StatusKind::Gateway, &gateway.object, status)
    }));
    changes.extend(routes.iter().filter_map(|route| {
        let status = route.compute_status(context.controller, context.now);
        change_of(StatusKind::HttpRoute, &route.object, status)
    }));
    changes
}

fn change_of<S>(
    kind: StatusKind,
    object: &GatewayObject<S>,
    status: Value,
) -> Option<StatusChange> {
    // Fields of other writers remain: the status is patched.
    let written = status.as_object()?;
    let differs = written.iter().any(|(name, value)| {
        object.status.get(name) != Some(value) && !is_same_absence(value, object.status.get(name))
    });
    differs.then(|| StatusChange {
        kind,
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
        status,
    })
}

/// Returns whether an empty list is written where the stored status has no field.
fn is_same_absence(written: &Value, stored: Option<&Value>) -> bool {
    stored.is_none() && written.as_array().is_some_and(Vec::is_empty)
}

fn ingress_change(rules: &IngressRules, entries: &[Value]) -> Option<StatusChange> {
    let ingress = &rules.ingress;
    // An Ingress of which nothing is served has no address.
    let wanted = if rules.hosts.is_empty() { &[] } else { entries };
    let stored = ingress.status.as_ref();
    let stored = stored.and_then(|status| status.load_balancer.as_ref());
    let stored = stored.and_then(|found| found.ingress.as_ref());
    let stored: Vec<Value> = stored
        .into_iter()
        .flatten()
        .map(|entry| serde_json::to_value(entry).unwrap_or_default())
        .collect();
    (stored != wanted).then(|| StatusChange {
        kind: StatusKind::Ingress,
        namespace: ingress.namespace().to_owned(),
        name: ingress.name().to_owned(),
        resource_version: ingress.resource_version().to_owned(),
        status: json!({"loadBalancer": {"ingress": wanted}}),
    })
}

#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
