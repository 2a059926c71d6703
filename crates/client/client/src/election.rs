//! Leader election on a Lease, by client-go's rules.
//!
//! Time is measured by this process's clock from the moment at which a record was last seen to
//! change. The times in the record are never compared with it, because clocks of hosts may differ.
//! Losing the lease cancels the work by its token, and the process campaigns again. Rejected:
//! exiting, as the stock components do, because a restart loses the warm caches.

use std::time::Duration;

use base_task::CancellationToken;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use rand::Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api::Api;
use crate::client::Client;
use crate::error::Result;

/// Lease, identity and durations of an election.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this process; unique among the candidates.
    pub identity: String,
    /// Duration after which an unchanged record may be taken over.
    pub lease_duration: Duration,
    /// Duration without a successful renewal after which a leader steps down.
    pub renew_deadline: Duration,
    /// Delay between attempts.
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// Returns the configuration of a lease in `kube-system` with client-go's durations: 15 s, 10
    /// s, 2 s.
    pub fn new(name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Next step for a lease record.
#[derive(Debug, PartialEq)]
enum ElectionStep {
    /// Write this record to acquire or renew the lease.
    Write(LeaseSpec),
    /// Another process is the leader.
    Wait,
}

/// Decides the next step from a record and the time for which it has been unchanged.
fn decide_step(
    config: &LeaderConfig,
    found: &LeaseSpec,
    unchanged: Duration,
    now: Timestamp,
) -> ElectionStep {
    let holder = found.holder_identity.as_deref().unwrap_or_default();
    let seconds = u64::try_from(found.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    // The holder's duration counts, not the own: candidates may be configured differently. 0 is a
    // record without a duration.
    let lasts = if seconds == 0 {
        config.lease_duration
    } else {
        Duration::from_secs(seconds)
    };
    let ours = holder == config.identity;
    // A record without a holder was released and may be taken at once.
    if !ours && !holder.is_empty() && unchanged < lasts {
        return ElectionStep::Wait;
    }
    let transitions = found.lease_transitions.unwrap_or(0);
    ElectionStep::Write(LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: i32::try_from(config.lease_duration.as_secs()).ok(),
        // A renewal keeps the acquire time and the number of transitions: they describe the term,
        // not the write.
        acquire_time: if ours {
            found.acquire_time.clone()
        } else {
            Some(MicroTime(now))
        },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if ours {
            transitions
        } else {
            transitions.saturating_add(1)
        }),
        ..found.clone()
    })
}

struct Elector<'a> {
    api: Api<Lease>,
    config: &'a LeaderConfig,
    seen: Option<(LeaseSpec, Instant)>,
    held: Option<Lease>,
    leader: String,
}

