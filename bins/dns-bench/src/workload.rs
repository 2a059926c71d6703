//! The requests of each part.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

/// Requests of one sort, and what the responses must be.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Encoded requests; the ID is replaced.
    pub requests: Vec<Vec<u8>>,
    pub code: ResponseCode,
    /// True if responses have answers.
    pub has_answers: bool,
}

/// The number of names outside of the cluster.
const OUTER_NAMES: usize = 1000;
const DOMAIN: &str = "bench-dns.svc.cluster.local";

/// Builds all parts, for Services `s0`... and headless Services `h0`....
pub fn build_workloads(services: u16, headless: u16) -> anyhow::Result<Vec<Workload>> {
    use RecordType::{A, AAAA, SRV};
    let (services, headless) = (usize::from(services), usize::from(headless));
    let service = |n: usize| format!("s{n}.{DOMAIN}.");
    let outer = |n: usize| format!("n{n}.outer.example.");
    let build = |name, count, kind, owner: &dyn Fn(usize) -> String| -> anyhow::Result<_> {
        let requests = (0..count).map(|n| encode_request(&owner(n), kind));
        Ok(Workload {
            name,
            requests: requests.collect::<anyhow::Result<_>>()?,
            code: ResponseCode::NoError,
            has_answers: true,
        })
    };
    let mut without_records = build("service-aaaa", services, AAAA, &service)?;
    without_records.has_answers = false;
    let searched = |n: usize| format!("n{n}.outer.example.{DOMAIN}.");
    let mut denied = build("search-path", OUTER_NAMES, A, &searched)?;
    (denied.code, denied.has_answers) = (ResponseCode::NXDomain, false);
    Ok(vec![
        build("service", services, A, &service)?,
        without_records,
        build("service-srv", services, SRV, &|n| {
            format!("_http._tcp.s{n}.{DOMAIN}.")
        })?,
        build("headless", headless, A, &|n| format!("h{n}.{DOMAIN}."))?,
        denied,
        build("outer-cached", OUTER_NAMES, A, &outer)?,
    ])
}

fn encode_request(owner: &str, kind: RecordType) -> anyhow::Result<Vec<u8>> {
    let mut request = Message::new(0, MessageType::Query, OpCode::Query);
    request.metadata.recursion_desired = true;
    request.add_query(Query::query(Name::from_ascii(owner)?, kind));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    request.set_edns(edns);
    Ok(request.to_vec()?)
}
