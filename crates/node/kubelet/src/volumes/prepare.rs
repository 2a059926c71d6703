//! Making a pod's volumes, and making them up to date.

use super::payload::{Content, Sources, content};
use crate::context::Node;
use crate::make::fields::Addresses;
use crate::pod::spec;
use crate::volumes::Tokens;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use node_volumes::{check_host_path, set_group, write_payload};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One volume, ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Mounts of it are read-only whatever they ask for.
    pub(crate) read_only: bool,
}

/// All of a pod's volumes by name, and when contents must be made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volumes {
    pub(crate) by_name: BTreeMap<String, Prepared>,
    pub(crate) refresh_at: Option<Timestamp>,
}

/// Folder of a pod's own files.
pub(crate) fn pod_dir(node: &Node, uid: &str) -> PathBuf {
    node.settings.root_dir.join("pods").join(uid)
}

/// Makes or refreshes all volumes; the error names the first that can't be had.
pub(crate) async fn prepare(node: &Node, pod: &Pod, tokens: &Tokens, addresses: &Addresses) -> Result<Volumes, String> {
    let sources = Sources {
        pod,
        objects: &node.objects,
        client: node.client.as_ref(),
        tokens,
        addresses,
        allocatable: &node.allocatable,
    };
    let wanted = spec::spec(pod).volumes.as_deref().unwrap_or_default();
    let each = wanted.iter().map(|volume| one(node, pod, volume, &sources));
    let mut all = Volumes::default();
    for (volume, result) in wanted.iter().zip(futures::future::join_all(each).await) {
        let (prepared, again) =
            result.map_err(|why| format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name))?;
        all.refresh_at = [all.refresh_at, again].into_iter().flatten().min();
        all.by_name.insert(volume.name.clone(), prepared);
    }
    Ok(all)
}

type One = Result<(Prepared, Option<Timestamp>), String>;

async fn one(node: &Node, pod: &Pod, volume: &Volume, sources: &Sources<'_>) -> One {
    if let Some(content) = content(volume, sources).await {
        return written(node, pod, volume, content?);
    }
    let ready = |path: PathBuf| Ok((Prepared { path, read_only: false }, None));
    if volume.empty_dir.is_some() {
        return ready(empty_dir(node, pod, volume)?);
    }
    if let Some(source) = &volume.host_path {
        return ready(host_path(&source.path, source.type_.as_deref())?);
    }
    if let Some(source) = &volume.persistent_volume_claim {
        let (path, read_only) = claim(node, pod, &source.claim_name).await?;
        return Ok((Prepared { path, read_only: read_only || source.read_only == Some(true) }, None));
    }
    if let Some(source) = &volume.ephemeral {
        let _ = source;
        let name = format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
        let (path, read_only) = claim(node, pod, &name).await?;
        return Ok((Prepared { path, read_only }, None));
    }
    Err("volumes of this kind are not supported by this node".into())
}

fn folder(node: &Node, pod: &Pod, plugin: &str, name: &str) -> PathBuf {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    pod_dir(node, uid).join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
}

fn group(pod: &Pod) -> Option<u32> {
    let context = spec::spec(pod).security_context.as_ref()?;
    context.fs_group.and_then(|g| u32::try_from(g).ok())
}

/// Secrets, tokens and the rest of a pod's contents never touch the disk.
fn written(node: &Node, pod: &Pod, volume: &Volume, content: Content) -> One {
    let (plugin, in_memory) = if volume.secret.is_some() {
        ("secret", true)
    } else if volume.projected.is_some() {
        ("projected", true)
    } else if volume.config_map.is_some() {
        ("configmap", false)
    } else {
        ("downward-api", true)
    };
    let path = folder(node, pod, plugin, &volume.name);
    let made = if in_memory { node.settings.mounter.tmpfs(&path, None) } else { make_dir(&path, 0o755) };
    made.map_err(|e| e.to_string())?;
    let gid = group(pod);
    let mut files = content.files;
    if gid.is_some() {
        // The group reads what the owner may read.
        files.values_mut().for_each(|f| f.mode |= (f.mode & 0o400) >> 3);
    }
    write_payload(&path, &files, gid).map_err(|e| e.to_string())?;
    Ok((Prepared { path, read_only: true }, content.refresh_at))
}

fn make_dir(path: &Path, mode: u32) -> node_volumes::Result<()> {
    let made = std::fs::create_dir_all(path)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)));
    made.map_err(|source| node_volumes::VolumeError::Io { action: "create", path: path.to_owned(), source })
}

fn empty_dir(node: &Node, pod: &Pod, volume: &Volume) -> Result<PathBuf, String> {
    let path = folder(node, pod, "empty-dir", &volume.name);
    let existed = path.is_dir();
    let source = volume.empty_dir.clone().unwrap_or_default();
    let made = match source.medium.as_deref() {
        Some("Memory") => {
            let limit = source.size_limit.and_then(|q| spec::parse(&q.0)).and_then(|q| u64::try_from(q.value()).ok());
            node.settings.mounter.tmpfs(&path, limit.filter(|l| *l > 0))
        }
        _ if existed => Ok(()),
        _ => make_dir(&path, 0o777),
    };
    made.map_err(|e| e.to_string())?;
    if !existed {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).map_err(|e| e.to_string())?;
        if let Some(gid) = group(pod) {
            set_group(&path, gid, false, false).map_err(|e| e.to_string())?;
        }
    }
    Ok(path)
}

fn host_path(path: &str, kind: Option<&str>) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    check_host_path(&path, kind.unwrap_or_default()).map_err(|e| e.to_string())?;
    if kind.unwrap_or_default().is_empty() && !path.exists() {
        // As upstream's runtimes do: a path of no type that is missing becomes a directory.
        make_dir(&path, 0o755).map_err(|e| e.to_string())?;
    }
    Ok(path)
}

/// The place of the volume that a claim is bound to: hostPath or local.
async fn claim(node: &Node, pod: &Pod, name: &str) -> Result<(PathBuf, bool), String> {
    let client = node.client.as_ref().ok_or("claims can't be read without an API server")?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claim = client.namespaced::<PersistentVolumeClaim>(namespace).get(name).await;
    let claim = claim.map_err(|e| format!("failed to get claim {name:?}: {e}"))?;
    let volume = claim.spec.and_then(|s| s.volume_name).filter(|v| !v.is_empty());
    let volume = volume.ok_or_else(|| format!("claim {name:?} is not bound"))?;
    let found = client.api::<PersistentVolume>().get(&volume).await;
    let found = found.map_err(|e| format!("failed to get volume {volume:?}: {e}"))?;
    let spec = found.spec.unwrap_or_default();
    let read_only = spec.access_modes.as_deref() == Some(&["ReadOnlyMany".to_owned()][..]);
    let path = match (&spec.host_path, &spec.local) {
        (Some(source), _) => host_path(&source.path, source.type_.as_deref())?,
        (None, Some(local)) => {
            let path = PathBuf::from(&local.path);
            if !path.exists() {
                return Err(format!("path {:?} does not exist", local.path));
            }
            path
        }
        _ => return Err(format!("volume {volume:?} is of a kind that this node does not support")),
    };
    if let (Some(gid), false) = (group(pod), read_only) {
        let policy =
            crate::pod::spec::spec(pod).security_context.as_ref().and_then(|c| c.fs_group_change_policy.clone());
        let lazy = policy.as_deref() == Some("OnRootMismatch");
        if spec.local.is_some() {
            set_group(&path, gid, false, lazy).map_err(|e| e.to_string())?;
        }
    }
    Ok((path, read_only))
}