impl Elector<'_> {
    /// Tries to acquire or renew the lease. Returns whether this process holds it.
    async fn try_acquire_or_renew(&mut self) -> Result<bool> {
        // Taken out: whatever fails below, the next attempt must read the record first.
        if let Some(held) = self.held.take() {
            // The common case of a leader: one write, based on the version that it wrote last.
            let spec = held.spec.clone().unwrap_or_default();
            if let ElectionStep::Write(spec) =
                decide_step(self.config, &spec, Duration::ZERO, Timestamp::now())
            {
                match self
                    .api
                    .update(&Lease {
                        spec: Some(spec),
                        ..held
                    })
                    .await
                {
                    Ok(lease) => return Ok(self.keep_written(lease)),
                    // Another process has written or deleted the record. It is read below, and
                    // decides.
                    Err(error) if error.is_conflict() || error.is_not_found() => {}
                    // The write may have succeeded, so the version is unknown. The next attempt
                    // reads.
                    Err(error) => return Err(error),
                }
            }
        }
        let Some(lease) = self.api.get_opt(&self.config.name).await? else {
            return self.create_lease().await;
        };
        let spec = lease.spec.clone().unwrap_or_default();
        self.observe_record(&spec);
        let unchanged = self
            .seen
            .as_ref()
            .map_or(Duration::ZERO, |(_, since)| since.elapsed());
        match decide_step(self.config, &spec, unchanged, Timestamp::now()) {
            ElectionStep::Wait => Ok(false),
            ElectionStep::Write(spec) => {
                let lease = self
                    .api
                    .update(&Lease {
                        spec: Some(spec),
                        ..lease
                    })
                    .await?;
                Ok(self.keep_written(lease))
            }
        }
    }

    async fn create_lease(&mut self) -> Result<bool> {
        let empty = LeaseSpec {
            // A new record starts with 0 transitions, and acquiring adds one.
            lease_transitions: Some(-1),
            ..LeaseSpec::default()
        };
        let ElectionStep::Write(spec) =
            decide_step(self.config, &empty, Duration::ZERO, Timestamp::now())
        else {
            return Ok(false);
        };
        let metadata = ObjectMeta {
            name: Some(self.config.name.clone()),
            namespace: Some(self.config.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = self
            .api
            .create(&Lease {
                metadata,
                spec: Some(spec),
            })
            .await?;
        Ok(self.keep_written(lease))
    }

    fn keep_written(&mut self, lease: Lease) -> bool {
        if let Some(spec) = &lease.spec {
            // Counts as a change of the record, so that a leader that loses the lease waits the
            // full duration from its last renewal.
            self.observe_record(&spec.clone());
        }
        self.held = Some(lease);
        true
    }

    fn observe_record(&mut self, spec: &LeaseSpec) {
        if self.seen.as_ref().is_none_or(|(known, _)| known != spec) {
            // Any change counts as a sign of life of the holder, also one that this process does
            // not understand.
            self.seen = Some((spec.clone(), Instant::now()));
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if self.leader != holder {
            tracing::info!(lease = %self.config.name, leader = holder, "leader");
            holder.clone_into(&mut self.leader);
        }
    }

    /// Waits until this process holds the lease.
    async fn acquire_lease(&mut self) {
        let mut connections = self.api.client().subscribe_connections();
        loop {
            connections.mark_unchanged();
            let mut lost = false;
            match self.try_acquire_or_renew().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    lost = error.is_unavailable();
                    tracing::debug!(lease = %self.config.name, %error, "cannot take the lease");
                }
            }
            // client-go's jitter: candidates that start together must not write at the same moment
            // forever.
            let jitter = rand::rng().random_range(1.0..2.2);
            tokio::select! {
                () = tokio::time::sleep(self.config.retry_period.mul_f64(jitter)) => {}
                // The server is reachable again: retry at once.
                _ = connections.changed(), if lost => {}
            }
        }
    }

    /// Renews the lease until that has failed for the renew deadline.
    async fn renew_lease(&mut self) {
        let mut renewed = Instant::now();
        loop {
            // Without jitter, as client-go: a leader has no competitors for its own renewal.
            tokio::time::sleep(self.config.retry_period).await;
            let deadline = renewed + self.config.renew_deadline;
            // A request that hangs must end with the deadline. Otherwise two leaders would work at
            // once.
            match tokio::time::timeout_at(deadline, self.try_acquire_or_renew()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                // Another process holds the lease. There is nothing to wait for.
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::debug!(lease = %self.config.name, %error, "cannot renew the lease");
                }
                Err(_) => {}
            }
            // The second condition: a successful renewal has moved the deadline.
            if Instant::now() >= deadline && renewed + self.config.renew_deadline == deadline {
                return;
            }
        }
    }

    /// Releases the lease, so that another process can acquire it at once.
    async fn release_lease(&mut self) {
        let Some(mut lease) = self.held.take() else {
            return;
        };
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        lease.spec = Some(LeaseSpec {
            // client-go's form of a release. The duration of 1 s is for
            // candidates that look at the time only.
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            lease_transitions: transitions,
            renew_time: Some(MicroTime(Timestamp::now())),
            acquire_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        });
        // Shutdown must not wait for an API server that is stopping as well. The lease then
        // expires.
        let limit = Duration::from_secs(2);
        if let Ok(Err(error)) = tokio::time::timeout(limit, self.api.update(&lease)).await {
            tracing::debug!(lease = %self.config.name, %error, "cannot release the lease");
        }
    }
}

/// End of a term of leadership.
#[derive(PartialEq)]
enum Term {
    /// The process stops.
    Stopped,
    /// The lease could not be renewed.
    Lost,
    /// The work has ended.
    Worked,
}

