//! Runs the probes of the containers and applies their results.

use super::pod_worker::PodWorker;
use crate::context::{build_reference, now};
use crate::pod::spec;
use node_probes::{Health, ProbeKind, ProbeReport, ProbeSpec};
use std::time::Duration;

impl PodWorker {
    /// Starts the probes that should run and stops the others.
    pub(super) fn sync_probes(&mut self) {
        let terminating = !self.state.memory.lifecycle.is_running();
        let ips = self.state.pod_ips(&self.kubelet.ips);
        let ip = ips.first().cloned().unwrap_or_default();
        let mut expected = Vec::new();
        for (_, name) in spec::list_containers(&self.state.pod) {
            let Some(running) = self.state.observed.latest(&name).filter(|i| i.is_running()) else {
                continue;
            };
            // Without memory the start has not ended: probes begin after the postStart hook.
            let Some(memory) = self.state.memory.of_container(&name, &running.id) else {
                continue;
            };
            let Some((_, container)) = spec::find_container(&self.state.pod, &name) else {
                continue;
            };
            let age =
                Duration::from_nanos(u64::try_from(now() - running.started_at).unwrap_or_default());
            // A slow start must not count as a failed liveness, which would restart the container
            // for ever.
            let started = container.startup_probe.is_none() || memory.started == Some(true);
            for (kind, probe, runs) in [
                (
                    ProbeKind::Startup,
                    &container.startup_probe,
                    !started && !terminating,
                ),
                (
                    ProbeKind::Liveness,
                    &container.liveness_probe,
                    started && !terminating,
                ),
                // Readiness continues while the pod terminates: endpoints show whether it still
                // serves.
                (ProbeKind::Readiness, &container.readiness_probe, started),
            ] {
                let (Some(probe), true) = (probe, runs) else {
                    continue;
                };
                let spec = ProbeSpec::new(kind, probe, &container, &ip);
                self.probes
                    .ensure(&self.kubelet, &self.sender, &name, &running.id, age, spec);
                expected.push((running.id.clone(), kind));
            }
        }
        self.probes
            .retain(|id, kind| expected.iter().any(|(i, k)| i == id && *k == kind));
    }

    /// Applies a probe's report: events, readiness, startup, or the restart of the container.
    pub(super) fn apply_probe_report(
        &mut self,
        name: &str,
        id: &str,
        kind: ProbeKind,
        report: ProbeReport,
    ) {
        let about = build_reference(
            &self.state.pod,
            Some((super::observe::list_name(&self.state.pod, name), name)),
        );
        let (health, _) = match report {
            ProbeReport::Failed(why) => {
                return self.kubelet.recorder.warning(
                    &about,
                    "Unhealthy",
                    format!("{} probe failed: {why}", kind.as_str()),
                );
            }
            // An error of the probe itself says nothing about the container, so that only an event
            // is sent.
            ProbeReport::Errored(why) => {
                return self.kubelet.recorder.warning(
                    &about,
                    "Unhealthy",
                    format!("{} probe errored: {why}", kind.as_str()),
                );
            }
            ProbeReport::HealthChanged(health, text) => (health, text),
        };
        let probe_grace =
            spec::find_container(&self.state.pod, name).and_then(|(_, c)| match kind {
                ProbeKind::Startup => c.startup_probe?.termination_grace_period_seconds,
                ProbeKind::Liveness => c.liveness_probe?.termination_grace_period_seconds,
                // Readiness never stops a container.
                ProbeKind::Readiness => None,
            });
        // The report may be of the container before a restart.
        let Some(memory) = self.state.memory_of(name, id) else {
            return;
        };
        let healthy = health == Health::Healthy;
        match kind {
            ProbeKind::Readiness => memory.ready = Some(healthy),
            ProbeKind::Startup if healthy => memory.started = Some(true),
            ProbeKind::Liveness if healthy => {}
            _ => {
                let word = kind.as_str().to_lowercase();
                let why = format!("Container {name} failed {word} probe, will be restarted");
                // Only requested here: the plan decides by the restart policy, and while no other
                // job of the container runs.
                memory.kill = Some(crate::pod::memory::StopRequest {
                    id: id.to_owned(),
                    why,
                    grace: probe_grace,
                });
            }
        }
    }
}
