//! Sets up a pod's volumes and refreshes their content.

use super::claims;
use super::payload::{Content, Sources, build_content};
use crate::context::KubeletContext;
use crate::cri_config::fields::Addresses;
use crate::pod::spec;
use crate::volumes::Tokens;
use crate::volumes::prepared::{PreparedVolume, Volumes};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use node_volumes::{check_host_path, set_group, write_payload};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the directory of a pod's own files.
pub(crate) fn pod_dir(kubelet: &KubeletContext, uid: &str) -> PathBuf {
    kubelet.settings.root_dir.join("pods").join(uid)
}

/// Sets up or refreshes all volumes; the error names the first that fails.
pub(crate) async fn prepare_volumes(
    kubelet: &KubeletContext,
    pod: &Pod,
    tokens: &Tokens,
    addresses: &Addresses,
) -> Result<Volumes, String> {
    let sources = Sources {
        pod,
        objects: &kubelet.objects,
        client: kubelet.client.as_ref(),
        tokens,
        addresses,
        allocatable: &kubelet.allocatable,
    };
    let volumes = spec::read_spec(pod).volumes.as_deref().unwrap_or_default();
    let each = volumes
        .iter()
        .map(|volume| set_up_volume(kubelet, pod, volume, &sources));
    let mut all = Volumes::default();
    // All at once, because each may wait for the API server; the first error in the order of the
    // spec is reported.
    for (volume, result) in volumes.iter().zip(futures::future::join_all(each).await) {
        let (prepared, again) = result.map_err(|why| {
            format!(
                "MountVolume.SetUp failed for volume {:?} : {why}",
                volume.name
            )
        })?;
        all.refresh_at = [all.refresh_at, again].into_iter().flatten().min();
        all.by_name.insert(volume.name.clone(), prepared);
    }
    Ok(all)
}

type SetUpResult = Result<(PreparedVolume, Option<Timestamp>), String>;

async fn set_up_volume(
    kubelet: &KubeletContext,
    pod: &Pod,
    volume: &Volume,
    sources: &Sources<'_>,
) -> SetUpResult {
    if let Some(content) = build_content(volume, sources).await {
        let content = content?;
        return base_task::blocking(|| write_volume(kubelet, pod, volume, content));
    }
    let ready = |path: PathBuf, read_only: bool, own: bool| {
        let prepared = PreparedVolume {
            path,
            read_only,
            own,
        };
        Ok((prepared, None))
    };
    if volume.empty_dir.is_some() {
        let path = base_task::blocking(|| set_up_empty_dir(kubelet, pod, volume))?;
        return ready(path, false, true);
    }
    if let Some(source) = &volume.host_path {
        let kind = source.type_.as_deref();
        // The path may be on a network file system that does not respond.
        let path = base_task::blocking(|| set_up_host_path(&source.path, kind))?;
        return ready(path, false, false);
    }
    if let Some(source) = &volume.persistent_volume_claim {
        let (path, read_only) =
            resolve_claim(kubelet, pod, &volume.name, &source.claim_name, None).await?;
        return ready(path, read_only || source.read_only == Some(true), false);
    }
    if volume.ephemeral.is_some() {
        // The ephemeral volume controller derives the claim's name in the same way.
        let name = format!(
            "{}-{}",
            pod.metadata.name.as_deref().unwrap_or_default(),
            volume.name
        );
        let (path, read_only) = resolve_claim(kubelet, pod, &volume.name, &name, Some(pod)).await?;
        return ready(path, read_only, false);
    }
    if volume.image.is_some() {
        // Mounted by the runtime, from an image that is pulled when a container starts.
        return ready(PathBuf::new(), true, false);
    }
    // An error instead of an empty directory: the container would write to a place that is lost.
    Err("volumes of this kind are not supported by this node".into())
}

fn volume_dir(kubelet: &KubeletContext, pod: &Pod, plugin: &str, name: &str) -> PathBuf {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    pod_dir(kubelet, uid)
        .join("volumes")
        .join(format!("kubernetes.io~{plugin}"))
        .join(name)
}

fn read_fs_group(pod: &Pod) -> Option<u32> {
    let context = spec::read_spec(pod).security_context.as_ref()?;
    context.fs_group.and_then(|g| u32::try_from(g).ok())
}

/// Writes a volume's files; all but ConfigMaps to a tmpfs, because Secrets and tokens must never
/// reach the disk.
fn write_volume(
    kubelet: &KubeletContext,
    pod: &Pod,
    volume: &Volume,
    content: Content,
) -> SetUpResult {
    let (plugin, in_memory) = if volume.secret.is_some() {
        ("secret", true)
    } else if volume.projected.is_some() {
        ("projected", true)
    // A ConfigMap holds nothing secret, and a tmpfs would charge it to the node's memory.
    } else if volume.config_map.is_some() {
        ("configmap", false)
    } else {
        ("downward-api", true)
    };
    let path = volume_dir(kubelet, pod, plugin, &volume.name);
    // A tmpfs does not survive a reboot, so a Secret never outlives its pod on the disk.
    let made = if in_memory {
        kubelet
            .settings
            .mounter
            .mount_tmpfs(&path, None)
            .map(|_| ())
    } else {
        make_dir(&path, 0o755)
    };
    made.map_err(|e| e.to_string())?;
    let gid = read_fs_group(pod);
    let mut files = content.files;
    if gid.is_some() {
        // With an fsGroup the group gets the owner's read permission.
        files
            .values_mut()
            .for_each(|f| f.mode |= (f.mode & 0o400) >> 3);
    }
    write_payload(&path, &files, gid).map_err(|e| e.to_string())?;
    Ok((
        PreparedVolume {
            path,
            // The next refresh replaces the files, so that writes of a container would be lost.
            read_only: true,
            own: true,
        },
        content.refresh_at,
    ))
}

