//! Findings of the repair, which are reported as Events about the Services.
//!
//! A finding that repair cannot fix, such as an address of two Services, is reported once by each
//! server. It is reported again if it has disappeared in between.
//!
//! A task of its own creates the Events, as upstream's recorder does: admission webhooks that do
//! not answer delay neither the repair nor the bootstrap.

use super::finding_queue::{Defect, Finding};
use super::{addresses, ports};
use crate::registry::Registry;
use crate::write::Write;
use api_meta::{ApiError, Meta, time};
use api_semantics::service_ranges::is_allocatable;
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum time for all Events of a round.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of Events of a round. A store without any allocations has a finding for each
/// Service.
const MAX_EVENTS: usize = 100;

/// Findings that were reported and that repair cannot fix, with the Service's UID.
#[derive(Debug, Default)]
pub(super) struct ReportedFindings(BTreeSet<(String, Defect)>);

impl ReportedFindings {
    /// Returns the findings that the last round did not have.
    pub(super) fn select_new(&mut self, findings: Vec<Finding>) -> Vec<Finding> {
        let key = |finding: &Finding| (finding.service.uid().to_owned(), finding.defect);
        let before = std::mem::take(&mut self.0);
        self.0 = findings.iter().map(key).collect();
        let is_new = |finding: &Finding| !before.contains(&key(finding));
        findings.into_iter().filter(is_new).collect()
    }
}

/// Returns the defects that repair cannot fix. `ranges` are those of all ServiceCIDRs; `holders`
/// returns the UID of the Service for which an address is allocated.
pub(super) fn find_unrepairable(
    services: &[Arc<Value>],
    ranges: &[IpNet],
    port_range: &RangeInclusive<u16>,
    holder: impl Fn(IpAddr) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut addresses: BTreeMap<IpAddr, Vec<&Arc<Value>>> = BTreeMap::new();
    let mut seen_ports = BTreeSet::new();
    for service in services {
        let mut report = |defect| {
            findings.push(Finding {
                service: service.clone(),
                defect,
            });
        };
        for address in addresses::cluster_ips(service) {
            addresses.entry(address).or_default().push(service);
            if !ranges.iter().any(|r| is_allocatable(r, address)) {
                report(Defect::AddressOutOfRange(address));
            }
        }
        for port in ports::node_ports(service) {
            if !port_range.contains(&port) {
                report(Defect::PortOutOfRange(port));
            } else if !seen_ports.insert(port) {
                report(Defect::PortAlreadyAllocated(port));
            }
        }
    }
    for (address, all) in addresses.into_iter().filter(|(_, all)| all.len() > 1) {
        let held_by = holder(address);
        // If the address is allocated for none of them, the first one keeps it.
        let rightful = all
            .iter()
            .position(|service| held_by.as_deref() == Some(service.uid()))
            .unwrap_or(0);
        let others = all.into_iter().enumerate();
        let others = others.filter_map(|(at, service)| (at != rightful).then_some(service));
        findings.extend(others.map(|service| Finding {
            service: service.clone(),
            defect: Defect::AddressAlreadyAllocated(address),
        }));
    }
    findings
}

/// The texts of an Event.
struct Report {
    controller: &'static str,
    reason: &'static str,
    action: &'static str,
    note: String,
}

fn describe_defect(defect: Defect, port_range: &RangeInclusive<u16>) -> Report {
    let of_address = |reason, note| Report {
        controller: "ipallocator-repair-controller",
        reason,
        action: "ClusterIPAllocation",
        note,
    };
    let of_port = |reason, note| Report {
        controller: "portallocator-repair-controller",
        reason,
        action: "PortAllocation",
        note,
    };
    let family = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
    match defect {
        Defect::AddressNotAllocated(ip) => of_address(
            "ClusterIPNotAllocated",
            format!(
                "Cluster IP [{}]: {ip} is not allocated; repairing",
                family(ip)
            ),
        ),
        Defect::AddressOutOfRange(ip) => of_address(
            "ClusterIPOutOfRange",
            format!(
                "Cluster IP [{}]: {ip} is not within any configured Service CIDR; please recreate service",
                family(ip)
            ),
        ),
        Defect::AddressAlreadyAllocated(ip) => of_address(
            "ClusterIPAlreadyAllocated",
            format!(
                "Cluster IP [{}]:{ip} was assigned to multiple services; please recreate service",
                family(ip)
            ),
        ),
        Defect::PortNotAllocated(port) => of_port(
            "PortNotAllocated",
            format!("Port {port} is not allocated; repairing"),
        ),
        Defect::PortOutOfRange(port) => of_port(
            "PortOutOfRange",
            format!(
                "Port {port} is not within the port range {}-{}; please recreate service",
                port_range.start(),
                port_range.end()
            ),
        ),
        Defect::PortAlreadyAllocated(port) => of_port(
            "PortAlreadyAllocated",
            format!("Port {port} was assigned to multiple services; please recreate service"),
        ),
    }
}

fn build_event(service: &Value, report: &Report, now: Timestamp) -> Value {
    let name = format!("{}.{:x}", service.name(), now.as_nanosecond());
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": service.namespace()},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Service", "namespace": service.namespace(),
            "name": service.name(), "uid": service.uid(),
            "resourceVersion": service["metadata"]["resourceVersion"],
        },
        "eventTime": time::format_micro(now),
        "type": "Warning", "reason": report.reason, "action": report.action,
        "message": report.note, "reportingComponent": report.controller,
        "reportingInstance": report.controller,
    })
}

