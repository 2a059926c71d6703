//! Requests to the container runtime: import images, and remove the sandboxes at shutdown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use proto_cri::v1::{
    ListPodSandboxRequest, PodSandbox, RemovePodSandboxRequest, StopPodSandboxRequest,
};
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
    // The connector ignores the address, which tonic requires.
    let endpoint = Endpoint::from_static("http://runtime").timeout(Duration::from_secs(60));
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| failed(error.to_string()))?;
    Ok(RuntimeServiceClient::new(channel))
}

/// Returns the UIDs of the pods whose sandboxes belong to a node; None if that are all sandboxes of
/// its runtime. An existing runtime may also run pods of others: those of this node's kubelet have
/// a directory for their volumes or logs.
#[must_use]
pub fn find_own_pods(settings: &Settings, layout: &Layout) -> Option<BTreeSet<String>> {
    if !matches!(settings.runtime, Runtime::Endpoint(_)) {
        return None;
    }
    let list_names = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let volumes = list_names(layout.data().join("kubelet").join("pods"));
    // NAMESPACE_NAME_UID
    let logs = list_names(layout.logs().join("pods"));
    let logs = logs.filter_map(|name| name.rsplit_once('_').map(|(_, uid)| uid.to_owned()));
    Some(volumes.chain(logs).collect())
}

/// Splits sandboxes into those of the pods `own`, and the others; None owns all.
fn split_sandboxes(
    sandboxes: Vec<PodSandbox>,
    own: Option<&BTreeSet<String>>,
) -> (Vec<PodSandbox>, Vec<PodSandbox>) {
    let is_own = |sandbox: &PodSandbox| {
        let uid = sandbox.metadata.as_ref().map(|metadata| &metadata.uid);
        own.is_none_or(|own| uid.is_some_and(|uid| own.contains(uid)))
    };
    sandboxes.into_iter().partition(is_own)
}

/// Stops and removes the sandboxes of the pods `own` with their containers; None stands for all. A
/// runtime that was just started rejects calls until it has recovered its containers, so failures
/// are retried.
pub async fn remove_sandboxes(socket: &Path, own: Option<&BTreeSet<String>>) -> Result<()> {
    const ATTEMPTS: u32 = 40;
    const PAUSE: Duration = Duration::from_millis(500);
    let mut left = Ok(usize::MAX);
    for _ in 0..ATTEMPTS {
        left = remove_once(socket, own).await;
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

/// Tries to remove the sandboxes once; returns the number of those that remain.
async fn remove_once(socket: &Path, own: Option<&BTreeSet<String>>) -> Result<usize> {
    let mut runtime = connect_runtime(socket).await?;
    let list = runtime
        // Without a filter: sandboxes that have ended may still have addresses and files.
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .map_err(|status| Error::Command {
            command: "ListPodSandbox".to_owned(),
            reason: status.message().to_owned(),
        })?;
    let (own, others) = split_sandboxes(list.into_inner().items, own);
    if let Some(first) = others.first() {
        let (count, example) = (others.len(), &first.id);
        tracing::info!(
            count,
            example,
            "sandboxes of other programs stay in the runtime"
        );
    }
    // In parallel: a container that ignores its signal takes its whole grace period.
    let mut tasks = tokio::task::JoinSet::new();
    for sandbox in own {
        let mut runtime = runtime.clone();
        tasks.spawn(async move {
            let pod_sandbox_id = sandbox.id;
            runtime
                // In the CRI it is the stop that reclaims network resources.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proto_cri::v1::PodSandboxMetadata;

    #[test]
    fn sandboxes_of_others_stay_in_an_existing_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        for folder in ["kubelet/pods/uid-1", "logs/pods/default_web_uid-2"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let sandbox = |id: &str, uid: &str| PodSandbox {
            id: id.to_owned(),
            metadata: Some(PodSandboxMetadata {
                uid: uid.to_owned(),
                ..PodSandboxMetadata::default()
            }),
            ..PodSandbox::default()
        };
        let unknown = PodSandbox {
            id: "d".to_owned(),
            ..PodSandbox::default()
        };
        let all = vec![
            sandbox("a", "uid-1"),
            sandbox("b", "uid-2"),
            sandbox("c", "uid-3"),
            unknown,
        ];
        for (runtime, expected) in [
            (Runtime::Endpoint("unix:///c.sock".into()), &["a", "b"][..]),
            (Runtime::Own, &["a", "b", "c", "d"]),
        ] {
            let settings = Settings {
                runtime: runtime.clone(),
                ..Settings::example()
            };
            let own = find_own_pods(&settings, &layout);
            let (removed, _) = split_sandboxes(all.clone(), own.as_ref());
            let ids: Vec<_> = removed.iter().map(|sandbox| sandbox.id.as_str()).collect();
            assert_eq!(ids, expected, "{runtime:?}");
        }
    }
}
