//! Executing the plan's commands, and taking in what came of them.

use super::messages::{Done, NotStarted};
use super::run::Worker;
use super::start::Start;
use crate::context::{now, reference};
use crate::make::sandbox;
use crate::pod::memory::{Cause, Work};
use crate::pod::plan::{Command, ready_at};
use crate::pod::view::{Instance, Sandbox, State};
use crate::pod::{SECOND, spec};
use crate::volumes::prepare;
use node_probes::{Health, ProbeKind, ProbeReport, ProbeSpec};
use std::time::Duration;

impl Worker {
    /// True when the plan must be made again at once.
    pub(super) fn execute(&mut self, command: Command) -> bool {
        match command {
            Command::Wake(at) => {
                self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
                self.tell_backoff();
            }
            Command::PrepareVolumes => self.prepare_volumes(),
            Command::CreateSandbox { attempt } => self.create_sandbox(attempt),
            Command::StopSandbox { id } => self.stop_sandbox(id),
            Command::Start { name, attempt } => self.start(name, attempt),
            Command::Kill { name, id, why, grace } => self.kill(name, id, why, grace),
            Command::Finish => {
                self.end(Cause::Finished, spec::grace(&self.pod));
                return true;
            }
            Command::Ended => {
                self.memory.ended = true;
                self.release();
            }
        }
        false
    }

    pub(super) fn prepare_volumes(&mut self) {
        if !self.memory.busy.insert(Work::Volumes) {
            return;
        }
        let (node, pod, tokens, addresses) =
            (self.node.clone(), self.pod.clone(), self.tokens.clone(), self.addresses());
        self.jobs.spawn(async move { Done::Volumes(prepare(&node, &pod, &tokens, &addresses).await) });
    }

    fn create_sandbox(&mut self, attempt: u32) {
        self.memory.busy.insert(Work::Sandbox);
        let (node, pod) = (self.node.clone(), self.pod.clone());
        self.jobs.spawn(async move {
            let resolv = std::fs::read_to_string(&node.settings.resolv_conf).unwrap_or_default();
            let work = async {
                node.cgroups.ensure(&pod).map_err(|e| format!("can't make the pod's cgroup: {e}"))?;
                let config = sandbox::config(&pod, &node.settings, node.cgroups.of_pod(&pod), attempt, &resolv)?;
                std::fs::create_dir_all(&config.log_directory)
                    .map_err(|e| format!("can't create {}: {e}", config.log_directory))?;
                let handler = handler(&node, &pod).await?;
                let _turn = node.starts.acquire().await;
                let id = node.runtime.run_sandbox(config, handler).await.map_err(|e| e.to_string())?;
                let status = node.runtime.sandbox_status(&id).await.map_err(|e| e.to_string())?;
                Ok(Sandbox::of(status))
            };
            Done::Sandbox(work.await)
        });
    }

    fn stop_sandbox(&mut self, id: String) {
        self.memory.busy.insert(Work::Sandbox);
        let node = self.node.clone();
        self.jobs.spawn(async move {
            Done::SandboxStopped(node.runtime.stop_sandbox(&id).await.map_err(|e| e.to_string()))
        });
    }

    fn start(&mut self, name: String, attempt: u32) {
        let Some(sandbox) = self.observed.sandbox().cloned() else { return };
        self.memory.busy.insert(Work::Container(name.clone()));
        let time = now();
        let memory = self.memory.of(&name);
        memory.not_before = 0;
        let left = (memory.pull_until - time) / SECOND;
        if attempt > 0 {
            memory.restart.advance(time);
        }
        let target = spec::ephemeral_containers(&self.pod).find(|c| c.name == name);
        let target = target.and_then(|c| c.target_container_name.as_deref()).and_then(|t| self.observed.latest(t));
        let start = Start {
            target: target.filter(|i| i.running()).map(|i| i.id.clone()),
            node: self.node.clone(),
            pod: self.pod.clone(),
            name: name.clone(),
            attempt,
            sandbox_id: sandbox.id,
            sandbox_attempt: sandbox.attempt,
            addresses: self.addresses(),
            volumes: self.volumes.clone(),
            over: self.over.clone(),
            back_off: (left > 0).then_some(left),
            inbox: self.sender.clone(),
        };
        self.jobs.spawn(async move { Done::Start { name, result: start.run().await } });
    }

    fn kill(&mut self, name: String, id: String, why: String, grace: i64) {
        self.memory.busy.insert(Work::Container(name.clone()));
        let (node, pod) = (self.node.clone(), self.pod.clone());
        let ip = self.addresses().pod_ips.first().cloned().unwrap_or_default();
        self.jobs.spawn(async move {
            super::kill::kill(node, pod, name.clone(), id, why, grace, ip).await;
            Done::Kill { name }
        });
    }

