//! Questions to upstream resolvers, and which responses belong to them.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, Name, RecordType};

use crate::reply::SAFE_PAYLOAD;

/// The parts of a request that select its answer. ID, spelling of the name and EDNS options belong
/// to the client alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// Name in lower case.
    pub name: Name,
    pub kind: RecordType,
    /// True if the client wants DNSSEC records (the DO bit).
    pub dnssec_ok: bool,
    /// True if the resolver must not validate (the CD bit).
    pub checking_disabled: bool,
}

impl Question {
    /// Returns the question of a request; None if there is none.
    pub fn from_request(request: &Message) -> Option<Self> {
        let query = request.queries.first()?;
        Some(Self::about(request, query.name(), query.query_type()))
    }

    /// Returns a question for another name with the bits of a request.
    pub fn about(request: &Message, name: &Name, kind: RecordType) -> Self {
        Self {
            name: name.to_lowercase(),
            kind,
            dnssec_ok: request
                .edns
                .as_ref()
                .is_some_and(|edns| edns.flags().dnssec_ok),
            checking_disabled: request.metadata.checking_disabled,
        }
    }

    /// Builds a request with a random ID.
    pub fn build_request(&self, extension: Extension) -> Message {
        // From a generator that is seeded by the kernel. A forger has to guess the ID and the port
        // of a new socket.
        let mut request = Message::new(rand::random(), MessageType::Query, OpCode::Query);
        request.metadata.recursion_desired = true;
        request.metadata.checking_disabled = self.checking_disabled;
        request.add_query(Query::query(self.name.clone(), self.kind));
        if extension == Extension::Edns {
            let mut edns = Edns::new();
            edns.set_max_payload(SAFE_PAYLOAD);
            edns.set_dnssec_ok(self.dnssec_ok);
            request.set_edns(edns);
        }
        request
    }

    /// Returns whether a response is one to this question with the request's ID.
    pub fn is_answered_by(&self, id: u16, response: &Message) -> bool {
        let [query] = response.queries.as_slice() else {
            return false;
        };
        response.metadata.id == id
            && response.metadata.message_type == MessageType::Response
            && response.metadata.op_code == OpCode::Query
            && query.query_class() == DNSClass::IN
            && query.query_type() == self.kind
            // Case-insensitive: some resolvers return another spelling.
            && *query.name() == self.name
    }
}

/// The OPT record of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    /// With an OPT record.
    Edns,
    /// Without, for resolvers that reject it.
    Plain,
}
