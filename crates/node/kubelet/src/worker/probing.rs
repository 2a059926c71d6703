//! The probes of a pod's running containers.

use super::messages::Message;
use crate::context::KubeletContext;
use async_trait::async_trait;
use node_probes::{CommandRunner, ProbeKind, ProbeSpec};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::DropGuard;

/// Runs commands in one container.
pub(crate) struct ContainerCommands {
    pub(crate) kubelet: Arc<KubeletContext>,
    pub(crate) id: String,
}

#[async_trait]
impl CommandRunner for ContainerCommands {
    async fn run_command(
        &self,
        command: &[String],
        timeout: Duration,
    ) -> Result<(i32, Vec<u8>), (String, bool)> {
        match self
            .kubelet
            .runtime
            .exec_sync(&self.id, command, timeout)
            .await
        {
            Ok(done) => Ok((done.code, done.output)),
            Err(e) => Err((e.to_string(), e.is_timeout())),
        }
    }
}

/// Probe tasks by container id and kind; dropping the guard stops the task.
#[derive(Default)]
pub(crate) struct Probes(HashMap<(String, ProbeKind), DropGuard>);

impl Probes {
    /// Starts a probe unless it is already running.
    pub(crate) fn ensure(
        &mut self,
        kubelet: &Arc<KubeletContext>,
        inbox: &UnboundedSender<Message>,
        name: &str,
        id: &str,
        age: Duration,
        spec: ProbeSpec,
    ) {
        let kind = spec.kind;
        // Keyed by the CRI container: after a restart the successor gets probes of its own with new
        // counters.
        self.0.entry((id.to_owned(), kind)).or_insert_with(|| {
            let commands = ContainerCommands {
                kubelet: kubelet.clone(),
                id: id.to_owned(),
            };
            let (inbox, name, id) = (inbox.clone(), name.to_owned(), id.to_owned());
            // Dropping the guard cancels the task, so that a probe ends with its container in every
            // case.
            let stop = kubelet.tasks.shutdown().child_token();
            let stopped = stop.clone();
            kubelet.tasks.spawn("probe", async move {
                let report = |report| {
                    // Fails only if the worker has stopped, and then this task is about to be
                    // cancelled.
                    let _ = inbox.send(Message::Probe {
                        name: name.clone(),
                        id: id.clone(),
                        kind,
                        report,
                    });
                };
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = node_probes::run_probe(spec, age, &commands, report) => {}
                }
            });
            stop.drop_guard()
        });
    }

    /// Stops the probes for which `wanted` returns false.
    pub(crate) fn retain(&mut self, should_run: impl Fn(&str, ProbeKind) -> bool) {
        self.0.retain(|(id, kind), _| should_run(id, *kind));
    }
}
