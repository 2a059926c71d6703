//! Metrics under the names and labels of CoreDNS, where they mean the same.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use base_telemetry::{Histogram, MetricsPage, format_labels};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use tokio::time::Instant;

use crate::answer_cache::{AnswerCache, PartFigures};
use crate::forwarded_answer::Outcome;
use crate::reply::Transport;

/// CoreDNS's bounds of durations, in seconds: from 0.25 ms, doubling.
const BOUNDS: [f64; 16] = [
    0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024,
    2.048, 4.096, 8.192,
];
/// The types that are counted by name, the most frequent ones first; the last row counts all
/// others, since a client chooses the number.
const KINDS: [(RecordType, &str); 17] = [
    (RecordType::A, "A"),
    (RecordType::AAAA, "AAAA"),
    (RecordType::SRV, "SRV"),
    (RecordType::PTR, "PTR"),
    (RecordType::HTTPS, "HTTPS"),
    (RecordType::TXT, "TXT"),
    (RecordType::MX, "MX"),
    (RecordType::NS, "NS"),
    (RecordType::SOA, "SOA"),
    (RecordType::CNAME, "CNAME"),
    (RecordType::SVCB, "SVCB"),
    (RecordType::DS, "DS"),
    (RecordType::DNSKEY, "DNSKEY"),
    (RecordType::RRSIG, "RRSIG"),
    (RecordType::AXFR, "AXFR"),
    (RecordType::ANY, "ANY"),
    (RecordType::ZERO, "other"),
];
const CODES: [(ResponseCode, &str); 8] = [
    (ResponseCode::NoError, "NOERROR"),
    (ResponseCode::NXDomain, "NXDOMAIN"),
    (ResponseCode::ServFail, "SERVFAIL"),
    (ResponseCode::Refused, "REFUSED"),
    (ResponseCode::FormErr, "FORMERR"),
    (ResponseCode::NotImp, "NOTIMP"),
    (ResponseCode::BADVERS, "BADVERS"),
    (ResponseCode::Unknown(u16::MAX), "other"),
];
const TRANSPORTS: [&str; 2] = ["udp", "tcp"];
/// Address families by their IANA numbers, IPv4 and IPv6.
const FAMILIES: [&str; 2] = ["1", "2"];

/// The part of the server that a response comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The server itself, as for a rejected request.
    Server,
    /// The objects of the cluster.
    Cluster,
    /// The cache of forwarded answers.
    Cache,
    /// An upstream resolver.
    Upstream,
}

/// The names of CoreDNS's plugins with the same task, in the order of `Source`.
const PLUGINS: [&str; 4] = ["", "kubernetes", "cache", "forward"];

/// A request, as far as metrics show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestRecord {
    pub started: Instant,
    pub client: IpAddr,
    pub transport: Transport,
    pub kind: RecordType,
    /// Index of the domain whose resolvers know the name.
    pub domain: usize,
}

/// Counts of requests. Every counter exists from the start: a request takes no lock.
#[derive(Debug)]
pub(crate) struct Metrics {
    server: String,
    zones: Vec<ZoneMetrics>,
    rejects: AtomicU64,
    searches: AtomicU64,
    panics: AtomicU64,
}

/// Counts of requests for names of a domain with resolvers of its own, or of all others: in
/// CoreDNS, each has a server block.
#[derive(Debug)]
struct ZoneMetrics {
    zone: String,
    requests: Table<{ TRANSPORTS.len() * FAMILIES.len() * KINDS.len() }>,
    responses: Table<{ CODES.len() * PLUGINS.len() }>,
    durations: Histogram,
}

