//! Computes the reply to a DNS request.

use hickory_proto::op::{Edns, Header, Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use hickory_proto::serialize::binary::BinDecodable;
use rand::seq::SliceRandom;

use crate::zone::{Answer, View};
use crate::zone::{resolve_name, soa_record};

/// Maximum size of a UDP response that passes everywhere without fragmentation (DNS Flag Day 2020).
pub const SAFE_PAYLOAD: u16 = 1232;
/// The smallest record: the root's name or a pointer, type, class, TTL and length.
const MIN_RECORD: usize = 11;

/// The transport of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a packet, whose source address can be forged.
    Udp,
    /// Over a connection.
    Tcp,
}

/// The result of a check of the first twelve bytes of a request.
pub enum HeaderCheck {
    /// Parse the rest.
    Accept,
    /// Respond with an error.
    Reject(Metadata, ResponseCode),
    /// Respond with nothing.
    Ignore,
}

/// Checks a header before the rest is parsed. The limits are those of CoreDNS's library.
pub fn check_header(bytes: &[u8]) -> HeaderCheck {
    let Ok(Header { metadata, counts }) = Header::from_bytes(bytes) else {
        return HeaderCheck::Ignore;
    };
    // A response to a response could be one of an endless series.
    if metadata.message_type != MessageType::Query {
        return HeaderCheck::Ignore;
    }
    if metadata.op_code != OpCode::Query {
        return HeaderCheck::Reject(metadata, ResponseCode::NotImp);
    }
    // Servers answer one question only; RFC 9619 makes that the standard. Additional records are
    // OPT and TSIG.
    if counts.queries != 1 || counts.answers > 1 || counts.authorities > 1 || counts.additionals > 2
    {
        return HeaderCheck::Reject(metadata, ResponseCode::FormErr);
    }
    HeaderCheck::Accept
}

/// Builds an error without a question.
pub fn build_error(request: Metadata, code: ResponseCode) -> Message {
    let mut message = Message::response(request.id, request.op_code);
    message.metadata.recursion_desired = request.recursion_desired;
    message.metadata.response_code = code;
    message
}

/// The reply to a request.
pub enum Reply {
    /// The complete response.
    Ready(Box<Message>),
    /// The name is outside of the zone: forward the request.
    Forward,
    /// The alias is in the zone, its target must be resolved upstream; the message holds the alias.
    Follow(Box<Message>, Name, RecordType),
    /// The same, but the alias only holds if its target exists.
    Search(Box<Message>, Name, RecordType),
    /// The request is rejected.
    Reject(ResponseCode),
}

/// Computes the reply to a request.
pub fn build_reply(view: &dyn View, domain: &Name, request: &Message, synced: bool) -> Reply {
    if request.metadata.op_code != OpCode::Query {
        return Reply::Reject(ResponseCode::NotImp);
    }
    let [query] = request.queries.as_slice() else {
        return Reply::Reject(ResponseCode::FormErr);
    };
    if request.version() > 0 {
        return Reply::Reject(ResponseCode::BADVERS);
    }
    // Zone transfers are not for clients of a resolver.
    let kind = query.query_type();
    if query.query_class() != DNSClass::IN || is_transfer(kind) {
        return Reply::Reject(ResponseCode::Refused);
    }
    // Reverse names are not in the zone; until the sync they are forwarded.
    if domain.zone_of(query.name()) && !synced {
        // Before the informers have synced, NXDOMAIN could be wrong and be cached; SERVFAIL makes
        // the client retry.
        return Reply::Reject(ResponseCode::ServFail);
    }
    let mut message = empty_response(request, ResponseCode::NoError);
    message.metadata.authoritative = true;
    match resolve_name(view, domain, query.name(), kind) {
        Answer::Records {
            answers,
            additional,
        } => {
            message.add_answers(answers);
            message.add_additionals(additional);
        }
        Answer::NoData => {
            message.add_authority(soa_record(domain));
        }
        Answer::NxDomain => {
            message.metadata.response_code = ResponseCode::NXDomain;
            message.add_authority(soa_record(domain));
        }
        Answer::Alias { record, target } => {
            message.add_answer(record);
            return Reply::Follow(Box::new(message), target, kind);
        }
        Answer::Elsewhere => return Reply::Forward,
    }
    Reply::Ready(Box::new(message))
}

