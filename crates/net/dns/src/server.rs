//! Responds to requests: at once from the cluster or the cache, or after an upstream resolver.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use base_telemetry::{FileDescriptors, MetricsPage};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::time::Instant;

use crate::clients::Clients;
use crate::forwarder::{Forwarder, Resolution};
use crate::metrics::{Metrics, RequestRecord, Source};
use crate::question::Question;
use crate::reply::{
    HeaderCheck, Reply, Transport, build_error, build_reply, check_header, empty_response,
    encode_message, shuffle_addresses,
};
use crate::search_path::{SearchPaths, deny};
use crate::slots::Slot;
use crate::zone::View;

/// State that responses need.
pub(crate) struct Server {
    pub view: Box<dyn View>,
    pub domain: Name,
    pub forwarder: Forwarder,
    pub clients: Clients,
    /// None if each name of a search path is answered alone.
    pub search_paths: Option<SearchPaths>,
    pub metrics: Metrics,
}

/// The next step for a request.
pub(crate) enum Step {
    /// Send this response.
    Respond(Vec<u8>),
    /// Send nothing.
    Ignore,
    /// Wait for an upstream resolver.
    Wait(Box<ForwardedRequest>),
}

/// A request that an upstream resolver must answer.
pub(crate) struct ForwardedRequest {
    draft: Draft,
    question: Question,
    /// Counts the request for its client.
    slot: Slot,
}

/// A request with its response so far.
struct Draft {
    request: Message,
    /// Empty, an alias of the cluster, or complete.
    response: Message,
    record: RequestRecord,
    /// True if the response holds an alias that must not be sent without its target.
    is_search: bool,
}

impl Server {
    /// Returns whether a client is allowed.
    pub fn allows(&self, client: IpAddr) -> bool {
        self.clients.allows(client) || self.view.has_node_address(client)
    }

    /// Responds to a request if that is possible at once. A panic fails only this request.
    pub fn start_request(&self, bytes: &[u8], client: IpAddr, transport: Transport) -> Step {
        catch_unwind(AssertUnwindSafe(|| {
            self.start_unguarded(bytes, client, transport)
        }))
        .unwrap_or_else(|_| {
            self.metrics.count_panic();
            tracing::error!("answering a request panicked; the request is dropped");
            Step::Ignore
        })
    }

    fn start_unguarded(&self, bytes: &[u8], client: IpAddr, transport: Transport) -> Step {
        let started = Instant::now();
        match check_header(bytes) {
            HeaderCheck::Accept => {}
            HeaderCheck::Reject(header, code) => {
                let response = build_error(header, code).to_vec().ok();
                return response.map_or(Step::Ignore, Step::Respond);
            }
            HeaderCheck::Ignore => return Step::Ignore,
        }
        let Ok(request) = Message::from_vec(bytes) else {
            return Step::Ignore;
        };
        let Some(question) = Question::from_request(&request) else {
            return Step::Ignore;
        };
        let record = RequestRecord {
            started,
            client,
            transport,
            kind: question.kind,
            domain: self.find_domain(&question.name),
        };
        let synced = self.view.has_synced();
        let reply = build_reply(self.view.as_ref(), &self.domain, &request, synced);
        let reply = self.follow_search_path(reply, &request, client);
        let is_search = matches!(reply, Reply::Search(..));
        let draft = |request, response| Draft {
            request,
            response,
            record,
            is_search,
        };
        match reply {
            Reply::Ready(response) => self.respond(draft(request, *response), Source::Cluster),
            Reply::Reject(code) => {
                let response = empty_response(&request, code);
                self.respond(draft(request, response), Source::Server)
            }
            Reply::Forward => {
                let response = empty_response(&request, ResponseCode::NoError);
                self.start_forward(draft(request, response), question)
            }
            Reply::Follow(response, target, kind) | Reply::Search(response, target, kind) => {
                let question = Question::about(&request, &target, kind);
                self.start_forward(draft(request, *response), question)
            }
        }
    }

