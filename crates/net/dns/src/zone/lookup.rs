//! Resolves a Service's name to targets, and targets to records.

use std::net::IpAddr;

use api_semantics::endpoints::is_endpoint_ready;
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::answer::{Answer, TTL, View};
use super::names::{dashed_address, name_under, parse_dashed};

/// An address with its name and ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub name: Name,
    pub address: IpAddr,
    pub ports: Vec<u16>,
}

/// The result of a lookup.
pub enum Found {
    Nothing,
    Targets(Vec<Target>),
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
    pub fn resolve_service(&self, labels: &[&str], name: &str, namespace: &str) -> Found {
        let Some(part) = NamePart::parse(labels) else {
            return Found::Nothing;
        };
        let Some(service) = self.view.find_service(namespace, name) else {
            return Found::Nothing;
        };
        let spec = service.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            let target = spec
                .external_name
                .as_deref()
                .unwrap_or_default()
                .trim_end_matches('.');
            return match (part, Name::from_ascii(format!("{target}."))) {
                (NamePart::Whole, Ok(target)) if !target.is_root() => Found::Alias(target),
                _ => Found::Nothing,
            };
        }
        let headless = spec.cluster_ip.as_deref() == Some("None");
        // A host name below a Service with a cluster IP names an endpoint as well.
        let by_endpoint = headless || matches!(part, NamePart::Host(_));
        let targets = if by_endpoint {
            self.endpoint_targets(&part, name, namespace)
        } else {
            self.cluster_targets(&part, &service, name, namespace)
        };
        // A headless Service without endpoints has a name without records; CoreDNS responds with
        // NXDOMAIN, and so does this server.
        if targets.is_empty() {
            Found::Nothing
        } else {
            Found::Targets(targets)
        }
    }

    fn cluster_targets(
        &self,
        part: &NamePart<'_>,
        service: &Service,
        name: &str,
        namespace: &str,
    ) -> Vec<Target> {
        let spec = service.spec.clone().unwrap_or_default();
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
        let Some(full) = name_under(self.domain, &[name, namespace, "svc"]) else {
            return Vec::new();
        };
        if matches!(part, NamePart::Port { .. }) && ports.is_empty() {
            return Vec::new();
        }
        let addresses = spec
            .cluster_ips
            .unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
        addresses
            .iter()
            .filter_map(|text| text.parse().ok())
            .map(|address| Target {
                name: full.clone(),
                address,
                ports: ports.clone(),
            })
            .collect()
    }

    fn endpoint_targets(&self, part: &NamePart<'_>, name: &str, namespace: &str) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for slice in self.view.list_slices(namespace, name) {
            let ports = slice_ports(&slice, part);
            if matches!(part, NamePart::Port { .. }) && ports.is_empty() {
                continue;
            }
            for (endpoint, address) in ready_endpoints(&slice) {
                let host = endpoint_host(endpoint, address);
                if matches!(part, NamePart::Host(requested) if *requested != host) {
                    continue;
                }
                if let Some(full) = name_under(self.domain, &[&host, name, namespace, "svc"]) {
                    targets.push(Target {
                        name: full,
                        address,
                        ports: ports.clone(),
                    });
                }
            }
        }
        // A slice that is being split has an endpoint twice for a moment.
        targets.dedup();
        targets
    }

    /// Builds records of one type for some targets.
    pub fn build_answer(&self, name: &Name, targets: &[Target], kind: RecordType) -> Answer {
        let answers: Vec<Record> = match kind {
            RecordType::A | RecordType::AAAA => {
                let mut addresses: Vec<IpAddr> =
                    targets.iter().map(|target| target.address).collect();
                // Several ports of one endpoint are several targets, but its address is one record.
                addresses.sort();
                addresses.dedup();
                addresses
                    .into_iter()
                    .filter_map(|address| address_record(name, address, kind))
                    .collect()
            }
            RecordType::SRV => srv_records(name, targets),
            _ => Vec::new(),
        };
        if answers.is_empty() {
            return Answer::NoData;
        }
        let additional = match kind {
            RecordType::SRV => targets
                .iter()
                .filter_map(|t| any_address_record(&t.name, t.address))
                .collect(),
            _ => Vec::new(),
        };
        Answer::Records {
            answers,
            additional,
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

fn endpoint_host(endpoint: &Endpoint, address: IpAddr) -> String {
    endpoint
        .hostname
        .clone()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| dashed_address(address))
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
            any_address_record(name, address)
        }
        _ => None,
    }
}

fn any_address_record(name: &Name, address: IpAddr) -> Option<Record> {
    let data = match address {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    };
    Some(Record::from_rdata(name.clone(), TTL, data))
}

fn srv_records(name: &Name, targets: &[Target]) -> Vec<Record> {
    // The specification leaves the weight open; CoreDNS divides 100 as well.
    let weight = u16::try_from(100 / targets.len().max(1))
        .unwrap_or(1)
        .max(1);
    let mut seen = Vec::new();
    for target in targets {
        for port in &target.ports {
            let data = RData::SRV(SRV::new(0, weight, *port, target.name.clone()));
            let record = Record::from_rdata(name.clone(), TTL, data);
            if !seen.contains(&record) {
                seen.push(record);
            }
        }
    }
    seen
}

/// Returns the name of the Service that a slice belongs to.
pub(crate) fn service_name(slice: &EndpointSlice) -> Option<&str> {
    slice
        .metadata
        .labels
        .as_ref()?
        .get("kubernetes.io/service-name")
        .map(String::as_str)
}