    /// Less time is left than the kills under way were given.
    pub(super) fn hurry(&mut self, grace: i64) {
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        for id in self.observed.all().filter(|i| i.running()).map(|i| i.id.clone()) {
            let node = self.node.clone();
            self.jobs.spawn(async move {
                if let Err(e) = node.runtime.stop_container(&id, grace).await {
                    tracing::warn!(id, error = %e, "container can't be stopped sooner");
                }
                Done::Aside
            });
        }
    }

    /// Takes in a result. True when the runtime must be asked.
    pub(super) fn finish(&mut self, done: Done) -> bool {
        match done {
            Done::Volumes(result) => self.volumes_done(result),
            Done::Sandbox(result) => return self.sandbox_done(result),
            Done::SandboxStopped(result) => {
                self.memory.busy.remove(&Work::Sandbox);
                if let Err(e) = result {
                    tracing::warn!(pod = spec::full_name(&self.pod), error = e, "sandbox can't be stopped");
                    self.wake = Some(now() + SECOND);
                }
                return true;
            }
            Done::Start { name, result } => {
                self.memory.busy.remove(&Work::Container(name.clone()));
                return match result {
                    Ok(instance) => self.started(name, instance),
                    Err(e) => self.not_started(&name, e),
                };
            }
            Done::Kill { name } => {
                self.memory.busy.remove(&Work::Container(name.clone()));
                self.memory.of(&name).kill = None;
                return true;
            }
            Done::Aside => return true,
        }
        false
    }

    fn volumes_done(&mut self, result: Result<crate::volumes::Volumes, String>) {
        self.memory.busy.remove(&Work::Volumes);
        match result {
            Ok(volumes) => {
                self.volumes = volumes;
                self.memory.volumes_ready = true;
                self.failures.0 = 0;
            }
            Err(why) => {
                self.node.recorder.warning(&reference(&self.pod, None), "FailedMount", why);
                self.failures.0 += 1;
                let wait = (SECOND / 2) << self.failures.0.min(8);
                let again = now() + wait;
                self.memory.volumes_not_before = again;
                if self.memory.volumes_ready {
                    // A refresh that failed: what is there stays, and is tried again.
                    self.volumes.refresh_at = jiff::Timestamp::from_nanosecond(i128::from(again)).ok();
                }
            }
        }
    }

    fn sandbox_done(&mut self, result: Result<Sandbox, String>) -> bool {
        self.memory.busy.remove(&Work::Sandbox);
        match result {
            Ok(sandbox) => {
                self.observed.put_sandbox(sandbox);
                self.failures.1 = 0;
                false
            }
            Err(why) => {
                let message = format!("Failed to create pod sandbox: {why}");
                self.node.recorder.warning(&reference(&self.pod, None), "FailedCreatePodSandBox", message);
                self.failures.1 += 1;
                self.memory.sandbox_not_before = now() + (SECOND << self.failures.1.min(5));
                true
            }
        }
    }

    fn started(&mut self, name: String, instance: Instance) -> bool {
        let gone = instance.state != State::Running;
        let memory = self.memory.of(&name);
        memory.instance.clone_from(&instance.id);
        (memory.hooked, memory.started, memory.ready) = (true, None, None);
        (memory.waiting, memory.kill) = (None, None);
        memory.pull_until = 0;
        let container = spec::find(&self.pod, &name).map(|(_, c)| c);
        self.applied.insert(name.clone(), container.and_then(|c| c.resources).unwrap_or_default());
        self.observed.put(instance);
        self.drop_old(&name);
        gone
    }

    /// Of ended instances only the last one stays, for its log and its state.
    fn drop_old(&mut self, name: &str) {
        for old in self.ended_instances(name).into_iter().skip(1) {
            if let Some(all) = self.observed.instances.get_mut(name) {
                all.retain(|i| i.id != old.id);
            }
            let node = self.node.clone();
            let log = super::observe::log_file(&self.node, &self.pod, &old);
            self.jobs.spawn(async move {
                if node.runtime.remove_container(&old.id).await.is_ok() {
                    let _ = std::fs::remove_file(log);
                }
                Done::Aside
            });
        }
    }

    fn not_started(&mut self, name: &str, e: NotStarted) -> bool {
        let time = now();
        let memory = self.memory.of(name);
        memory.not_before = time + 10 * SECOND;
        if e.pulled {
            memory.pull.advance(time);
            memory.pull_until = memory.pull.ready_at(time);
            memory.not_before = time + 2 * SECOND;
        } else if e.backed_off {
            memory.not_before = memory.pull_until;
        }
        if e.made {
            // The instance tells the story itself, and its end counts for the back-off.
            memory.not_before = 0;
        }
        memory.waiting = if e.made { None } else { Some(e.waiting) };
        e.made
    }

