//! Enqueues CronJobs: on their own changes, on changes of their Jobs, and at their times.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::reconcile_cron_job;

struct CronJobController {
    crons: Cache<CronJob>,
    jobs: Cache<Job>,
}

/// Sets up the CronJob controller.
pub fn add_cron_job_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let crons = setup
        .informers
        .for_kind::<CronJob>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let waiting = queue.clone();
    let jobs = setup
        .informers
        .for_kind::<Job>()
        .index_claims()
        .on_event(move |event| {
            // A CronJob has no selector and adopts nothing: only the owner reference counts.
            if let Some(key) = wake::owner_key::<CronJob, Job>(event.object()) {
                waiting.add(key);
            }
        });
    let jobs = jobs.cache();
    setup.add_reconciler(
        "cronjob-controller",
        workers,
        queue,
        CronJobController { crons, jobs },
    );
}

impl Decide for CronJobController {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(cron) = self.crons.get(key) else {
            return Vec::new();
        };
        reconcile_cron_job(&cron, &self.jobs.owned_by(cron.uid()), now)
    }
}