fn is_transfer(kind: RecordType) -> bool {
    matches!(kind, RecordType::AXFR | RecordType::IXFR)
}

/// Builds an empty response. It repeats only the first question: a request may hold thousands, and
/// a client that sends more than one gets an error.
pub fn empty_response(request: &Message, code: ResponseCode) -> Message {
    let mut message = Message::response(request.metadata.id, request.metadata.op_code);
    message.metadata.recursion_desired = request.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.queries.extend(request.queries.first().cloned());
    if let Some(requested) = &request.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(SAFE_PAYLOAD);
        // RFC 3225, section 3: the bit is copied.
        edns.set_dnssec_ok(requested.flags().dnssec_ok);
        message.set_edns(edns);
    }
    message
}

/// Shuffles the address records at the end of an answer, as CoreDNS's `loadbalance`: many clients
/// connect to the first address.
pub fn shuffle_addresses(answers: &mut [Record]) {
    let is_address =
        |record: &Record| matches!(record.record_type(), RecordType::A | RecordType::AAAA);
    // Aliases come first, and stay there.
    let aliases = answers.iter().take_while(|record| !is_address(record));
    let first = aliases.count();
    if let Some(addresses) = answers.get_mut(first..)
        && addresses.len() > 1
        && addresses.iter().all(is_address)
    {
        addresses.shuffle(&mut rand::rng());
    }
}

/// Encodes a response. Over UDP, records that do not fit are omitted and the response is marked as
/// truncated, so that the client retries over TCP.
pub fn encode_message(
    request: &Message,
    mut message: Message,
    transport: Transport,
) -> Option<Vec<u8>> {
    if transport == Transport::Tcp {
        return encode_for_tcp(message);
    }
    let limit = usize::from(request.max_payload().clamp(512, SAFE_PAYLOAD));
    // Of thousands of endpoints, most would only be encoded to be omitted.
    let most = limit / MIN_RECORD;
    if message.answers.len() + message.additionals.len() > most {
        message.additionals.clear();
    }
    if message.answers.len() <= most {
        let bytes = message.to_vec().ok()?;
        if bytes.len() <= limit {
            return Some(bytes);
        }
        // Additional records only save a second request; omitting them is no truncation (RFC 2181,
        // section 9).
        if !message.additionals.is_empty() {
            message.additionals.clear();
            let bytes = message.to_vec().ok()?;
            if bytes.len() <= limit {
                return Some(bytes);
            }
        }
    }
    message.answers.truncate(most);
    truncate_message(message, limit)
}

/// Encodes the records that fit into `limit` bytes, and marks the message as truncated.
fn truncate_message(mut message: Message, limit: usize) -> Option<Vec<u8>> {
    message.metadata.truncation = true;
    message.additionals.clear();
    message.authorities.clear();
    while !message.answers.is_empty() {
        // Halving needs few encodings; how many records remain does not matter, because the client
        // retries over TCP.
        message.answers.truncate(message.answers.len() / 2);
        let bytes = message.to_vec().ok()?;
        if bytes.len() <= limit {
            return Some(bytes);
        }
    }
    message.to_vec().ok()
}

