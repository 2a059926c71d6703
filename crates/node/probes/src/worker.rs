//! One probe of one container, from its start to its end.

use crate::check::{CheckResult, CommandRunner, run_check};
use crate::spec::{ProbeKind, ProbeSpec};
use crate::thresholds::{Health, Thresholds};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// A report of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeReport {
    /// A failed check, for an event.
    Failed(String),
    /// A check without a result, for an event.
    Errored(String),
    /// The state changed or was reached for the first time.
    HealthChanged(Health, String),
}

/// Checks periodically until the result is final (startup: any; liveness: unhealthy). `age` is the
/// time since the container's start. Stops when dropped.
pub async fn run_probe<F>(spec: ProbeSpec, age: Duration, runner: &dyn CommandRunner, mut report: F)
where
    F: FnMut(ProbeReport) + Send,
{
    tokio::time::sleep(spec.initial_delay.saturating_sub(age)).await;
    let mut counts = Thresholds::new(spec.success_threshold, spec.failure_threshold);
    let mut verdict = None;
    let mut ticks = interval(spec.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (health, text) = match run_check(&spec.handler, spec.timeout, runner).await {
            CheckResult::Completed(health, text) => (health, text),
            CheckResult::Unknown(why) => {
                report(ProbeReport::Errored(why));
                continue;
            }
        };
        if health == Health::Unhealthy {
            report(ProbeReport::Failed(text.clone()));
        }
        let Some(new) = counts.observe(health) else {
            continue;
        };
        if verdict != Some(new) {
            verdict = Some(new);
            report(ProbeReport::HealthChanged(new, text));
        }
        let last = match spec.kind {
            ProbeKind::Startup => true,
            ProbeKind::Liveness => new == Health::Unhealthy,
            ProbeKind::Readiness => false,
        };
        if last {
            return;
        }
    }
}
