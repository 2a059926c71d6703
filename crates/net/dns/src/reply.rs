//! Computes the reply to a DNS request.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};

use crate::zone::{Answer, View};
use crate::zone::{resolve_name, soa_record};

/// Maximum size of a UDP response that passes everywhere without fragmentation (DNS Flag Day 2020).
const SAFE_PAYLOAD: u16 = 1232;

/// The reply to a request.
pub enum Reply {
    /// The complete response.
    Ready(Box<Message>),
    /// The name is outside of the zone: forward the request.
    Forward,
    /// The alias is in the zone, its target must be resolved upstream; the message holds the alias.
    Follow(Box<Message>, Name, RecordType),
    /// The request gets no response.
    Ignore,
}

/// Computes the reply to a request.
pub fn build_reply(view: &dyn View, domain: &Name, request: &Message, synced: bool) -> Reply {
    if request.metadata.message_type != MessageType::Query {
        return Reply::Ignore;
    }
    if request.metadata.op_code != OpCode::Query {
        return Reply::Ready(Box::new(empty_response(request, ResponseCode::NotImp)));
    }
    // Servers answer one question only; RFC 9619 makes that the standard.
    let [query] = request.queries.as_slice() else {
        return Reply::Ready(Box::new(empty_response(request, ResponseCode::FormErr)));
    };
    if query.query_class() != DNSClass::IN {
        return Reply::Ready(Box::new(empty_response(request, ResponseCode::Refused)));
    }
    // Reverse names are not in the zone; until the sync they are forwarded.
    let ours = domain.zone_of(query.name());
    if ours && !synced {
        // Before the informers have synced, NXDOMAIN could be wrong and be cached; SERVFAIL makes
        // the client retry.
        return Reply::Ready(Box::new(empty_response(request, ResponseCode::ServFail)));
    }
    let kind = query.query_type();
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

/// Builds an empty response. It repeats only the first question: a request may hold thousands, and
/// a client that sends more than one gets an error.
pub fn empty_response(request: &Message, code: ResponseCode) -> Message {
    let mut message = Message::response(request.metadata.id, request.metadata.op_code);
    message.metadata.recursion_desired = request.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.queries.extend(request.queries.first().cloned());
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(SAFE_PAYLOAD);
        message.set_edns(edns);
    }
    message
}

/// Encodes a response. Over UDP, records that do not fit are omitted and the response is marked as
/// truncated, so that the client retries over TCP.
pub fn encode_message(request: &Message, mut message: Message, udp: bool) -> Option<Vec<u8>> {
    let limit = usize::from(request.max_payload().clamp(512, SAFE_PAYLOAD));
    let bytes = message.to_vec().ok()?;
    if !udp || bytes.len() <= limit {
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
    let mut answers: Vec<Record> = std::mem::take(&mut message.answers);
    message.metadata.truncation = true;
    while !answers.is_empty() {
        // Halving needs few encodings; how many records remain does not matter, because the client
        // retries over TCP.
        answers.truncate(answers.len() / 2);
        let mut shorter = message.clone();
        shorter.add_answers(answers.iter().cloned());
        let bytes = shorter.to_vec().ok()?;
        if bytes.len() <= limit {
            return Some(bytes);
        }
    }
    message.to_vec().ok()
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
        assert!(encode_message(&request, response, false).unwrap().len() < 100);
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

    #[test]
    fn response_is_not_a_request() {
        let mut response = query("w.ns.svc.cluster.local.", RecordType::A);
        response.metadata.message_type = MessageType::Response;
        assert!(matches!(reply_to(&response, true), Reply::Ignore));
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
    fn response_that_is_too_large_for_udp_is_truncated() {
        let request = query("big.ns.svc.cluster.local.", RecordType::TXT);
        let mut message = empty_response(&request, ResponseCode::NoError);
        let text = || hickory_proto::rr::rdata::TXT::new(vec!["x".repeat(200)]);
        let name = Name::from_ascii("big.ns.svc.cluster.local.").unwrap();
        message.add_answers((0..40).map(|_| {
            let data = hickory_proto::rr::RData::TXT(text());
            Record::from_rdata(name.clone(), 5, data)
        }));
        let udp = encode_message(&request, message.clone(), true).unwrap();
        let short = Message::from_vec(&udp).unwrap();
        assert!(
            udp.len() <= 512 && short.metadata.truncation,
            "{}",
            udp.len()
        );
        let tcp = Message::from_vec(&encode_message(&request, message, false).unwrap()).unwrap();
        assert!(tcp.answers.len() == 40 && !tcp.metadata.truncation);
    }
}