impl Registry {
    /// Queues the findings of a round for [`Registry::create_finding_events`].
    pub(super) fn report_findings(&self, mut findings: Vec<Finding>) {
        if findings.is_empty() {
            return;
        }
        if findings.len() > MAX_EVENTS {
            tracing::warn!(
                findings = findings.len(),
                events = MAX_EVENTS,
                "allocations of many Services are wrong; some have no Event"
            );
        }
        findings.truncate(MAX_EVENTS);
        if !self.findings.add(findings) {
            tracing::warn!("Events of wrong allocations are dropped: those of former rounds wait");
        }
    }

    /// Creates Events for the findings of repair rounds, until `stop`.
    pub async fn create_finding_events(&self, stop: &CancellationToken) {
        let create = async {
            while let Some(findings) = self.findings.receive().await {
                let events = self.create_events(&findings);
                if tokio::time::timeout(EVENTS_TIMEOUT, events).await.is_err() {
                    tracing::warn!(
                        timeout = ?EVENTS_TIMEOUT,
                        "failed to create all Events of wrong allocations in time"
                    );
                }
            }
        };
        stop.run_until_cancelled(create).await;
    }

    /// Creates an Event for each finding. Errors are logged.
    pub(crate) async fn create_events(&self, findings: &[Finding]) {
        for finding in findings {
            if let Err(error) = self.create_event(finding).await {
                let service = &finding.service;
                tracing::info!(
                    namespace = service.namespace(), service = service.name(),
                    defect = ?finding.defect, %error,
                    "failed to create the Event of a wrong allocation"
                );
            }
        }
    }

    async fn create_event(&self, finding: &Finding) -> Result<(), ApiError> {
        let Some(events) = api_kinds::find("", "v1", "events") else {
            return Ok(());
        };
        let range = &self.options.services.options.node_ports;
        let report = describe_defect(finding.defect, range);
        let event = build_event(&finding.service, &report, Timestamp::now());
        let mut write = Write::internal(events, finding.service.namespace(), "");
        self.create(&mut write, event).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn service(name: &str, address: &str, ports: &[u16]) -> Arc<Value> {
        let ports: Vec<_> = ports.iter().map(|port| json!({"nodePort": port})).collect();
        Arc::new(
            json!({"metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"type": "NodePort", "clusterIPs": [address], "ports": ports}}),
        )
    }

    fn describe(findings: &[Finding]) -> Vec<String> {
        let text = |f: &Finding| {
            let report = describe_defect(f.defect, &(30000..=30100));
            format!("{} {}: {}", f.service.name(), report.reason, report.note)
        };
        findings.iter().map(text).collect()
    }

    #[test]
    fn unrepairable_defects_are_found_and_reported_once() {
        let of = "please recreate service";
        let shared = format!(
            "ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.0.0.5 was assigned to multiple services; {of}"
        );
        for (services, holder, expect) in [
            (
                vec![
                    service("a", "10.0.0.5", &[30001]),
                    service("b", "10.0.0.6", &[30002]),
                ],
                None,
                vec![],
            ),
            (vec![service("a", "None", &[])], None, vec![]),
            (
                vec![service("a", "10.1.0.5", &[])],
                None,
                vec![format!(
                    "a ClusterIPOutOfRange: Cluster IP [IPv4]: 10.1.0.5 is not within any configured Service CIDR; {of}"
                )],
            ),
            (
                vec![service("a", "10.0.0.5", &[29999])],
                None,
                vec![format!(
                    "a PortOutOfRange: Port 29999 is not within the port range 30000-30100; {of}"
                )],
            ),
            (
                vec![
                    service("a", "10.0.0.5", &[30001]),
                    service("b", "10.0.0.6", &[30001]),
                ],
                None,
                vec![format!(
                    "b PortAlreadyAllocated: Port 30001 was assigned to multiple services; {of}"
                )],
            ),
            (
                vec![service("a", "10.0.0.5", &[]), service("b", "10.0.0.5", &[])],
                None,
                vec![format!("b {shared}")],
            ),
            (
                vec![service("a", "10.0.0.5", &[]), service("b", "10.0.0.5", &[])],
                Some("b"),
                vec![format!("a {shared}")],
            ),
            (
                vec![service("a", "10.0.0.5", &[]), service("b", "10.0.0.5", &[])],
                Some("deleted"),
                vec![format!("b {shared}")],
            ),
        ] {
            let ranges = ["10.0.0.0/24".parse().unwrap()];
            let holder = |_| holder.map(str::to_owned);
            let findings = find_unrepairable(&services, &ranges, &(30000..=30100), holder);
            assert_eq!(describe(&findings), expect, "{services:?}");
            let mut reported = ReportedFindings::default();
            assert_eq!(reported.select_new(findings.clone()).len(), expect.len());
            assert!(reported.select_new(findings.clone()).is_empty());
            assert!(reported.select_new(Vec::new()).is_empty());
            assert_eq!(reported.select_new(findings).len(), expect.len());
        }
    }
}