fn make_dir(path: &Path, mode: u32) -> node_volumes::Result<()> {
    let made = std::fs::create_dir_all(path)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)));
    made.map_err(|source| node_volumes::VolumeError::Io {
        action: "create",
        path: path.to_owned(),
        source,
    })
}

fn set_up_empty_dir(
    kubelet: &KubeletContext,
    pod: &Pod,
    volume: &Volume,
) -> Result<PathBuf, String> {
    let path = volume_dir(kubelet, pod, "empty-dir", &volume.name);
    let source = volume.empty_dir.clone().unwrap_or_default();
    let fresh = match source.medium.as_deref() {
        Some("Memory") => {
            let limit = source
                .size_limit
                .and_then(|q| spec::parse_quantity(&q.0))
                .and_then(|q| u64::try_from(q.value()).ok());
            kubelet
                .settings
                .mounter
                .mount_tmpfs(&path, limit.filter(|l| *l > 0))
        }
        // The files of a pod that runs already: its containers may have changed owner and mode.
        _ if path.is_dir() => Ok(false),
        _ => make_dir(&path, 0o777).map(|()| true),
    };
    set_up_once(
        &setup_marker(kubelet, pod, &volume.name),
        fresh.map_err(|e| e.to_string())?,
        || {
            // Set explicitly, because the umask applies to a new directory.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))
                .map_err(|e| e.to_string())?;
            read_fs_group(pod).map_or(Ok(()), |gid| set_volume_group(&path, gid, false))
        },
    )?;
    Ok(path)
}

fn set_up_host_path(path: &str, kind: Option<&str>) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    check_host_path(&path, kind.unwrap_or_default()).map_err(|e| e.to_string())?;
    if kind.unwrap_or_default().is_empty() && !path.exists() {
        // As upstream's runtimes do: a missing path without a type is created as a directory.
        make_dir(&path, 0o755).map_err(|e| e.to_string())?;
    }
    Ok(path)
}

/// Returns the path of the volume that a claim is bound to (hostPath or local), and whether it is
/// read-only.
async fn resolve_claim(
    kubelet: &KubeletContext,
    pod: &Pod,
    volume: &str,
    name: &str,
    of_pod: Option<&Pod>,
) -> Result<(PathBuf, bool), String> {
    let client = kubelet
        .client
        .as_ref()
        .ok_or("claims can't be read without an API server")?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claim = client
        .namespaced::<PersistentVolumeClaim>(namespace)
        .get(name)
        .await;
    // Read for each pod and not cached: the binding may have changed since the last pod.
    let claim = claim.map_err(|e| format!("failed to get claim {name:?}: {e}"))?;
    let bound = claims::bound_volume(&claim, of_pod)?;
    let found = client.api::<PersistentVolume>().get(bound).await;
    let found = found.map_err(|e| format!("failed to get volume {bound:?}: {e}"))?;
    let spec = claims::owned_spec(found, &claim)?;
    // Only if it is the only mode: a volume that also supports ReadWriteOnce may be bound for
    // writing.
    let read_only = spec.access_modes.as_deref() == Some(&["ReadOnlyMany".to_owned()][..]);
    let path = match (&spec.host_path, &spec.local) {
        (Some(source), _) => set_up_host_path(&source.path, source.type_.as_deref())?,
        (None, Some(local)) => {
            let path = PathBuf::from(&local.path);
            // A local volume is never created: an unmounted disk would silently become a directory
            // of the root file system.
            if !path.exists() {
                return Err(format!("path {:?} does not exist", local.path));
            }
            path
        }
        _ => {
            return Err(format!(
                "volume {bound:?} is of a kind that this node does not support"
            ));
        }
    };
    if let (Some(gid), false, true) = (read_fs_group(pod), read_only, spec.local.is_some()) {
        let context = crate::pod::spec::read_spec(pod).security_context.as_ref();
        let lazy =
            context.and_then(|c| c.fs_group_change_policy.as_deref()) == Some("OnRootMismatch");
        set_up_once(&setup_marker(kubelet, pod, volume), false, || {
            set_volume_group(&path, gid, lazy)
        })?;
    }
    Ok((path, read_only))
}

/// Gives a volume to the pod's group.
fn set_volume_group(path: &Path, gid: u32, lazy: bool) -> Result<(), String> {
    base_task::assert_may_block();
    set_group(path, gid, false, lazy).map_err(|e| e.to_string())
}

/// Returns the path of the file that says that a volume was set up.
fn setup_marker(kubelet: &KubeletContext, pod: &Pod, volume: &str) -> PathBuf {
    pod_dir(kubelet, pod.metadata.uid.as_deref().unwrap_or_default())
        .join("volumes-set-up")
        .join(volume)
}

/// Sets owner and mode of a pod's volume on its first mount, and not again while containers use it.
/// `fresh` is a new mount, which has lost them, as after a reboot.
fn set_up_once(
    mark: &Path,
    fresh: bool,
    set: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    // Changing owners while containers use the files would undo what they changed.
    if mark.exists() && !fresh {
        return Ok(());
    }
    // Blocking: walking a large directory tree takes long.
    base_task::blocking(set)?;
    let made = mark
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(mark, ""));
    made.map_err(|e| format!("can't create {}: {e}", mark.display()))
}

#[cfg(test)]
mod tests;
