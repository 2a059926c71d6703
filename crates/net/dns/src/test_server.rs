//! A server without sockets for tests, and requests to it.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};

use crate::answer_cache::AnswerCache;
use crate::clients::Clients;
use crate::forwarder::Forwarder;
use crate::metrics::Metrics;
use crate::server::Server;
use crate::stub_domain::{StubDomain, sort_stub_domains};
use crate::zone::tests::cluster;

/// Creates a server for the clients of one range.
pub(crate) fn new_server(
    allow: &str,
    upstreams: Vec<SocketAddr>,
    stub_domains: Vec<StubDomain>,
) -> Server {
    let cache = AnswerCache::new(Duration::from_secs(30));
    let domain = Name::from_ascii("cluster.local.").unwrap();
    let stub_domains = sort_stub_domains(stub_domains, &domain).unwrap();
    let own = SocketAddr::from(([127, 0, 0, 1], 53));
    let forwarder = Forwarder::new(upstreams, stub_domains, own, Some(cache));
    Server {
        view: Box::new(cluster()),
        domain,
        metrics: Metrics::new(own, forwarder.domains()),
        forwarder,
        clients: Clients::new(vec![allow.parse().unwrap()]),
        search_paths: None,
    }
}

pub(crate) fn request(name: &str, kind: RecordType) -> Message {
    let mut request = Message::new(1, MessageType::Query, OpCode::Query);
    request.metadata.recursion_desired = true;
    request.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    request
}

/// Returns the bytes of a request for the addresses of a name.
pub(crate) fn question(name: &str) -> Vec<u8> {
    request(name, RecordType::A).to_vec().unwrap()
}
