//! From a question's bytes to an answer's bytes.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};

use crate::zone::{Answer, View, authority, resolve};

/// The largest UDP answer that passes everywhere without fragments.
const SAFE_PAYLOAD: u16 = 1232;

/// What becomes of a question.
pub enum Reply {
    /// This is the answer.
    Ready(Box<Message>),
    /// Somebody else has to be asked.
    Forward,
    /// The alias is ours, its target has to be asked for elsewhere; the message holds the alias.
    Follow(Box<Message>, Name, RecordType),
    /// Not worth an answer.
    Ignore,
}

/// The answer to a request, or what else has to be done about it.
pub fn reply(view: &dyn View, domain: &Name, request: &Message, synced: bool) -> Reply {
    if request.message_type() != MessageType::Query {
        return Reply::Ignore;
    }
    if request.op_code() != OpCode::Query {
        return Reply::Ready(Box::new(respond(request, ResponseCode::NotImp)));
    }
    let [query] = request.queries() else {
        return Reply::Ready(Box::new(respond(request, ResponseCode::FormErr)));
    };
    if query.query_class() != DNSClass::IN {
        return Reply::Ready(Box::new(respond(request, ResponseCode::Refused)));
    }
    let ours = domain.zone_of(query.name());
    if ours && !synced {
        // A denial now could be wrong and be kept; a failure makes the client ask again.
        return Reply::Ready(Box::new(respond(request, ResponseCode::ServFail)));
    }
    let kind = query.query_type();
    let mut message = respond(request, ResponseCode::NoError);
    message.set_authoritative(true);
    match resolve(view, domain, query.name(), kind) {
        Answer::Records { answers, additional } => {
            message.add_answers(answers);
            message.add_additionals(additional);
        }
        Answer::NoData => {
            message.add_name_server(authority(domain));
        }
        Answer::NxDomain => {
            message.set_response_code(ResponseCode::NXDomain);
            message.add_name_server(authority(domain));
        }
        Answer::Alias { record, target } => {
            message.add_answer(record);
            return Reply::Follow(Box::new(message), target, kind);
        }
        Answer::Elsewhere => return Reply::Forward,
    }
    Reply::Ready(Box::new(message))
}

/// An empty answer to a request.
pub fn respond(request: &Message, code: ResponseCode) -> Message {
    let mut message = Message::new();
    message
        .set_id(request.id())
        .set_message_type(MessageType::Response)
        .set_op_code(request.op_code())
        .set_recursion_desired(request.recursion_desired())
        .set_recursion_available(true)
        .set_response_code(code)
        .add_queries(request.queries().iter().cloned());
    if request.extensions().is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(SAFE_PAYLOAD);
        message.set_edns(edns);
    }
    message
}

/// The bytes of an answer. Over UDP what does not fit is left out and marked as cut, so that the client comes back
/// over TCP.
pub fn encode(request: &Message, mut message: Message, udp: bool) -> Option<Vec<u8>> {
    let limit = usize::from(request.max_payload().clamp(512, SAFE_PAYLOAD));
    let bytes = message.to_vec().ok()?;
    if !udp || bytes.len() <= limit {
        return Some(bytes);
    }
    if message.additional_count() > 0 {
        message.take_additionals();
        let bytes = message.to_vec().ok()?;
        if bytes.len() <= limit {
            return Some(bytes);
        }
    }
    let mut answers: Vec<Record> = message.take_answers();
    message.set_truncated(true);
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