    /// Contents or environment may have changed: everything that waits for them is tried at once.
    pub(super) fn refresh(&mut self) {
        // The next time is known when this time is done.
        self.volumes.refresh_at = None;
        self.memory.volumes_not_before = 0;
        for memory in self.memory.containers.values_mut() {
            if memory.waiting.as_ref().is_some_and(|w| w.reason == "CreateContainerConfigError") {
                memory.not_before = 0;
            }
        }
        if self.memory.volumes_ready && !self.memory.ended {
            self.prepare_volumes();
        }
    }

    fn tell_backoff(&mut self) {
        let time = now();
        let loops: Vec<Instance> = spec::names(&self.pod)
            .into_iter()
            .filter_map(|(_, name)| self.observed.latest(&name).cloned())
            .filter(|i| i.state == State::Exited && ready_at(&self.memory, i) > time)
            .collect();
        for ended in loops {
            if self.backoffs_told.insert(ended.id.clone()) {
                let about = reference(&self.pod, Some((super::observe::list_of(&self.pod, &ended.name), &ended.name)));
                let text = format!(
                    "Back-off restarting failed container {} in pod {}",
                    ended.name,
                    spec::full_name(&self.pod)
                );
                self.node.recorder.warning(&about, "BackOff", text);
            }
        }
    }

    /// Starts the probes that should run and ends the others.
    pub(super) fn probe(&mut self) {
        let ending = self.memory.ending.is_some();
        let ip = self.addresses().pod_ips.first().cloned().unwrap_or_default();
        let mut wanted = Vec::new();
        for (_, name) in spec::names(&self.pod) {
            let Some(running) = self.observed.latest(&name).filter(|i| i.running()) else { continue };
            let Some(memory) = self.memory.of_instance(&name, &running.id) else { continue };
            let Some((_, container)) = spec::find(&self.pod, &name) else { continue };
            let age = Duration::from_nanos(u64::try_from(now() - running.started_at).unwrap_or_default());
            let started = container.startup_probe.is_none() || memory.started == Some(true);
            for (kind, probe, runs) in [
                (ProbeKind::Startup, &container.startup_probe, !started && !ending),
                (ProbeKind::Liveness, &container.liveness_probe, started && !ending),
                (ProbeKind::Readiness, &container.readiness_probe, started),
            ] {
                let (Some(probe), true) = (probe, runs) else { continue };
                let spec = ProbeSpec::new(kind, probe, &container, &ip);
                self.probes.ensure(&self.node, &self.sender, &name, &running.id, age, spec);
                wanted.push((running.id.clone(), kind));
            }
        }
        self.probes.retain(|id, kind| wanted.iter().any(|(i, k)| i == id && *k == kind));
    }

    /// Takes in what a probe says.
    pub(super) fn report(&mut self, name: &str, id: &str, kind: ProbeKind, report: ProbeReport) {
        let about = reference(&self.pod, Some((super::observe::list_of(&self.pod, name), name)));
        let (health, _) = match report {
            ProbeReport::Failed(why) => {
                return self.node.recorder.warning(
                    &about,
                    "Unhealthy",
                    format!("{} probe failed: {why}", kind.as_str()),
                );
            }
            ProbeReport::Errored(why) => {
                return self.node.recorder.warning(
                    &about,
                    "Unhealthy",
                    format!("{} probe errored: {why}", kind.as_str()),
                );
            }
            ProbeReport::Verdict(health, text) => (health, text),
        };
        let probe_grace = spec::find(&self.pod, name).and_then(|(_, c)| match kind {
            ProbeKind::Startup => c.startup_probe?.termination_grace_period_seconds,
            ProbeKind::Liveness => c.liveness_probe?.termination_grace_period_seconds,
            ProbeKind::Readiness => None,
        });
        let Some(memory) = self.memory_of(name, id) else { return };
        let healthy = health == Health::Healthy;
        match kind {
            ProbeKind::Readiness => memory.ready = Some(healthy),
            ProbeKind::Startup if healthy => memory.started = Some(true),
            ProbeKind::Liveness if healthy => {}
            _ => {
                let word = kind.as_str().to_lowercase();
                let why = format!("Container {name} failed {word} probe, will be restarted");
                memory.kill = Some(crate::pod::memory::Kill { id: id.to_owned(), why, grace: probe_grace });
            }
        }
    }
}

/// The runtime's handler for the pod's RuntimeClass.
async fn handler(node: &crate::context::Node, pod: &k8s_openapi::api::core::v1::Pod) -> Result<String, String> {
    use k8s_openapi::api::node::v1::RuntimeClass;
    let Some(name) = spec::spec(pod).runtime_class_name.as_deref().filter(|n| !n.is_empty()) else {
        return Ok(String::new());
    };
    let client = node.client.as_ref().ok_or("RuntimeClasses can't be read without an API server")?;
    let class = client.api::<RuntimeClass>().get(name).await;
    class.map(|c| c.handler).map_err(|e| format!("failed to get RuntimeClass {name:?}: {e}"))
}
