//! An answer of an upstream resolver, reduced to what belongs to the question.

use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::time::Instant;

use crate::question::Question;

/// Lifetime of a SERVFAIL, as in CoreDNS. Without it, each request for a broken zone would
/// wait for the resolvers' timeouts.
const FAILURE_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum length of a chain of aliases.
const MAX_ALIASES: usize = 16;

/// The part of the cache that an answer belongs to. The names are CoreDNS's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Records of the requested type.
    Success,
    /// No such name, no such type, or a failure.
    Denial,
}

/// An answer of an upstream resolver.
#[derive(Debug)]
pub(crate) struct ForwardedAnswer {
    pub code: ResponseCode,
    pub outcome: Outcome,
    /// Time for which the answer may be reused; zero if it must not be.
    pub lifetime: Duration,
    authentic: bool,
    truncated: bool,
    answers: Vec<Record>,
    authorities: Vec<Record>,
    received: Instant,
}

impl ForwardedAnswer {
    /// Keeps the chain of aliases from the requested name, the records at its end, and the proof
    /// that there are none. `max_ttl` limits the lifetime and the TTLs that clients
    /// see, as in CoreDNS.
    pub fn from_response(
        question: &Question,
        response: Message,
        max_ttl: Option<Duration>,
        now: Instant,
    ) -> Self {
        let metadata = response.metadata;
        let names = follow_aliases(question, &response.answers);
        let seconds = max_ttl.map_or(u32::MAX, |max| saturate(max.as_secs()));
        let cap_ttl = |mut record: Record| {
            record.ttl = record.ttl.min(seconds);
            record
        };
        let answers = response.answers.into_iter();
        let answers = answers
            .filter(|record| belongs_to_answer(question, &names, record))
            .map(cap_ttl)
            .collect();
        let authorities = response.authorities.into_iter();
        let authorities = authorities
            .filter(|record| belongs_to_denial(question, &names, record))
            .map(cap_ttl)
            .collect();
        let code = metadata.response_code;
        let mut answer = Self {
            // The upper bits of an extended code concern the EDNS of this server, and are lost for
            // clients without EDNS: BADVERS would become NOERROR.
            code: if code.high() == 0 {
                code
            } else {
                ResponseCode::ServFail
            },
            outcome: Outcome::Denial,
            lifetime: Duration::ZERO,
            authentic: metadata.authentic_data,
            truncated: metadata.truncation,
            answers,
            authorities,
            received: now,
        };
        let lifetime = answer.classify(question, names.last()).unwrap_or_default();
        answer.lifetime = lifetime.min(max_ttl.unwrap_or(Duration::MAX));
        answer
    }

    /// Sets the outcome and returns the lifetime; None if the answer must not be cached.
    fn classify(&mut self, question: &Question, end: Option<&Name>) -> Option<Duration> {
        // The rest of the records is missing, and the next client must get it.
        if self.truncated {
            return None;
        }
        let answered = self.answers.iter().any(|record| {
            question.kind == RecordType::ANY
                || (record.record_type() == question.kind && Some(&record.name) == end)
        });
        match self.code {
            ResponseCode::NoError if answered => {
                self.outcome = Outcome::Success;
                min_ttl(&self.answers)
            }
            // RFC 2308, section 5: without the zone's SOA record, a denial is not cached.
            ResponseCode::NoError | ResponseCode::NXDomain => self.denial_ttl(),
            ResponseCode::ServFail => Some(FAILURE_LIFETIME),
            _ => None,
        }
    }

    /// Returns the lifetime of a denial; None without an SOA record.
    fn denial_ttl(&mut self) -> Option<Duration> {
        let mut found = false;
        for record in &mut self.authorities {
            if let RData::SOA(soa) = &record.data {
                // RFC 2308, section 3. The client sees the same TTL.
                record.ttl = record.ttl.min(soa.minimum);
                found = true;
            }
        }
        found.then(|| min_ttl(self.answers.iter().chain(&self.authorities)))?
    }

