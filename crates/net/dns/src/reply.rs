//! Computes the reply to a DNS request.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};

use crate::zone::{Answer, View, resolve_name, soa_record};

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
    let [query] = request.queries.as_slice() else {
        return Reply::Ready(Box::new(empty_response(request, ResponseCode::FormErr)));
    };
    if query.query_class() != DNSClass::IN {
        return Reply::Ready(Box::new(empty_response(request, ResponseCode::Refused)));
    }
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
        let answer = empty_response(&request, ResponseCode::FormErr);
        assert_eq!(answer.queries, [Query::query(name(0), RecordType::A)]);
        assert!(encode_message(&request, answer, false).unwrap().len() < 100);
    }
}
