//! CronJobs: create a Job at each time of a schedule.
//!
//! The Job's name contains the minute it is for, so that a minute has one Job however often a
//! reconcile is repeated.

mod decide;
mod wiring;

pub use decide::reconcile_cron_job;
pub use wiring::add_cron_job_controller;

#[cfg(test)]
mod tests;
