//! A container's mounts: volumes, sub-paths, /etc/hosts, the termination message.

use crate::context::KubeletContext;
use crate::cri_config::container::{build_mount, message_path};
use crate::cri_config::env::Environment;
use crate::cri_config::hosts;
use crate::cri_config::security::selinux_is_enabled;
use crate::pod::spec;
use crate::volumes::{Volumes, pod_dir};
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use node_runtime::v1::{ImageSpec, Mount};
use node_volumes::prepare_subpath;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const HOSTS: &str = "/etc/hosts";

/// The inputs of a container's mounts.
pub(crate) struct MountSources<'a> {
    pub(crate) kubelet: &'a KubeletContext,
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) volumes: &'a Volumes,
    pub(crate) environment: &'a Environment,
    pub(crate) ips: &'a [String],
    pub(crate) attempt: u32,
    /// Image ids of image volumes, by the volume's name.
    pub(crate) images: &'a BTreeMap<String, String>,
    /// The runtime supports recursive read-only mounts.
    pub(crate) recursive: bool,
}

pub(crate) fn build_mounts(sources: &MountSources<'_>) -> Result<Vec<Mount>, String> {
    base_task::assert_may_block();
    let MountSources {
        kubelet,
        pod,
        container,
        ..
    } = sources;
    let mut all = Vec::new();
    for (index, volume_mount) in container.volume_mounts.iter().flatten().enumerate() {
        all.push(build_volume_mount(sources, index, volume_mount)?);
    }
    // A mount within another must come after it.
    all.sort_by_key(|m| m.container_path.trim_end_matches('/').matches('/').count());
    let selinux_relabel = selinux_is_enabled();
    // A mount of the pod at /etc/hosts replaces the kubelet's file.
    if !all
        .iter()
        .any(|m| m.container_path.trim_end_matches('/') == HOSTS)
    {
        let hosts = build_mount(
            &write_hosts_file(kubelet, pod, sources.ips)?,
            HOSTS,
            false,
            None,
        );
        all.push(Mount {
            selinux_relabel,
            ..hosts
        });
    }
    // Created before the start: the runtime cannot mount a file that does not exist.
    let message = create_message_file(kubelet, pod, container, sources.attempt)?;
    all.push(Mount {
        selinux_relabel,
        ..build_mount(&message, message_path(container), false, None)
    });
    Ok(all)
}

fn build_volume_mount(
    sources: &MountSources<'_>,
    index: usize,
    volume_mount: &VolumeMount,
) -> Result<Mount, String> {
    let volume = sources.volumes.by_name.get(&volume_mount.name);
    let volume = volume.ok_or_else(|| {
        format!(
            "cannot find volume {:?} to mount into container {:?}",
            volume_mount.name, sources.container.name
        )
    })?;
    let sub = match (&volume_mount.sub_path, &volume_mount.sub_path_expr) {
        (_, Some(expression)) if !expression.is_empty() => {
            expand_sub_path(sources.environment, expression)?
        }
        (Some(path), _) => path.clone(),
        _ => String::new(),
    };
    // The CRI demands an absolute path, and validation of the API does not.
    let inside = if volume_mount.mount_path.starts_with('/') {
        volume_mount.mount_path.clone()
    } else {
        format!("/{}", volume_mount.mount_path)
    };
    // The runtime resolves the subPath within the image, so that no path on the node is involved.
    if let Some(image) = sources.images.get(&volume_mount.name) {
        return Ok(build_image_mount(ImageMount {
            image: image.clone(),
            sub_path: sub,
            mount_path: inside,
        }));
    }
    let path = if sub.is_empty() {
        volume.path.clone()
    } else {
        mount_sub_path(sources, (index, &volume_mount.name), &volume.path, &sub)?
    };
    // A read-only volume stays so: a mount can restrict but not extend.
    let read_only = volume.read_only || volume_mount.read_only == Some(true);
    Ok(Mount {
        recursive_read_only: check_recursive_read_only(volume_mount, sources.recursive)?,
        // Only directories that the kubelet created belong to the pod alone and may be relabelled.
        selinux_relabel: volume.own && selinux_is_enabled(),
        ..build_mount(
            &path,
            &inside,
            read_only,
            volume_mount.mount_propagation.as_deref(),
        )
    })
}

