//! Jobs and CronJobs.

mod cron;
mod indexes;
mod job;
mod policies;
mod status;

use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;

pub const JOB: Rules = Rules {
    name: NameRule::Subdomain,
    create: job::validate_new_job,
    update: job::validate_job_update,
    sub: |sub, new, old, errors| {
        if sub == "status" {
            status::validate_job_status(new, old, errors);
        }
    },
};
pub const CRON_JOB: Rules = Rules {
    name: NameRule::Subdomain,
    create: cron::validate_new_cron_job,
    update: cron::validate_cron_job_update,
    sub: accept_subresource,
};
