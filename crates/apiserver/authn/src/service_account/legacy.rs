//! Uses of the tokens in Secrets: counted, annotated, and recorded in a label of the Secret.

use super::claims::Claims;
use api_meta::Meta;
use api_meta::tree::{list, text};
use apiserver_request::{Warnings, annotate_audit};
use base_telemetry::MetricsPage;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The label with the day of the last use.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The label of a token that was not used for long; it is rejected.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const WARNING: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.";
/// Number of Secrets that wait for their label at most. Others get it at their next use.
const MAX_WAITING: usize = 1024;

/// Counts of verified tokens, with upstream's names.
#[derive(Debug, Default)]
pub struct TokenMetrics {
    legacy: AtomicU64,
    stale: AtomicU64,
    valid: AtomicU64,
    manual: AtomicU64,
    generated: AtomicU64,
    invalid: AtomicU64,
}

impl TokenMetrics {
    /// Counts a token by its age; legacy tokens have none.
    pub(super) fn count_age(&self, is_stale: bool) {
        let counter = if is_stale { &self.stale } else { &self.valid };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_legacy(&self) {
        self.legacy.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the counters.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        for (name, help, counter) in [
            (
                "serviceaccount_legacy_tokens_total",
                "Uses of tokens in Secrets.",
                &self.legacy,
            ),
            (
                "serviceaccount_stale_tokens_total",
                "Uses of tokens of pods that were not renewed in time.",
                &self.stale,
            ),
            (
                "serviceaccount_valid_tokens_total",
                "Uses of tokens of pods that were renewed in time.",
                &self.valid,
            ),
            (
                "serviceaccount_legacy_manual_token_uses_total",
                "Uses of tokens in Secrets that users made.",
                &self.manual,
            ),
            (
                "serviceaccount_legacy_auto_token_uses_total",
                "Uses of tokens in Secrets that were generated for their ServiceAccount.",
                &self.generated,
            ),
            (
                "serviceaccount_invalid_legacy_auto_token_uses_total",
                "Rejected uses of tokens in Secrets that are marked invalid.",
                &self.invalid,
            ),
        ] {
            page.head(name, "counter", help);
            page.sample(name, "", counter.load(Ordering::Relaxed) as f64);
        }
    }
}

/// A Secret whose token was used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsedSecret {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; a later Secret of this name was not used.
    pub uid: String,
}

/// Secrets whose label is not of today.
#[derive(Debug, Default)]
pub struct LegacyUses {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<UsedSecret>,
    /// Those of the queue, and those that are being labelled.
    known: HashSet<UsedSecret>,
}

impl LegacyUses {
    /// Waits for a Secret to label. Call [`LegacyUses::finish`] afterwards.
    pub async fn next(&self) -> UsedSecret {
        loop {
            if let Some(used) = self.waiting.lock().queue.pop_front() {
                return used;
            }
            // A permit is stored if a Secret was added meanwhile. There is one task that waits.
            self.added.notified().await;
        }
    }

    /// Forgets a Secret, so that its next use counts again.
    pub fn finish(&self, used: &UsedSecret) {
        self.waiting.lock().known.remove(used);
    }

    fn add(&self, secret: &Value) {
        let used = UsedSecret {
            namespace: secret.namespace().to_owned(),
            name: secret.name().to_owned(),
            uid: secret.uid().to_owned(),
        };
        let mut waiting = self.waiting.lock();
        // Every request of a client comes here until the watch cache has the label.
        if waiting.known.len() < MAX_WAITING && waiting.known.insert(used.clone()) {
            waiting.queue.push_back(used);
            self.added.notify_one();
        }
    }
}

/// Returns whether a label shows a use today. As upstream, it may be that of tomorrow: the clock
/// of another server may be ahead.
pub fn is_recorded(label: Option<&str>, today: Date) -> bool {
    let days = [Some(today), today.checked_add(1.day()).ok()];
    label.is_some_and(|label| days.iter().flatten().any(|day| day.to_string() == label))
}

