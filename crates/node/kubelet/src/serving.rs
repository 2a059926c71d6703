//! Implements the backend of the node's HTTPS server.

mod stats;

use crate::context::KubeletContext;
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState};
use crate::worker::PodSnapshot;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::v1::{AttachRequest, ExecRequest};
use node_server::{Backend, Failure, LogQuery, LogSource, StreamOptions, StreamTarget};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Serving {
    kubelet: Arc<KubeletContext>,
}

impl Serving {
    pub(crate) fn new(kubelet: Arc<KubeletContext>) -> Self {
        Serving { kubelet }
    }

    fn find_pod(&self, target: &StreamTarget) -> Result<PodSnapshot, Failure> {
        let found = self
            .kubelet
            .workers
            .find_by_name(&target.namespace, &target.pod);
        // A client that names the uid means that pod, and not a later one of the same name.
        let found = found.filter(|s| target.uid.is_none() || s.pod.metadata.uid == target.uid);
        found.ok_or_else(|| Failure::not_found(format!("pod {:?} not found", target.pod)))
    }

    fn find_running(&self, target: &StreamTarget) -> Result<CriContainer, Failure> {
        let snapshot = self.find_pod(target)?;
        let found = snapshot
            .observed
            .latest(&target.container)
            .filter(|i| i.is_running())
            .cloned();
        found.ok_or_else(|| {
            Failure::not_found(format!("container not found ({:?})", target.container))
        })
    }
}

fn runtime_failure(e: node_runtime::RuntimeError) -> Failure {
    Failure::new(http::StatusCode::INTERNAL_SERVER_ERROR, e.to_string())
}

#[async_trait]
impl Backend for Serving {
    fn list_pods(&self) -> Value {
        let pod = |snapshot: PodSnapshot| Pod {
            status: Some((*snapshot.status).clone()),
            ..(*snapshot.pod).clone()
        };
        // With the status that the kubelet computed: the API server may not have it yet, or be
        // unreachable.
        let items: Vec<Pod> = self.kubelet.workers.all().into_iter().map(pod).collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }

    fn open_log(&self, target: &StreamTarget, query: &LogQuery) -> Result<LogSource, Failure> {
        let snapshot = self.find_pod(target)?;
        let name = &target.container;
        if spec::find_container(&snapshot.pod, name).is_none() {
            return Err(Failure::not_found(format!(
                "container {name:?} not found in pod {:?}",
                target.pod
            )));
        }
        let latest = snapshot.observed.latest(name);
        let container = if query.previous {
            let missing = || {
                Failure::bad_request(format!(
                    "previous terminated container {name:?} in pod {:?} not found",
                    target.pod
                ))
            };
            // A container that waits for its restart is the latest one, and its log is what
            // `kubectl logs --previous` asks for.
            let waits =
                latest.filter(|i| i.state == CriState::Exited && is_restarting(&snapshot, name));
            waits
                .or(snapshot.observed.previous(name))
                .ok_or_else(missing)?
        } else {
            latest.ok_or_else(|| waiting_failure(&snapshot, target))?
        };
        let path = crate::worker::locate_log(&self.kubelet, &snapshot.pod, container);
        let (kubelet, uid, id) = (
            self.kubelet.clone(),
            snapshot.pod.metadata.uid.clone().unwrap_or_default(),
            container.id.clone(),
        );
        // Only the identity of the container is captured: a snapshot would keep the state of now
        // and the follower would never end.
        let alive = move || {
            kubelet.workers.snapshot(&uid).is_some_and(|s| {
                s.observed
                    .by_id(&id)
                    .is_some_and(|i| i.state != CriState::Exited)
            })
        };
        Ok(LogSource {
            path,
            alive: Box::new(alive),
        })
    }

    async fn exec(&self, target: &StreamTarget, options: StreamOptions) -> Result<String, Failure> {
        let container_id = self.find_running(target)?.id;
        let StreamOptions {
            command: cmd,
            stdin,
            stdout,
            stderr,
            tty,
        } = options;
        self.kubelet
            .runtime
            .exec(ExecRequest {
                container_id,
                cmd,
                tty,
                stdin,
                stdout,
                stderr,
            })
            .await
            .map_err(runtime_failure)
    }

    async fn attach(
        &self,
        target: &StreamTarget,
        options: StreamOptions,
    ) -> Result<String, Failure> {
        let container_id = self.find_running(target)?.id;
        let StreamOptions {
            stdin,
            stdout,
            stderr,
            ..
        } = options;
        // The container's spec decides on the terminal, not the client.
        let snapshot = self.find_pod(target)?;
        let tty = spec::find_container(&snapshot.pod, &target.container)
            .is_some_and(|(_, c)| c.tty == Some(true));
        let request = AttachRequest {
            container_id,
            stdin,
            tty,
            stdout,
            stderr: stderr && !tty,
        };
        self.kubelet
            .runtime
            .attach(request)
            .await
            .map_err(runtime_failure)
    }

