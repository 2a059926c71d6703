//! Deletes finished Jobs and their dependents after `ttlSecondsAfterFinished`.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Target, Verb, Write, delete_options, time, wake,
};

use crate::job::finished_at;

/// Returns the actions for one Job.
pub fn reconcile_job(job: &Job, now: Timestamp) -> Vec<Action> {
    let ttl = job.spec.as_ref().and_then(|s| s.ttl_seconds_after_finished);
    let (Some(ttl), Some(end)) = (ttl, finished_at(job)) else {
        return Vec::new();
    };
    if job.is_deleting() {
        return Vec::new();
    }
    let wait = time::duration_until(time::seconds_after(end, i64::from(ttl)), now);
    if !wait.is_zero() {
        return vec![Action::Requeue(wait)];
    }
    // With the UID as a precondition: a new Job of the same name must survive.
    let mut write = Write::new(
        Verb::Delete,
        Target::of(job),
        // Foreground, as upstream: the Job remains until its pods are deleted.
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
pub fn add_ttl_after_finished_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let jobs = setup
        .informers
        .for_kind::<Job>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler(
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
            .map(|job| reconcile_job(&job, now))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    fn job(ttl: Option<i32>, finished: bool, deleting: bool) -> Job {
        let conditions = finished.then(|| {
            json!([{"type": "Complete", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        });
        serde_json::from_value(
            json!({"metadata": {"name": "j", "namespace": "n", "uid": "j",
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
            "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    #[test]
    fn finished_job_is_deleted_when_its_time_has_passed() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        for (job, expect) in [
            (job(Some(60), true, false), vec!["delete Job j"]),
            (job(Some(0), true, false), vec!["delete Job j"]),
            (job(Some(90), true, false), vec!["requeue 30s"]),
            (job(Some(0), false, false), vec![]),
            (job(None, true, false), vec![]),
            (job(Some(0), true, true), vec![]),
        ] {
            assert_eq!(
                describe_actions(&reconcile_job(&job, now)),
                expect,
                "{job:?}"
            );
        }
    }

    #[test]
    fn dependents_are_deleted_before_the_job() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let got = reconcile_job(&job(Some(0), true, false), now);
        let options = &got[0].as_write().unwrap().body;
        assert_eq!(options["propagationPolicy"], "Foreground");
        assert_eq!(options["preconditions"]["uid"], "j");
    }
}