/// Returns the day in UTC.
pub fn to_day(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

/// Records the use of a legacy token whose Secret holds it.
///
/// # Errors
/// The token is marked invalid.
pub(super) fn record_use(
    (metrics, uses): (&TokenMetrics, &LegacyUses),
    (claims, account, secret): (&Claims, &Value, &Value),
    warnings: &Warnings,
    now: Timestamp,
) -> Result<(), String> {
    let name = secret.name();
    // Uses of an invalid token are recorded, too: they show that a client still has it.
    if !is_recorded(secret.label(LAST_USED), to_day(now)) {
        uses.add(secret);
    }
    let is_marked = |since: &str| !since.is_empty();
    if secret.label(INVALID_SINCE).is_some_and(is_marked) {
        let key = "authentication.k8s.io/legacy-token-invalidated";
        annotate_audit(key, || format!("{name}/{}", claims.namespace));
        metrics.invalid.fetch_add(1, Ordering::Relaxed);
        return Err(format!(
            "the token in secret {name:?} is marked invalid; remove the label {INVALID_SINCE} to allow its use again"
        ));
    }
    let listed = list(account, "secrets").iter();
    let is_generated = listed
        .into_iter()
        .any(|reference| text(reference, "name") == name);
    let (kind, counter) = match is_generated {
        true => ("autogenerated", &metrics.generated),
        false => ("manual", &metrics.manual),
    };
    if is_generated {
        warnings.push(WARNING.to_owned());
    }
    let key = format!("authentication.k8s.io/legacy-token-{kind}-secret");
    annotate_audit(key, || name.to_owned());
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn secret(labels: Value) -> Value {
        json!({"metadata": {"name": "s", "namespace": "n", "uid": "u", "labels": labels}})
    }

    #[test]
    fn label_of_today_or_tomorrow_shows_a_use() {
        let today: Date = "2026-02-28".parse().unwrap();
        for (label, expect) in [
            (None, false),
            (Some(""), false),
            (Some("2026-02-27"), false),
            (Some("2026-02-28"), true),
            (Some("2026-03-01"), true),
            (Some("2026-03-02"), false),
        ] {
            assert_eq!(is_recorded(label, today), expect, "{label:?}");
        }
    }

    #[tokio::test]
    async fn secret_is_labelled_once_at_a_time() {
        let uses = LegacyUses::default();
        let one = secret(json!({}));
        uses.add(&one);
        uses.add(&one);
        let used = uses.next().await;
        assert_eq!((used.namespace.as_str(), used.name.as_str()), ("n", "s"));
        // Until it has its label, further uses are the same one.
        uses.add(&one);
        assert!(uses.waiting.lock().queue.is_empty());
        uses.finish(&used);
        uses.add(&one);
        assert_eq!(uses.next().await, used);
    }

    #[test]
    fn waiting_secrets_are_limited() {
        let uses = LegacyUses::default();
        for n in 0..MAX_WAITING + 1 {
            let mut one = secret(json!({}));
            one["metadata"]["uid"] = n.to_string().into();
            uses.add(&one);
        }
        assert_eq!(uses.waiting.lock().queue.len(), MAX_WAITING);
    }

    #[test]
    fn use_is_counted_by_the_origin_of_the_secret() {
        let now: Timestamp = "2026-02-28T23:59:59Z".parse().unwrap();
        for (listed, labels, expect, is_due) in [
            (json!([{"name": "s"}]), json!({}), ([0, 1, 0], true), true),
            (json!([{"name": "t"}]), json!({}), ([1, 0, 0], true), true),
            (
                Value::Null,
                json!({LAST_USED: "2026-02-28"}),
                ([1, 0, 0], true),
                false,
            ),
            (
                json!([{"name": "s"}]),
                json!({INVALID_SINCE: "x"}),
                ([0, 0, 1], false),
                true,
            ),
        ] {
            let (metrics, uses, warnings) = Default::default();
            let account = json!({"metadata": {"name": "a"}, "secrets": listed});
            let claims = Claims::default();
            let secret = secret(labels.clone());
            let parts = (&claims, &account, &secret);
            let result = record_use((&metrics, &uses), parts, &warnings, now);
            let counts = [&metrics.manual, &metrics.generated, &metrics.invalid]
                .map(|counter| counter.load(Ordering::Relaxed));
            assert_eq!((counts, result.is_ok()), expect, "{listed} {labels}");
            assert_eq!(warnings.take().len() as u64, counts[1], "{listed}");
            assert_eq!(
                uses.waiting.lock().queue.len(),
                usize::from(is_due),
                "{labels}"
            );
        }
    }
}