    async fn port_forward(
        &self,
        target: &StreamTarget,
        ports: Vec<i32>,
    ) -> Result<String, Failure> {
        let snapshot = self.find_pod(target)?;
        let missing = || Failure::not_found(format!("pod {:?} has no running sandbox", target.pod));
        let sandbox = snapshot.observed.sandbox().ok_or_else(missing)?;
        self.kubelet
            .runtime
            .port_forward(&sandbox.id, ports)
            .await
            .map_err(runtime_failure)
    }

    async fn run(
        &self,
        target: &StreamTarget,
        command: Vec<String>,
        limit: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let id = self.find_running(target)?.id;
        let done = self
            .kubelet
            .runtime
            .exec_sync(&id, &command, limit)
            .await
            .map_err(runtime_failure)?;
        if done.code != 0 {
            let output = String::from_utf8_lossy(&done.output).into_owned();
            let message = format!("command terminated with exit code {}: {output}", done.code);
            return Err(Failure::new(
                http::StatusCode::INTERNAL_SERVER_ERROR,
                message,
            ));
        }
        Ok(done.output)
    }

    async fn read_summary(&self) -> Value {
        stats::build_summary(&self.kubelet).await
    }

    fn format_metrics(&self) -> String {
        crate::metrics::format_metrics(&self.kubelet)
    }

    async fn format_resource_metrics(&self, cadvisor: bool) -> String {
        stats::format_metrics(&self.kubelet, cadvisor).await
    }

    fn configuration(&self) -> Value {
        self.kubelet.settings.source.clone()
    }
}

/// Returns whether the container waits for its next restart.
fn is_restarting(snapshot: &PodSnapshot, name: &str) -> bool {
    let lists = [
        &snapshot.status.container_statuses,
        &snapshot.status.init_container_statuses,
    ];
    let status = lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|s| s.name == name);
    status.is_some_and(|s| s.state.as_ref().is_some_and(|s| s.waiting.is_some()))
}

fn waiting_failure(snapshot: &PodSnapshot, target: &StreamTarget) -> Failure {
    let lists = [
        &snapshot.status.container_statuses,
        &snapshot.status.init_container_statuses,
    ];
    let status = lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|s| s.name == target.container);
    let reason = status
        .and_then(|s| s.state.as_ref()?.waiting.as_ref()?.reason.clone())
        .unwrap_or_default();
    // kubectl shows this text; it is upstream's.
    let what = match reason.as_str() {
        "" | "ContainerCreating" | "PodInitializing" => format!("waiting to start: {reason}"),
        "ErrImagePull" | "ImagePullBackOff" => {
            "waiting to start: trying and failing to pull image".to_owned()
        }
        other => format!("waiting to start: {other}"),
    };
    Failure::bad_request(format!(
        "container {:?} in pod {:?} is {what}",
        target.container, target.pod
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing;
    use crate::worker::PodWorker;

    fn target(uid: Option<&str>, pod: &str, container: &str) -> StreamTarget {
        StreamTarget {
            namespace: "ns".into(),
            pod: pod.into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        }
    }

    /// A node with the pod `ns/a`, whose container `c` has not started.
    fn serving(dir: &tempfile::TempDir) -> (Serving, PodWorker) {
        let kubelet = testing::context(testing::settings(dir.path()));
        let pod = testing::pod(json!({"containers": [{"name": "c"}]}));
        let worker = PodWorker::new(&kubelet, pod, false);
        (Serving::new(kubelet), worker)
    }

    #[tokio::test]
    async fn log_of_an_unknown_pod_or_container_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _worker) = serving(&dir);
        for (uid, pod, container, status) in [
            (None, "b", "c", 404),
            (Some("other"), "a", "c", 404),
            (None, "a", "x", 404),
            (Some("u"), "a", "c", 400),
        ] {
            let log = serving.open_log(&target(uid, pod, container), &LogQuery::default());
            let found = log.err().map(|failure| failure.status.as_u16());
            assert_eq!(found, Some(status), "{uid:?} {pod} {container}");
        }
    }

    #[tokio::test]
    async fn log_of_a_container_that_waits_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _worker) = serving(&dir);
        let target = target(None, "a", "c");
        let message = |query| serving.open_log(&target, &query).err().unwrap().message;
        let waiting = message(LogQuery::default());
        assert!(
            waiting.starts_with(r#"container "c" in pod "a" is waiting to start"#),
            "{waiting}"
        );
        let previous = message(LogQuery {
            previous: true,
            ..LogQuery::default()
        });
        assert_eq!(
            previous,
            r#"previous terminated container "c" in pod "a" not found"#
        );
    }

    #[tokio::test]
    async fn command_needs_a_running_container() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _worker) = serving(&dir);
        let options = StreamOptions::default();
        let failure = serving
            .exec(&target(None, "a", "c"), options)
            .await
            .unwrap_err();
        assert_eq!(failure.status.as_u16(), 404);
        let ports = serving.port_forward(&target(None, "a", ""), vec![80]).await;
        assert_eq!(ports.unwrap_err().status.as_u16(), 404);
    }
}
