//! Resolves a Service's name to targets, and targets to records.

use std::collections::HashSet;
use std::net::IpAddr;

use api_semantics::endpoints::{is_endpoint_ready, service_name};
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::answer::{Answer, TTL, View};
use super::names::{dashed_address, name_under, parse_dashed};

/// An address with its ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    address: IpAddr,
    /// Host name of an endpoint, if it has one; endpoints without are named by their addresses.
    host: Option<String>,
    ports: Vec<u16>,
}

/// The targets of a Service.
#[derive(Debug)]
pub struct Targets<'a> {
    service: &'a str,
    namespace: &'a str,
    level: Level,
    targets: Vec<Target>,
}

/// The level of the names of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The Service's name.
    Service,
    /// A host name below the Service's name.
    Endpoint,
}

/// The result of a lookup.
pub enum Found<'a> {
    Nothing,
    Targets(Targets<'a>),
    Alias(Name),
}

pub struct Lookup<'a> {
    pub view: &'a dyn View,
    pub domain: &'a Name,
}

/// The labels before the Service's name.
enum NamePart<'a> {
    Whole,
    Host(&'a str),
    Port { name: &'a str, protocol: &'a str },
}

impl<'a> NamePart<'a> {
    fn parse(labels: &[&'a str]) -> Option<Self> {
        match labels {
            [] => Some(Self::Whole),
            [host] => Some(Self::Host(host)),
            [name, protocol] => Some(Self::Port {
                name: name.strip_prefix('_')?,
                protocol: protocol.strip_prefix('_')?,
            }),
            _ => None,
        }
    }

    fn selects_port(&self, name: &str, protocol: &str) -> bool {
        match self {
            Self::Port {
                name: requested,
                protocol: over,
            } => *requested == name && protocol.eq_ignore_ascii_case(over),
            _ => true,
        }
    }
}

impl Lookup<'_> {
    /// Returns the targets of a Service, or of the part of it that `labels` name.
    pub fn resolve_service<'n>(
        &self,
        labels: &[&str],
        service: &'n str,
        namespace: &'n str,
    ) -> Found<'n> {
        let Some(part) = NamePart::parse(labels) else {
            return Found::Nothing;
        };
        let object = self.view.find_service(namespace, service);
        // Not cloned: a Service is much larger than its answer.
        let Some(spec) = object.as_ref().and_then(|object| object.spec.as_ref()) else {
            return Found::Nothing;
        };
        if spec.type_.as_deref() == Some("ExternalName") {
            return find_alias(&part, spec);
        }
        let headless = spec.cluster_ip.as_deref() == Some("None");
        // A host name below a Service with a cluster IP names an endpoint as well.
        let (level, targets) = if headless || matches!(part, NamePart::Host(_)) {
            let targets = self.endpoint_targets(&part, service, namespace);
            (Level::Endpoint, targets)
        } else {
            (Level::Service, cluster_targets(&part, spec))
        };
        // A headless Service without endpoints has a name without records; CoreDNS responds with
        // NXDOMAIN, and so does this server.
        if targets.is_empty() {
            return Found::Nothing;
        }
        Found::Targets(Targets {
            service,
            namespace,
            level,
            targets,
        })
    }

    fn endpoint_targets(&self, part: &NamePart<'_>, name: &str, namespace: &str) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for slice in self.view.list_slices(namespace, name) {
            let ports = slice_ports(&slice, part);
            if matches!(part, NamePart::Port { .. }) && ports.is_empty() {
                continue;
            }
            for (endpoint, address) in ready_endpoints(&slice) {
                let host = host_name(endpoint);
                let is_named = |requested: &str| match host {
                    Some(host) => host == requested,
                    None => dashed_address(address) == requested,
                };
                if matches!(part, NamePart::Host(requested) if !is_named(requested)) {
                    continue;
                }
                targets.push(Target {
                    host: host.map(ToOwned::to_owned),
                    address,
                    ports: ports.clone(),
                });
            }
        }
        // An endpoint that moves to another slice is in both for a moment, at any place in each.
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Builds records of one type for some targets.
    pub fn build_answer(&self, name: &Name, found: &Targets<'_>, kind: RecordType) -> Answer {
        let targets = &found.targets;
        match kind {
            RecordType::A | RecordType::AAAA => {
                let mut addresses: Vec<IpAddr> =
                    targets.iter().map(|target| target.address).collect();
                // Several ports of one endpoint are several targets, but its address is one record.
                addresses.sort_unstable();
                addresses.dedup();
                let records = addresses.into_iter();
                answer_records(
                    records.filter_map(|address| address_record(name, address, kind)),
                    Vec::new(),
                )
            }
            RecordType::SRV => {
                let named = targets.iter().filter_map(|target| {
                    let name = self.target_name(found, target)?;
                    Some((name, target))
                });
                let named: Vec<(Name, &Target)> = named.collect();
                // Sorted by address: the same endpoint with other ports is the next target.
                let mut owners: Vec<(&Name, IpAddr)> = named
                    .iter()
                    .map(|(name, target)| (name, target.address))
                    .collect();
                owners.dedup();
                let additional = owners
                    .into_iter()
                    .map(|(name, address)| any_address_record(name, address));
                answer_records(srv_records(name, &named).into_iter(), additional.collect())
            }
            _ => Answer::NoData,
        }
    }

    fn target_name(&self, found: &Targets<'_>, target: &Target) -> Option<Name> {
        let below = [found.service, found.namespace, "svc"];
        match (found.level, target.host.as_deref()) {
            (Level::Service, _) => name_under(self.domain, &below),
            (Level::Endpoint, Some(host)) => {
                name_under(self.domain, &[&[host], &below[..]].concat())
            }
            (Level::Endpoint, None) => {
                let host = dashed_address(target.address);
                name_under(self.domain, &[&[host.as_str()], &below[..]].concat())
            }
        }
    }

    /// Resolves a pod's dashed address without verifying it: CoreDNS' mode `pods insecure`,
    /// kubeadm's default.
    pub fn resolve_pod(
        &self,
        name: &Name,
        dashed: &str,
        namespace: &str,
        kind: RecordType,
    ) -> Answer {
        let Some(address) = parse_dashed(dashed).filter(|_| self.view.has_namespace(namespace))
        else {
            return Answer::NxDomain;
        };
        match address_record(name, address, kind) {
            Some(record) => Answer::Records {
                answers: vec![record],
                additional: Vec::new(),
            },
            None => Answer::NoData,
        }
    }

    /// Returns the names of an address, for reverse lookups.
    pub fn names_of(&self, address: IpAddr) -> Vec<Name> {
        if let Some(service) = self.view.find_service_by_address(address) {
            let meta = &service.metadata;
            let labels = [meta.name.as_deref(), meta.namespace.as_deref()];
            let [name, namespace] = labels.map(Option::unwrap_or_default);
            return name_under(self.domain, &[name, namespace, "svc"])
                .into_iter()
                .collect();
        }
        let mut found = Vec::new();
        for slice in self.view.list_slices_by_address(address) {
            let Some(service) = service_name(&slice) else {
                continue;
            };
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            for (endpoint, at) in ready_endpoints(&slice).filter(|(_, at)| *at == address) {
                found.extend(name_under(
                    self.domain,
                    &[&endpoint_host(endpoint, at), service, namespace, "svc"],
                ));
            }
        }
        found.sort();
        found.dedup();
        found
    }
}

