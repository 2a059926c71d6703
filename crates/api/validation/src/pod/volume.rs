//! Volumes and their mounts.

use super::options::PodOptions;
use super::source;
use crate::field::{Errors, Path};
use crate::pod::relative_path::validate_descending_path;
use api_meta::names;
use api_meta::tree::{flag, get, has, list as items, opt_text, text};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const CLAIM_SOURCES: [&str; 2] = ["persistentVolumeClaim", "ephemeral"];

/// The volumes of a pod by name.
pub struct Volumes<'a>(HashMap<&'a str, &'a Value>);

/// Validates the list of volumes. `metadata` is that of a pod. A volume with errors is not added to
/// the known ones, as in upstream: mounts of it are errors of their own.
pub fn validate_volumes<'a>(
    spec: &'a Value,
    metadata: Option<&Value>,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Volumes<'a> {
    // A template has no name yet, so the names of its claims are unknown.
    let pod = metadata.map_or("", |metadata| text(metadata, "name"));
    let volumes = items(spec, "volumes");
    // The controller names the claims of ephemeral volumes in this way.
    let created: HashSet<String> = volumes
        .iter()
        .filter(|volume| has(volume, "ephemeral") && !pod.is_empty())
        .map(|volume| format!("{pod}-{}", text(volume, "name")))
        .collect();
    let mut known: HashMap<&str, &Value> = HashMap::new();
    for (i, volume) in volumes.iter().enumerate() {
        let at = path.index(i);
        let before = errors.len();
        source::validate_pod_volume(volume, pod, options, &at, errors);
        let (name, name_at) = (text(volume, "name"), at.child("name"));
        if name.is_empty() {
            errors.required(&name_at, "");
        } else {
            errors.invalid_each(&name_at, name, names::dns1123_label(name));
        }
        if known.contains_key(name) {
            errors.duplicate(&name_at, name);
        }
        if errors.len() == before {
            known.insert(name, volume);
        }
        // The claim is deleted with the pod, so a second use would lose its data.
        let claim = text(get(volume, "persistentVolumeClaim"), "claimName");
        if created.contains(claim) {
            let at = at.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&at.child("claimName"), claim, detail);
        }
    }
    Volumes(known)
}

impl Volumes<'_> {
    /// Validates `volumeMounts` and `volumeDevices` of a container.
    pub fn validate_mounts(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        // By name, as upstream: of two devices of one volume only the last path counts.
        let devices: HashMap<&str, &str> = items(container, "volumeDevices")
            .iter()
            .map(|device| (text(device, "name"), text(device, "devicePath")))
            .collect();
        let mounts: HashMap<&str, &str> = items(container, "volumeMounts")
            .iter()
            .map(|mount| (text(mount, "name"), text(mount, "mountPath")))
            .collect();
        let device_paths: HashSet<&str> = devices.values().copied().collect();
        let list = path.child("volumeMounts");
        let mut paths: HashSet<&str> = HashSet::new();
        for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
            let at = list.index(i);
            let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
            if name.is_empty() {
                errors.required(&at.child("name"), "");
            }
            if !self.0.contains_key(name) {
                errors.not_found(&at.child("name"), name);
            }
            if target.is_empty() {
                errors.required(&at.child("mountPath"), "");
            }
            // The runtime would mount one over the other, in an order that is not defined.
            if !paths.insert(target) {
                errors.invalid(&at.child("mountPath"), target, "must be unique");
            }
            // A volume is either a file system or a block device, never both in one container.
            if devices.contains_key(name) {
                let detail = "must not already exist in volumeDevices";
                errors.invalid(&at.child("name"), name, detail);
            }
            if device_paths.contains(target) {
                let detail = "must not already exist as a path in volumeDevices";
                errors.invalid(&at.child("mountPath"), target, detail);
            }
            validate_sub_paths(mount, &list, &at, errors);
            validate_propagation(mount, container, &list, errors);
        }
        self.validate_devices(container, &mounts, &path.child("volumeDevices"), errors);
    }

    fn validate_devices(
        &self,
        container: &Value,
        mounts: &HashMap<&str, &str>,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let mount_paths: HashSet<&str> = mounts.values().copied().collect();
        let (mut paths, mut names) = (HashSet::new(), HashSet::new());
        for (i, device) in items(container, "volumeDevices").iter().enumerate() {
            let at = path.index(i);
            let (name, target) = (text(device, "name"), text(device, "devicePath"));
            let (name_at, path_at) = (at.child("name"), at.child("devicePath"));
            if name.is_empty() {
                errors.required(&name_at, "");
            } else if !names.insert(name) {
                errors.invalid(&name_at, name, "must be unique");
            }
            match self.0.get(name) {
                None => errors.not_found(&name_at, name),
                // Only claims can be in block mode; all other sources are directories.
                Some(volume) if !CLAIM_SOURCES.iter().any(|s| has(volume, s)) => {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(&name_at, name, detail);
                }
                Some(_) => {}
            }
            if target.is_empty() {
                errors.required(&path_at, "");
            }
            if paths.contains(target) {
                errors.invalid(&path_at, target, "must be unique");
            }
            // The path is inside the container and must not depend on a parent directory.
            if target.split('/').any(|part| part == "..") {
                errors.invalid(&path_at, target, "can not contain backsteps ('..')");
            } else {
                paths.insert(target);
            }
            if mounts.contains_key(name) {
                errors.invalid(&name_at, name, "must not already exist in volumeMounts");
            }
            if mount_paths.contains(target) {
                let detail = "must not already exist as a path in volumeMounts";
                errors.invalid(&path_at, target, detail);
            }
        }
    }
}

/// Validates the paths below the volume. Upstream names the list instead of the mount in two of the
/// three.
fn validate_sub_paths(mount: &Value, list: &Path<'_>, at: &Path<'_>, errors: &mut Errors) {
    let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    // The kubelet resolves the path in a volume that the container can write to. It checks links
    // again when it opens the path.
    validate_descending_path(sub_path, &list.child("subPath"), errors);
    if expression.is_empty() {
        return;
    }
    // Both give the path below the volume, and neither has precedence.
    if !sub_path.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(&at.child("subPathExpr"), expression, detail);
    }
    validate_descending_path(expression, &list.child("subPathExpr"), errors);
}

fn validate_propagation(mount: &Value, container: &Value, list: &Path<'_>, errors: &mut Errors) {
    let propagation = opt_text(mount, "mountPropagation");
    if let Some(value) = propagation {
        let at = list.child("mountPropagation");
        if !PROPAGATIONS.contains(&value) {
            errors.not_supported(&at, value, &PROPAGATIONS);
        }
        // Mounts of the container become visible on the host and in all pods that share the volume.
        let is_privileged = flag(get(container, "securityContext"), "privileged");
        if value == "Bidirectional" && !is_privileged {
            let detail =
                "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&at, detail);
        }
    }
    let at = list.child("recursiveReadOnly");
    match opt_text(mount, "recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            // The recursive form extends a read-only mount to those below it.
            if !flag(mount, "readOnly") {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            // A mount that is added later, by propagation, would not be read-only.
            if propagation.is_some_and(|value| value != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&at, detail);
            }
        }
        Some(other) => errors.not_supported(&at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}
