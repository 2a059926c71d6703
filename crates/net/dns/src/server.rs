//! Responds to requests: at once from the cluster or the cache, or after an upstream resolver.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::time::Instant;

use crate::clients::{Clients, Slot};
use crate::forwarded_answer::ForwardedAnswer;
use crate::forwarder::{Forwarder, Resolution};
use crate::question::Question;
use crate::reply::{
    HeaderCheck, Reply, Transport, build_error, build_reply, check_header, empty_response,
    encode_message,
};
use crate::zone::View;

/// State that responses need.
pub(crate) struct Server {
    pub view: Box<dyn View>,
    pub domain: Name,
    pub forwarder: Forwarder,
    pub clients: Clients,
}

/// The next step for a request.
pub(crate) enum Step {
    /// Send this response.
    Respond(Vec<u8>),
    /// Send nothing.
    Ignore,
    /// Wait for an upstream resolver.
    Wait(Box<Pending>),
}

/// A request that an upstream resolver must answer.
pub(crate) struct Pending {
    request: Message,
    /// The response so far: empty, or an alias of the cluster.
    response: Message,
    question: Question,
    client: IpAddr,
    transport: Transport,
    /// Counts the request for its client.
    _slot: Slot,
}

impl Server {
    /// Responds to a request if that is possible at once. A panic fails only this request.
    pub fn start_request(&self, bytes: &[u8], client: IpAddr, transport: Transport) -> Step {
        catch_unwind(AssertUnwindSafe(|| {
            self.start_unguarded(bytes, client, transport)
        }))
        .unwrap_or_else(|_| {
            tracing::error!("answering a request panicked; the request is dropped");
            Step::Ignore
        })
    }

    fn start_unguarded(&self, bytes: &[u8], client: IpAddr, transport: Transport) -> Step {
        match check_header(bytes) {
            HeaderCheck::Accept => {}
            HeaderCheck::Reject(header, code) => {
                return encode_step(build_error(header, code).to_vec().ok());
            }
            HeaderCheck::Ignore => return Step::Ignore,
        }
        let Ok(request) = Message::from_vec(bytes) else {
            return Step::Ignore;
        };
        let synced = self.view.has_synced();
        match build_reply(self.view.as_ref(), &self.domain, &request, synced) {
            Reply::Ready(message) => encode_step(encode_message(&request, *message, transport)),
            Reply::Ignore => Step::Ignore,
            Reply::Forward => {
                let Some(question) = Question::from_request(&request) else {
                    return Step::Ignore;
                };
                let response = empty_response(&request, ResponseCode::NoError);
                self.start_forward(request, response, question, client, transport)
            }
            Reply::Follow(response, target, kind) => {
                let question = Question::about(&request, &target, kind);
                self.start_forward(request, *response, question, client, transport)
            }
        }
    }

    fn start_forward(
        &self,
        request: Message,
        mut response: Message,
        question: Question,
        client: IpAddr,
        transport: Transport,
    ) -> Step {
        if question.kind == RecordType::ANY && transport == Transport::Udp {
            // RFC 8482: the largest answers there are. Over TCP the client's address is verified,
            // so that nothing is amplified.
            response.metadata.truncation = true;
            return encode_step(encode_message(&request, response, transport));
        }
        let now = Instant::now();
        if let Some(answer) = self.forwarder.find_cached(&question, now) {
            return encode_step(respond_with(&request, response, &answer, transport, now));
        }
        let Some(slot) = self.clients.admit_question(client) else {
            response.metadata.response_code = ResponseCode::Refused;
            return encode_step(encode_message(&request, response, transport));
        };
        Step::Wait(Box::new(Pending {
            request,
            response,
            question,
            client,
            transport,
            _slot: slot,
        }))
    }

    /// Waits for an upstream resolver and returns the response.
    pub async fn finish_request(&self, pending: Pending) -> Option<Vec<u8>> {
        let Pending {
            request,
            mut response,
            question,
            client,
            transport,
            _slot,
        } = pending;
        let failure = match self.forwarder.resolve(question, client).await {
            Resolution::Answer(answer) => {
                return respond_with(&request, response, &answer, transport, Instant::now());
            }
            Resolution::Failed => ResponseCode::ServFail,
            // As CoreDNS's `max_concurrent`.
            Resolution::Rejected => ResponseCode::Refused,
        };
        // An alias alone is still correct.
        if response.answers.is_empty() {
            response.metadata.response_code = failure;
        }
        encode_message(&request, response, transport)
    }
}

fn respond_with(
    request: &Message,
    mut response: Message,
    answer: &ForwardedAnswer,
    transport: Transport,
    now: Instant,
) -> Option<Vec<u8>> {
    answer.write_to(request, &mut response, now);
    encode_message(request, response, transport)
}

fn encode_step(bytes: Option<Vec<u8>>) -> Step {
    bytes.map_or(Step::Ignore, Step::Respond)
}
