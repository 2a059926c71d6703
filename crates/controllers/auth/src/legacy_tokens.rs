//! Deletes token Secrets that were generated for ServiceAccounts and that no client uses.
//!
//! API servers record the day on which a token was last used in a label of its Secret. An unused
//! token is marked invalid first, and its Secret is deleted a whole period later.

mod mounts;

use std::time::Duration;

use async_trait::async_trait;
use client::{Error, ListParams};
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use serde_json::json;

use controllers_runtime::{Action, Cache, Drive, Executor, Meta, Queue, Setup, Target, time, wake};

use crate::tokens::{NAME, TYPE, is_for};

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The ConfigMap in which API servers record since when they label Secrets.
const TRACKING: (&str, &str) = (
    "kube-system",
    "kube-apiserver-legacy-service-account-token-tracking",
);
const SINCE: &str = "since";
/// Time between two checks of a Secret, as upstream: labels have days.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);

struct LegacyTokenCleaner {
    secrets: Cache<Secret>,
    accounts: Cache<ServiceAccount>,
    pods: Cache<Pod>,
    period: Duration,
}

/// Sets up the deletion of tokens that were not used for `period`.
pub fn add_legacy_token_cleaner(setup: &mut Setup, period: Duration) {
    let queue = Queue::new();
    let only = ListParams::default().with_fields(format!("type={TYPE}"));
    let cleaner = LegacyTokenCleaner {
        secrets: setup
            .informers
            .for_selected::<Secret>(only)
            .on_event(wake::enqueue_object(&queue))
            .cache(),
        accounts: setup.informers.for_kind::<ServiceAccount>().cache(),
        pods: setup.informers.for_kind::<Pod>().index_namespace().cache(),
        period,
    };
    setup.add_driver("legacy-service-account-token-cleaner", 1, queue, cleaner);
}

#[async_trait]
impl Drive for LegacyTokenCleaner {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let is_token = |secret: &Secret| secret.type_.as_deref() == Some(TYPE);
        let secret = self.secrets.get(key).filter(|secret| is_token(secret));
        let Some(secret) = secret.filter(|secret| !secret.is_deleting()) else {
            return Ok(Vec::new());
        };
        let now = Timestamp::now();
        let Some(limit) = Limit::before(now, self.period) else {
            return Ok(vec![Action::Requeue(INTERVAL)]);
        };
        // The order is by cost: most Secrets are decided by their own labels.
        if let Some(wait) = limit.find_wait(&secret, now) {
            return Ok(vec![Action::Requeue(wait)]);
        }
        if !self.is_generated(&secret) || self.is_mounted(&secret) {
            return Ok(vec![Action::Requeue(INTERVAL)]);
        }
        let since = read_tracking_start(executor).await?;
        if !limit.is_tracked_long_enough(since) {
            return Ok(vec![Action::Requeue(INTERVAL)]);
        }
        Ok(limit.clean(&secret, to_date(now)))
    }
}

impl LegacyTokenCleaner {
    /// Returns whether the Secret was generated: its account lists it. A Secret that a user made
    /// is not listed, and stays.
    fn is_generated(&self, secret: &Secret) -> bool {
        let name = secret.annotation(NAME).filter(|name| !name.is_empty());
        let account = name.and_then(|name| self.accounts.get_by_name(secret.namespace(), name));
        account
            .filter(|account| is_for(secret, account))
            .is_some_and(|account| {
                let listed = account.secrets.iter().flatten();
                listed
                    .into_iter()
                    .any(|reference| reference.name.as_deref() == Some(secret.name()))
            })
    }

    /// Returns whether a pod refers to the Secret, finished or not.
    fn is_mounted(&self, secret: &Secret) -> bool {
        // Only for Secrets that are about to be marked or deleted, which are few. An index of all
        // pods would cost more.
        let pods = self.pods.in_namespace(secret.namespace());
        pods.iter()
            .any(|pod| mounts::refers_to_secret(pod, secret.name()))
    }
}

