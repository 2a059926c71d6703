//! Deletes finished Jobs and their dependents after `ttlSecondsAfterFinished`.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Target, Verb, Write, delete_options, time, wake,
};

use crate::job::finished_at;

/// Returns the actions for one Job.
pub fn reconcile(job: &Job, now: Timestamp) -> Vec<Action> {
    let ttl = job.spec.as_ref().and_then(|s| s.ttl_seconds_after_finished);
    let (Some(ttl), Some(end)) = (ttl, finished_at(job)) else {
        return Vec::new();
    };
    if job.deleting() {
        return Vec::new();
    }
    let wait = time::until(time::after(end, i64::from(ttl)), now);
    if !wait.is_zero() {
        return vec![Action::Requeue(wait)];
    }
    let mut write = Write::new(
        Verb::Delete,
        Target::of(job),
        delete_options(job.uid(), "Foreground"),
    );
    write.tolerate.absent = true;
    write.tolerate.conflict = true;
    vec![write.into()]
}

struct TtlAfterFinished {
    jobs: Cache<Job>,
}

/// Sets up the TTL-after-finished controller.
pub fn ttl_after_finished(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let jobs = setup.informers.of::<Job>().on(wake::itself(&queue)).cache();
    setup.decide(
        "ttl-after-finished-controller",
        workers,
        queue,
        TtlAfterFinished { jobs },
    );
}

impl Decide for TtlAfterFinished {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        self.jobs
            .get(key)
            .map(|job| reconcile(&job, now))
            .unwrap_or_default()
    }
}