/// Passes a panic of the work on: it must not end in a new term.
fn propagate_panic(ended: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Campaigns until `stop`. While this process is the leader, it runs `lead` with a token that ends
/// its term.
///
/// When the lease is lost, the token is cancelled, the work is awaited, and the process campaigns
/// again. When `stop` is cancelled, the work ends first and the lease is released afterwards.
pub async fn run_leader_election<F, Fut>(
    client: &Client,
    config: LeaderConfig,
    stop: CancellationToken,
    mut lead: F,
) where
    F: FnMut(CancellationToken) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let api = client.namespaced(&config.namespace);
    let mut elector = Elector {
        api,
        config: &config,
        seen: None,
        held: None,
        leader: String::new(),
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = elector.acquire_lease() => {}
        }
        tracing::info!(lease = %config.name, identity = %config.identity, "leading");
        let term = stop.child_token();
        // One task, which ends at the latest with the campaign.
        // Dropping the set aborts the task, so that cancelling the campaign also ends the work.
        let mut work = JoinSet::new();
        work.spawn(lead(term.clone()));
        let end = tokio::select! {
            () = stop.cancelled() => Term::Stopped,
            () = elector.renew_lease() => Term::Lost,
            ended = work.join_next() => {
                propagate_panic(ended);
                Term::Worked
            }
        };
        // Before the wait: the work must stop writing as soon as the lease may belong to another
        // process.
        term.cancel();
        if end != Term::Worked {
            propagate_panic(work.join_next().await);
        }
        // Released only after the work has ended, else the next leader would start beside it. A
        // lost lease is not released: it may already be another's.
        if end != Term::Lost {
            elector.release_lease().await;
            if stop.is_cancelled() {
                return;
            }
        } else {
            elector.held = None;
            tracing::warn!(lease = %config.name, "the lease is lost; campaigning again");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn lease_is_written_when_it_is_own_released_or_expired() {
        let config = LeaderConfig::new("l", "me");
        let now = Timestamp::UNIX_EPOCH;
        let record = |holder: &str, seconds: i32| LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(seconds),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        };
        let cases = [
            (record("other", 15), 14, None),
            (record("other", 15), 15, Some(4)),
            (record("other", 1), 2, Some(4)),
            (record("", 15), 0, Some(4)),
            (record("me", 15), 0, Some(3)),
        ];
        for (found, unchanged, want) in cases {
            let got = match decide_step(&config, &found, Duration::from_secs(unchanged), now) {
                ElectionStep::Wait => None,
                ElectionStep::Write(spec) => spec.lease_transitions,
            };
            assert_eq!(got, want, "{found:?} for {unchanged}");
        }
    }

    fn record(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    fn written(found: &LeaseSpec, unchanged: u64) -> Option<LeaseSpec> {
        let (config, now) = (LeaderConfig::new("l", "me"), Timestamp::MAX);
        match decide_step(&config, found, Duration::from_secs(unchanged), now) {
            ElectionStep::Wait => None,
            ElectionStep::Write(spec) => Some(spec),
        }
    }

    #[test]
    fn renewal_keeps_the_acquire_time_and_a_takeover_sets_it() {
        let renewed = written(&record("me"), 0).unwrap();
        assert_eq!(renewed.acquire_time, record("me").acquire_time);
        assert_eq!(renewed.renew_time, Some(MicroTime(Timestamp::MAX)));
        let taken = written(&record("other"), 15).unwrap();
        assert_eq!(taken.acquire_time, Some(MicroTime(Timestamp::MAX)));
        assert_eq!(taken.holder_identity.as_deref(), Some("me"));
    }

    #[test]
    fn times_in_the_record_are_not_compared_with_the_own_clock() {
        // The renew time is ages ago by this clock, and the holder's clock may still be right.
        assert_eq!(written(&record("other"), 0), None);
        let future = LeaseSpec {
            renew_time: Some(MicroTime(Timestamp::MAX)),
            ..record("other")
        };
        assert!(written(&future, 15).is_some());
    }

    #[test]
    fn record_without_a_duration_lasts_for_the_own_one() {
        for seconds in [None, Some(0), Some(-5)] {
            let found = LeaseSpec {
                lease_duration_seconds: seconds,
                ..record("other")
            };
            assert!(
                written(&found, 14).is_none() && written(&found, 15).is_some(),
                "{seconds:?}"
            );
        }
    }

    #[test]
    fn number_of_transitions_does_not_overflow() {
        let found = LeaseSpec {
            lease_transitions: Some(i32::MAX),
            ..record("")
        };
        assert_eq!(
            written(&found, 0).unwrap().lease_transitions,
            Some(i32::MAX)
        );
    }
}
