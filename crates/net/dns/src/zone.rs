//! Resolves names. Pure: a view of the cluster in, records out.

mod answer;
mod lookup;
mod names;

use std::net::IpAddr;

use hickory_proto::rr::rdata::{SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

pub use answer::{Answer, TTL, View};
use lookup::{Found, Lookup};

/// Version of the specification that the zone follows.
const VERSION: &str = "1.1.0";

/// Resolves `name`.
pub fn resolve_name(view: &dyn View, domain: &Name, name: &Name, kind: RecordType) -> Answer {
    // Reverse names first: they are outside of the cluster's domain.
    if let Ok(net) = name.parse_arpa_name() {
        return answer_reverse(view, domain, name, net.addr(), kind);
    }
    let Some(labels) = names::labels_below(domain, name) else {
        return Answer::Elsewhere;
    };
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let lookup = Lookup { view, domain };
    match labels.as_slice() {
        [] => answer_apex(domain, name, kind),
        // Empty non-terminals exist: NXDOMAIN would deny all names below them (RFC 8020).
        ["svc" | "pod"] => Answer::NoData,
        ["dns-version"] => answer_version(name, kind),
        [namespace, "svc" | "pod"] => answer_existence(view.has_namespace(namespace)),
        [address, namespace, "pod"] => lookup.resolve_pod(name, address, namespace, kind),
        [rest @ .., service, namespace, "svc"] => {
            match lookup.resolve_service(rest, service, namespace) {
                Found::Nothing => Answer::NxDomain,
                Found::Targets(targets) => lookup.build_answer(name, &targets, kind),
                Found::Alias(target) => answer_alias(view, domain, name, &target, kind),
            }
        }
        _ => Answer::NxDomain,
    }
}

fn answer_existence(yes: bool) -> Answer {
    if yes {
        Answer::NoData
    } else {
        Answer::NxDomain
    }
}

/// Returns the SOA record, which also limits the caching of negative answers.
pub fn soa_record(domain: &Name) -> Record {
    let under = |label: &str| {
        Name::from_ascii(label)
            .and_then(|l| l.append_domain(domain))
            .unwrap_or_default()
    };
    let soa = SOA::new(
        under("ns.dns"),
        under("hostmaster"),
        1,
        7200,
        1800,
        86_400,
        TTL,
    );
    Record::from_rdata(domain.clone(), TTL, RData::SOA(soa))
}

fn answer_apex(domain: &Name, name: &Name, kind: RecordType) -> Answer {
    match kind {
        RecordType::SOA | RecordType::ANY => {
            let mut record = soa_record(domain);
            record.name = name.clone();
            records_answer(vec![record])
        }
        _ => Answer::NoData,
    }
}

fn answer_version(name: &Name, kind: RecordType) -> Answer {
    match kind {
        RecordType::TXT | RecordType::ANY => {
            let text = RData::TXT(TXT::new(vec![VERSION.to_owned()]));
            records_answer(vec![Record::from_rdata(name.clone(), TTL, text)])
        }
        _ => Answer::NoData,
    }
}

fn records_answer(answers: Vec<Record>) -> Answer {
    Answer::Records {
        answers,
        additional: Vec::new(),
    }
}

/// Resolves an ExternalName Service: the alias, and its target if that is in the zone too.
fn answer_alias(
    view: &dyn View,
    domain: &Name,
    name: &Name,
    target: &Name,
    kind: RecordType,
) -> Answer {
    use hickory_proto::rr::rdata::CNAME;
    let record = Record::from_rdata(name.clone(), TTL, RData::CNAME(CNAME(target.clone())));
    // An alias of itself would be resolved without an end.
    if kind == RecordType::CNAME || target == name {
        return records_answer(vec![record]);
    }
    match resolve_once(view, domain, target, kind) {
        Answer::Records {
            mut answers,
            additional,
        } => {
            answers.insert(0, record);
            Answer::Records {
                answers,
                additional,
            }
        }
        Answer::Elsewhere => Answer::Alias {
            record,
            target: target.clone(),
        },
        _ => records_answer(vec![record]),
    }
}

/// Follows one alias only: a chain of ExternalName Services could be a loop.
fn resolve_once(view: &dyn View, domain: &Name, name: &Name, kind: RecordType) -> Answer {
    match names::labels_below(domain, name).as_deref() {
        None => Answer::Elsewhere,
        Some([.., service, namespace, svc]) if svc == "svc" => {
            let lookup = Lookup { view, domain };
            match lookup.resolve_service(&[], service, namespace) {
                Found::Targets(targets) => lookup.build_answer(name, &targets, kind),
                _ => Answer::NoData,
            }
        }
        Some(_) => Answer::NoData,
    }
}

fn answer_reverse(
    view: &dyn View,
    domain: &Name,
    name: &Name,
    address: IpAddr,
    kind: RecordType,
) -> Answer {
    let lookup = Lookup { view, domain };
    let found = lookup.names_of(address);
    // The address may be one of another network whose reverse zone the upstream knows.
    if found.is_empty() {
        return Answer::Elsewhere;
    }
    match kind {
        RecordType::PTR | RecordType::ANY => {
            use hickory_proto::rr::rdata::PTR;
            let record = |target| Record::from_rdata(name.clone(), TTL, RData::PTR(PTR(target)));
            records_answer(found.into_iter().map(record).collect())
        }
        _ => Answer::NoData,
    }
}

#[cfg(test)]
#[path = "zone_tests.rs"]
pub(crate) mod tests;