fn find_alias<'n>(part: &NamePart<'_>, spec: &ServiceSpec) -> Found<'n> {
    let target = spec.external_name.as_deref().unwrap_or_default();
    let target = Name::from_ascii(format!("{}.", target.trim_end_matches('.')));
    match (part, target) {
        (NamePart::Whole, Ok(target)) if !target.is_root() => Found::Alias(target),
        _ => Found::Nothing,
    }
}

fn cluster_targets(part: &NamePart<'_>, spec: &ServiceSpec) -> Vec<Target> {
    let ports: Vec<u16> = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            part.selects_port(port.name.as_deref().unwrap_or_default(), protocol)
        })
        .filter_map(|port| u16::try_from(port.port).ok())
        .collect();
    if matches!(part, NamePart::Port { .. }) && ports.is_empty() {
        return Vec::new();
    }
    let addresses = match &spec.cluster_ips {
        Some(addresses) => addresses.as_slice(),
        None => spec.cluster_ip.as_slice(),
    };
    addresses
        .iter()
        .filter_map(|text| text.parse().ok())
        .map(|address| Target {
            host: None,
            address,
            ports: ports.clone(),
        })
        .collect()
}

fn answer_records(records: impl Iterator<Item = Record>, additional: Vec<Record>) -> Answer {
    let answers: Vec<Record> = records.collect();
    if answers.is_empty() {
        return Answer::NoData;
    }
    Answer::Records {
        answers,
        additional,
    }
}

/// Yields the ready endpoints, which are the only ones with names (with `publishNotReadyAddresses`
/// all count as ready).
fn ready_endpoints(slice: &EndpointSlice) -> impl Iterator<Item = (&Endpoint, IpAddr)> {
    slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| is_endpoint_ready(endpoint.conditions.as_ref()))
        .flat_map(|endpoint| {
            endpoint
                .addresses
                .iter()
                .filter_map(move |text| Some((endpoint, text.parse().ok()?)))
        })
}

fn host_name(endpoint: &Endpoint) -> Option<&str> {
    endpoint.hostname.as_deref().filter(|name| !name.is_empty())
}

fn endpoint_host(endpoint: &Endpoint, address: IpAddr) -> String {
    host_name(endpoint).map_or_else(|| dashed_address(address), ToOwned::to_owned)
}

fn slice_ports(slice: &EndpointSlice, part: &NamePart<'_>) -> Vec<u16> {
    let ports = slice.ports.iter().flatten();
    ports
        .filter(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            part.selects_port(port.name.as_deref().unwrap_or_default(), protocol)
        })
        .filter_map(|port| u16::try_from(port.port?).ok())
        .collect()
}

fn address_record(name: &Name, address: IpAddr, kind: RecordType) -> Option<Record> {
    match (address, kind) {
        (IpAddr::V4(_), RecordType::A) | (IpAddr::V6(_), RecordType::AAAA) => {
            Some(any_address_record(name, address))
        }
        _ => None,
    }
}

fn any_address_record(name: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    };
    Record::from_rdata(name.clone(), TTL, data)
}

fn srv_records(name: &Name, targets: &[(Name, &Target)]) -> Vec<Record> {
    // The specification leaves the weight open; CoreDNS divides 100 as well.
    let weight = u16::try_from(100 / targets.len().max(1))
        .unwrap_or(1)
        .max(1);
    let mut seen = HashSet::new();
    let mut records = Vec::new();
    for (target_name, target) in targets {
        for port in &target.ports {
            if seen.insert((target_name, *port)) {
                let data = SRV::new(0, weight, *port, target_name.clone());
                records.push(Record::from_rdata(name.clone(), TTL, RData::SRV(data)));
            }
        }
    }
    records
}
