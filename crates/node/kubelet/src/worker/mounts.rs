//! A container's mounts: volumes, sub-paths, /etc/hosts, the termination message.

use crate::context::Node;
use crate::make::container::{message_path, mount};
use crate::make::env::Environment;
use crate::make::hosts;
use crate::pod::spec;
use crate::volumes::{Volumes, pod_dir};
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use node_runtime::v1::Mount;
use node_volumes::prepare_subpath;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const HOSTS: &str = "/etc/hosts";

pub(crate) fn mounts(
    node: &Node,
    pod: &Pod,
    container: &Container,
    volumes: &Volumes,
    environment: &Environment,
    ips: &[String],
    attempt: u32,
) -> Result<Vec<Mount>, String> {
    let mut all = Vec::new();
    for (index, wanted) in container.volume_mounts.iter().flatten().enumerate() {
        all.push(of_volume(node, pod, container, volumes, environment, index, wanted)?);
    }
    // A mount within another comes after it.
    all.sort_by_key(|m| m.container_path.trim_end_matches('/').matches('/').count());
    if !all.iter().any(|m| m.container_path.trim_end_matches('/') == HOSTS) {
        all.push(mount(&hosts_file(node, pod, ips)?, HOSTS, false, None));
    }
    all.push(mount(&message_file(node, pod, container, attempt)?, message_path(container), false, None));
    Ok(all)
}

fn of_volume(
    node: &Node,
    pod: &Pod,
    container: &Container,
    volumes: &Volumes,
    environment: &Environment,
    index: usize,
    wanted: &VolumeMount,
) -> Result<Mount, String> {
    let volume = volumes.by_name.get(&wanted.name);
    let volume = volume
        .ok_or_else(|| format!("cannot find volume {:?} to mount into container {:?}", wanted.name, container.name))?;
    let sub = match (&wanted.sub_path, &wanted.sub_path_expr) {
        (_, Some(expression)) if !expression.is_empty() => expanded(environment, expression)?,
        (Some(path), _) => path.clone(),
        _ => String::new(),
    };
    let path = if sub.is_empty() {
        volume.path.clone()
    } else {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let target =
            pod_dir(node, uid).join("volume-subpaths").join(&wanted.name).join(&container.name).join(index.to_string());
        prepare_subpath(node.settings.mounter, &volume.path, &sub, &target).map_err(|e| {
            format!(
                "failed to prepare subPath for volumeMount {:?} of container {:?}: {e}",
                wanted.name, container.name
            )
        })?
    };
    let read_only = volume.read_only || wanted.read_only == Some(true);
    let inside =
        if wanted.mount_path.starts_with('/') { wanted.mount_path.clone() } else { format!("/{}", wanted.mount_path) };
    Ok(mount(&path, &inside, read_only, wanted.mount_propagation.as_deref()))
}

/// All references must be known.
fn expanded(environment: &Environment, expression: &str) -> Result<String, String> {
    let unknown = std::cell::RefCell::new(None);
    let text = crate::make::expand::expand(expression, |name| {
        let value = environment.get(name);
        if value.is_none() {
            unknown.replace(Some(name.to_owned()));
        }
        value
    });
    match unknown.into_inner() {
        Some(name) => Err(format!("missing value for {name:?} in subPathExpr {expression:?}")),
        None => Ok(text),
    }
}

fn hosts_file(node: &Node, pod: &Pod, ips: &[String]) -> Result<PathBuf, String> {
    let names = hosts::names(pod, &node.settings.cluster_domain, &node.settings.node_name);
    let host = if spec::host_network(pod) { std::fs::read_to_string(HOSTS).unwrap_or_default() } else { String::new() };
    let text = hosts::hosts_file(pod, &names, ips, &host);
    let path = pod_dir(node, pod.metadata.uid.as_deref().unwrap_or_default()).join("etc-hosts");
    write(&path, text.as_bytes(), 0o644)?;
    Ok(path)
}

/// A fresh file for each attempt, writable for whoever the container runs as.
fn message_file(node: &Node, pod: &Pod, container: &Container, attempt: u32) -> Result<PathBuf, String> {
    let folder =
        pod_dir(node, pod.metadata.uid.as_deref().unwrap_or_default()).join("containers").join(&container.name);
    let path = folder.join(format!("{attempt:08x}"));
    // What an earlier try left there may have been changed by the container.
    let _ = std::fs::remove_file(&path);
    write(&path, b"", 0o666)?;
    Ok(path)
}

fn write(path: &std::path::Path, data: &[u8], mode: u32) -> Result<(), String> {
    let all = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if std::fs::read(path).is_ok_and(|old| old == data && !data.is_empty()) {
            return Ok(());
        }
        std::fs::write(path, data)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    all().map_err(|e| format!("can't write {}: {e}", path.display()))
}
