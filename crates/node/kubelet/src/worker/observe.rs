//! Reads the state of a pod's sandboxes and containers from the runtime.

use crate::context::KubeletContext;
use crate::cri_config::sandbox::log_dir;
use crate::pod::spec;
use crate::pod::view::{CriContainer, CriState, Observed, Sandbox};
use k8s_openapi::api::core::v1::Pod;
use node_runtime::{Result, RuntimeError, logs};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum size of a termination message in bytes.
const MAX_MESSAGE_BYTES: u64 = 4096;
const LOG_BYTES: usize = 2048;
const LOG_LINES: usize = 80;

/// Reads everything of the pod. Containers known to have exited are not read again, unless listed
/// in `doubted`.
pub(crate) async fn observe_pod(
    kubelet: &KubeletContext,
    pod: &Pod,
    known: &Observed,
    doubted: &BTreeSet<String>,
) -> Result<Observed> {
    let uid = pod.metadata.uid.as_deref();
    // Two lists and then one status for each that may have changed: the list of CRI has neither
    // addresses nor exit codes.
    let (sandboxes, containers) = tokio::try_join!(
        kubelet.runtime.list_sandboxes(uid),
        kubelet.runtime.list_containers(uid)
    )?;
    let mut boxes = Vec::new();
    for sandbox in sandboxes {
        let same = known
            .sandboxes
            .iter()
            .find(|s| s.id == sandbox.id && s.ready == (sandbox.state == 0));
        boxes.extend(match same {
            Some(same) => Some(same.clone()),
            None => none_if_not_found(kubelet.runtime.sandbox_status(&sandbox.id).await)?
                .map(Sandbox::from_status),
        });
    }
    let mut statuses = Vec::new();
    for container in containers {
        let ended = known
            .by_id(&container.id)
            // An exit is final, and reading it again would read its termination message and log
            // again.
            .filter(|i| i.state == CriState::Exited && !doubted.contains(&i.id));
        statuses.extend(match ended {
            Some(ended) => Some(ended.clone()),
            None => read_container(kubelet, pod, &container.id).await?,
        });
    }
    Ok(Observed::new(boxes, statuses))
}

/// Reads one container; None if the runtime no longer has it.
pub(crate) async fn read_container(
    kubelet: &KubeletContext,
    pod: &Pod,
    id: &str,
) -> Result<Option<CriContainer>> {
    let Some(status) = none_if_not_found(kubelet.runtime.container_status(id).await)? else {
        return Ok(None);
    };
    let mut container = CriContainer::from_status(status);
    if container.state == CriState::Exited {
        let log = locate_log(kubelet, pod, &container);
        let text = base_task::blocking(|| read_termination_message(&container, &log));
        if !text.is_empty() {
            let separator = if container.message.is_empty() {
                ""
            } else {
                ": "
            };
            container.message = format!("{}{separator}{text}", container.message);
        }
    }
    Ok(Some(container))
}

fn none_if_not_found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        // Removed between the list and this call.
        Err(e @ RuntimeError::Call { .. }) if e.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the path of a container's log.
pub(crate) fn locate_log(kubelet: &KubeletContext, pod: &Pod, container: &CriContainer) -> PathBuf {
    if container.log_path.is_empty() {
        return log_dir(&kubelet.settings, pod).join(crate::cri_config::container::log_path(
            &container.name,
            container.attempt,
        ));
    }
    PathBuf::from(&container.log_path)
}

/// Returns the termination message: the file, or after a failure the end of the log if the
/// container has the policy FallbackToLogsOnError.
fn read_termination_message(container: &CriContainer, log: &Path) -> String {
    base_task::assert_may_block();
    let mut text = Vec::new();
    if let Some(file) = container
        .message_path
        .as_ref()
        .and_then(|p| open_plain_file(Path::new(p)))
    {
        // An unreadable file counts as an empty message.
        let _ = file.take(MAX_MESSAGE_BYTES).read_to_end(&mut text);
    }
    let fall_back = container.message_policy == "FallbackToLogsOnError" && container.exit_code != 0;
    if text.is_empty() && fall_back {
        text = logs::read_tail(log, LOG_LINES, LOG_BYTES).unwrap_or_default();
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Opens the file only if it is a plain file: the container may have replaced it by a link or a
/// device.
fn open_plain_file(path: &Path) -> Option<std::fs::File> {
    use rustix::fs::{Mode, OFlags, open};
    // NONBLOCK: opening a pipe that the container put there would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(open(path, flags, Mode::empty()).ok()?);
    file.metadata().is_ok_and(|m| m.is_file()).then_some(file)
}

/// Returns `containers`, `initContainers` or `ephemeralContainers`, for events.
pub(crate) fn list_name(pod: &Pod, name: &str) -> &'static str {
    match spec::find_container(pod, name).map(|(role, _)| role) {
        Some(spec::Role::App) | None => "containers",
        Some(spec::Role::Ephemeral) => "ephemeralContainers",
        Some(_) => "initContainers",
    }
}