    /// Returns whether the answer may still be used.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.received) < self.lifetime
    }

    /// Adds the answer to a response. TTLs are shorter by the time that the answer was cached.
    pub fn write_to(&self, request: &Message, response: &mut Message, now: Instant) {
        let age = now.saturating_duration_since(self.received).as_secs();
        let shorten_ttl = |record: &Record| {
            let mut record = record.clone();
            record.decrement_ttl(saturate(age));
            record
        };
        response.metadata.response_code = self.code;
        response.metadata.truncation |= self.truncated;
        // RFC 6840, section 5.7: only for clients that know the bit. An alias before the answer is
        // one of the cluster, which no resolver has validated.
        response.metadata.authentic_data = self.authentic
            && response.answers.is_empty()
            && (request.metadata.authentic_data
                || request
                    .edns
                    .as_ref()
                    .is_some_and(|edns| edns.flags().dnssec_ok));
        response
            .answers
            .extend(self.answers.iter().map(shorten_ttl));
        response
            .authorities
            .extend(self.authorities.iter().map(shorten_ttl));
    }

    /// Returns an estimate of the memory in bytes. On the heap, records have twice their data on
    /// the wire, their names, and an allocation for each string.
    pub fn estimate_memory(&self) -> usize {
        let mut message = Message::response(0, hickory_proto::op::OpCode::Query);
        message.answers.clone_from(&self.answers);
        message.authorities.clone_from(&self.authorities);
        let records = self.answers.len() + self.authorities.len();
        let wire = message.to_vec().map_or(usize::MAX, |bytes| bytes.len());
        let all = self.answers.iter().chain(&self.authorities);
        let heap: usize = all.map(estimate_heap).sum();
        wire.saturating_mul(2)
            .saturating_add(size_of::<Self>() + records * size_of::<Record>() + heap)
    }
}

/// Returns the requested name and those that it is an alias of, in order.
fn follow_aliases(question: &Question, answers: &[Record]) -> Vec<Name> {
    let mut names = vec![question.name.clone()];
    if matches!(question.kind, RecordType::CNAME | RecordType::ANY) {
        return names;
    }
    while names.len() <= MAX_ALIASES {
        let target = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if names.last() == Some(&record.name) => Some(&target.0),
            _ => None,
        });
        match target {
            // A loop of aliases has no end; what was found is returned.
            Some(target) if !names.contains(target) => names.push(target.clone()),
            _ => break,
        }
    }
    names
}

fn belongs_to_answer(question: &Question, names: &[Name], record: &Record) -> bool {
    if record.dns_class != DNSClass::IN {
        return false;
    }
    let is_named = names.contains(&record.name);
    match record.record_type() {
        RecordType::CNAME => is_named,
        // The aliases of a whole domain, from which the resolver made the CNAME records.
        RecordType::DNAME => names.iter().any(|name| record.name.zone_of(name)),
        RecordType::RRSIG if question.dnssec_ok => {
            names.iter().any(|name| record.name.zone_of(name))
        }
        kind => is_named && (kind == question.kind || question.kind == RecordType::ANY),
    }
}

fn belongs_to_denial(question: &Question, names: &[Name], record: &Record) -> bool {
    let is_above = || names.iter().any(|name| record.name.zone_of(name));
    record.dns_class == DNSClass::IN
        && match record.record_type() {
            RecordType::SOA => is_above(),
            RecordType::NSEC | RecordType::NSEC3 | RecordType::RRSIG => question.dnssec_ok,
            _ => false,
        }
}

/// Returns an estimate of what a record has on the heap beside its data on the wire.
fn estimate_heap(record: &Record) -> usize {
    // A pointer with its length, and the smallest allocation.
    const STRING_BYTES: usize = 48;
    let strings = match &record.data {
        RData::TXT(text) => text.txt_data.len(),
        _ => 0,
    };
    record.name.len() + strings * STRING_BYTES
}

fn saturate(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn min_ttl<'a>(records: impl IntoIterator<Item = &'a Record>) -> Option<Duration> {
    let ttls = records.into_iter().map(|record| record.ttl);
    ttls.min().map(|ttl| Duration::from_secs(ttl.into()))
}

#[cfg(test)]
#[path = "forwarded_answer_tests.rs"]
mod tests;
