//! Requests to the container runtime: import images, and remove every sandbox at shutdown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use proto_cri::v1::{ListPodSandboxRequest, RemovePodSandboxRequest, StopPodSandboxRequest};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::command::run_command;
use crate::error::{Error, Result};
use crate::image::Archive;
use crate::layout::Layout;
use crate::settings::{Runtime, Settings};

/// containerd's namespace for the kubelet's containers.
const NAMESPACE: &str = "k8s.io";

/// Returns the runtime's socket, if there is a runtime.
#[must_use]
pub fn runtime_socket(settings: &Settings, layout: &Layout) -> Option<PathBuf> {
    match &settings.runtime {
        Runtime::Own => Some(layout.containerd_socket()),
        Runtime::Endpoint(endpoint) => Some(PathBuf::from(
            endpoint.strip_prefix("unix://").unwrap_or(endpoint),
        )),
        Runtime::Simulated => None,
    }
}

/// Writes the images' archives if they changed, and imports those that the runtime lacks.
pub fn import_images(images: &[Archive], socket: &Path, layout: &Layout) -> Result<()> {
    let address = socket.to_string_lossy();
    let ctr = |args: &[&str]| {
        run_command(
            "ctr",
            &[&["--address", &address, "--namespace", NAMESPACE], args].concat(),
        )
    };
    // An import of a present image takes seconds, and `up` is run often.
    let present = ctr(&["images", "list", "--quiet"])?;
    for image in images {
        let name = image
            .reference
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .replace(':', "-");
        let file = layout.images().join(format!("{name}.tar"));
        let changed = crate::files::write_if_changed(&file, &image.data)?;
        if changed || !present.lines().any(|line| line == image.reference) {
            // Releases of ctr without the option unpack at once.
            ctr(&["images", "import", "--no-unpack", &file.to_string_lossy()])
                .or_else(|_| ctr(&["images", "import", &file.to_string_lossy()]))?;
        }
    }
    Ok(())
}

/// Connects to the runtime.
async fn connect_runtime(socket: &Path) -> Result<RuntimeServiceClient<Channel>> {
    let path = socket.to_owned();
    let connector = service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let failed = |reason: String| Error::Command {
        command: format!("connect {}", socket.display()),
        reason,
    };
    let endpoint = Endpoint::from_static("http://runtime").timeout(Duration::from_secs(60));
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| failed(error.to_string()))?;
    Ok(RuntimeServiceClient::new(channel))
}

/// Stops and removes every sandbox with its containers. A runtime that was just started rejects
/// calls until it has recovered its containers, so failures are retried.
pub async fn remove_all(socket: &Path) -> Result<()> {
    const ATTEMPTS: u32 = 40;
    const PAUSE: Duration = Duration::from_millis(500);
    let mut left = Ok(usize::MAX);
    for _ in 0..ATTEMPTS {
        left = remove_once(socket).await;
        if matches!(left, Ok(0)) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    match left {
        Err(error) => Err(error),
        Ok(count) => Err(Error::Refused(format!(
            "{count} sandboxes can't be removed"
        ))),
    }
}

/// Tries to remove all sandboxes once; returns the number of those that remain.
async fn remove_once(socket: &Path) -> Result<usize> {
    let mut runtime = connect_runtime(socket).await?;
    let list = runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .map_err(|status| Error::Command {
            command: "ListPodSandbox".to_owned(),
            reason: status.message().to_owned(),
        })?;
    // In parallel: a container that ignores its signal takes its whole grace period.
    let mut tasks = tokio::task::JoinSet::new();
    for sandbox in list.into_inner().items {
        let mut runtime = runtime.clone();
        tasks.spawn(async move {
            let pod_sandbox_id = sandbox.id;
            runtime
                .stop_pod_sandbox(StopPodSandboxRequest {
                    pod_sandbox_id: pod_sandbox_id.clone(),
                })
                .await?;
            runtime
                .remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id })
                .await
        });
    }
    let mut left = 0;
    while let Some(done) = tasks.join_next().await {
        if let Ok(Err(status)) = done {
            tracing::debug!(reason = status.message(), "a sandbox can't be removed");
            left += 1;
        }
    }
    Ok(left)
}