    /// Replaces the denial of a pod's first name by the reply for its whole search path.
    fn follow_search_path(&self, reply: Reply, request: &Message, client: IpAddr) -> Reply {
        let Some(paths) = &self.search_paths else {
            return reply;
        };
        let is_denied =
            |message: &Message| message.metadata.response_code == ResponseCode::NXDomain;
        match reply {
            Reply::Ready(message) if is_denied(&message) => {
                let found = self.view.namespace_of_pod(client).and_then(|namespace| {
                    paths.follow(self.view.as_ref(), &self.domain, request, &namespace)
                });
                // A search that needs a resolver is counted when the resolver has found the name.
                if matches!(found, Some(Reply::Ready(_) | Reply::Follow(..))) {
                    self.metrics.count_search();
                }
                found.unwrap_or(Reply::Ready(message))
            }
            other => other,
        }
    }

    /// Returns the index of the domain that metrics count a name for.
    fn find_domain(&self, name: &Name) -> usize {
        // The cluster's domain may be in a stub domain, whose resolvers do not know it.
        if self.domain.zone_of(name) {
            return self.forwarder.root_domain();
        }
        self.forwarder.find_domain(name)
    }

    fn start_forward(&self, mut draft: Draft, question: Question) -> Step {
        if question.kind == RecordType::ANY && draft.record.transport == Transport::Udp {
            // RFC 8482: the largest answers there are. Over TCP the client's address is verified,
            // so that nothing is amplified.
            draft.response.metadata.truncation = true;
            return self.respond(draft, Source::Server);
        }
        let now = draft.record.started;
        if let Some(answer) = self.forwarder.find_cached(&question, now) {
            answer.write_to(&draft.request, &mut draft.response, now);
            self.end_search(&mut draft);
            return self.respond(draft, Source::Cache);
        }
        let Some(slot) = self.clients.admit_request(draft.record.client) else {
            self.metrics.count_reject();
            draft.response.metadata.response_code = ResponseCode::Refused;
            if draft.is_search {
                draft.response.answers.clear();
            }
            return self.respond(draft, Source::Server);
        };
        Step::Wait(Box::new(ForwardedRequest {
            draft,
            question,
            slot,
        }))
    }

    /// Waits for an upstream resolver and returns the response.
    pub async fn finish_request(&self, forwarded: ForwardedRequest) -> Option<Vec<u8>> {
        let ForwardedRequest {
            mut draft,
            question,
            slot,
        } = forwarded;
        let client = draft.record.client;
        let resolution = tokio::select! {
            biased;
            () = slot.wait_until_ended() => Resolution::Rejected,
            resolution = self.forwarder.resolve(question, client) => resolution,
        };
        let failure = match resolution {
            Resolution::Answer(answer) => {
                answer.write_to(&draft.request, &mut draft.response, Instant::now());
                self.end_search(&mut draft);
                return self.encode(draft, Source::Upstream);
            }
            Resolution::Failed => ResponseCode::ServFail,
            Resolution::Rejected => {
                self.metrics.count_reject();
                // As CoreDNS's `max_concurrent`.
                ResponseCode::Refused
            }
        };
        if draft.is_search {
            draft.response.answers.clear();
        }
        // An alias alone is still correct.
        if draft.response.answers.is_empty() {
            draft.response.metadata.response_code = failure;
        }
        self.encode(draft, Source::Server)
    }

    /// Counts a search whose target a resolver has found, or removes its alias.
    fn end_search(&self, draft: &mut Draft) {
        match draft.response.metadata.response_code {
            _ if !draft.is_search => {}
            ResponseCode::NoError => self.metrics.count_search(),
            ResponseCode::NXDomain => deny(&mut draft.response, &self.domain),
            _ => draft.response.answers.clear(),
        }
    }

    fn respond(&self, draft: Draft, source: Source) -> Step {
        self.encode(draft, source)
            .map_or(Step::Ignore, Step::Respond)
    }

    fn encode(&self, draft: Draft, source: Source) -> Option<Vec<u8>> {
        let Draft {
            request,
            mut response,
            record,
            ..
        } = draft;
        shuffle_addresses(&mut response.answers);
        let code = response.metadata.response_code;
        let bytes = encode_message(&request, response, record.transport)?;
        self.metrics.count_response(&record, code, source);
        Some(bytes)
    }

    /// Returns the page of metrics.
    pub fn write_metrics(&self) -> String {
        let mut page = MetricsPage::default();
        self.metrics.write_to(&mut page);
        self.forwarder.write_metrics(&self.metrics, &mut page);
        page.write_process(FileDescriptors::read());
        page.finish()
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