/// Encodes a response of at most 64 KiB, the maximum over TCP.
fn encode_for_tcp(message: Message) -> Option<Vec<u8>> {
    let limit = usize::from(u16::MAX);
    let bytes = message.to_vec().ok()?;
    if bytes.len() <= limit {
        return Some(bytes);
    }
    truncate_message(message, limit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hickory_proto::op::Query;

    #[test]
    fn answer_repeats_only_the_first_of_many_questions() {
        let mut request = Message::new(7, MessageType::Query, OpCode::Query);
        let name = |n: usize| Name::from_ascii(format!("n{n}.example.")).unwrap();
        request.queries = (0..4000)
            .map(|n| Query::query(name(n), RecordType::A))
            .collect();
        let response = empty_response(&request, ResponseCode::FormErr);
        assert_eq!(response.queries, [Query::query(name(0), RecordType::A)]);
        assert!(
            encode_message(&request, response, Transport::Tcp)
                .unwrap()
                .len()
                < 100
        );
    }

    fn query(name: &str, kind: RecordType) -> Message {
        let mut request = Message::new(7, MessageType::Query, OpCode::Query);
        request.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        request
    }

    fn reply_to(request: &Message, synced: bool) -> Reply {
        let domain = Name::from_ascii("cluster.local.").unwrap();
        build_reply(&crate::zone::tests::cluster(), &domain, request, synced)
    }

    fn response_code(request: &Message, synced: bool) -> Option<ResponseCode> {
        match reply_to(request, synced) {
            Reply::Ready(message) => Some(message.metadata.response_code),
            Reply::Reject(code) => Some(code),
            _ => None,
        }
    }

    #[test]
    fn response_code_follows_the_request() {
        let known = || query("w.ns.svc.cluster.local.", RecordType::A);
        let mut update = known();
        update.metadata.op_code = OpCode::Update;
        let mut empty = known();
        empty.queries.clear();
        let mut chaos = known();
        chaos.queries[0].set_query_class(DNSClass::CH);
        for (case, request, expected) in [
            ("known name", known(), ResponseCode::NoError),
            (
                "unknown name",
                query("x.ns.svc.cluster.local.", RecordType::A),
                ResponseCode::NXDomain,
            ),
            ("update", update, ResponseCode::NotImp),
            ("no question", empty, ResponseCode::FormErr),
            ("another class", chaos, ResponseCode::Refused),
        ] {
            assert_eq!(response_code(&request, true), Some(expected), "{case}");
        }
    }

    /// A client caches NXDOMAIN; SERVFAIL makes it retry.
    #[test]
    fn name_of_the_zone_is_a_server_failure_until_the_informers_have_synced() {
        let request = query("w.ns.svc.cluster.local.", RecordType::A);
        assert_eq!(response_code(&request, false), Some(ResponseCode::ServFail));
        let outside = query("www.example.com.", RecordType::A);
        assert!(matches!(reply_to(&outside, false), Reply::Forward));
    }

    /// RFC 2308: without the zone's SOA record a negative answer is not cached.
    #[test]
    fn negative_answer_has_the_soa_record() {
        for name in ["x.ns.svc.cluster.local.", "ns.svc.cluster.local."] {
            let Reply::Ready(message) = reply_to(&query(name, RecordType::A), true) else {
                unreachable!("{name} is in the zone");
            };
            let kinds: Vec<_> = message
                .authorities
                .iter()
                .map(|r| r.record_type())
                .collect();
            assert_eq!(kinds, [RecordType::SOA], "{name}");
            assert!(message.answers.is_empty(), "{name}");
        }
    }

    #[test]
    fn addresses_are_shuffled_behind_the_aliases() {
        use crate::test_resolver::{address, alias, name};
        let target = name("b.");
        let addresses = (0..20).map(|n| address(&target, 5, n));
        let sorted: Vec<_> = [alias("a.", "b.", 5)]
            .into_iter()
            .chain(addresses)
            .collect();
        let mut shuffled = sorted.clone();
        shuffle_addresses(&mut shuffled);
        assert_eq!(shuffled[0], sorted[0]);
        assert_ne!(shuffled, sorted);
        shuffled.sort_by_key(|record| record.data.ip_addr());
        assert_eq!(shuffled, sorted);
        // Signatures belong to the records before them.
        let mut mixed = [&sorted[1..3], &sorted[..1]].concat();
        shuffle_addresses(&mut mixed);
        assert_eq!(mixed, [&sorted[1..3], &sorted[..1]].concat());
    }

    #[test]
    fn response_that_is_too_large_for_udp_is_truncated() {
        let request = query("big.ns.svc.cluster.local.", RecordType::TXT);
        let mut message = empty_response(&request, ResponseCode::NoError);
        let text = || hickory_proto::rr::rdata::TXT::new(vec!["x".repeat(200)]);
        let name = Name::from_ascii("big.ns.svc.cluster.local.").unwrap();
        message.add_answers((0..40).map(|_| {
            let data = hickory_proto::rr::RData::TXT(text());
            Record::from_rdata(name.clone(), 5, data)
        }));
        let udp = encode_message(&request, message.clone(), Transport::Udp).unwrap();
        let short = Message::from_vec(&udp).unwrap();
        assert!(
            udp.len() <= 512 && short.metadata.truncation,
            "{}",
            udp.len()
        );
        let tcp =
            Message::from_vec(&encode_message(&request, message, Transport::Tcp).unwrap()).unwrap();
        assert!(tcp.answers.len() == 40 && !tcp.metadata.truncation);
    }
}
