//! The runtime service.

use crate::behaviour;
use crate::state::{Container as Held, Sandbox as HeldSandbox, State, now};
use futures::{Stream, StreamExt};
use proto_cri::v1::*;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::wrappers::BroadcastStream;
use tonic::Status;

/// The runtime service.
#[derive(Clone)]
pub(crate) struct Runtime(pub(crate) Arc<State>);

type Answer<T> = Result<T, Status>;

fn missing(what: &str, id: &str) -> Status {
    Status::not_found(format!("{what} {id:?} does not exist"))
}

fn selected(labels: &HashMap<String, String>, wanted: &HashMap<String, String>) -> bool {
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// Writes the log line of a start.
fn log(path: &Path, text: &str) {
    let line = format!("{} stdout F {text}\n", jiff::Timestamp::now());
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| {
            use std::io::Write;
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?
                .write_all(line.as_bytes())
        });
    if let Err(e) = written {
        tracing::debug!(path = %path.display(), error = %e, "log of a simulated container can't be written");
    }
}

/// Takes over what an update sets; zeros stand for what it leaves unchanged.
fn merge_settings(present: &mut LinuxContainerResources, update: &LinuxContainerResources) {
    for (present, update) in [
        (&mut present.cpu_period, update.cpu_period),
        (&mut present.cpu_quota, update.cpu_quota),
        (&mut present.cpu_shares, update.cpu_shares),
        (
            &mut present.memory_limit_in_bytes,
            update.memory_limit_in_bytes,
        ),
    ] {
        if update != 0 {
            *present = update;
        }
    }
}

