//! Client of CRI's runtime service. It uses one HTTP/2 connection, opened on first use and again
//! after it broke.

use crate::error::{Result, RuntimeError};
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::v1::*;
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of calls that wait for CNI: upstream's limit for creating a sandbox is twice the usual
/// one.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(240);
// tonic's default limit of 4 MiB is too small for the list of a node with hundreds of pods.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A client of the runtime; cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) channel: Channel,
    socket: PathBuf,
}

/// The result of a command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output and then standard error, as probes report it.
    pub output: Vec<u8>,
}

impl Runtime {
    /// Creates a client for `unix:///path/to.sock` (or a bare path); connects on first use.
    ///
    /// # Errors
    /// The endpoint is no Unix socket.
    pub fn new(endpoint: &str) -> Result<Self> {
        let refuse = |why: &str| RuntimeError::Endpoint {
            endpoint: endpoint.to_owned(),
            why: why.to_owned(),
        };
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !path.starts_with('/') {
            return Err(refuse(
                "give a Unix socket, for instance unix:///run/containerd/containerd.sock",
            ));
        }
        let socket = PathBuf::from(path);
        // Lazy: the kubelet is started beside its runtime, and a restarted containerd listens again
        // at the same path.
        let connector = {
            let socket = socket.clone();
            tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            })
        };
        let endpoint = Endpoint::from_static("http://localhost");
        Ok(Runtime {
            channel: endpoint.connect_with_connector_lazy(connector),
            socket,
        })
    }

    /// Returns the socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn runtime_service(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn image_service(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Returns name and version of the runtime.
    pub async fn version(&self) -> Result<VersionResponse> {
        let request = with_timeout(
            VersionRequest {
                version: "v1".into(),
            },
            Duration::from_secs(5),
        );
        Ok(self.runtime_service().version(request).await?.into_inner())
    }

    /// Returns whether runtime and network are ready, and the features of the handlers.
    pub async fn status(&self) -> Result<StatusResponse> {
        let request = with_timeout(StatusRequest { verbose: false }, Duration::from_secs(10));
        Ok(self.runtime_service().status(request).await?.into_inner())
    }

    /// Creates and starts a pod's sandbox; returns its id.
    pub async fn run_sandbox(&self, config: PodSandboxConfig, handler: String) -> Result<String> {
        let request = RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: handler,
        };
        Ok(self
            .runtime_service()
            .run_pod_sandbox(with_timeout(request, NETWORK_TIMEOUT))
            .await?
            .into_inner()
            .pod_sandbox_id)
    }

    /// Stops a sandbox and releases its network; succeeds if it is already stopped.
    pub async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        ignore_not_found(
            self.runtime_service()
                .stop_pod_sandbox(with_timeout(request, NETWORK_TIMEOUT))
                .await,
        )
    }

    /// Removes a sandbox and its containers; succeeds if it is already removed.
    pub async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        ignore_not_found(
            self.runtime_service()
                .remove_pod_sandbox(with_timeout(request, TIMEOUT))
                .await,
        )
    }

    /// Lists all sandboxes, or those of one pod.
    pub async fn list_sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<PodSandbox>> {
        let filter = PodSandboxFilter {
            label_selector: pod_selector(pod_uid),
            ..Default::default()
        };
        let request = with_timeout(
            ListPodSandboxRequest {
                filter: Some(filter),
            },
            TIMEOUT,
        );
        Ok(self
            .runtime_service()
            .list_pod_sandbox(request)
            .await?
            .into_inner()
            .items)
    }

    /// Returns a sandbox's full status.
    pub async fn sandbox_status(&self, id: &str) -> Result<PodSandboxStatus> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let response = self
            .runtime_service()
            .pod_sandbox_status(with_timeout(request, TIMEOUT))
            .await?
            .into_inner();
        Ok(response.status.unwrap_or_default())
    }

    /// Creates a container; returns its id.
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(self
            .runtime_service()
            .create_container(with_timeout(request, TIMEOUT))
            .await?
            .into_inner()
            .container_id)
    }

    /// Starts a container.
    pub async fn start_container(&self, id: &str) -> Result<()> {
        let request = StartContainerRequest {
            container_id: id.to_owned(),
        };
        self.runtime_service()
            .start_container(with_timeout(request, TIMEOUT))
            .await?;
        Ok(())
    }

    /// Sends the stop signal, and after `grace` the kill signal; returns when the container has
    /// exited.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        // Rounded up: CRI knows whole seconds, and 0 would kill at once.
        let timeout = i64::try_from(grace.as_secs_f64().ceil() as u64).unwrap_or(i64::MAX);
        let request = StopContainerRequest {
            container_id: id.to_owned(),
            timeout,
        };
        ignore_not_found(
            self.runtime_service()
                .stop_container(with_timeout(request, grace + TIMEOUT))
                .await,
        )
    }

    /// Removes a container; succeeds if it is already removed.
    pub async fn remove_container(&self, id: &str) -> Result<()> {
        let request = RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        ignore_not_found(
            self.runtime_service()
                .remove_container(with_timeout(request, TIMEOUT))
                .await,
        )
    }

    /// Lists all containers, or those of one pod.
    pub async fn list_containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>> {
        let filter = ContainerFilter {
            label_selector: pod_selector(pod_uid),
            ..Default::default()
        };
        let request = with_timeout(
            ListContainersRequest {
                filter: Some(filter),
            },
            TIMEOUT,
        );
        Ok(self
            .runtime_service()
            .list_containers(request)
            .await?
            .into_inner()
            .containers)
    }

    /// Returns a container's full status.
    pub async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let response = self
            .runtime_service()
            .container_status(with_timeout(request, TIMEOUT))
            .await?
            .into_inner();
        Ok(response.status.unwrap_or_default())
    }

    /// Changes a running container's cgroup settings.
    pub async fn update_resources(&self, id: &str, linux: LinuxContainerResources) -> Result<()> {
        let request = UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(linux),
            ..Default::default()
        };
        self.runtime_service()
            .update_container_resources(with_timeout(request, TIMEOUT))
            .await?;
        Ok(())
    }

    /// Notifies the runtime of a pod's new size: its own settings, and those of its overhead.
    pub async fn update_sandbox_resources(
        &self,
        id: &str,
        own: LinuxContainerResources,
        overhead: LinuxContainerResources,
    ) -> Result<()> {
        let request = UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_owned(),
            overhead: Some(overhead),
            resources: Some(own),
        };
        self.runtime_service()
            .update_pod_sandbox_resources(with_timeout(request, TIMEOUT))
            .await?;
        Ok(())
    }

    /// Notifies the runtime that a log file was rotated.
    pub async fn reopen_log(&self, id: &str) -> Result<()> {
        let request = ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        self.runtime_service()
            .reopen_container_log(with_timeout(request, TIMEOUT))
            .await?;
        Ok(())
    }

    /// Runs a command to completion; a zero `timeout` waits without limit.
    pub async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput> {
        // 0 seconds mean no limit in CRI. Probes have at least one second.
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout: seconds,
        };
        let mut request = tonic::Request::new(request);
        if !timeout.is_zero() {
            // The runtime enforces `timeout`; this longer deadline covers a runtime that hangs.
            request.set_timeout(timeout + Duration::from_secs(15));
        }
        let response = self
            .runtime_service()
            .exec_sync(request)
            .await?
            .into_inner();
        // Upstream joins both streams in this order for the message of an event.
        let mut output = response.stdout;
        output.extend(response.stderr);
        Ok(ExecOutput {
            code: response.exit_code,
            output,
        })
    }

    /// Returns the runtime's streaming URL for a command.
    pub async fn exec(&self, request: ExecRequest) -> Result<String> {
        Ok(self
            .runtime_service()
            .exec(with_timeout(request, TIMEOUT))
            .await?
            .into_inner()
            .url)
    }

    /// Returns the runtime's streaming URL for a container's main process.
    pub async fn attach(&self, request: AttachRequest) -> Result<String> {
        Ok(self
            .runtime_service()
            .attach(with_timeout(request, TIMEOUT))
            .await?
            .into_inner()
            .url)
    }

    /// Returns the runtime's streaming URL for ports of a pod.
    pub async fn port_forward(&self, sandbox: &str, port: Vec<i32>) -> Result<String> {
        let request = PortForwardRequest {
            pod_sandbox_id: sandbox.to_owned(),
            port,
        };
        Ok(self
            .runtime_service()
            .port_forward(with_timeout(request, TIMEOUT))
            .await?
            .into_inner()
            .url)
    }

    /// Returns the current resource usage of every container.
    pub async fn container_stats(&self) -> Result<Vec<ContainerStats>> {
        let request = with_timeout(ListContainerStatsRequest { filter: None }, TIMEOUT);
        Ok(self
            .runtime_service()
            .list_container_stats(request)
            .await?
            .into_inner()
            .stats)
    }
}

