//! One probe of one container, from its start to its end.

use crate::check::{CommandRunner, run_check};
use crate::result::CheckResult;
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
    // Counted from the start of the container: a restarted kubelet does not delay the probes once
    // more.
    tokio::time::sleep(spec.initial_delay.saturating_sub(age)).await;
    let mut counts = Thresholds::new(spec.success_threshold, spec.failure_threshold);
    let mut verdict = None;
    let mut ticks = interval(spec.period);
    // After a check that took longer than the period, the next one waits a whole period: a slow
    // container must not be checked without a pause.
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
        // A container has one startup; liveness ends with the restart, which gets a probe of its
        // own.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spec::Handler;
    use crate::testing::ScriptedCommands;

    /// Runs a probe with these exit codes, with a runtime error for None; returns its reports, and
    /// `true` if it ended by itself.
    async fn run_with(kind: ProbeKind, codes: &[Option<i32>]) -> (Vec<ProbeReport>, bool) {
        let spec = ProbeSpec {
            kind,
            handler: Handler::Exec(Vec::new()),
            initial_delay: Duration::ZERO,
            period: Duration::from_millis(1),
            timeout: Duration::from_secs(5),
            success_threshold: 1,
            failure_threshold: 2,
        };
        let results = codes.iter().map(|code| match code {
            Some(code) => Ok((*code, Vec::new())),
            None => Err((String::from("away"), false)),
        });
        let commands = ScriptedCommands::new(results.collect());
        let mut reports = Vec::new();
        let probe = run_probe(spec, Duration::ZERO, &commands, |report| {
            reports.push(report);
        });
        let ended = tokio::time::timeout(Duration::from_millis(300), probe).await;
        (reports, ended.is_ok())
    }

    fn changed(health: Health) -> ProbeReport {
        ProbeReport::HealthChanged(health, String::new())
    }

    fn failed() -> ProbeReport {
        ProbeReport::Failed(String::new())
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_probe_reports_each_change_and_continues() {
        let codes = [0, 0, 1, 0, 1, 1, 1, 0].map(Some);
        let (reports, ended) = run_with(ProbeKind::Readiness, &codes).await;
        let expected = [
            changed(Health::Healthy),
            failed(),
            failed(),
            failed(),
            changed(Health::Unhealthy),
            failed(),
            changed(Health::Healthy),
        ];
        assert_eq!(reports, expected);
        assert!(!ended);
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_probe_ends_when_the_container_must_be_restarted() {
        let (reports, ended) = run_with(ProbeKind::Liveness, &[0, 1, 1].map(Some)).await;
        let expected = [
            changed(Health::Healthy),
            failed(),
            failed(),
            changed(Health::Unhealthy),
        ];
        assert_eq!(reports, expected);
        assert!(ended);
    }

    #[tokio::test(start_paused = true)]
    async fn startup_probe_ends_with_its_first_success() {
        let (reports, ended) = run_with(ProbeKind::Startup, &[1, 0].map(Some)).await;
        assert_eq!(reports, [failed(), changed(Health::Healthy)]);
        assert!(ended);
    }

    /// A runtime that is restarted must not restart the containers.
    #[tokio::test(start_paused = true)]
    async fn check_without_a_result_does_not_count_as_a_failure() {
        let codes = [Some(1), None, None, Some(0)];
        let (reports, _) = run_with(ProbeKind::Liveness, &codes).await;
        let errored = || ProbeReport::Errored("away".into());
        let expected = [failed(), errored(), errored(), changed(Health::Healthy)];
        assert_eq!(reports, expected);
    }
}
