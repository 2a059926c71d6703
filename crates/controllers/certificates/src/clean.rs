//! Deletes old requests.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, time, wake};

/// Seconds for which approved, denied or failed requests are kept.
const DECIDED_FOR: i64 = 3600;
/// Seconds for which undecided requests are kept.
const PENDING_FOR: i64 = 24 * 3600;

struct CsrCleaner {
    requests: Cache<Csr>,
}

/// Sets up the deletion of old requests.
pub fn add_csr_cleaner(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup
        .informers
        .for_kind::<Csr>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler("certificate-controller", 1, queue, CsrCleaner { requests });
}

impl Decide for CsrCleaner {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(csr) = self.requests.get(key) else {
            return Vec::new();
        };
        let decided = csr
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        // The last change counts: a request that was denied after its approval is kept for an hour
        // from then.
        let decided = decided
            .filter_map(|c| c.last_update_time.as_ref().map(|t| t.0))
            .max();
        let end = match decided {
            Some(at) => time::seconds_after(at, DECIDED_FOR),
            // Upstream deletes pending requests after a day and decided ones after an hour.
            None => time::seconds_after(
                time::truncate_to_seconds(now),
                csr.created_at() + PENDING_FOR - now.as_second(),
            ),
        };
        let wait = time::duration_until(end, now);
        if wait.is_zero() {
            vec![Action::delete(csr.as_ref())]
        } else {
            vec![Action::Requeue(wait)]
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    /// Returns the actions for a request that was created and changed at these times.
    fn clean(created: &str, decided: Option<&str>, now: &str) -> Vec<String> {
        let conditions =
            decided.map(|at| json!([{"type": "Denied", "status": "True", "lastUpdateTime": at}]));
        let csr: Csr = serde_json::from_value(
            json!({"metadata": {"name": "c", "creationTimestamp": created},
            "spec": {"request": "", "signerName": "x"}, "status": {"conditions": conditions}}),
        )
        .unwrap();
        let cleaner = CsrCleaner {
            requests: Cache::with_objects(vec![csr]),
        };
        describe_actions(&cleaner.reconcile("c", now.parse().unwrap()))
    }

    #[test]
    fn decided_request_is_deleted_after_an_hour() {
        let (created, decided) = ("2026-01-01T00:00:00Z", Some("2026-01-01T12:00:00Z"));
        assert_eq!(
            clean(created, decided, "2026-01-01T12:30:00Z"),
            ["requeue 1800s"]
        );
        let late = clean(created, decided, "2026-01-01T13:00:00Z");
        assert_eq!(late, ["delete CertificateSigningRequest c"]);
    }

    #[test]
    fn pending_request_is_deleted_after_a_day() {
        let created = "2026-01-01T00:00:00Z";
        assert_eq!(
            clean(created, None, "2026-01-01T23:00:00Z"),
            ["requeue 3600s"]
        );
        let late = clean(created, None, "2026-01-02T00:00:00Z");
        assert_eq!(late, ["delete CertificateSigningRequest c"]);
    }
}