/// Mounts a path within a volume to a place of its own, which the container can't redirect.
/// `index` is that of the volumeMount.
fn mount_sub_path(
    sources: &MountSources<'_>,
    (index, volume): (usize, &str),
    path: &Path,
    sub: &str,
) -> Result<PathBuf, String> {
    let MountSources {
        kubelet,
        pod,
        container,
        ..
    } = sources;
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let target = pod_dir(kubelet, uid)
        .join("volume-subpaths")
        .join(volume)
        .join(&container.name)
        // One target per mount: a container may mount several paths of one volume.
        .join(index.to_string());
    prepare_subpath(kubelet.settings.mounter, path, sub, &target).map_err(|e| {
        format!(
            "failed to prepare subPath for volumeMount {volume:?} of container {:?}: {e}",
            container.name
        )
    })
}

/// The mount of an image volume.
struct ImageMount {
    /// Id of the image.
    image: String,
    sub_path: String,
    /// Path in the container.
    mount_path: String,
}

/// Builds the mount of an image volume: the runtime (containerd 2.1 or newer) mounts the image,
/// always read-only.
fn build_image_mount(source: ImageMount) -> Mount {
    Mount {
        container_path: source.mount_path,
        readonly: true,
        image: Some(ImageSpec {
            image: source.image,
            ..ImageSpec::default()
        }),
        image_sub_path: source.sub_path,
        ..Mount::default()
    }
}

/// Returns whether any mount of the container asks to be recursively read-only.
pub(crate) fn needs_recursive_read_only(container: &Container) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|m| {
        matches!(
            m.recursive_read_only.as_deref(),
            Some("Enabled" | "IfPossible")
        )
    })
}

fn check_recursive_read_only(volume_mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    let reject = |why: &str| {
        Err(format!(
            "volume {:?} requested recursive read-only mode, but {why}",
            volume_mount.name
        ))
    };
    let mode = match volume_mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    // Validation rejects these combinations; static pods do not pass it.
    if volume_mount.read_only != Some(true) {
        return reject("it is not read-only");
    }
    if volume_mount
        .mount_propagation
        .as_deref()
        .is_some_and(|p| p != "None")
    {
        return reject("its mount propagation is not None");
    }
    match mode {
        "IfPossible" => Ok(supported),
        _ if supported => Ok(true),
        _ => reject("it is not supported by the runtime"),
    }
}

/// Expands `$(NAME)`; an unknown name is an error here, unlike in commands.
fn expand_sub_path(environment: &Environment, expression: &str) -> Result<String, String> {
    let unknown = std::cell::RefCell::new(None);
    let text = crate::cri_config::expand::expand_references(expression, |name| {
        let value = environment.get(name);
        // An unknown variable would leave its reference as a directory name.
        if value.is_none() {
            unknown.replace(Some(name.to_owned()));
        }
        value
    });
    match unknown.into_inner() {
        Some(name) => Err(format!(
            "missing value for {name:?} in subPathExpr {expression:?}"
        )),
        None => Ok(text),
    }
}

fn write_hosts_file(
    kubelet: &KubeletContext,
    pod: &Pod,
    ips: &[String],
) -> Result<PathBuf, String> {
    let names = hosts::choose_names(
        pod,
        &kubelet.settings.cluster_domain,
        &kubelet.settings.node_name,
    );
    let host = if spec::host_network(pod) {
        std::fs::read_to_string(HOSTS).unwrap_or_default()
    } else {
        String::new()
    };
    let text = hosts::format_hosts_file(pod, &names, ips, &host);
    let path = pod_dir(kubelet, pod.metadata.uid.as_deref().unwrap_or_default()).join("etc-hosts");
    write_file(&path, text.as_bytes(), 0o644)?;
    Ok(path)
}

