//! Enqueues CronJobs: on their own changes, on changes of their Jobs, and at their times.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::reconcile;

struct CronJobController {
    crons: Cache<CronJob>,
    jobs: Cache<Job>,
}

/// Sets up the CronJob controller.
pub fn cron_jobs(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let crons = setup
        .informers
        .of::<CronJob>()
        .on(wake::itself(&queue))
        .cache();
    let waiting = queue.clone();
    let jobs = setup.informers.of::<Job>().index_claims().on(move |event| {
        if let Some(key) = wake::owner_key::<CronJob, Job>(event.object()) {
            waiting.add(key);
        }
    });
    let jobs = jobs.cache();
    setup.decide(
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
        reconcile(&cron, &self.jobs.owned(cron.uid()), now)
    }
}
