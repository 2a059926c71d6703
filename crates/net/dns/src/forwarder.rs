//! Resolves names outside of the cluster: from the cache, or by an upstream resolver.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base_telemetry::MetricsPage;
use hickory_proto::rr::Name;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::answer_cache::AnswerCache;
use crate::forwarded_answer::ForwardedAnswer;
use crate::metrics::{Metrics, ResolverMetrics};
use crate::question::Question;
use crate::slots::{Limit, Slots};
use crate::stub_domain::StubDomain;
use crate::upstream::{Resolvers, Upstreams};

/// Limits of questions to upstream resolvers at one time; more are rejected rather than queued.
/// Each has a socket, as each connection has, and a process may usually have 1,024 files. One pod
/// whose names never resolve leaves three quarters to the others.
const QUESTIONS: Limit = Limit {
    total: 512,
    per_client: 128,
};
/// Timeout of a question, all resolvers together. Clients wait as long.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a question.
#[derive(Debug, Clone)]
pub(crate) enum Resolution {
    /// A resolver responded, now or earlier.
    Answer(Arc<ForwardedAnswer>),
    /// No resolver responded.
    Failed,
    /// Too many questions wait for resolvers, and the client has its share of them.
    Rejected,
}

/// A domain and the resolvers of its names.
#[derive(Debug)]
struct Route {
    domain: Name,
    upstreams: Upstreams,
}

/// Upstream resolvers behind a cache.
#[derive(Debug)]
pub(crate) struct Forwarder {
    /// By domain, the longest ones first, and the root with the resolvers of all other names last.
    routes: Vec<Route>,
    resolvers: Resolvers,
    cache: Option<AnswerCache>,
    /// Questions that wait for a resolver. Further requests with the same question wait for the
    /// same result.
    asked: Mutex<HashMap<Question, Arc<OnceCell<Resolution>>>>,
    /// Questions in flight, each counted for the client whose request asks it.
    questions: Slots,
}

/// The reason why a request did not ask its question: its client has its share.
struct ShareReached;

/// A question in flight; removed when it is dropped, also by a panic.
struct Flight<'a> {
    forwarder: &'a Forwarder,
    question: Question,
    result: Arc<OnceCell<Resolution>>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut asked = self.forwarder.asked.lock();
        // There may be a newer flight with the same question.
        let is_own = |other: &Arc<_>| Arc::ptr_eq(other, &self.result);
        if asked.get(&self.question).is_some_and(is_own) {
            asked.remove(&self.question);
        }
    }
}

impl Forwarder {
    /// Creates a forwarder to `upstreams`, except for names in the sorted stub domains. `own` is
    /// the server's address.
    pub fn new(
        upstreams: Vec<SocketAddr>,
        stub_domains: Vec<StubDomain>,
        own: SocketAddr,
        cache: Option<AnswerCache>,
    ) -> Self {
        let mut resolvers = Resolvers::new();
        let stubs = stub_domains
            .into_iter()
            .map(|stub| (stub.domain, stub.servers));
        let routes = stubs.chain([(Name::root(), upstreams)]);
        let routes = routes
            .map(|(domain, servers)| Route {
                domain,
                upstreams: Upstreams::new(servers, own, &mut resolvers),
            })
            .collect();
        Self {
            routes,
            resolvers,
            cache,
            asked: Mutex::default(),
            questions: Slots::new(QUESTIONS),
        }
    }

    /// Returns a cached answer.
    pub fn find_cached(&self, question: &Question, now: Instant) -> Option<Arc<ForwardedAnswer>> {
        self.cache.as_ref()?.get(question, now)
    }

    /// Writes the metrics of the cache and of the resolvers.
    pub fn write_metrics(&self, metrics: &Metrics, page: &mut MetricsPage) {
        if let Some(cache) = &self.cache {
            metrics.write_cache(cache, page);
        }
        let help = "Duration of each request to a resolver.";
        page.head(ResolverMetrics::NAME, "histogram", help);
        for (server, metrics) in &self.resolvers {
            metrics.write_to(*server, page);
        }
    }

    /// Returns the domains with resolvers of their own, as they index metrics; the last one is the
    /// root.
    pub fn domains(&self) -> impl Iterator<Item = &Name> {
        self.routes.iter().map(|route| &route.domain)
    }

    /// Returns the index of the domain of all names that are in no other one.
    pub fn root_domain(&self) -> usize {
        self.routes.len() - 1
    }

    /// Returns the index of the domain whose resolvers know a name.
    pub fn find_domain(&self, name: &Name) -> usize {
        let found = self.domains().position(|domain| domain.zone_of(name));
        found.unwrap_or(self.root_domain())
    }

    /// Returns the number of questions in flight.
    #[cfg(test)]
    pub fn count_questions(&self) -> usize {
        self.questions.total()
    }

    /// Returns the number of requests that wait for the result of a question.
    #[cfg(test)]
    pub fn count_waiting(&self) -> usize {
        let asked = self.asked.lock();
        // The map has one reference.
        let waiting = asked.values().map(|result| Arc::strong_count(result) - 1);
        waiting.sum()
    }

    /// Asks the upstream resolvers, once for all requests with the same question at one time.
    pub async fn resolve(&self, question: Question, client: IpAddr) -> Resolution {
        let result = self
            .asked
            .lock()
            .entry(question.clone())
            .or_default()
            .clone();
        let flight = Flight {
            forwarder: self,
            question,
            result,
        };
        // The first caller asks. If its task is cancelled or panics, or if its client has its
        // share, the next one does, for its own client.
        let ask = || self.ask_upstream(&flight.question, client);
        // Also for a caller that waits for one asker after the other.
        match timeout(QUESTION_TIMEOUT, flight.result.get_or_try_init(ask)).await {
            Ok(Ok(result)) => result.clone(),
            Ok(Err(ShareReached)) => Resolution::Rejected,
            Err(_) => Resolution::Failed,
        }
    }

    async fn ask_upstream(
        &self,
        question: &Question,
        client: IpAddr,
    ) -> Result<Resolution, ShareReached> {
        // Not queued: the client stops waiting after a few seconds, and its retry would wait behind
        // its own request.
        let slot = self.questions.admit(client).ok_or(ShareReached)?;
        tokio::select! {
            biased;
            () = slot.wait_until_ended() => Err(ShareReached),
            resolution = self.ask_route(question, client) => Ok(resolution),
        }
    }

    async fn ask_route(&self, question: &Question, client: IpAddr) -> Resolution {
        // The resolvers of a stub domain alone: others must not learn its names.
        let Some(route) = self.routes.get(self.find_domain(&question.name)) else {
            return Resolution::Failed;
        };
        let Some(response) = route.upstreams.ask(question).await else {
            return Resolution::Failed;
        };
        let now = Instant::now();
        let max_ttl = self.cache.as_ref().map(AnswerCache::max_ttl);
        let answer = ForwardedAnswer::from_response(question, response, max_ttl, now);
        let answer = Arc::new(answer);
        // Before the question is removed: a request in between would be forwarded once more.
        if let Some(cache) = &self.cache {
            cache.insert(client, question.clone(), answer.clone(), now);
        }
        Resolution::Answer(answer)
    }
}