#[derive(Debug)]
struct Table<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Table<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Table<N> {
    fn add(&self, index: usize) {
        if let Some(count) = self.0.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Yields the counts that are not zero.
    fn counts(&self) -> impl Iterator<Item = (usize, f64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let counted = counts.enumerate().filter(|(_, count)| *count > 0);
        counted.map(|(index, count)| (index, count as f64))
    }
}

impl Metrics {
    /// Creates counters for a server on an address, whose forwarder has these domains.
    pub fn new<'a>(listen: SocketAddr, domains: impl Iterator<Item = &'a Name>) -> Self {
        let zones = domains.map(|domain| ZoneMetrics {
            zone: domain.to_ascii(),
            requests: Table::default(),
            responses: Table::default(),
            durations: Histogram::new(&BOUNDS),
        });
        Self {
            server: format!("dns://{listen}"),
            zones: zones.collect(),
            rejects: AtomicU64::new(0),
            searches: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    /// Counts a request with its response.
    pub fn count_response(&self, request: &RequestRecord, code: ResponseCode, source: Source) {
        let Some(zone) = self.zones.get(request.domain) else {
            return;
        };
        let transport = usize::from(request.transport == Transport::Tcp);
        let family = usize::from(request.client.to_canonical().is_ipv6());
        let kind = position(&KINDS, |kind| *kind == request.kind);
        zone.requests
            .add((transport * FAMILIES.len() + family) * KINDS.len() + kind);
        let code = code_index(code);
        zone.responses.add(code * PLUGINS.len() + source as usize);
        zone.durations.observe_duration(request.started.elapsed());
    }

    /// Counts a request that was rejected because too many wait for resolvers.
    /// Counts a request that was answered for a whole search path.
    pub fn count_search(&self) {
        self.searches.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_reject(&self) {
        self.rejects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request whose processing panicked.
    pub fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes all counts.
    pub fn write_to(&self, page: &mut MetricsPage) {
        self.write_requests(page);
        self.write_responses(page);
        let name = "coredns_dns_request_duration_seconds";
        page.head(name, "histogram", "Duration of each request.");
        for ZoneMetrics {
            zone, durations, ..
        } in &self.zones
        {
            page.histogram(name, &self.labels(&[("zone", zone)]), durations);
        }
        page.counter(
            "coredns_forward_max_concurrent_rejects_total",
            "Requests rejected because too many waited for resolvers.",
            self.rejects.load(Ordering::Relaxed) as f64,
        );
        page.counter(
            "coredns_autopath_success_total",
            "Requests answered for a whole search path.",
            self.searches.load(Ordering::Relaxed) as f64,
        );
        page.counter(
            "coredns_panics_total",
            "Panics.",
            self.panics.load(Ordering::Relaxed) as f64,
        );
    }

    fn write_requests(&self, page: &mut MetricsPage) {
        let name = "coredns_dns_requests_total";
        page.head(
            name,
            "counter",
            "Requests by transport, address family and type.",
        );
        for ZoneMetrics { zone, requests, .. } in &self.zones {
            for (index, count) in requests.counts() {
                let (rest, kind) = (index / KINDS.len(), index % KINDS.len());
                let (transport, family) = (rest / FAMILIES.len(), rest % FAMILIES.len());
                let labels = self.labels(&[
                    ("zone", zone),
                    ("proto", label(&TRANSPORTS, transport)),
                    ("family", label(&FAMILIES, family)),
                    ("type", KINDS.get(kind).map_or("other", |row| row.1)),
                ]);
                page.sample(name, &labels, count);
            }
        }
    }

    fn write_responses(&self, page: &mut MetricsPage) {
        let name = "coredns_dns_responses_total";
        page.head(name, "counter", "Responses by response code.");
        for ZoneMetrics {
            zone, responses, ..
        } in &self.zones
        {
            for (index, count) in responses.counts() {
                let labels = self.labels(&[
                    ("zone", zone),
                    ("rcode", code_label(index / PLUGINS.len())),
                    ("plugin", label(&PLUGINS, index % PLUGINS.len())),
                ]);
                page.sample(name, &labels, count);
            }
        }
    }

    /// Writes the figures of a cache.
    pub fn write_cache(&self, cache: &AnswerCache, page: &mut MetricsPage) {
        let [success, denial] = [Outcome::Success, Outcome::Denial].map(|o| cache.figures(o));
        self.write_parts(page, [success, denial]);
        let requests = cache.requests();
        let misses = requests.saturating_sub(success.hits + denial.hits);
        let labels = self.labels(&[("zones", ".")]);
        for (name, help, value) in [
            ("coredns_cache_requests_total", "Lookups.", requests),
            (
                "coredns_cache_misses_total",
                "Lookups without a cached answer.",
                misses,
            ),
        ] {
            page.head(name, "counter", help);
            page.sample(name, &labels, value as f64);
        }
    }

    fn write_parts(&self, page: &mut MetricsPage, parts: [PartFigures; 2]) {
        let [entries, hits, evictions] = [
            parts.map(|part| part.entries as f64),
            parts.map(|part| part.hits as f64),
            parts.map(|part| part.evictions as f64),
        ];
        for (name, kind, help, values) in [
            ("coredns_cache_entries", "gauge", "Cached answers.", entries),
            ("coredns_cache_hits_total", "counter", "Cache hits.", hits),
            (
                "coredns_cache_evictions_total",
                "counter",
                "Evicted answers.",
                evictions,
            ),
        ] {
            page.head(name, kind, help);
            for (part, value) in ["success", "denial"].into_iter().zip(values) {
                page.sample(name, &self.labels(&[("type", part), ("zones", ".")]), value);
            }
        }
    }

    /// Formats labels after those that all metrics have.
    fn labels(&self, own: &[(&str, &str)]) -> String {
        let common = [("server", self.server.as_str()), ("view", "")];
        format_labels(&[&common, own].concat())
    }
}

/// Durations of the responses of a resolver, by response code.
#[derive(Debug)]
pub(crate) struct ResolverMetrics([Histogram; CODES.len()]);

impl Default for ResolverMetrics {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(&BOUNDS)))
    }
}

impl ResolverMetrics {
    /// Name of the histogram.
    pub const NAME: &'static str = "coredns_proxy_request_duration_seconds";

    /// Counts a response.
    pub fn count_response(&self, code: ResponseCode, started: Instant) {
        if let Some(durations) = self.0.get(code_index(code)) {
            durations.observe_duration(started.elapsed());
        }
    }

    /// Writes the samples of a resolver.
    pub fn write_to(&self, server: SocketAddr, page: &mut MetricsPage) {
        let server = server.to_string();
        for (index, durations) in self.0.iter().enumerate() {
            if durations.count() > 0 {
                let labels = format_labels(&[
                    ("proxy_name", "forward"),
                    ("to", server.as_str()),
                    ("rcode", code_label(index)),
                ]);
                page.histogram(Self::NAME, &labels, durations);
            }
        }
    }
}

fn code_index(code: ResponseCode) -> usize {
    position(&CODES, |known| *known == code)
}

fn code_label(index: usize) -> &'static str {
    CODES.get(index).map_or("other", |row| row.1)
}

fn label(names: &[&'static str], index: usize) -> &'static str {
    names.get(index).copied().unwrap_or_default()
}

/// Returns the position of a row, or of the last one, which stands for all others.
fn position<T>(rows: &[(T, &str)], matches: impl Fn(&T) -> bool) -> usize {
    let found = rows.iter().position(|(value, _)| matches(value));
    found.unwrap_or(rows.len() - 1)
}