/// The end of the time in which a use, a mark or a creation keeps a token.
#[derive(Clone, Copy, Debug)]
struct Limit {
    at: Timestamp,
    period: Duration,
}

impl Limit {
    /// Returns the limit; None if the time can't be expressed, so that every token is kept.
    fn before(now: Timestamp, period: Duration) -> Option<Self> {
        let length = SignedDuration::try_from(period).ok()?;
        let at = now.checked_sub(length).ok()?;
        Some(Self { at, period })
    }

    /// Returns the time until a token may be unused; None if it is unused already.
    fn find_wait(&self, secret: &Secret, now: Timestamp) -> Option<Duration> {
        let created = secret.metadata.creation_timestamp.as_ref();
        // Only an object that was not written to the API has no time.
        let created = created.map_or(now, |created| created.0);
        if created >= self.at {
            let seconds = i64::try_from(self.period.as_secs()).unwrap_or(i64::MAX);
            let end = time::seconds_after(created, seconds.saturating_add(1));
            return Some(time::duration_until(end, now).min(INTERVAL));
        }
        // Without a label, the token was not used since the servers record uses. With a label
        // that is no date, it is not known.
        let label = secret.label(LAST_USED)?;
        match parse_date(label) {
            Some(day) if day < to_date(self.at) => None,
            _ => Some(INTERVAL),
        }
    }

    /// Returns whether servers record uses for the whole period.
    fn is_tracked_long_enough(&self, since: Option<Date>) -> bool {
        // The first whole day: the server may have started at its end.
        since.is_some_and(|day| day < to_date(self.at))
    }

    /// Returns the next step for an unused token.
    fn clean(&self, secret: &Secret, today: Date) -> Vec<Action> {
        let Some(since) = secret.label(INVALID_SINCE).and_then(parse_date) else {
            return vec![mark_invalid(secret, today), Action::Requeue(INTERVAL)];
        };
        if since >= to_date(self.at) {
            return vec![Action::Requeue(INTERVAL)];
        }
        tracing::info!(
            secret = secret.key(),
            %since,
            "deleting an unused token of a ServiceAccount"
        );
        vec![Action::delete(secret).with(|write| {
            // A use of the token changes its label.
            write.body["preconditions"]["resourceVersion"] = version_of(secret).into();
        })]
    }
}

fn mark_invalid(secret: &Secret, today: Date) -> Action {
    tracing::info!(
        secret = secret.key(),
        "marking an unused token of a ServiceAccount as invalid"
    );
    let patch = json!({"metadata": {
        "uid": secret.uid(), "resourceVersion": version_of(secret),
        "labels": {INVALID_SINCE: today.to_string()},
    }});
    Action::merge(Target::of(secret), patch).with(|write| {
        // The change, or the deletion, is an event that leads here again.
        write.tolerate.absent = true;
        write.tolerate.conflict = true;
    })
}

fn version_of(secret: &Secret) -> &str {
    let version = secret.metadata.resource_version.as_deref();
    version.unwrap_or_default()
}

async fn read_tracking_start(executor: &Executor) -> Result<Option<Date>, Error> {
    let client = executor.client().await?;
    let (namespace, name) = TRACKING;
    let found = client
        .namespaced::<ConfigMap>(namespace)
        .get_opt(name)
        .await?;
    let data = found.and_then(|map| map.data);
    let since = data.as_ref().and_then(|data| data.get(SINCE));
    let date = since.and_then(|text| parse_date(text));
    if date.is_none() {
        tracing::warn!(
            configmap = name,
            "tokens are not cleaned up: the ConfigMap has no date; API servers create it"
        );
    }
    Ok(date)
}

/// Parses a date of the form `2006-01-02`.
fn parse_date(text: &str) -> Option<Date> {
    // The parser accepts other forms of ISO 8601, too.
    text.parse()
        .ok()
        .filter(|date: &Date| date.to_string() == text)
}

fn to_date(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests;