/// Creates an empty termination message file for the attempt, writable for any user.
fn create_message_file(
    kubelet: &KubeletContext,
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> Result<PathBuf, String> {
    let folder = pod_dir(kubelet, pod.metadata.uid.as_deref().unwrap_or_default())
        .join("containers")
        .join(&container.name);
    let path = folder.join(format!("{attempt:08x}"));
    // The container may have replaced the file of an earlier attempt.
    let _ = std::fs::remove_file(&path);
    write_file(&path, b"", 0o666)?;
    Ok(path)
}

fn write_file(path: &std::path::Path, data: &[u8], mode: u32) -> Result<(), String> {
    let all = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // An unchanged file is not written: the container may read it at this moment, and a
        // truncated hosts file breaks its lookups.
        if !data.is_empty() && has_content(path, data) {
            return Ok(());
        }
        std::fs::write(path, data)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    all().map_err(|e| format!("can't write {}: {e}", path.display()))
}

/// Returns whether a file holds exactly `data`. Containers write to these files, so never more than
/// `data.len()` bytes are read.
fn has_content(path: &std::path::Path, data: &[u8]) -> bool {
    let Ok(mut file) = std::fs::File::open(path) else {
        return false;
    };
    let mut found = vec![0; data.len()];
    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
    file.metadata()
        .is_ok_and(|m| m.is_file() && m.len() == length)
        && file.read_exact(&mut found).is_ok()
        && found == data
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn hosts_file_that_a_container_filled_is_replaced_without_reading_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc-hosts");
        write_file(&path, b"127.0.0.1 localhost", 0o644).unwrap();
        // A sparse file of 1 TiB: reading it whole would exhaust the memory.
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        write_file(&path, b"127.0.0.1 localhost", 0o644).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"127.0.0.1 localhost");
        assert!(
            has_content(&path, b"127.0.0.1 localhost")
                && !has_content(&path, b"127.0.0.1 localhosT")
        );
    }

    #[test]
    fn image_volume_is_mounted_by_the_runtime_and_read_only() {
        let mount = build_image_mount(ImageMount {
            image: "sha256:1".into(),
            sub_path: "dir".into(),
            mount_path: "/v".into(),
        });
        assert_eq!(
            (mount.host_path.as_str(), mount.image_sub_path.as_str()),
            ("", "dir")
        );
        assert!(mount.readonly && mount.image.is_some_and(|i| i.image == "sha256:1"));
    }

    #[test]
    fn recursive_read_only_is_honoured_or_refused() {
        let ask = |more: Value, supported: bool| {
            let mut mount = json!({"name": "v", "mountPath": "/v"});
            mount
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            check_recursive_read_only(&serde_json::from_value(mount).unwrap(), supported).ok()
        };
        let wants = |mode: &str| json!({"readOnly": true, "recursiveReadOnly": mode});
        for (more, supported, want) in [
            (json!({}), true, Some(false)),
            (wants("Disabled"), true, Some(false)),
            (wants("IfPossible"), false, Some(false)),
            (wants("IfPossible"), true, Some(true)),
            (wants("Enabled"), true, Some(true)),
            (wants("Enabled"), false, None),
            (json!({"recursiveReadOnly": "Enabled"}), true, None),
            (
                json!({"readOnly": true, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}),
                true,
                None,
            ),
        ] {
            assert_eq!(ask(more.clone(), supported), want, "{more} {supported}");
        }
    }

    #[tokio::test]
    async fn variables_of_a_sub_path_must_be_defined() {
        let environment = Environment::default();
        assert_eq!(
            expand_sub_path(&environment, "logs/$$(A)"),
            Ok("logs/$(A)".into())
        );
        let missing = expand_sub_path(&environment, "logs/$(POD)").unwrap_err();
        assert!(missing.contains("\"POD\""), "{missing}");
    }

    #[tokio::test]
    async fn each_attempt_has_an_empty_termination_message_that_any_user_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = crate::testing::context(crate::testing::settings(dir.path()));
        let pod = crate::testing::pod(json!({"containers": [{"name": "c"}]}));
        let container = spec::app_containers(&pod).next().unwrap();
        let create = |attempt| create_message_file(&kubelet, &pod, container, attempt).unwrap();
        let first = create(0);
        std::fs::write(&first, "of an earlier kubelet").unwrap();
        assert_eq!(create(0), first);
        assert_ne!(create(1), first);
        let file = std::fs::metadata(&first).unwrap();
        assert_eq!((file.len(), file.permissions().mode() & 0o777), (0, 0o666));
    }
}