impl Runtime {
    pub(crate) fn version(&self, _: VersionRequest) -> Answer<VersionResponse> {
        Ok(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "simulated".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        })
    }

    pub(crate) fn status(&self, _: StatusRequest) -> Answer<StatusResponse> {
        let condition = |kind: &str| RuntimeCondition {
            r#type: kind.into(),
            status: true,
            ..RuntimeCondition::default()
        };
        let status = RuntimeStatus {
            conditions: vec![condition("RuntimeReady"), condition("NetworkReady")],
        };
        let features = RuntimeHandlerFeatures {
            recursive_read_only_mounts: true,
            user_namespaces: false,
        };
        let handler = RuntimeHandler {
            features: Some(features),
            ..RuntimeHandler::default()
        };
        Ok(StatusResponse {
            status: Some(status),
            runtime_handlers: vec![handler],
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                ..RuntimeFeatures::default()
            }),
            ..StatusResponse::default()
        })
    }

    pub(crate) fn run_pod_sandbox(
        &self,
        request: RunPodSandboxRequest,
    ) -> Answer<RunPodSandboxResponse> {
        let config = request
            .config
            .ok_or_else(|| Status::invalid_argument("no configuration"))?;
        let (id, serial) = self.0.id();
        let status = PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            state: PodSandboxState::SandboxReady as i32,
            created_at: now(),
            network: Some(State::network(self.0.address(serial))),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            ..PodSandboxStatus::default()
        };
        let held = HeldSandbox {
            config,
            status,
            handler: request.runtime_handler,
        };
        self.0.things.lock().sandboxes.insert(id.clone(), held);
        Ok(RunPodSandboxResponse { pod_sandbox_id: id })
    }

    pub(crate) fn stop_pod_sandbox(
        &self,
        request: StopPodSandboxRequest,
    ) -> Answer<StopPodSandboxResponse> {
        self.0.stop_sandbox(&request.pod_sandbox_id);
        Ok(StopPodSandboxResponse {})
    }

    pub(crate) fn remove_pod_sandbox(
        &self,
        request: RemovePodSandboxRequest,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.pod_sandbox_id;
        self.0.stop_sandbox(&id);
        let mut things = self.0.things.lock();
        things.sandboxes.remove(&id);
        things.containers.retain(|_, c| c.sandbox != id);
        Ok(RemovePodSandboxResponse {})
    }

    pub(crate) fn pod_sandbox_status(
        &self,
        request: PodSandboxStatusRequest,
    ) -> Answer<PodSandboxStatusResponse> {
        let id = request.pod_sandbox_id;
        let status = self
            .0
            .things
            .lock()
            .sandboxes
            .get(&id)
            .map(|s| s.status.clone());
        let status = Some(status.ok_or_else(|| missing("sandbox", &id))?);
        Ok(PodSandboxStatusResponse {
            status,
            ..PodSandboxStatusResponse::default()
        })
    }

    pub(crate) fn list_pod_sandbox(
        &self,
        request: ListPodSandboxRequest,
    ) -> Answer<ListPodSandboxResponse> {
        let wanted = request.filter.unwrap_or_default().label_selector;
        let things = self.0.things.lock();
        let fitting = things
            .sandboxes
            .values()
            .filter(|s| selected(&s.status.labels, &wanted));
        let items = fitting
            .map(|s| PodSandbox {
                id: s.status.id.clone(),
                metadata: s.status.metadata.clone(),
                state: s.status.state,
                created_at: s.status.created_at,
                labels: s.status.labels.clone(),
                annotations: s.status.annotations.clone(),
                runtime_handler: s.handler.clone(),
            })
            .collect();
        Ok(ListPodSandboxResponse { items })
    }

    pub(crate) fn create_container(
        &self,
        request: CreateContainerRequest,
    ) -> Answer<CreateContainerResponse> {
        let config = request
            .config
            .ok_or_else(|| Status::invalid_argument("no configuration"))?;
        let (id, _) = self.0.id();
        let mut things = self.0.things.lock();
        let sandbox = things
            .sandboxes
            .get(&request.pod_sandbox_id)
            .ok_or_else(|| missing("sandbox", &request.pod_sandbox_id))?;
        let log_path = Path::new(&sandbox.config.log_directory).join(&config.log_path);
        let image = config.image.clone().unwrap_or_default();
        let status = ContainerStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            state: ContainerState::ContainerCreated as i32,
            created_at: now(),
            image_ref: image.image.clone(),
            image: Some(ImageSpec {
                image: image.user_specified_image.clone(),
                ..ImageSpec::default()
            }),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            log_path: log_path.to_string_lossy().into_owned(),
            resources: config.linux.as_ref().map(|linux| ContainerResources {
                linux: linux.resources.clone(),
                ..ContainerResources::default()
            }),
            ..ContainerStatus::default()
        };
        let held = Held {
            config,
            sandbox: request.pod_sandbox_id,
            status,
            ended: watch::Sender::new(false),
        };
        things.containers.insert(id.clone(), held);
        drop(things);
        self.0
            .notify(&id, ContainerEventType::ContainerCreatedEvent);
        Ok(CreateContainerResponse { container_id: id })
    }

    pub(crate) fn start_container(
        &self,
        request: StartContainerRequest,
    ) -> Answer<StartContainerResponse> {
        let id = request.container_id;
        let (behaviour, path, name) = {
            let mut things = self.0.things.lock();
            let sandbox = things
                .containers
                .get(&id)
                .map(|c| c.sandbox.clone())
                .ok_or_else(|| missing("container", &id))?;
            let sandbox = things
                .sandboxes
                .get(&sandbox)
                .map(|s| s.config.clone())
                .unwrap_or_default();
            let container = things
                .containers
                .get_mut(&id)
                .ok_or_else(|| missing("container", &id))?;
            container.status.state = ContainerState::ContainerRunning as i32;
            container.status.started_at = now();
            let name = container.config.metadata.clone().unwrap_or_default().name;
            (
                behaviour::of(&container.config, &sandbox),
                container.status.log_path.clone(),
                name,
            )
        };
        log(
            Path::new(&path),
            &format!("simulated container {name} started"),
        );
        self.0
            .notify(&id, ContainerEventType::ContainerStartedEvent);
        if let Some((after, code)) = behaviour.exits {
            let state = self.0.clone();
            self.0
                .tasks
                .spawn_isolated("simulated container", async move {
                    if state
                        .tasks
                        .shutdown()
                        .run_until_cancelled(tokio::time::sleep(after))
                        .await
                        .is_some()
                    {
                        state.end(&id, code, if code == 0 { "Completed" } else { "Error" });
                    }
                });
        }
        Ok(StartContainerResponse {})
    }

    pub(crate) fn stop_container(
        &self,
        request: StopContainerRequest,
    ) -> Answer<StopContainerResponse> {
        let id = request.container_id;
        if self.0.stop_fails(&id) {
            return Err(Status::internal("the container can't be stopped yet"));
        }
        self.0.end(&id, 143, "Error");
        Ok(StopContainerResponse {})
    }

    pub(crate) fn remove_container(
        &self,
        request: RemoveContainerRequest,
    ) -> Answer<RemoveContainerResponse> {
        let id = request.container_id;
        self.0.end(&id, 137, "Error");
        self.0.things.lock().containers.remove(&id);
        Ok(RemoveContainerResponse {})
    }

    pub(crate) fn list_containers(
        &self,
        request: ListContainersRequest,
    ) -> Answer<ListContainersResponse> {
        let wanted = request.filter.unwrap_or_default().label_selector;
        let things = self.0.things.lock();
        let fitting = things
            .containers
            .values()
            .filter(|c| selected(&c.status.labels, &wanted));
        let containers = fitting
            .map(|c| Container {
                id: c.status.id.clone(),
                pod_sandbox_id: c.sandbox.clone(),
                metadata: c.status.metadata.clone(),
                image: c.status.image.clone(),
                image_ref: c.status.image_ref.clone(),
                state: c.status.state,
                created_at: c.status.created_at,
                labels: c.status.labels.clone(),
                annotations: c.status.annotations.clone(),
                ..Container::default()
            })
            .collect();
        Ok(ListContainersResponse { containers })
    }

    pub(crate) fn container_status(
        &self,
        request: ContainerStatusRequest,
    ) -> Answer<ContainerStatusResponse> {
        let id = request.container_id;
        let status = self
            .0
            .things
            .lock()
            .containers
            .get(&id)
            .map(|c| c.status.clone());
        let status = Some(status.ok_or_else(|| missing("container", &id))?);
        Ok(ContainerStatusResponse {
            status,
            ..ContainerStatusResponse::default()
        })
    }

    pub(crate) fn update_container_resources(
        &self,
        request: UpdateContainerResourcesRequest,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let id = request.container_id;
        let settings = request.linux.unwrap_or_default();
        if settings.cpu_shares != 0 && self.0.cpu_update_fails(&id) {
            return Err(Status::internal(
                "the pod's annotation demands this failure",
            ));
        }
        let mut things = self.0.things.lock();
        let container = things.containers.get_mut(&id);
        let container = container.ok_or_else(|| missing("container", &id))?;
        let resources = container.status.resources.get_or_insert_default();
        merge_settings(resources.linux.get_or_insert_default(), &settings);
        Ok(UpdateContainerResourcesResponse {})
    }

    pub(crate) fn reopen_container_log(
        &self,
        _: ReopenContainerLogRequest,
    ) -> Answer<ReopenContainerLogResponse> {
        Ok(ReopenContainerLogResponse {})
    }

    pub(crate) fn exec_sync(&self, request: ExecSyncRequest) -> Answer<ExecSyncResponse> {
        let failed = request.cmd.first().is_some_and(|c| c == "false");
        let stdout = match request.cmd.split_first() {
            Some((first, rest)) if first == "echo" => format!("{}\n", rest.join(" ")),
            _ => String::new(),
        };
        Ok(ExecSyncResponse {
            stdout: stdout.into_bytes(),
            stderr: Vec::new(),
            exit_code: i32::from(failed),
        })
    }

    pub(crate) fn list_container_stats(
        &self,
        _: ListContainerStatsRequest,
    ) -> Answer<ListContainerStatsResponse> {
        Ok(ListContainerStatsResponse::default())
    }

    /// Returns the events from now on. A listener that lags behind relists at intervals.
    pub(crate) fn container_events(&self) -> impl Stream<Item = ContainerEventResponse> + use<> {
        let events = BroadcastStream::new(self.0.events.subscribe());
        events.filter_map(|event| async { event.ok() })
    }
}