pub(crate) fn with_timeout<T>(message: T, limit: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    request
}

fn pod_selector(pod_uid: Option<&str>) -> std::collections::HashMap<String, String> {
    pod_uid
        .map(|uid| (crate::labels::POD_UID.to_owned(), uid.to_owned()))
        .into_iter()
        .collect()
}

fn ignore_not_found<T>(response: std::result::Result<T, tonic::Status>) -> Result<()> {
    match response.map_err(RuntimeError::from) {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn endpoint_is_a_unix_socket() {
        for (endpoint, socket) in [
            ("unix:///run/c.sock", Some("/run/c.sock")),
            ("/run/c.sock", Some("/run/c.sock")),
            ("tcp://127.0.0.1:1", None),
            ("npipe:////./pipe/c", None),
            ("unix://c.sock", None),
            ("", None),
        ] {
            let runtime = Runtime::new(endpoint).ok();
            let found = runtime.as_ref().map(|r| r.socket().to_str().unwrap());
            assert_eq!(found, socket, "{endpoint:?}");
        }
    }

    /// Stops and removals are repeated after a crash, and the object may be removed already.
    #[test]
    fn removal_of_a_missing_object_succeeds() {
        use tonic::Status;
        assert!(ignore_not_found(Ok(())).is_ok());
        assert!(ignore_not_found::<()>(Err(Status::not_found("x"))).is_ok());
        let busy = ignore_not_found::<()>(Err(Status::unavailable("the task is busy")));
        assert_eq!(busy.unwrap_err().to_string(), "the task is busy");
    }

    #[test]
    fn list_of_one_pod_selects_by_its_uid() {
        assert!(pod_selector(None).is_empty());
        let expected = [(crate::labels::POD_UID.to_owned(), "u".to_owned())];
        assert_eq!(pod_selector(Some("u")), expected.into());
    }
}
