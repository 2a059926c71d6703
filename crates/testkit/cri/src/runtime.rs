//! The runtime service.

use crate::behaviour;
use crate::state::{Container as Held, Sandbox as HeldSandbox, State, now};
use futures::StreamExt;
use proto_cri::v1::runtime_service_server::RuntimeService;
use proto_cri::v1::*;
use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Response, Status};

/// The runtime service.
pub(crate) struct Runtime(pub(crate) Arc<State>);

type Answer<T> = Result<Response<T>, Status>;
type Never<T> = Pin<Box<dyn futures::Stream<Item = Result<T, Status>> + Send>>;

fn missing(what: &str, id: &str) -> Status {
    Status::not_found(format!("{what} {id:?} does not exist"))
}

fn unknown(call: &str) -> Status {
    Status::unimplemented(format!("the simulated runtime does not know {call}"))
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

#[tonic::async_trait]
impl RuntimeService for Runtime {
    type GetContainerEventsStream = Never<ContainerEventResponse>;
    type StreamPodSandboxesStream = Never<StreamPodSandboxesResponse>;
    type StreamContainersStream = Never<StreamContainersResponse>;
    type StreamContainerStatsStream = Never<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Never<StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = Never<StreamPodSandboxMetricsResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "simulated".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
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
        Ok(Response::new(StatusResponse {
            status: Some(status),
            runtime_handlers: vec![handler],
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                ..RuntimeFeatures::default()
            }),
            ..StatusResponse::default()
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
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
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        self.0.stop_sandbox(&request.into_inner().pod_sandbox_id);
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.0.stop_sandbox(&id);
        let mut things = self.0.things.lock();
        things.sandboxes.remove(&id);
        things.containers.retain(|_, c| c.sandbox != id);
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let status = self
            .0
            .things
            .lock()
            .sandboxes
            .get(&id)
            .map(|s| s.status.clone());
        let status = Some(status.ok_or_else(|| missing("sandbox", &id))?);
        Ok(Response::new(PodSandboxStatusResponse {
            status,
            ..PodSandboxStatusResponse::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let wanted = request
            .into_inner()
            .filter
            .unwrap_or_default()
            .label_selector;
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
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
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
        Ok(Response::new(CreateContainerResponse { container_id: id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
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
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let id = request.into_inner().container_id;
        if self.0.stop_fails(&id) {
            return Err(Status::internal("the container can't be stopped yet"));
        }
        self.0.end(&id, 143, "Error");
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.0.end(&id, 137, "Error");
        self.0.things.lock().containers.remove(&id);
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let wanted = request
            .into_inner()
            .filter
            .unwrap_or_default()
            .label_selector;
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
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let status = self
            .0
            .things
            .lock()
            .containers
            .get(&id)
            .map(|c| c.status.clone());
        let status = Some(status.ok_or_else(|| missing("container", &id))?);
        Ok(Response::new(ContainerStatusResponse {
            status,
            ..ContainerStatusResponse::default()
        }))
    }

    async fn update_container_resources(
        &self,
        _: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        _: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        let failed = request.cmd.first().is_some_and(|c| c == "false");
        let stdout = match request.cmd.split_first() {
            Some((first, rest)) if first == "echo" => format!("{}\n", rest.join(" ")),
            _ => String::new(),
        };
        Ok(Response::new(ExecSyncResponse {
            stdout: stdout.into_bytes(),
            stderr: Vec::new(),
            exit_code: i32::from(failed),
        }))
    }

    async fn list_container_stats(
        &self,
        _: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        Ok(Response::new(ListContainerStatsResponse::default()))
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let events = BroadcastStream::new(self.0.events.subscribe());
        // A listener that lags behind relists at intervals.
        Ok(Response::new(Box::pin(
            events.filter_map(|event| async { event.ok().map(Ok) }),
        )))
    }

    async fn stream_pod_sandboxes(
        &self,
        _: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        Err(unknown("StreamPodSandboxes"))
    }

    async fn stream_containers(
        &self,
        _: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        Err(unknown("StreamContainers"))
    }

    async fn exec(&self, _: Request<ExecRequest>) -> Answer<ExecResponse> {
        Err(unknown("Exec"))
    }

    async fn attach(&self, _: Request<AttachRequest>) -> Answer<AttachResponse> {
        Err(unknown("Attach"))
    }

    async fn port_forward(&self, _: Request<PortForwardRequest>) -> Answer<PortForwardResponse> {
        Err(unknown("PortForward"))
    }

    async fn container_stats(
        &self,
        _: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        Err(unknown("ContainerStats"))
    }

    async fn stream_container_stats(
        &self,
        _: Request<StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        Err(unknown("StreamContainerStats"))
    }

    async fn pod_sandbox_stats(
        &self,
        _: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        Err(unknown("PodSandboxStats"))
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        Err(unknown("ListPodSandboxStats"))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        _: Request<StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        Err(unknown("StreamPodSandboxStats"))
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        Err(unknown("UpdateRuntimeConfig"))
    }

    async fn checkpoint_container(
        &self,
        _: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        Err(unknown("CheckpointContainer"))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        Err(unknown("ListMetricDescriptors"))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        Err(unknown("ListPodSandboxMetrics"))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        Err(unknown("StreamPodSandboxMetrics"))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        Err(unknown("RuntimeConfig"))
    }

    async fn update_pod_sandbox_resources(
        &self,
        _: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        Err(unknown("UpdatePodSandboxResources"))
    }
}
