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
    let requests = setup.informers.of::<Csr>().on(wake::itself(&queue)).cache();
    setup.decide("certificate-controller", 1, queue, CsrCleaner { requests });
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
        let decided = decided
            .filter_map(|c| c.last_update_time.as_ref().map(|t| t.0))
            .max();
        let end = match decided {
            Some(at) => time::after(at, DECIDED_FOR),
            None => time::after(
                time::whole(now),
                csr.created() + PENDING_FOR - now.as_second(),
            ),
        };
        let wait = time::until(end, now);
        if wait.is_zero() {
            vec![Action::delete(csr.as_ref())]
        } else {
            vec![Action::Requeue(wait)]
        }
    }
}
